"""Protobuf values: a message of one type each, plain or in Confluent's wire format, which names schema and message
before the message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from bmq_spark.errors import ConfigurationError
from bmq_spark.values.by_schema_id import BySchemaId
from bmq_spark.values.decoded import Unfit, reason
from bmq_spark.values.made_values import SLICE_VALUES, are_narrow, may_be_many, require_few, width
from bmq_spark.values.protobuf_columns import Build, columns_of_message
from bmq_spark.values.protobuf_counting import Shape, made_by_bytes, made_by_message, shape_of, widest_part
from bmq_spark.values.protobuf_fields import has_others, is_within
from bmq_spark.values.protobuf_files import compiled, messages_of, read_protobuf_schema
from bmq_spark.values.protobuf_fitting import Check, check_of
from bmq_spark.values.registered import RegisteredDecoder
from bmq_spark.values.registry import RegisteredSchema, Registry, schema_id
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
        """A struct of the message's fields."""
        return self._columns[0]

    @property
    def own_type(self) -> pa.DataType:
        """A struct of the message's fields alone."""
        return self.arrow_type

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
        ours, theirs = self._class.DESCRIPTOR, newer._class.DESCRIPTOR
        return is_within(theirs, ours) and not is_within(ours, theirs)

    def leaves_out(self, number: int) -> bool:
        """Whether messages of the schema with that id have fields that become no column. Raises RegistryUnavailable."""
        try:
            return self.version is not None and self._others(number)
        except Unfit:
            return False

    def array(self, objects: list[Any]) -> pa.Array:
        """The messages as an array of `arrow_type`. Raises what ARROW_REFUSES names."""
        try:
            return self._columns[1](objects)
        except JsonError as error:
            raise ValueError(str(error)) from error

    def parse(self, values: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
        """A message for each value, None for null and for those that do not fit: their positions with reasons. It may
        stop before the end where it has made much. Raises RegistryUnavailable.
        """
        parse, check, shape = self._class.FromString, self._check, self._shape
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
                start = 0 if self.registry is None else self._start(value)
                if shape and may_be_many(self._widest, len(value)):
                    self._require_few(value, start)
                message = parse(value[start:] if start else value)
                check(message)
                if shape:
                    made += made_by_message(message, shape)
                objects.append(message)
            except Unfit as error:
                objects.append(None)
                unfit[position] = reason(error)
            except (DecodeError, ValueError, RecursionError) as error:
                objects.append(None)
                unfit[position] = f"not a Protobuf message {self.message}: {reason(error)}"
        return objects, unfit

    def _require_few(self, value: bytes, start: int) -> None:
        """Raises Unfit, before the parser takes room for what is in the message."""
        try:
            values = made_by_bytes(value, start, self._shape)
        except IndexError as error:
            raise Unfit(f"not a Protobuf message {self.message}: it is cut off, or its parts are") from error
        require_few(values, len(value))

    def _start(self, value: bytes) -> int:
        """Where the message begins in a value of the wire format. Raises Unfit, RegistryUnavailable."""
        number = schema_id(value)
        indexes, start = message_indexes(value)
        held = self._by_id(number).get(indexes)
        if held != self.message:
            raise Unfit(f"holds {held or f'no message of schema id {number}'}, not {self.message}")
        return start

    def _messages(self, number: int, registered: RegisteredSchema) -> dict[tuple[int, ...], str]:
        """By the indexes of the wire format. Raises ConfigurationError, SchemaUnknown, RegistryUnavailable, Unfit."""
        try:
            return messages_of(self._registered(number, registered))
        except (RecursionError, DecodeError) as error:
            raise Unfit(f"schema id {number}: {reason(error)}") from error

    def _has_others(self, number: int, registered: RegisteredSchema) -> bool:
        """Whether its message has fields that become no column; false where the schema is only good for protoc, which
        takes more than descriptors do (two names that are one in JSON). Raises as _messages does.
        """
        try:
            descriptors = self._registered(number, registered)
            if self.message not in messages_of(descriptors).values():
                return False
            return has_others(_class_of(descriptors, self.message).DESCRIPTOR, self._class.DESCRIPTOR)
        except (TypeError, ValueError, KeyError, RecursionError, DecodeError):
            return False

    def _registered(self, number: int, registered: RegisteredSchema) -> FileDescriptorSet:
        assert self.registry is not None
        return registered_descriptors(self.registry, registered, f"{self.registry.url} id {number}")

    def _knows(self, number: int) -> bool:
        return self._by_id.learnt(number)

    @cached_property
    def _class(self) -> Any:
        return _class_of(FileDescriptorSet.FromString(self.descriptors), self.message)

    @cached_property
    def _columns(self) -> tuple[pa.DataType, Build]:
        return columns_of_message(self._class.DESCRIPTOR)

    @cached_property
    def _shape(self) -> Shape:
        """Empty where items are so narrow that they never become too many."""
        shape = shape_of(self._class.DESCRIPTOR, self.arrow_type)
        return {} if are_narrow(widest_part(shape)) else shape

    @cached_property
    def _widest(self) -> int:
        return widest_part(self._shape)

    @cached_property
    def _check(self) -> Check:
        return check_of(self._class.DESCRIPTOR)

    @cached_property
    def _by_id(self) -> BySchemaId[dict[tuple[int, ...], str]]:
        assert self.registry is not None
        return BySchemaId(self.registry, kind="PROTOBUF", learn=self._messages)

    @cached_property
    def _others(self) -> BySchemaId[bool]:
        """Apart from what records are read by: what counts them is to cost none of them."""
        assert self.registry is not None
        return BySchemaId(self.registry, kind="PROTOBUF", learn=self._has_others)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "descriptors": self.descriptors,
            "message": self.message,
            "registry": self.registry,
            "version": self.version,
            "kept": self.kept,
        }


def _class_of(descriptors: FileDescriptorSet, message: str) -> Any:
    pool = DescriptorPool()
    for file in descriptors.file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(message))


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
    """As protobuf_files.read_protobuf_schema, of a registry's schema. Raises ConfigurationError, SchemaUnknown,
    RegistryUnavailable.
    """
    descriptors = registered_descriptors(registry, registered, name).SerializeToString()
    return read_protobuf_schema(SchemaFile(name=name, content=descriptors), message)


def registered_descriptors(registry: Registry, registered: RegisteredSchema, name: str) -> FileDescriptorSet:
    """Raises ConfigurationError, SchemaUnknown, RegistryUnavailable."""
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
