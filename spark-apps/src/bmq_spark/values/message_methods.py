"""What a Protobuf message can be asked, by its class: a field that is called as a method hides that of the message
itself.
"""

from collections.abc import Iterator
from typing import Any


def has_field(message: Any, name: str) -> bool:
    """Whether the field was set."""
    return bool(type(message).HasField(message, name))


def has_fields(message: Any) -> bool:
    """Whether any was set."""
    return bool(type(message).ListFields(message))


def missing(message: Any) -> Iterator[str]:
    """Paths of the required fields that were not set. Not by `FindInitializationErrors`, which ends the process where a
    map of numbers or texts comes before a message that lacks a field (Protobuf 7.36, upb).
    """
    return iter(()) if type(message).IsInitialized(message) else _missing(message, "")


def _missing(message: Any, path: str) -> Iterator[str]:
    for field in type(message).DESCRIPTOR.fields:
        if field.is_required and not has_field(message, field.name):
            yield path + field.name
    for field, value in type(message).ListFields(message):
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key, each in value.items():
                    yield from _missing(each, f"{path}{field.name}[{key!r}].")
        elif field.is_repeated:
            for index, each in enumerate(value):
                yield from _missing(each, f"{path}{field.name}[{index}].")
        else:
            yield from _missing(value, f"{path}{field.name}.")
