"""What a Protobuf message is as columns, and how many parsed messages become them, field by field.

Fields that know whether they were set (optional, oneof, messages, all of proto2) are null where they were not; others
have their default. Enums are their names; a number without one does not fit. Messages without an end (within
themselves, Struct, Value) are JSON text.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToJson

from bmq_spark.values.ddl import UTC_TIMESTAMP
from bmq_spark.values.decoded import refused_by
from bmq_spark.values.message_methods import has_field
from bmq_spark.values.protobuf_fields import is_map, symbols_of

Build = Callable[[Sequence[Any]], pa.Array]
"""From values or messages, None where there is none, to their column."""
UINT64: Final = pa.decimal128(20, 0)
_SCALARS: Final[dict[int, pa.DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: UINT64,
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_ENDLESS: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})


COLUMNS_MAX: Final = 20_000
"""Thirty messages that each have the one before twice would be a billion columns, and so would twelve that all have
each other."""
NAME_CHARACTERS: Final = 255
"""A byte of a record may be an enum's symbol, and four bytes a message's field with its name in JSON text."""


def columns_of_message(message: Descriptor) -> tuple[pa.DataType, Build]:
    """A struct of the message's fields. Raises ValueError for one without fields, for too many columns, and for names
    that are too long.
    """
    if not message.fields:
        raise ValueError(f"message {message.full_name} has no fields")
    _require_few(message)
    return _message(message, ())


def refused_among(message: Descriptor, messages: list[Any]) -> Iterator[tuple[int, Exception]]:
    """The positions of the messages, of which all are there, that a field's column does not hold, and why."""
    for field in message.fields:
        yield from refused_by(partial(built_by, _field(field, (message.full_name,))[1]), messages)


def built_by(build: Build, messages: list[Any]) -> pa.Array:
    """The column. Raises what ARROW_REFUSES names, also for what cannot be written as JSON."""
    try:
        return build(messages)
    except JsonError as error:
        raise ValueError(str(error)) from error


def _require_few(message: Descriptor) -> None:
    """Counts every message where it is used, as often as `_message` would make it: how many columns one is depends on
    what it is within. Raises ValueError for too many, when so many are counted, and for a name that is too long.
    """
    count, waiting = 1, [(message, frozenset[str]())]
    known: set[str] = set()
    while waiting:
        each, within = waiting.pop()
        if each.full_name in within or each.full_name in _ENDLESS:
            continue
        count += len(each.fields)
        if count > COLUMNS_MAX:
            raise ValueError(f"message {message.full_name} is more than {COLUMNS_MAX} columns")
        if each.full_name not in known:
            known.add(each.full_name)
            _require_short(field.name for field in each.fields)
        for enum in (field.enum_type for field in each.fields if field.enum_type is not None):
            if enum.full_name not in known:
                known.add(enum.full_name)
                _require_short(value.name for value in enum.values)
        inner = within | {each.full_name}
        waiting += [(field.message_type, inner) for field in each.fields if field.message_type is not None]


def _require_short(names: Iterable[str]) -> None:
    """Raises ValueError."""
    for name in names:
        if len(name) > NAME_CHARACTERS:
            raise ValueError(
                f"{name[:20]}… has {len(name)} characters: a field or symbol has {NAME_CHARACTERS} at most"
            )


def _message(message: Descriptor, within: tuple[str, ...]) -> tuple[pa.DataType, Build]:
    name = message.full_name
    if name == "google.protobuf.Timestamp":
        return UTC_TIMESTAMP, lambda values: pa.array(
            [None if v is None else v.seconds * 1_000_000 + v.nanos // 1000 for v in values], UTC_TIMESTAMP
        )
    if name == "google.protobuf.Duration":
        return pa.int64(), lambda values: pa.array(
            [None if v is None else v.seconds * 1_000_000 + v.nanos // 1000 for v in values], pa.int64()
        )
    if name in _WRAPPERS:
        arrow_type, build = _scalar(message.fields_by_name["value"])
        return arrow_type, lambda values: build([None if v is None else v.value for v in values])
    if name in within or name in _ENDLESS:
        return pa.string(), lambda values: pa.array([None if v is None else _json(v) for v in values], pa.string())
    if not message.fields:
        return pa.bool_(), lambda values: pa.array([None if v is None else True for v in values], pa.bool_())
    return _struct(message, (*within, name))


def _struct(message: Descriptor, within: tuple[str, ...]) -> tuple[pa.DataType, Build]:
    parts = [(field.name, *_field(field, within)) for field in message.fields]
    struct = pa.struct([(name, arrow_type) for name, arrow_type, _ in parts])
    builders = [build for _, _, build in parts]

    def build(messages: Sequence[Any]) -> pa.Array:
        present = [each for each in messages if each is not None]
        array = pa.StructArray.from_arrays([make(present) for make in builders], fields=list(struct))
        if len(present) == len(messages):
            return array
        positions = accumulate((each is not None for each in messages), initial=0)
        return array.take(
            pa.array([None if each is None else at for each, at in zip(messages, positions, strict=False)], pa.int64())
        )

    return struct, build


def _field(field: FieldDescriptor, within: tuple[str, ...]) -> tuple[pa.DataType, Build]:
    """The column of one field, built from the messages that hold it."""
    name, get = field.name, attrgetter(field.name)
    if is_map(field):
        return _map(field, get, within)
    arrow_type, build = _single(field, within)
    if field.is_repeated:

        def build_lists(messages: Sequence[Any]) -> pa.Array:
            lists = list(map(get, messages))
            offsets = pa.array(list(accumulate(map(len, lists), initial=0)), pa.int32())
            return pa.ListArray.from_arrays(offsets, build(list(chain.from_iterable(lists))), type=pa.list_(arrow_type))

        return pa.list_(arrow_type), build_lists
    if field.has_presence:
        return arrow_type, lambda messages: build([get(each) if has_field(each, name) else None for each in messages])
    return arrow_type, lambda messages: build(list(map(get, messages)))


def _map(field: FieldDescriptor, get: Callable[[Any], Any], within: tuple[str, ...]) -> tuple[pa.DataType, Build]:
    entry = field.message_type.fields_by_name
    key_type, build_keys = _single(entry["key"], within)
    item_type, build_items = _single(entry["value"], within)
    arrow_type = pa.map_(key_type, item_type)

    def build(messages: Sequence[Any]) -> pa.Array:
        # By key: Protobuf's own order differs from process to process, and a batch that runs again has to write the
        # same bytes.
        maps = [sorted(get(each).items(), key=itemgetter(0)) for each in messages]
        offsets = pa.array(list(accumulate(map(len, maps), initial=0)), pa.int32())
        keys, items = [key for each in maps for key, _ in each], [item for each in maps for _, item in each]
        return pa.MapArray.from_arrays(offsets, build_keys(keys), build_items(items), type=arrow_type)

    return arrow_type, build


def _single(field: FieldDescriptor, within: tuple[str, ...]) -> tuple[pa.DataType, Build]:
    return _message(field.message_type, within) if field.message_type is not None else _scalar(field)


def _scalar(field: FieldDescriptor) -> tuple[pa.DataType, Build]:
    if field.enum_type is not None:
        known = _names(field, symbols_of(field.enum_type))
        return pa.string(), lambda values: pa.array([None if v is None else known(v) for v in values], pa.string())
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = pa.string() if field.type == FieldDescriptor.TYPE_STRING else pa.binary()
        return text, lambda values: pa.array(values, text)
    arrow_type = _SCALARS[field.cpp_type]
    return arrow_type, lambda values: pa.array(values, arrow_type)


def _names(field: FieldDescriptor, names: Mapping[int, str]) -> Callable[[int], str]:
    def name_of(number: int) -> str:
        try:
            return names[number]
        except KeyError:
            raise ValueError(f"field {field.name}: {field.enum_type.full_name} has no value {number}") from None

    return name_of


def _json(message: Any) -> str:
    """What an Any in it holds is looked for in the schema first, then among Protobuf's own types. Raises ValueError
    where it cannot be said, and what Protobuf raises.
    """
    described = type(message).DESCRIPTOR
    try:
        try:
            return _text(message, described.file.pool)
        except TypeError:
            return _text(message, None)
    except RecursionError:
        raise ValueError(f"a {described.full_name} within itself is nested too deep to be written as JSON") from None
    except AttributeError as error:  # a field is called as what Protobuf asks of each message
        raise ValueError(f"a {described.full_name} within itself cannot be written as JSON: {error}") from None


def _text(message: Any, pool: DescriptorPool | None) -> str:
    return str(
        MessageToJson(message, indent=None, preserving_proto_field_name=True, sort_keys=True, descriptor_pool=pool)
    )
