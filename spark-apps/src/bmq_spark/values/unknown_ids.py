"""Ids of schemas that a registry does not have: what the records of one batch asked about them, and which are not asked
for.

Asking takes milliseconds, and values that are not in the wire format have as many ids as there are values. A record's
schema was registered before the record was written: so what the registry says while a batch is read holds for all of
its records, in whichever task. Of a later batch it says nothing, for the registry gains schemas.
"""

from functools import lru_cache
from typing import Final

from bmq_spark.values.registry import Registry

FEW: Final = 20
"""After so many unknown ids of a batch the registry is asked for the highest that it has given: it counts them. Each of
these few it is asked for twice: of several replicas one may know a new schema a little later than another."""
NEARER_THAN: Final = 1000
"""A registry that does not tell is asked for any id until it did not know so many,"""
NEAR: Final = 1_000_000
"""then for ids up to so far above the highest that it has known."""
MOST: Final = 10_000
"""Unknown ids of a batch that one process asks for: below the highest there may be gaps, of ids that were taken over
from another registry or deleted for good."""
KNOWN_MAX: Final = 100_000
"""Ids that the registry is known to have; of more, those that come later are asked for as unknown ones are."""
BATCHES: Final = 4
"""Batches that a process remembers: a worker is given tasks of several, where streams share a session."""


class UnknownIds:
    """What is found out about one registry's while the records of one batch are read. `known`: ids that it is known to
    have, of all batches; new ones are added.
    """

    def __init__(self, registry: Registry, known: set[int]) -> None:
        self._registry = registry
        self._unknown: dict[int, str] = {}
        self._known = known
        self._highest_known = max(known, default=0)
        self._highest: int | None = None
        self._has_asked = False
        self._has_paused = False

    def why_not(self, number: int) -> str:
        """Why records of that id do not fit, or the registry is not asked for it; empty: it is worth asking."""
        if number in self._known:
            return ""
        if number in self._unknown:
            return self._unknown[number]
        count = len(self._unknown)
        if count < FEW:
            return ""
        if not self._has_asked:
            self._has_asked = True
            self._ask()
        if self._highest is not None and number > self._highest:
            why = f"the highest that it has given is {self._highest}"
        elif self._highest is None and count >= NEARER_THAN and number > self._highest_known + NEAR:
            why = f"it did not know {count} others, and none above {self._highest_known}"
        elif count >= MOST:
            why = f"there are {count} ids in this batch that it does not know"
        else:
            return ""
        return f"schema id {number}: the registry was not asked: {why}"

    def is_worth_another(self) -> bool:
        """Whether to ask once more for one that the registry has just said not to have. Waits before the first of a
        batch.
        """
        if len(self._unknown) >= FEW:
            return False
        if not self._has_paused:
            self._has_paused = True
            self._registry.pause()
        return True

    def add(self, number: int, why: str) -> None:
        """The registry does not have it, or none that can be read."""
        self._unknown[number] = why

    def has(self, number: int) -> None:
        """The registry has it."""
        if number and len(self._known) < KNOWN_MAX:
            self._known.add(number)
        self._highest_known = max(self._highest_known, number)

    def _ask(self) -> None:
        """For the highest id, which a registry tells beside one that it has."""
        if not self._highest_known:
            self._highest_known = self._registry.some_id() or 0
        if self._highest_known:
            told = self._registry.highest_id(self._highest_known)
            self._highest = None if told is None or told < self._highest_known else told


@lru_cache(maxsize=BATCHES)
def unknown_ids(registry: Registry, _batch: str) -> UnknownIds:
    """Those of a batch, which is called so, in this process."""
    return UnknownIds(registry, _known_ids(registry))


@lru_cache(maxsize=BATCHES)
def _known_ids(_registry: Registry) -> set[int]:
    return set()
