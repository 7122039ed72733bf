"""Messages of a writer's version as the columns of another one, by the names of fields: a number alone does not say
what was meant, since another version may have given it another kind, name or symbol.

What the writer meant is in the column of that name, where that holds it; else the record does not fit. A field whose
name is no column is left out, unless its number is a column of another name: then a record that has it does not fit.
A message that had no fields says none of those that it has now; one that has none now says whether it was set.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from bmq_spark.values.ddl import write_ddl
from bmq_spark.values.decoded import ARROW_REFUSES, refused_by
from bmq_spark.values.evolution import iceberg_rules
from bmq_spark.values.protobuf_columns import built_by, refused_among
from bmq_spark.values.protobuf_fields import symbols_of
from bmq_spark.values.protobuf_messages import MessageType

Fit = Callable[[pa.Array], pa.Array]
"""From the column that a writer's version makes to that of the table. It raises ValueError."""


@dataclass(frozen=True, eq=False, slots=True)
class OtherVersion:
    """A writer's version that says other things than the one that the columns are of."""

    messages: MessageType
    fit: Fit
    parts: Sequence[Fit]
    """Each raises what it does."""

    def array(self, found: list[Any]) -> pa.Array:
        """These messages as columns. Raises what ARROW_REFUSES names."""
        return self.fit(self.messages.columns[1](found))

    def refused(self, found: list[Any]) -> Iterator[tuple[int, Exception]]:
        """The positions of the messages, of which all are there, that cannot be columns, and why."""
        wrong = dict[int, Exception]()
        for position, error in refused_among(self.messages.descriptor, found):
            wrong.setdefault(position, error)
        yield from wrong.items()
        right = [position for position in range(len(found)) if position not in wrong]
        try:
            written = built_by(self.messages.columns[1], [found[position] for position in right])
        except ARROW_REFUSES:  # none of them alone is the reason
            return
        for part in self.parts:
            for at, error in refused_by(part, written):
                yield right[at], error


def other_version(messages: MessageType, reader: Descriptor, columns: pa.DataType) -> OtherVersion:
    """`columns` are the reader's, and those that the table has beside. Raises what `MessageType.columns` does."""
    parts, lost = _parts(messages.descriptor, reader, columns, messages.columns[0], "")
    return OtherVersion(messages, _whole(parts, lost, columns), [*parts, lost])


def as_wide(own: pa.DataType, kept: pa.DataType | None) -> pa.DataType:
    """The type with the numbers as wide as the table has them, in the fields that both have."""
    if kept is None:
        return own
    if pa.types.is_struct(own) and pa.types.is_struct(kept):
        there = {field.name: field.type for field in kept}
        return pa.struct([(field.name, as_wide(field.type, there.get(field.name))) for field in own])
    if pa.types.is_list(own) and pa.types.is_list(kept):
        return pa.list_(as_wide(own.value_type, kept.value_type))
    if pa.types.is_map(own) and pa.types.is_map(kept):
        return pa.map_(as_wide(own.key_type, kept.key_type), as_wide(own.item_type, kept.item_type))
    return own if pa.types.is_nested(own) or iceberg_rules(kept, own) != kept else kept


def _struct(writer: Descriptor, reader: Descriptor | None, want: pa.DataType, have: pa.DataType, path: str) -> Fit:
    return _whole(*_parts(writer, reader, want, have, path), want)


def _parts(
    writer: Descriptor, reader: Descriptor | None, want: pa.DataType, have: pa.DataType, path: str
) -> tuple[Sequence[Fit], Fit]:
    """What makes each of the fields of the columns, and what refuses a message that has something which becomes none:
    it gives the message as it is.
    """
    names = {field.name.lower() for field in want}
    lost = [
        (field, reader.fields_by_number[field.number].name)
        for field in writer.fields
        if reader is not None and field.name.lower() not in names and field.number in reader.fields_by_number
    ]

    def keep(array: pa.Array) -> pa.Array:
        for field, name in lost:
            if pc.any(_are_set(field, _part(array, field.name))).as_py():
                raise ValueError(
                    f"field {field.number} is {path}{field.name} to its writer, which is no column, and {path}{name} "
                    "in the columns"
                )
        return array

    return [_column(writer, reader, have, field, f"{path}{field.name}") for field in want], keep


def _whole(parts: Sequence[Fit], keep: Fit, want: pa.DataType) -> Fit:
    def fit(array: pa.Array) -> pa.Array:
        keep(array)
        return pa.StructArray.from_arrays([make(array) for make in parts], fields=list(want), mask=array.is_null())

    return fit


def _column(writer: Descriptor, reader: Descriptor | None, have: pa.DataType, want: pa.Field, path: str) -> Fit:
    """One field of the columns, from the writer's struct."""
    theirs, ours = _called(writer, want.name), _called(reader, want.name)
    make = (
        _absent(ours, want.type)
        if theirs is None
        else _of_part(theirs.name, _field(theirs, ours, have.field(theirs.name).type, want.type, path))
    )
    is_required = ours is not None and ours.is_required

    def fit(array: pa.Array) -> pa.Array:
        made = make(array)
        if is_required and pc.any(pc.and_(made.is_null(), array.is_valid())).as_py():
            raise ValueError(f"no {path}, which is required")
        return made

    return fit


def _of_part(name: str, fit: Fit) -> Fit:
    """The fit of a field, for the structs that have it."""
    return lambda array: fit(_part(array, name))


def _field(
    theirs: FieldDescriptor, ours: FieldDescriptor | None, have: pa.DataType, want: pa.DataType, path: str
) -> Fit:
    inner = theirs.message_type, None if ours is None else ours.message_type
    if (fit := _fit(*inner, have, want, path)) is not None:
        return fit
    if pa.types.is_list(want) and (item := _fit(*inner, have, want.value_type, path)) is not None:
        return lambda array: _lists_of_one(array, _are_set(theirs, array), item, want)
    absent = _absent(ours, want)

    def refuse(array: pa.Array) -> pa.Array:
        if pc.any(_are_set(theirs, array)).as_py():
            raise ValueError(
                f"field {path}: it is {write_ddl(have)} to its writer, and {write_ddl(want)} in the columns"
            )
        return absent(array)

    return refuse


def _absent(ours: FieldDescriptor | None, want: pa.DataType) -> Fit:
    """What a message of the columns' version has that does not say the field, for as many."""
    default = _default(ours)
    return lambda array: pa.array([default] * len(array), want)


def _fit(
    writer: Descriptor | None, reader: Descriptor | None, have: pa.DataType, want: pa.DataType, path: str
) -> Fit | None:
    """None where the column holds nothing of the kind. `writer` and `reader`: of fields that are messages, or hold
    such; of maps their entries.
    """
    if writer is not None and not (pa.types.is_list(have) or pa.types.is_map(have)):
        if pa.types.is_struct(want) and (pa.types.is_struct(have) or not writer.fields):
            return _struct(writer, reader, want, have, f"{path}.")
        if pa.types.is_boolean(want) and reader is not None and _is_left_empty(writer, reader):
            return _truths_where_set
        if not writer.fields and have != want:
            return None
    if pa.types.is_list(have) and pa.types.is_list(want):
        item = _fit(writer, reader, have.value_type, want.value_type, path)
        return None if item is None else lambda array: _lists(array, item, want)
    if pa.types.is_map(have) and pa.types.is_map(want) and writer is not None:
        keys = _number(have.key_type, want.key_type, path)
        items = _fit(_value(writer), _value(reader), have.item_type, want.item_type, path)
        return None if keys is None or items is None else lambda array: _maps(array, keys, items, want)
    if pa.types.is_map(have) and pa.types.is_list(want) and pa.types.is_struct(want.value_type) and writer is not None:
        entry = _struct(writer, reader, want.value_type, _entries(have), f"{path}.")
        return lambda array: _lists(_listed(array), entry, want)
    if pa.types.is_list(have) and pa.types.is_struct(have.value_type) and pa.types.is_map(want) and writer is not None:
        return _mapped(writer, reader, have, want, path)
    return _number(have, want, path)


def _mapped(
    writer: Descriptor, reader: Descriptor | None, have: pa.DataType, want: pa.DataType, path: str
) -> Fit | None:
    """Lists of messages as maps of the entries that these are; None where those have other keys."""
    key = _called(writer, "key")
    if key is None or _number(have.value_type.field(key.name).type, want.key_type, path) is None:
        return None
    entry = _struct(writer, reader, _entries(want), have.value_type, f"{path}.")

    def fit(array: pa.Array) -> pa.Array:
        offsets, first, count = _begins(array)
        made = entry(array.values.slice(first, count))
        keys, begins, order = _part(made, "key").to_pylist(), offsets.to_pylist(), list[int]()
        for begin, end in pairwise(begins):
            _require_keys(keys[begin:end], path)
            order += sorted(range(begin, end), key=keys.__getitem__)
        made = made.take(pa.array(order, pa.int64()))
        return pa.MapArray.from_arrays(offsets, _part(made, "key"), _part(made, "value"), type=want)

    return fit


def _require_keys(keys: list[Any], path: str) -> None:
    for key, count in Counter(keys).items():
        if key is None:
            raise ValueError(f"field {path}: it is a map in the columns, and has an entry without a key")
        if count > 1:
            raise ValueError(f"field {path}: it is a map in the columns, and has {key!r} twice")


def _number(have: pa.DataType, want: pa.DataType, path: str) -> Fit | None:
    """Numbers and text, where the column may hold those; None where it holds none."""
    if have == want:
        return lambda array: array
    whole = [pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in (have, want)]
    if pa.types.is_boolean(want) and whole[0]:
        return lambda array: _truths(array, path)
    if pa.types.is_boolean(have) and whole[1]:
        return lambda array: array.cast(pa.int32()).cast(want)
    texts = {have, want} == {pa.string(), pa.binary()}
    if not (all(whole) or texts or (have == pa.float32() and want == pa.float64())):
        return None

    def cast(array: pa.Array) -> pa.Array:
        try:
            return array.cast(want)
        except pa.ArrowException as error:
            raise ValueError(f"field {path}: {error}") from error

    return cast


def _truths(array: pa.Array, path: str) -> pa.Array:
    numbers = array.to_pylist()
    if odd := [number for number in numbers if number not in (None, 0, 1)]:
        raise ValueError(f"field {path}: {odd[0]} is neither 0 nor 1")
    return pa.array([None if number is None else bool(number) for number in numbers], pa.bool_())


def _truths_where_set(array: pa.Array) -> pa.Array:
    """What messages without fields are as a column."""
    return pa.array([True if there else None for there in array.is_valid().to_pylist()], pa.bool_())


def _is_left_empty(writer: Descriptor, reader: Descriptor) -> bool:
    """Whether a message has no fields to the reader, which asks but whether it was set; not of Protobuf's own kinds."""
    return not reader.fields and not writer.full_name.startswith("google.protobuf.")


def _called(message: Descriptor | None, name: str) -> FieldDescriptor | None:
    """Its field of that name, which may be written in another case."""
    if message is None or name in message.fields_by_name:
        return None if message is None else message.fields_by_name[name]
    return next((field for field in message.fields if field.name.lower() == name.lower()), None)


def _part(array: pa.Array, name: str) -> pa.Array:
    """A field of structs, null where they are."""
    return pc.struct_field(array, [array.type.get_field_index(name)])


def _begins(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Where each list begins among the items that are there, and which of all items those are."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, pa.scalar(first, pa.int32())), first, last - first


def _lists(array: pa.Array, item: Fit, want: pa.DataType) -> pa.Array:
    offsets, first, count = _begins(array)
    return pa.ListArray.from_arrays(offsets, item(array.values.slice(first, count)), type=want)


def _maps(array: pa.Array, keys: Fit, items: Fit, want: pa.DataType) -> pa.Array:
    offsets, first, count = _begins(array)
    made = keys(array.keys.slice(first, count)), items(array.items.slice(first, count))
    return pa.MapArray.from_arrays(offsets, *made, type=want)


def _entries(maps: pa.DataType) -> pa.DataType:
    return pa.struct([("key", maps.key_type), ("value", maps.item_type)])


def _listed(maps: pa.Array) -> pa.Array:
    """Lists of their entries."""
    offsets, first, count = _begins(maps)
    parts = [maps.keys.slice(first, count), maps.items.slice(first, count)]
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(parts, fields=list(_entries(maps.type))))


def _lists_of_one(array: pa.Array, are_set: pa.Array, item: Fit, want: pa.DataType) -> pa.Array:
    offsets = pa.array(list(accumulate(are_set.to_pylist(), initial=0)), pa.int32())
    return pa.ListArray.from_arrays(offsets, item(array.filter(are_set)), type=want)


def _are_set(field: FieldDescriptor, array: pa.Array) -> pa.Array:
    """Whether the field was set, for each message; where that is not known, whether it is no default."""
    if field.is_repeated:
        return pa.array([bool(found) for found in array.to_pylist()], pa.bool_())
    if field.has_presence:
        return array.is_valid()
    return pc.fill_null(pc.not_equal(array, pa.scalar(_default(field), array.type)), False)


def _default(field: FieldDescriptor | None) -> Any:
    """What a message has that does not say the field, as Python has it; None where there is none."""
    if field is None or (field.has_presence and not field.is_repeated):
        return None
    if field.is_repeated:
        return []
    return field.default_value if field.enum_type is None else symbols_of(field.enum_type)[field.default_value]


def _value(entry: Descriptor | None) -> Descriptor | None:
    """The messages that are a map's values."""
    value = None if entry is None else entry.fields_by_name.get("value")
    return None if value is None else value.message_type
