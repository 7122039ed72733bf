"""Which fields a writer's message has beside the reader's. Pure."""

from google.protobuf.descriptor import Descriptor


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
