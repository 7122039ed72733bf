"""Whether bytes that Protobuf's parser took are a message of the type: it takes nearly everything, and leaves over what
it does not know.

A required field that is missing, a field of the type that came as another kind of number or text, a value that a closed
enum does not have, and bytes of which the type knows nothing at all do not fit. Fields that the type does not have,
beside some that it has, are a newer writer's.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from bmq_spark.values.decoded import Unfit
from bmq_spark.values.message_methods import has_field, has_fields, missing

Check = Callable[[Any], None]
"""Raises Unfit."""
_SHOWN: Final = 3


def check_of(message: Descriptor) -> Check:
    """The check of whole messages of that type. It raises Unfit."""
    checks = _Checks()
    inner = checks.of(message)
    has_required = _requires(message, set())

    def check(found: Any) -> None:
        if has_required and (lacks := list(islice(missing(found), _SHOWN))):
            raise Unfit(f"not a Protobuf message {message.full_name}: no {', '.join(lacks)}, which is required")
        inner(found)
        unknown = UnknownFieldSet(found)
        if len(unknown) and not has_fields(found):
            raise Unfit(f"not a Protobuf message {message.full_name}: none of its fields, but {_numbers(unknown)}")

    return check


class _Checks:
    """One for each type, however often it is within others."""

    def __init__(self) -> None:
        self._made: dict[str, Check] = {}

    def of(self, message: Descriptor) -> Check:
        name = message.full_name
        if name not in self._made:

            def later(found: Any) -> None:  # for a type that is within itself
                self._made[name](found)

            self._made[name] = later
            within = [field for field in message.fields if field.message_type is not None]
            inner = [(field, *self._parts(field)) for field in within]
            self._made[name] = partial(_check, message, inner)
        return self._made[name]

    def _parts(self, field: FieldDescriptor) -> tuple[Callable[[Any], Iterable[Any]], Check] | tuple[()]:
        entry = field.message_type
        if not entry.GetOptions().map_entry:
            return (lambda value: value) if field.is_repeated else (lambda value: (value,)), self.of(entry)
        item = entry.fields_by_name["value"]
        return (lambda value: value.values(), self.of(item.message_type)) if item.message_type is not None else ()


def _check(message: Descriptor, inner: list[Any], found: Any) -> None:
    unknown = UnknownFieldSet(found)
    if len(unknown):
        known = [each.field_number for each in unknown if each.field_number in message.fields_by_number]
        if known:
            field = message.fields_by_number[known[0]]
            what = "a value that its enum does not have" if field.enum_type is not None else "of another type"
            raise Unfit(f"not a Protobuf message {message.full_name}: field {field.name} ({known[0]}) is {what}")
    for field, *parts in inner:
        if not parts:
            continue
        each, check = parts
        if field.has_presence and not has_field(found, field.name):
            continue
        for part in each(getattr(found, field.name)):
            check(part)


def _requires(message: Descriptor, seen: set[str]) -> bool:
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(
        field.is_required or (field.message_type is not None and _requires(field.message_type, seen))
        for field in message.fields
    )


def _numbers(unknown: UnknownFieldSet) -> str:
    numbers = sorted({each.field_number for each in unknown})
    return (
        f"field{'s' if len(numbers) > 1 else ''} "
        f"{', '.join(map(str, numbers[:_SHOWN]))}{', …' if len(numbers) > _SHOWN else ''}"
    )
