"""Writers compiled from the schemas: Messages, or mappings of the same names, to bytes of one version.

What the version lacks is left out, what is not given gets its default. A name that no version has, a null where the
version knows none, or a value out of range is a bug of the caller: AssertionError.
"""

import struct
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from bmq.wire.decoding import FIXED_FORMATS, fixed_struct, is_fixed
from bmq.wire.limits import STRING_BYTES_MAX
from bmq.wire.message import Message
from bmq.wire.primitives import sentence, write_uuid, write_uvarint
from bmq.wire.schemas import Field

Writer = Callable[[bytearray, Any], None]
"""Appends one value."""
_FixedStep = tuple[struct.Struct, tuple[tuple[str, Any], ...]]


class Encoded(bytes):
    """An element of an array that `messages.encode_element` has written for this version: it is written as it is."""

    __slots__ = ()


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def message_writer(fields: tuple[Field, ...], version: int, *, flexible: bool) -> Writer:
    """Appends one struct, given as a Message or a mapping. Raises AssertionError; struct.error where a number is out of
    range.
    """
    known = frozenset(field.name for field in fields)
    here = [field for field in fields if field.in_version(version)]
    steps = _steps([field for field in here if field.tag is None], version, flexible)
    tagged = sorted(
        (field.tag, field.name, field.default_when_absent(), _field_writer(field, version, flexible))
        for field in here
        if field.tag is not None
    )

    def write(out: bytearray, message: Any) -> None:
        values: Mapping[str, Any] = message.__dict__ if isinstance(message, Message) else message
        assert isinstance(values, Mapping), (
            f"a {type(message).__name__} where a Message or a mapping of {sorted(known)} belongs"
        )
        if not known.issuperset(values):
            raise AssertionError(f"no version has {sorted(set(values) - known)}; the fields are {sorted(known)}")
        for fixed, name, default, write_field in steps:
            if fixed is not None:
                out += fixed[0].pack(*[values.get(one, instead) for one, instead in fixed[1]])
            else:
                write_field(out, values.get(name, default))
        if flexible:
            _write_tags(out, values, tagged)

    return write


def _steps(fields: list[Field], version: int, flexible: bool) -> list[tuple[_FixedStep | None, str, Any, Writer]]:
    steps: list[tuple[_FixedStep | None, str, Any, Writer]] = []
    for fixed, run in groupby(fields, key=is_fixed):
        if fixed:
            several = list(run)
            names = tuple((field.name, field.default_when_written(version)) for field in several)
            steps.append(((fixed_struct(several), names), "", None, _unused))
        else:
            steps += (
                (None, field.name, _default(field, version), _field_writer(field, version, flexible)) for field in run
            )
    return steps


def _default(field: Field, version: int) -> Any:
    if field.array:
        return None if field.has_default and field.nullable_in(version) else ()
    if field.type == "struct" and not field.nullable_in(version):
        return {}
    return field.default_when_written(version)


def _unused(out: bytearray, value: Any) -> None:
    raise AssertionError


def _field_writer(field: Field, version: int, flexible: bool) -> Writer:
    # A null where this version knows none, but another one does, is written empty: older versions of an API say it so.
    nullable = field.nullable_in(version)
    empty_for_null = not nullable and field.nullable is not None
    if not field.array:
        return _single_writer(field, version, flexible, nullable=nullable, empty_for_null=empty_for_null)
    write_count = _length_writer(field.name, flexible, nullable, empty_for_null, _INT32)
    if field.type in FIXED_FORMATS:
        return _fixed_array_writer(FIXED_FORMATS[field.type], write_count)
    element = _single_writer(field, version, flexible, nullable=False, empty_for_null=False)

    def write(out: bytearray, values: Any) -> None:
        if write_count(out, None if values is None else len(values)):
            for value in values:
                if value.__class__ is Encoded:
                    out += value
                else:
                    element(out, value)

    return write


def _single_writer(field: Field, version: int, flexible: bool, *, nullable: bool, empty_for_null: bool) -> Writer:
    match field.type:
        case "string":
            write_length = _length_writer(field.name, flexible, nullable, empty_for_null, _INT16)
            return _sentence_writer(write_length) if field.name == "error_message" else _string_writer(write_length)
        case "bytes":
            return _bytes_writer(_length_writer(field.name, flexible, nullable, empty_for_null, _INT32))
        case "uuid":
            return _write_uuid
        case "struct":
            write = message_writer(field.fields, version, flexible=flexible)
            return _nullable_struct_writer(write) if nullable and field.tag is None else write
        case _:
            return _fixed_writer(struct.Struct(">" + FIXED_FORMATS[field.type]))


def _fixed_writer(fixed: struct.Struct) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        out += fixed.pack(value)

    return write


def _write_uuid(out: bytearray, value: Any) -> None:
    assert value is None or isinstance(value, UUID), value
    write_uuid(out, value)


def _length_writer(
    name: str, flexible: bool, nullable: bool, empty_for_null: bool, legacy: struct.Struct
) -> Callable[[bytearray, int | None], bool]:
    """Appends a length, None for null; tells whether a value follows."""

    def write(out: bytearray, length: int | None) -> bool:
        if length is None:
            assert nullable or empty_for_null, f"{name} is None where the version knows no null"
            if flexible:
                out.append(0 if nullable else 1)
            else:
                out += legacy.pack(-1 if nullable else 0)
            return False
        if not flexible:
            out += legacy.pack(length)
        elif length < 0x7F:
            out.append(length + 1)
        else:
            write_uvarint(out, length + 1)
        return length > 0

    return write


def _string_writer(write_length: Callable[[bytearray, int | None], bool]) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            write_length(out, None)
            return
        raw = value.encode()
        assert len(raw) <= STRING_BYTES_MAX, f"a string of {len(raw)} bytes"
        write_length(out, len(raw))
        out += raw

    return write


def _sentence_writer(write_length: Callable[[bytearray, int | None], bool]) -> Writer:
    write_string = _string_writer(write_length)

    def write(out: bytearray, value: Any) -> None:
        write_string(out, sentence(value))

    return write


def _bytes_writer(write_length: Callable[[bytearray, int | None], bool]) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            write_length(out, None)
        elif value == "":
            write_length(out, 0)
        else:
            view = memoryview(value)
            write_length(out, view.nbytes)
            out += view

    return write


def _fixed_array_writer(character: str, write_count: Callable[[bytearray, int | None], bool]) -> Writer:
    def write(out: bytearray, values: Any) -> None:
        if write_count(out, None if values is None else len(values)):
            out += struct.pack(f">{len(values)}{character}", *values)

    return write


def _nullable_struct_writer(write_struct: Writer) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write_struct(out, value)

    return write


def _write_tags(out: bytearray, values: Mapping[str, Any], tagged: list[tuple[int, str, Any, Writer]]) -> None:
    present = [
        (tag, values[name], write)
        for tag, name, default, write in tagged
        if values.get(name, default) not in (default, [], ())
    ]
    write_uvarint(out, len(present))
    for tag, value, write in present:
        one = bytearray()
        write(one, value)
        write_uvarint(out, tag)
        write_uvarint(out, len(one))
        out += one
