"""Fields of a status that the API server did not keep, as the CRD that it has does not know them: an older one than the
operator's. What waits to read them back would write them for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bmq_operator.applied import covers
from bmq_operator.workqueue import Key

AGAIN_S: Final = 60.0
"""How soon it is tried again whether they are kept by now."""


def lost_fields(before: Mapping[str, Any], written: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """Which of a status's fields were written to say something new, and are not in what came back."""
    return [
        name
        for name, value in written.items()
        if value and before.get(name) != value and not covers(kept.get(name), value)
    ]


@dataclass(slots=True)
class Pruned:
    """Which resources' fields were lost lately."""

    _lost: dict[Key, tuple[float, list[str]]] = field(default_factory=dict)

    def note(self, key: Key, fields: list[str], *, now_s: float) -> None:
        """They did not come back."""
        self._lost[key] = (now_s, fields)

    def lately(self, key: Key, *, now_s: float) -> list[str]:
        """Those that need not be tried again yet."""
        since_s, fields = self._lost.get(key, (0.0, []))
        return fields if fields and now_s - since_s < AGAIN_S else []

    def forget(self, key: Key) -> None:
        """It is gone, or its fields are kept."""
        self._lost.pop(key, None)
