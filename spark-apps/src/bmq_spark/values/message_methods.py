"""What a Protobuf message can be asked, by its class: a field that is called as a method hides that of the message
itself.
"""

from typing import Any


def has_field(message: Any, name: str) -> bool:
    """Whether the field was set."""
    return bool(type(message).HasField(message, name))


def has_fields(message: Any) -> bool:
    """Whether any was set."""
    return bool(type(message).ListFields(message))


def missing(message: Any) -> list[str]:
    """Paths of the required fields that were not set."""
    return [] if type(message).IsInitialized(message) else list(type(message).FindInitializationErrors(message))
