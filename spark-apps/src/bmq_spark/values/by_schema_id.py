"""What a decoder has learnt of schema ids in the wire format: how records of one are read, or why they cannot be."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from bmq_spark.errors import ConfigurationError
from bmq_spark.values.decoded import Unfit, reason
from bmq_spark.values.registry import RegisteredSchema, Registry, SchemaUnknown

IDS_MAX: Final = 1000
"""How many are remembered."""
UNKNOWN_MAX: Final = 1000
"""Asking for one takes milliseconds, and values that are not in the wire format have as many ids as there are values.
After so many that the registry did not know,"""
NEAR: Final = 1_000_000
"""it is asked only for ids up to so far above the highest that it has known: registries count their ids."""
LEARNT_MAX: Final = 100_000
"""Ids that are known to have been learnt, whatever is remembered of them."""

T = TypeVar("T")


class BySchemaId(Generic[T]):
    """What `learn` makes of the registry's schemas of one `kind`, each asked for once. It raises Unfit or
    ConfigurationError for what is no use. `version` is an id that the registry is known to have; 0 or None: none is.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        kind: str,
        learn: Callable[[int, RegisteredSchema], T],
        version: int | None,
    ) -> None:
        self._registry = registry
        self._kind = kind
        self._learn = learn
        self._known: dict[int, tuple[T | None, str]] = {}
        self._learnt: set[int] = set()
        self._unknown = 0
        self._highest = version or 0

    def __call__(self, number: int) -> T:
        """Raises Unfit, RegistryUnavailable."""
        found = self._known.get(number)
        if found is None:
            if len(self._known) >= IDS_MAX:
                self._known.clear()
            found = self._known[number] = self._asked(number)
        made, why = found
        if made is None:
            raise Unfit(why)
        return made

    def learnt(self, number: int) -> bool:
        """Whether it was asked for, and records of it can be read."""
        return number in self._learnt

    def _asked(self, number: int) -> tuple[T | None, str]:
        if self._unknown >= UNKNOWN_MAX and number > self._highest + NEAR:
            return (
                None,
                f"schema id {number}: the registry was not asked: it did not know {self._unknown} others, and none "
                f"above {self._highest}",
            )
        try:
            registered = self._registry.schema(number)
            self._highest = max(self._highest, number)
            if registered.kind != self._kind:
                return None, f"schema id {number} is {registered.kind} in the registry, not {self._kind}"
            made = self._learn(number, registered)
            if len(self._learnt) < LEARNT_MAX:
                self._learnt.add(number)
            return made, ""
        except (SchemaUnknown, ConfigurationError, Unfit) as error:
            self._unknown += isinstance(error, SchemaUnknown)
            return None, reason(error)
