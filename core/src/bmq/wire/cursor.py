"""Reading a body by hand, one value after the other, without copying: for the hot paths that compiled readers are too
slow for.

Whatever does not fit the bytes that are left raises WireError, before anything is allocated for it.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire.limits import STRING_BYTES_MAX, STRUCT_TAGS_MAX, TAGS_MAX

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_UUID: Final = bytes(16)
_UVARINT_BYTES_MAX: Final = 5
_SHIFTS: Final = (7, 14, 21)


class Cursor:
    """A position in a body. `flexible` says how lengths are written (compact) and whether structs end with tagged
    fields.
    """

    __slots__ = ("flexible", "position", "size", "tags_left", "view")

    def __init__(self, body: Buffer, *, flexible: bool) -> None:
        self.view = memoryview(body)
        self.position = 0
        self.size = self.view.nbytes
        self.flexible = flexible
        self.tags_left = TAGS_MAX

    def unpack(self, fixed: struct.Struct) -> tuple[Any, ...]:
        """Several values of fixed size at once."""
        position = self.position
        try:
            values = fixed.unpack_from(self.view, position)
        except struct.error:
            raise WireError(f"{fixed.size} bytes expected where {self.size - position} are left") from None
        self.position = position + fixed.size
        return values

    def int32(self) -> int:
        value: int = self.unpack(_INT32)[0]
        return value

    def uvarint(self) -> int:
        view, position = self.view, self.position
        value = 0
        try:
            for index in range(_UVARINT_BYTES_MAX):
                byte = view[position + index]
                value |= (byte & 0x7F) << (7 * index)
                if byte < 0x80:
                    self.position = position + index + 1
                    return value
        except IndexError:
            raise WireError("the body ends in a varint") from None
        raise WireError("a varint of more than five bytes")

    def count(self, *, element_bytes_min: int) -> int:
        """An array's length; null counts as empty. An element takes at least `element_bytes_min` bytes."""
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if count > (self.size - self.position) // element_bytes_min:
            raise WireError(f"an array of {count} elements where {self.size - self.position} bytes are left")
        if count < -1:
            raise WireError(f"an array of {count} elements")
        return max(0, count)

    def nullable_bytes(self) -> memoryview | None:
        """A slice of the body, not a copy."""
        length = self.uvarint() - 1 if self.flexible else self.int32()
        return self._take(length)

    def nullable_string(self) -> str | None:
        if self.flexible:
            length = self.uvarint() - 1
        else:
            (length,) = self.unpack(_INT16)
        if length > STRING_BYTES_MAX:
            raise WireError(f"a text has {length} bytes: it may have {STRING_BYTES_MAX}")
        raw = self._take(length)
        if raw is None:
            return None
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"a string that is not UTF-8: {error}") from error

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise WireError("a string is null that may not be")
        return value

    def uuid(self) -> UUID | None:
        """None where it is zero."""
        raw = self._take(16)
        assert raw is not None
        data = bytes(raw)
        return None if data == _NO_UUID else UUID(bytes=data)

    def tags(self) -> Iterator[tuple[int, "Cursor"]]:
        """(tag, cursor over its value) of each tagged field that ends a flexible struct."""
        if self.flexible:
            previous = -1
            for _ in range(self._tag_count()):
                previous, size = self._tag(previous)
                value = self._take(size)
                assert value is not None
                yield previous, Cursor(value, flexible=True)

    def skip_tags(self) -> None:
        """Past the tagged fields that end a flexible struct."""
        if self.flexible:
            if self.position < self.size and self.view[self.position] == 0:
                self.position += 1
                return
            previous = -1
            for _ in range(self._tag_count()):
                previous, size = self._tag(previous)
                self._take(size)

    def _tag_count(self) -> int:
        count = self.uvarint()
        if count > STRUCT_TAGS_MAX:
            raise WireError(f"{count} tagged fields end one struct; at most {STRUCT_TAGS_MAX} are allowed")
        self.tags_left -= max(0, count - 1)
        if self.tags_left < 0:
            raise WireError(f"more than {TAGS_MAX} tagged fields in one request, beside one in each struct")
        return count

    def _tag(self, previous: int) -> tuple[int, int]:
        """(tag, size of its value) of the tagged field behind the one that has the tag `previous`."""
        tag = self.uvarint()
        if tag <= previous:
            raise WireError(f"tagged field {tag} follows {previous}")
        return tag, self.uvarint()

    def _take(self, length: int) -> memoryview | None:
        if length == -1:
            return None
        start = self.position
        end = start + length
        if length < 0 or end > self.size:
            raise WireError(f"a field of {length} bytes where {self.size - start} are left")
        self.position = end
        return self.view[start:end]


def compact_size(view: memoryview, at: int) -> tuple[int, int]:
    """(size, where it ends) of what stands behind a compact length of at most four bytes; -1 where it is null.

    Raises IndexError where the view ends before, or it is longer.
    """
    size = view[at]
    at += 1
    if size >= 0x80:
        size &= 0x7F
        for shift in _SHIFTS:
            byte = view[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise IndexError
    return size - 1, at
