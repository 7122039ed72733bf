"""Which fields a message has beside another's, and which it reads alike. Pure."""

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

_Pair = tuple[str, str, pa.DataType]
"""Two messages' names, and the columns that they become."""


def has_others(writer: Descriptor, reader: Descriptor, columns: pa.DataType) -> bool:
    """Whether the writer's message, or one within it, has fields that become no column: the reader's has not got their
    numbers, nor the columns their names.
    """
    return _has_others(writer, reader, columns, set())


def _has_others(writer: Descriptor, reader: Descriptor, columns: pa.DataType, seen: set[_Pair]) -> bool:
    if (writer.full_name, reader.full_name, columns) in seen:
        return False
    seen.add((writer.full_name, reader.full_name, columns))
    names = _names(columns)
    for field in writer.fields:
        ours = reader.fields_by_number.get(field.number)
        if ours is None:
            if field.name.lower() not in names:
                return True
            continue
        both = field.message_type is not None and ours.message_type is not None
        if both and _has_others(field.message_type, ours.message_type, _within(columns, field), seen):
            return True
    return False


def reads_alike(writer: Descriptor, reader: Descriptor, columns: pa.DataType) -> bool:
    """Whether the reader's message says the same of each of the writer's fields, and has room for all that it may set:
    what it has not is no column.
    """
    return _reads_alike(writer, reader, columns, set())


def _reads_alike(writer: Descriptor, reader: Descriptor, columns: pa.DataType, seen: set[_Pair]) -> bool:
    if (writer.full_name, reader.full_name, columns) in seen:
        return True
    seen.add((writer.full_name, reader.full_name, columns))
    if _crowds(writer, reader):
        return False
    names = _names(columns)
    for field in writer.fields:
        ours = reader.fields_by_number.get(field.number)
        if ours is None:
            if field.name.lower() in names:
                return False
            continue
        if _reading(field) != _reading(ours):
            return False
        enum, inner = field.enum_type, field.message_type
        if enum is not None and not symbols_of(enum).items() <= symbols_of(ours.enum_type).items():
            return False
        if inner is not None and not _reads_alike(inner, ours.message_type, _within(columns, field), seen):
            return False
    return True


def _crowds(writer: Descriptor, reader: Descriptor) -> bool:
    """Whether a message may have two fields that are of one `oneof` to the reader, whose parser keeps the last."""
    held: dict[str, str] = {}
    for field in writer.fields:
        ours = reader.fields_by_number.get(field.number)
        if ours is None or ours.containing_oneof is None:
            continue
        one_of_these = (field.containing_oneof or field).full_name  # one field alone where it is in no `oneof`
        if held.setdefault(ours.containing_oneof.full_name, one_of_these) != one_of_these:
            return True
    return False


def is_within(message: Descriptor, other: Descriptor) -> bool:
    """Whether the other has every field and symbol of the message, and reads it alike."""
    return _is_within(message, other, set())


def _is_within(message: Descriptor, other: Descriptor, seen: set[tuple[str, str]]) -> bool:
    if (message.full_name, other.full_name) in seen:
        return True
    seen.add((message.full_name, other.full_name))
    for field in message.fields:
        theirs = other.fields_by_number.get(field.number)
        if theirs is None or _reading(field) != _reading(theirs):
            return False
        if field.message_type is not None and not _is_within(field.message_type, theirs.message_type, seen):
            return False
        if field.enum_type is not None and not _symbols(field.enum_type) <= _symbols(theirs.enum_type):
            return False
    return True


def symbols_of(enum: EnumDescriptor) -> dict[int, str]:
    """By number; of names for one number (allow_alias) Protobuf says the first."""
    return {value.number: value.name for value in reversed(enum.values)}


def is_map(field: FieldDescriptor) -> bool:
    """Whether it is a map; its messages are the entries."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _reading(field: FieldDescriptor) -> tuple[str, int, str, bool, bool]:
    name = "" if field.message_type is None else field.message_type.full_name
    # These become columns of their own kinds.
    own = "map" if is_map(field) else name if name.startswith("google.protobuf.") else ""
    return field.name, field.type, own, field.is_repeated, field.has_presence


def _symbols(enum: EnumDescriptor) -> set[tuple[int, str]]:
    return {(value.number, value.name) for value in enum.values}


def _names(columns: pa.DataType) -> dict[str, pa.DataType]:
    """In lower case: columns are not told apart by it."""
    return {field.name.lower(): field.type for field in columns} if pa.types.is_struct(columns) else {}


def _within(columns: pa.DataType, field: FieldDescriptor) -> pa.DataType:
    """The columns of the messages that the field is or holds; of a map's entries."""
    kind = _names(columns).get(field.name.lower(), pa.null())
    if pa.types.is_map(kind):
        return pa.struct([("key", kind.key_type), ("value", kind.item_type)])
    return kind.value_type if pa.types.is_list(kind) else kind
