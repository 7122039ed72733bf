"""Whether a sidecar takes messages, as those who watch it are told."""

from collections.abc import Mapping
from heapq import nsmallest
from typing import Any, Final

from bmq_databus.producing.writing import Writing
from bmq_databus.requests.admission import Admission

OK: Final = "ok"
TROUBLES_TOLD: Final = 10
"""So many channels are told, and how many more there are."""


def told(field: str, troubles: Mapping[str, str]) -> dict[str, Any]:
    """The first of them by name, and how many more there are."""
    shown = {name: troubles[name] for name in nsmallest(TROUBLES_TOLD, troubles)}
    more = len(troubles) - len(shown)
    return {field: shown, f"{field}More": more} if more else {field: shown}


class Readiness:
    """That of one sidecar."""

    def __init__(self, writing: Writing, admission: Admission) -> None:
        self._writing = writing
        self._admission = admission

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is taken."""
        return self._admission.is_ending

    def status(self) -> str:
        """OK, or why not. A cluster that is away changes nothing: that brings none back."""
        if self._admission.is_ending:
            return "ending"
        if self._admission.knows_nothing:
            return "no channels are known yet"
        troubles = self._writing.troubles()
        accepting = [
            one.name for one in self._writing.channels.values() if one.enabled and one.acknowledgement == "accepted"
        ]
        if accepting and all(name in troubles for name in accepting):
            return "no spool takes anything"
        return OK
