"""Protobuf values: a message of one type each, plain or in Confluent's wire format, which names schema and message
before the message.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.json_format import Error as JsonError
from google.protobuf.message import DecodeError

from bmq_spark.errors import ConfigurationError
from bmq_spark.values.by_schema_id import BySchemaId
from bmq_spark.values.decoded import Unfit, joined, reason
from bmq_spark.values.made_values import SLICE_VALUES, width
from bmq_spark.values.protobuf_columns import refused_among
from bmq_spark.values.protobuf_fields import has_others, is_within, reads_alike
from bmq_spark.values.protobuf_files import compiled, messages_of, read_protobuf_schema
from bmq_spark.values.protobuf_messages import MessageType, that_hold_together
from bmq_spark.values.protobuf_writers import OtherVersion, as_wide, other_version
from bmq_spark.values.registered import RegisteredDecoder, with_kept
from bmq_spark.values.registry import REMEMBERED, RegisteredSchema, Registry, schema_id
from bmq_spark.values.schema_files import SchemaFile

INDEXES: Final = 32
"""Levels of messages within messages that the wire format may name."""


@dataclass(frozen=True, eq=False)
class ProtobufDecoder(RegisteredDecoder):
    """`descriptors` is a serialized FileDescriptorSet, `message` a full name in it. With a registry values are in the
    wire format. See RegisteredDecoder for the others.
    """

    descriptors: bytes
    message: str
    registry: Registry | None = None
    version: int | None = None
    kept: pa.DataType | None = None

    @property
    def arrow_type(self) -> pa.DataType:
        """A struct of the message's fields, as wide as the table has them, and of those that are kept."""
        return self._arrow_type

    @property
    def own_type(self) -> pa.DataType:
        """A struct of the message's fields alone."""
        return self._messages.columns[0]

    def reads_as(self, other: RegisteredDecoder) -> bool:
        """Whether both are of the same message of the same schema."""
        return (
            isinstance(other, ProtobufDecoder)
            and other.message == self.message
            and other.descriptors == self.descriptors
        )

    def loses_by(self, newer: RegisteredDecoder) -> bool:
        """Whether it reads fields or symbols of records that the newer one would not, and all that that one reads: a
        parser knows its own alone.
        """
        assert isinstance(newer, ProtobufDecoder)
        ours, theirs = self._messages.descriptor, newer._messages.descriptor
        return is_within(theirs, ours) and not is_within(ours, theirs)

    def leaves_out(self, number: int) -> bool:
        """Whether messages of the schema with that id have fields that become no column. Raises RegistryUnavailable."""
        try:
            return self.version is not None and self._others(number)
        except Unfit:
            return False

    def array(self, objects: list[Any]) -> pa.Array:
        """The messages as an array of `arrow_type`. Raises what ARROW_REFUSES names."""
        found: dict[OtherVersion | None, list[int]] = {}
        for position, read in enumerate(objects):
            found.setdefault(read[0] if isinstance(read, tuple) else None, []).append(position)
        try:
            if len(found) <= 1 and None in found:
                return self._own_array(objects)
            arrays = [
                self._own_array([objects[at] for at in positions])
                if version is None
                else version.array([objects[at][1] for at in positions])
                for version, positions in found.items()
            ]
        except JsonError as error:
            raise ValueError(str(error)) from error
        order = list(chain.from_iterable(found.values()))
        places = pa.array(sorted(range(len(order)), key=order.__getitem__), pa.int64())
        return joined(arrays, self.arrow_type).take(places)

    def refused(self, objects: list[Any]) -> Iterator[tuple[int, Exception]]:
        """As `RecordDecoder.refused`, of the messages of each version by themselves."""
        found: dict[OtherVersion | None, list[int]] = {}
        for position, read in enumerate(objects):
            if read is not None:
                found.setdefault(read[0] if isinstance(read, tuple) else None, []).append(position)
        for version, positions in found.items():
            if version is None:
                refused = refused_among(self._messages.descriptor, [objects[at] for at in positions])
            else:
                refused = version.refused([objects[at][1] for at in positions])
            for at, error in refused:
                yield positions[at], error

    def _own_array(self, messages: list[Any]) -> pa.Array:
        array = self._messages.columns[1](messages)
        return array if array.type == self.arrow_type else array.cast(self.arrow_type)

    def parse(self, values: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
        """A message for each value, None for null and for those that do not fit: their positions with reasons. It may
        stop before the end where it has made much. Raises RegistryUnavailable.
        """
        each = width(self.arrow_type)
        made = 0
        objects: list[Any] = []
        unfit: dict[int, str] = {}
        for position, value in enumerate(values):
            if made > SLICE_VALUES:
                break
            made += each
            if value is None:
                objects.append(None)
                continue
            try:
                start, version = (0, None) if self.registry is None else self._start(value)
                message, items = (self._messages if version is None else version.messages).read(value, start)
                made += items
                objects.append(message if version is None else (version, message))
            except Unfit as error:
                objects.append(None)
                unfit[position] = reason(error)
            except (DecodeError, ValueError, RecursionError) as error:
                objects.append(None)
                unfit[position] = f"not a Protobuf message {self.message}: {reason(error)}"
        return objects, unfit

    def _start(self, value: bytes) -> tuple[int, OtherVersion | None]:
        """Where the message begins in a value of the wire format, and its version where that says other things than
        the columns. Raises Unfit, RegistryUnavailable.
        """
        number = schema_id(value)
        indexes, start = message_indexes(value)
        written = self._by_id(number)
        held = written.names.get(indexes)
        if held != self.message:
            raise Unfit(f"holds {held or f'no message of schema id {number}'}, not {self.message}")
        return start, written.version

    def _written(self, number: int, registered: RegisteredSchema) -> "_Written":
        """Raises ConfigurationError, SchemaUnknown, RegistryUnavailable, Unfit."""
        if not self._may_have_message(registered):
            return _Written({}, None)
        try:
            descriptors = self._registered(number, registered)
            names = messages_of(descriptors)
        except (RecursionError, DecodeError) as error:
            raise Unfit(f"schema id {number}: {reason(error)}") from error
        is_ours = number == self.version or self.message not in names.values()
        try:
            return _Written(names, None if is_ours else self._other(descriptors))
        except (RecursionError, ValueError) as error:
            raise Unfit(f"schema id {number}: {reason(error)}") from error

    def _other(self, descriptors: FileDescriptorSet) -> OtherVersion | None:
        """None where it says what the columns do, or where it cannot be told, since the schema is only good for protoc.
        Raises ValueError, RecursionError where it cannot be columns.
        """
        messages, reader = MessageType(that_hold_together(descriptors), self.message), self._messages.descriptor
        try:
            if reads_alike(messages.descriptor, reader, self.arrow_type):
                return None
        except (TypeError, ValueError, KeyError, RecursionError, DecodeError):
            return None
        return other_version(messages, reader, self.arrow_type)

    def _has_others(self, number: int, registered: RegisteredSchema) -> bool:
        """Whether its message has fields that become no column; false where the schema is only good for protoc, which
        takes more than descriptors do. Raises as _written does.
        """
        if not self._may_have_message(registered):
            return False
        try:
            descriptors = self._registered(number, registered)
            if self.message not in messages_of(descriptors).values():
                return False
            writer = MessageType(that_hold_together(descriptors), self.message).descriptor
            return has_others(writer, self._messages.descriptor, self.arrow_type)
        except (TypeError, ValueError, KeyError, RecursionError, DecodeError):
            return False

    def _may_have_message(self, registered: RegisteredSchema) -> bool:
        """Whether its text has the message's own name. protoc costs a fifth of a second, and anybody's record may name
        any schema of a registry.
        """
        own = self.message.rpartition(".")[2]
        return re.search(rf"\b{re.escape(own)}\b", registered.text) is not None

    def _registered(self, number: int, registered: RegisteredSchema) -> FileDescriptorSet:
        assert self.registry is not None
        return registered_descriptors(self.registry, registered, f"{self.registry.url} id {number}")

    def _knows(self, number: int) -> bool:
        return self._by_id.learnt(number)

    @cached_property
    def _messages(self) -> MessageType:
        return MessageType(FileDescriptorSet.FromString(self.descriptors), self.message)

    @cached_property
    def _arrow_type(self) -> pa.DataType:
        return with_kept(as_wide(self.own_type, self.kept), self.kept)

    @cached_property
    def _by_id(self) -> BySchemaId["_Written"]:
        assert self.registry is not None
        return BySchemaId(
            self.registry, kind="PROTOBUF", learn=self._written, version=self.version, unknown=self._unknown
        )

    @cached_property
    def _others(self) -> BySchemaId[bool]:
        """Apart from what records are read by: what counts them is to cost none of them."""
        assert self.registry is not None
        return BySchemaId(
            self.registry, kind="PROTOBUF", learn=self._has_others, version=self.version, unknown=self._unknown
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"descriptors": self.descriptors, "message": self.message, **self._sent()}


@dataclass(frozen=True, slots=True)
class _Written:
    """What a schema that records name says of them."""

    names: Mapping[tuple[int, ...], str]
    """Messages' full names, by the indexes of the wire format."""
    version: OtherVersion | None
    """None where the decoder's message is read by the decoder's own schema."""


def protobuf_decoder(
    descriptors: bytes,
    message: str,
    registry: Registry | None,
    name: str,
    *,
    version: int | None = None,
    kept: pa.DataType | None = None,
) -> ProtobufDecoder:
    """Raises ConfigurationError where the message cannot be columns or the descriptors do not hold together."""
    made = ProtobufDecoder(descriptors, message, registry, version, kept)
    try:
        assert made.arrow_type
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise ConfigurationError(
            f"schema {name}: {reason(error)}: give a message with fields, and all files that it needs"
        ) from error
    return made


def registered_protobuf(
    registry: Registry, registered: RegisteredSchema, message: str | None, name: str
) -> tuple[bytes, str]:
    """As protobuf_files.read_protobuf_schema, of a registry's schema. Raises ConfigurationError, ProtocFailed,
    SchemaUnknown, RegistryUnavailable.
    """
    descriptors = registered_descriptors(registry, registered, name).SerializeToString()
    return read_protobuf_schema(SchemaFile(name=name, content=descriptors), message)


@lru_cache(maxsize=REMEMBERED)
def registered_descriptors(registry: Registry, registered: RegisteredSchema, name: str) -> FileDescriptorSet:
    """Compiled once in a process, for each of Spark's tasks has a decoder of its own; not to be changed. Raises
    ConfigurationError, ProtocFailed, SchemaUnknown, RegistryUnavailable.
    """
    texts = dict(registry.referred(registered))
    main = "registered.proto"
    while main in texts:
        main = "_" + main
    try:
        files = {path: text.encode() for path, text in {**texts, main: registered.text}.items()}
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"schema {name}: half a character of two in its text: mend the schema, or give a descriptor set"
        ) from error
    return compiled(files, main, name)


def message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of the schema a value of the wire format holds, and where it begins. Raises Unfit."""
    count, at = _varint(value, 5)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES:
        raise Unfit(f"not in the registry's wire format: {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _varint(value, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and where the next byte is."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(value):
            break
        octet = value[at]
        at += 1
        number |= (octet & 0x7F) << shift
        if not octet & 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise Unfit("not in the registry's wire format: its message indexes are cut off")
