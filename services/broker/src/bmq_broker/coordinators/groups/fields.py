"""Kafka's primitive types as they stand in the values of coordinator records: strings, byte runs, arrays, tagged
fields.
"""

import struct
from typing import Final

from typing_extensions import Buffer

from bmq.errors import Corrupt

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
STRING_SIZE_BYTES_MAX: Final = 0x7FFF
"""What a length of 16 bits can say."""
_VARINT_BYTES_MAX: Final = 5


def string(text: str) -> bytes:
    """A 16-bit length and UTF-8."""
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def nullable_string(text: str | None) -> bytes:
    """The same; None is length -1."""
    return b"\xff\xff" if text is None else string(text)


def nullable_size_bytes(text: str | None) -> int:
    """How many bytes it becomes."""
    return _SHORT.size + (0 if text is None else len(text) if text.isascii() else len(text.encode()))


def bytes32(data: bytes) -> bytes:
    """A 32-bit length and the bytes."""
    return _INT.pack(len(data)) + data


def compact_string(text: str) -> bytes:
    """An unsigned varint of the length plus one, and UTF-8."""
    data = text.encode()
    return _uvarint(len(data) + 1) + data


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class FieldReader:
    """Reads fields one after the other. Every read raises Corrupt where the bytes do not hold; nothing is allocated on
    a length's word alone.

    `flexible` chooses between the old and the compact encodings for text, blob and count.
    """

    def __init__(self, data: Buffer, what: str) -> None:
        self._data = bytes(data)
        self._at = 0
        self.what = what
        self.flexible = False

    def int16(self) -> int:
        return int(_SHORT.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_LONG.unpack(self._take(8))[0])

    def string(self) -> str:
        text = self._decode(self.int16())
        if text is None:
            raise self._corrupt("a string that may not be null is")
        return text

    def compact_string(self) -> str:
        text = self._decode(self._uvarint() - 1)
        if text is None:
            raise self._corrupt("a string that may not be null is")
        return text

    def text(self) -> str:
        """A string in the encoding that `flexible` says."""
        return self.compact_string() if self.flexible else self.string()

    def nullable_text(self) -> str | None:
        """The same, or None."""
        return self._decode(self._uvarint() - 1 if self.flexible else self.int16())

    def blob(self) -> bytes:
        """A run of bytes that is not null."""
        size_bytes = self._uvarint() - 1 if self.flexible else self.int32()
        if size_bytes < 0:
            raise self._corrupt("bytes that may not be null are")
        return self._take(size_bytes)

    def count(self, *, size_bytes_min: int) -> int:
        """An array's length, refused where that many elements of at least `size_bytes_min` cannot follow."""
        count = self._uvarint() - 1 if self.flexible else self.int32()
        if count < 0 or count * size_bytes_min > len(self._data) - self._at:
            raise self._corrupt(f"an array of {count}")
        return count

    def tags(self) -> dict[int, bytes]:
        """The tagged fields by number."""
        found: dict[int, bytes] = {}
        last = -1
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            if tag <= last:
                raise self._corrupt("tagged fields out of order")
            found[tag] = self._take(self._uvarint())
            last = tag
        return found

    def end(self) -> None:
        """Raises Corrupt where bytes are left."""
        if self._at != len(self._data):
            raise self._corrupt(f"{len(self._data) - self._at} bytes too many")

    def _decode(self, size_bytes: int) -> str | None:
        if size_bytes == -1:
            return None
        try:
            return self._take(size_bytes).decode()
        except UnicodeDecodeError as error:
            raise self._corrupt("a string that is not UTF-8") from error

    def _take(self, size_bytes: int) -> bytes:
        end = self._at + size_bytes
        if size_bytes < 0 or end > len(self._data):
            raise self._corrupt(f"{size_bytes} bytes where {len(self._data) - self._at} are left")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _uvarint(self) -> int:
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise self._corrupt("a number of more than 5 bytes")

    def _corrupt(self, why: str) -> Corrupt:
        return Corrupt(f"{self.what}: {why} at byte {self._at}")
