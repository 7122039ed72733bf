"""Readers compiled from the schemas: bytes to Messages, safe against any bytes.

Every length is checked against the bytes that are left before anything is made of it, and all array elements of a body
come out of one budget. Unknown tagged fields are skipped, as the protocol demands; there may be few. Runs of fields of
fixed size are read by one struct.
"""

import struct
from collections.abc import Callable
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from bmq.errors import WireError
from bmq.wire.limits import STRING_BYTES_MAX, STRUCT_TAGS_MAX, TAGS_MAX
from bmq.wire.message import Message
from bmq.wire.schemas import Field

Budget = list[int]
"""Two numbers: how many array elements the rest of the body may have, and how many tagged fields that are unknown."""
Reader = Callable[[bytes, int, Budget], tuple[Any, int]]

FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
}
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UUID_SIZE_BYTES: Final = 16
_NO_UUID: Final = bytes(_UUID_SIZE_BYTES)
_UVARINT_BYTES_MAX: Final = 5


def message_reader(fields: tuple[Field, ...], version: int, *, flexible: bool) -> Reader:
    """Reads one struct (a body, or an element) into a Message.

    The readers raise WireError, struct.error, IndexError or UnicodeDecodeError: all of them mean malformed.
    """
    here = [field for field in fields if field.in_version(version)]
    absent = {
        field.name: field.default_when_absent()
        for field in fields
        if not field.in_version(version) or field.tag is not None
    }
    fresh_lists = tuple(field.name for field in fields if field.name in absent and field.is_empty_list_by_default)
    steps = _steps([field for field in here if field.tag is None], version, flexible)
    tagged = {
        field.tag: (field.name, _field_reader(field, version, flexible)) for field in here if field.tag is not None
    }

    def read(body: bytes, position: int, budget: Budget) -> tuple[Message, int]:
        values: dict[str, Any] = absent.copy()
        for name in fresh_lists:
            values[name] = []
        for names, fixed, name, read_field in steps:
            if fixed is not None:
                values.update(zip(names, fixed.unpack_from(body, position), strict=True))
                position += fixed.size
            else:
                values[name], position = read_field(body, position, budget)
        if flexible:
            if body[position] == 0:
                position += 1
            else:
                position = _read_tags(body, position, budget, tagged, values)
        message = Message.__new__(Message)
        message.__dict__ = values
        return message, position

    return read


def _steps(
    fields: list[Field], version: int, flexible: bool
) -> list[tuple[tuple[str, ...], struct.Struct | None, str, Reader]]:
    steps: list[tuple[tuple[str, ...], struct.Struct | None, str, Reader]] = []
    for fixed, run in groupby(fields, key=is_fixed):
        if fixed:
            several = list(run)
            steps.append((tuple(field.name for field in several), fixed_struct(several), "", _unused))
        else:
            steps += (((), None, field.name, _field_reader(field, version, flexible)) for field in run)
    return steps


def is_fixed(field: Field) -> bool:
    """Whether the field always takes the same number of bytes, one struct format character."""
    return not field.array and field.type in FIXED_FORMATS


def fixed_struct(fields: list[Field]) -> struct.Struct:
    return struct.Struct(">" + "".join(FIXED_FORMATS[field.type] for field in fields))


def _unused(body: bytes, position: int, budget: Budget) -> tuple[Any, int]:
    raise AssertionError


def _field_reader(field: Field, version: int, flexible: bool) -> Reader:
    nullable = field.nullable_in(version)
    if not field.array:
        return _single_reader(field, version, flexible, nullable=nullable)
    if field.type in FIXED_FORMATS:
        return _fixed_array_reader(field.name, FIXED_FORMATS[field.type], flexible, nullable)
    return _array_reader(field.name, _single_reader(field, version, flexible, nullable=False), flexible, nullable)


def _single_reader(field: Field, version: int, flexible: bool, *, nullable: bool) -> Reader:
    match field.type:
        case "string":
            return _string_reader(field.name, flexible, nullable)
        case "bytes":
            return _bytes_reader(field.name, flexible, nullable)
        case "uuid":
            return _read_uuid
        case "struct":
            read = message_reader(field.fields, version, flexible=flexible)
            return _nullable_struct_reader(field.name, read) if nullable and field.tag is None else read
        case _:
            return _fixed_reader(struct.Struct(">" + FIXED_FORMATS[field.type]))


def _fixed_reader(fixed: struct.Struct) -> Reader:
    def read(body: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        return fixed.unpack_from(body, position)[0], position + fixed.size

    return read


def _read_uuid(body: bytes, position: int, budget: Budget) -> tuple[UUID | None, int]:
    end = position + _UUID_SIZE_BYTES
    raw = body[position:end]
    if raw == _NO_UUID:
        return None, end
    if len(raw) != _UUID_SIZE_BYTES:
        raise WireError("a UUID is truncated")
    return UUID(bytes=raw), end


def read_uvarint(body: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of 32 bits and the position after it."""
    value = 0
    for index in range(_UVARINT_BYTES_MAX):
        byte = body[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise WireError("a varint of more than five bytes")


def _length_reader(
    name: str, flexible: bool, nullable: bool, legacy: struct.Struct
) -> Callable[[bytes, int], tuple[int, int]]:
    """Reads a length: -1 stands for null, which is refused unless the field may be null."""

    def read_compact(body: bytes, position: int) -> tuple[int, int]:
        byte = body[position]
        if byte < 0x80:
            length, position = byte - 1, position + 1
        else:
            raw, position = read_uvarint(body, position)
            length = raw - 1
        if length < 0 and not nullable:
            raise WireError(f"{name} is null")
        return length, position

    def read_legacy(body: bytes, position: int) -> tuple[int, int]:
        (length,) = legacy.unpack_from(body, position)
        if length < 0 and not (nullable and length == -1):
            raise WireError(f"{name} has length {length}")
        return length, position + legacy.size

    return read_compact if flexible else read_legacy


def _string_reader(name: str, flexible: bool, nullable: bool) -> Reader:
    read_length = _length_reader(name, flexible, nullable, _INT16)

    def read(body: bytes, position: int, budget: Budget) -> tuple[str | None, int]:
        length, start = read_length(body, position)
        if length < 0:
            return None, start
        if length > STRING_BYTES_MAX:
            raise WireError(f"{name} has {length} bytes: a text may have {STRING_BYTES_MAX}")
        end = start + length
        if end > len(body):
            raise _too_long(name, length, len(body) - start)
        return body[start:end].decode(), end

    return read


def _bytes_reader(name: str, flexible: bool, nullable: bool) -> Reader:
    read_length = _length_reader(name, flexible, nullable, _INT32)

    def read(body: bytes, position: int, budget: Budget) -> tuple[bytes | None, int]:
        length, start = read_length(body, position)
        if length < 0:
            return None, start
        end = start + length
        if end > len(body):
            raise _too_long(name, length, len(body) - start)
        return body[start:end], end

    return read


def _array_reader(name: str, read_element: Reader, flexible: bool, nullable: bool) -> Reader:
    read_length = _length_reader(name, flexible, nullable, _INT32)

    def read(body: bytes, position: int, budget: Budget) -> tuple[list[Any] | None, int]:
        count, position = read_length(body, position)
        if count < 0:
            return None, position
        _spend(budget, name, count, len(body) - position)
        elements = []
        for _ in range(count):
            element, position = read_element(body, position, budget)
            elements.append(element)
        return elements, position

    return read


def _fixed_array_reader(name: str, character: str, flexible: bool, nullable: bool) -> Reader:
    read_length = _length_reader(name, flexible, nullable, _INT32)
    size_each = struct.calcsize(">" + character)

    def read(body: bytes, position: int, budget: Budget) -> tuple[list[Any] | None, int]:
        count, position = read_length(body, position)
        if count < 0:
            return None, position
        _spend(budget, name, count, (len(body) - position) // size_each)
        return list(struct.unpack_from(f">{count}{character}", body, position)), position + count * size_each

    return read


def _nullable_struct_reader(name: str, read_struct: Reader) -> Reader:
    def read(body: bytes, position: int, budget: Budget) -> tuple[Message | None, int]:
        marker = body[position]
        if marker == 0xFF:
            return None, position + 1
        if marker != 1:
            raise WireError(f"{name} starts with {marker} instead of 1 or null")
        message: Message
        message, position = read_struct(body, position + 1, budget)
        return message, position

    return read


def _read_tags(
    body: bytes, position: int, budget: Budget, tagged: dict[int, tuple[str, Reader]], values: dict[str, Any]
) -> int:
    count, position = read_uvarint(body, position)
    _spend(budget, "tagged fields", count, (len(body) - position) // 2)
    if count > STRUCT_TAGS_MAX:
        raise WireError(f"{count} tagged fields end one struct; at most {STRUCT_TAGS_MAX} are allowed")
    budget[1] -= max(0, count - len(tagged) - 1)
    if budget[1] < 0:
        raise WireError(f"more than {TAGS_MAX} unknown tagged fields in one message, beside one in each struct")
    previous = -1
    for _ in range(count):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        end = position + size
        if end > len(body):
            raise _too_long(f"tagged field {tag}", size, len(body) - position)
        if tag <= previous:
            raise WireError(f"tagged field {tag} follows {previous}")
        previous = tag
        if tag in tagged:
            name, read_field = tagged[tag]
            values[name], reached = read_field(body, position, budget)
            if reached != end:
                raise WireError(f"tagged field {name} has {size} bytes, its value {reached - position}")
        position = end
    return position


def _spend(budget: Budget, name: str, count: int, count_max: int) -> None:
    if count > count_max:
        raise WireError(f"{name}: {count} elements where the bytes that are left hold at most {max(0, count_max)}")
    budget[0] -= count
    if budget[0] < 0:
        raise WireError(f"{name}: more array elements in one message than allowed")


def _too_long(name: str, length: int, left: int) -> WireError:
    return WireError(f"{name} has {length} bytes where {max(0, left)} are left")
