"""Decoders of values that name their writer's schema, whose columns are those of a subject's newest version in a
registry.

They tell by which schemas records were written, so that somebody can ask whether there is a newer version, and what a
writer has that becomes no column. Fields that a table has from an earlier version, and the newest has not, are read of
the records that have them.
"""

import secrets
from abc import abstractmethod
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bmq_spark.values.decoded import RecordDecoder
from bmq_spark.values.registry import Registry
from bmq_spark.values.unknown_ids import UnknownIds, unknown_ids

_PREFIX_BYTES: Final = 5


class RegisteredDecoder(RecordDecoder):
    """A decoder of the wire format, which begins with a zero byte and the schema's id."""

    registry: Registry | None
    """Where values are in the wire format."""
    version: int | None
    """The id of the version that the columns are of, 0 where the registry did not say; None: they are of a schema that
    was given, and stay."""
    kept: pa.DataType | None
    """The columns that the table has: a writer's field that is one of them is read, though the newest version has no
    such field."""

    batch: str = ""
    """What the batch is called whose records it reads: the driver sends it to the tasks of each batch anew. Empty: it
    was not sent."""

    @property
    @abstractmethod
    def own_type(self) -> pa.DataType:
        """The columns of the newest version alone."""

    @abstractmethod
    def reads_as(self, other: "RegisteredDecoder") -> bool:
        """Whether both are of the same schema."""

    def loses_by(self, newer: "RegisteredDecoder") -> bool:
        """Whether it reads what the newer one would not, and all that that one reads."""
        return False

    def refused_by(self, newer: "RegisteredDecoder") -> str:
        """Why the newer one would refuse records of the newest version that this one knows; empty: it would not."""
        return ""

    @abstractmethod
    def leaves_out(self, number: int) -> bool:
        """Whether records of the schema with that id have fields that become no column. Raises RegistryUnavailable."""

    @abstractmethod
    def _knows(self, number: int) -> bool:
        """Whether records of that id were met, and the registry had a schema for them."""

    @property
    def _unknown(self) -> UnknownIds:
        """What the batch's tasks know of ids that the registry does not have."""
        assert self.registry is not None
        return unknown_ids(self.registry, self.batch) if self.batch else UnknownIds(self.registry, set())

    def _sent(self) -> dict[str, Any]:
        """What every decoder's state has when it is sent to the tasks of a batch."""
        return {
            "registry": self.registry,
            "version": self.version,
            "kept": self.kept,
            "batch": self.batch or secrets.token_hex(8),
        }

    def writers(self, values: pa.Array) -> pa.Array:
        """The ids (int32) of the schemas of values that were decoded before; null where that is the newest version's,
        or one that the registry did not know.
        """
        begins = pc.binary_slice(values, 0, _PREFIX_BYTES).dictionary_encode()
        numbers = [begin and self._writer(begin) for begin in begins.dictionary.to_pylist()]
        return pa.array([number or None for number in numbers], pa.int32()).take(begins.indices)

    def _writer(self, begin: bytes) -> int | None:
        number = int.from_bytes(begin[1:], "big")
        told = len(begin) == _PREFIX_BYTES and begin[0] == 0 and number != self.version
        return number if told and self._knows(number) else None


def with_kept(own: pa.DataType, kept: pa.DataType | None) -> pa.DataType:
    """The type with those fields behind its own that only `kept` has, in the objects that both have."""
    if kept is None:
        return own
    if pa.types.is_struct(own) and pa.types.is_struct(kept):
        there = {field.name: field.type for field in kept}
        names = {field.name.lower() for field in own}
        return pa.struct(
            [
                *((field.name, with_kept(field.type, there.get(field.name))) for field in own),
                *((field.name, field.type) for field in kept if field.name.lower() not in names),
            ]
        )
    if pa.types.is_list(own) and pa.types.is_list(kept):
        return pa.list_(with_kept(own.value_type, kept.value_type))
    if pa.types.is_map(own) and pa.types.is_map(kept):
        return pa.map_(own.key_type, with_kept(own.item_type, kept.item_type))
    return own
