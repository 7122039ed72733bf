"""Bodies that are opened (decompressed) while they come: whatever they claim, a step has few bytes."""

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

import zstandard

from bmq_databus.http.incoming import BadBody

STEP_BYTES: Final = 64 << 10
ZSTD_INPUT_BYTES: Final = 64
"""zstd makes up to 128 KiB of each four bytes, and its library gives all of it at once: 2 MiB of so many."""
ZSTD_WINDOW_BYTES_MAX: Final = 8 << 20
"""What RFC 9659 allows in HTTP. A stream holds as much for as long as it lasts."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class Opening(Protocol):
    """One body's."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What it opens to, in small steps. To be read to its end before more is fed. Raises BadBody."""

    def end(self) -> None:
        """There is no more. Raises BadBody where there should be."""


def opening_of(encoding: str) -> Opening:
    """For a `Content-Encoding`. Raises BadBody."""
    match encoding:
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Gzip()
        case "zstd":
            return _Zstd()
    raise unknown_encoding(encoding)


def unknown_encoding(encoding: str) -> BadBody:
    """What is told of one that is not served."""
    return BadBody(f"content-encoding {encoding[:40]!r} is not served: use gzip or zstd")


class _Plain:
    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), STEP_BYTES):
            yield data[at : at + STEP_BYTES]

    def end(self) -> None:
        """Wherever it ends."""


class _Gzip:
    """Has one member or several, one after another."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._is_within = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while data or self._is_within:
                self._is_within = True
                opened = self._member.decompress(data, STEP_BYTES)
                if opened:
                    yield opened
                if self._member.eof:
                    data = self._member.unused_data
                    self._member = zlib.decompressobj(_GZIP)
                    self._is_within = False
                    continue
                data = self._member.unconsumed_tail
                if not data and len(opened) < STEP_BYTES:
                    return
        except zlib.error as error:
            raise BadBody(f"the body is no gzip: {error}") from None

    def end(self) -> None:
        if self._is_within:
            raise BadBody("the body ends within its gzip")


class _Zstd:
    """Has one frame or several, one after another."""

    def __init__(self) -> None:
        self._opener = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        self._frame = self._opener.decompressobj()
        self._is_within = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            for at in range(0, len(data), ZSTD_INPUT_BYTES):
                part = data[at : at + ZSTD_INPUT_BYTES]
                while part:
                    self._is_within = True
                    opened = self._frame.decompress(part)
                    part = b""
                    if self._frame.eof:
                        part = self._frame.unused_data
                        self._frame = self._opener.decompressobj()
                        self._is_within = False
                    for start in range(0, len(opened), STEP_BYTES):
                        yield opened[start : start + STEP_BYTES]
        except zstandard.ZstdError as error:
            raise BadBody(
                f"the body is no zstd of a window of {ZSTD_WINDOW_BYTES_MAX >> 20} MiB at most: {error}"
            ) from None

    def end(self) -> None:
        if self._is_within:
            raise BadBody("the body ends within its zstd")
