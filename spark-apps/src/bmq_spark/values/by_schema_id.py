"""What a decoder has learnt of schema ids in the wire format: how records of one are read, or why they cannot be."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from bmq_spark.errors import ConfigurationError
from bmq_spark.values.decoded import Unfit, reason
from bmq_spark.values.registry import RegisteredSchema, Registry, SchemaUnknown
from bmq_spark.values.unknown_ids import UnknownIds

IDS_MAX: Final = 1000
"""How many are remembered."""
LEARNT_MAX: Final = 100_000
"""Ids that are known to have been learnt, whatever is remembered of them."""

T = TypeVar("T")


class BySchemaId(Generic[T]):
    """What `learn` makes of the registry's schemas of one `kind`, each asked for once. It raises Unfit or
    ConfigurationError for what is no use. `version` is an id that the registry is known to have; 0 or None: none is.
    `unknown`: the ids that it is known not to have.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        kind: str,
        learn: Callable[[int, RegisteredSchema], T],
        version: int | None,
        unknown: UnknownIds,
    ) -> None:
        self._registry = registry
        self._kind = kind
        self._learn = learn
        self._known: dict[int, tuple[T | None, str]] = {}
        self._learnt: set[int] = set()
        self._unknown = unknown
        unknown.has(version or 0)

    def __call__(self, number: int) -> T:
        """Raises Unfit, RegistryUnavailable, and what `learn` raises where no record is to blame."""
        found = self._known.get(number)
        if found is None:
            if why := self._unknown.why_not(number):
                raise Unfit(why)
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

    def _schema(self, number: int) -> RegisteredSchema:
        """Raises SchemaUnknown, RegistryUnavailable."""
        try:
            return self._registry.schema(number)
        except SchemaUnknown:
            if not self._unknown.is_worth_another():
                raise
        return self._registry.schema(number)

    def _asked(self, number: int) -> tuple[T | None, str]:
        try:
            registered = self._schema(number)
        except SchemaUnknown as error:
            self._unknown.add(number, why := reason(error))
            return None, why
        self._unknown.has(number)
        try:
            if registered.kind != self._kind:
                return None, f"schema id {number} is {registered.kind} in the registry, not {self._kind}"
            made = self._learn(number, registered)
            if len(self._learnt) < LEARNT_MAX:
                self._learnt.add(number)
            return made, ""
        except (SchemaUnknown, ConfigurationError, Unfit) as error:
            return None, reason(error)
