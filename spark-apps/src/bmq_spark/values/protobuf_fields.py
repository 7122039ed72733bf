"""Which fields a message has beside another's. Pure."""

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor


def has_others(writer: Descriptor, reader: Descriptor) -> bool:
    """Whether the writer's message, or one within it, has fields that the reader's has not, by their numbers."""
    return _has_others(writer, reader, set())


def _has_others(writer: Descriptor, reader: Descriptor, seen: set[tuple[str, str]]) -> bool:
    if (writer.full_name, reader.full_name) in seen:
        return False
    seen.add((writer.full_name, reader.full_name))
    for field in writer.fields:
        ours = reader.fields_by_number.get(field.number)
        if ours is None:
            return True
        both = field.message_type is not None and ours.message_type is not None
        if both and _has_others(field.message_type, ours.message_type, seen):
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


def _reading(field: FieldDescriptor) -> tuple[str, int, bool, bool]:
    return field.name, field.type, field.is_repeated, field.has_presence


def _symbols(enum: EnumDescriptor) -> set[tuple[int, str]]:
    return {(value.number, value.name) for value in enum.values}
