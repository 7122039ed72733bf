"""Splitting a byte stream into request frames, reading request headers, framing responses. No sockets: bytes in, frames out.

A frame is a length (int32) and as many bytes. What a peer only claims costs nothing: a large frame's memory grows with what has arrived.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire.apis import SERVED, ApiKey, frame_bytes_max
from bmq.wire.limits import FIRST_FRAME_BYTES_MAX, FRAME_GROWTH_FIRST_BYTES, FRAME_TRUST_BYTES_MAX, HEADER_TAGS_MAX, RECEIVE_BUFFER_BYTES

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AND_KEY: Final = struct.Struct(">ih")
_HEADER: Final = struct.Struct(">hhi")
_INT16: Final = struct.Struct(">h")
_RESPONSE_V0: Final = struct.Struct(">ii")
_RESPONSE_V1: Final = struct.Struct(">iiB")
_UVARINT_BYTES_MAX: Final = 5
_JOIN_BYTES_MAX: Final = 16 << 10
_HTTP_STARTS: Final = frozenset({b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "})


class FrameReader:
    """Splits what arrives on one connection. Made for asyncio's BufferedProtocol: `get_buffer`, then `buffer_updated`.

    `scratch` may be shared by all connections of a loop, as nothing stays in it between two calls; so an idle connection holds no memory.
    """

    def __init__(self, *, scratch: bytearray | None = None, frame_bytes_max: Callable[[int], int] = frame_bytes_max) -> None:
        """`frame_bytes_max` tells how large a frame of an API key may be."""
        self._scratch = memoryview(bytearray(RECEIVE_BUFFER_BYTES) if scratch is None else scratch)
        self._frame_bytes_max = frame_bytes_max
        self._rest = b""
        """The start of a frame of which length or API key are still missing: at most 5 bytes."""
        self._own: bytearray | None = None
        """A frame that did not arrive at once, without its length; grows up to `_own_size`."""
        self._own_size = 0
        self._own_filled = 0
        self._trusted_bytes = FRAME_GROWTH_FIRST_BYTES
        """The largest frame that this peer has really sent: so much is set aside at once for its next one."""

    @property
    def held_bytes(self) -> int:
        """Memory held for a frame that is still arriving."""
        return 0 if self._own is None else len(self._own)

    @property
    def needed_bytes(self) -> int:
        """Memory that the next call of `get_buffer` will hold for a frame that is still arriving; 0 where none is."""
        if self._own is None:
            return 0
        return len(self._own) if self._own_filled < len(self._own) else min(self._own_size, 2 * len(self._own))

    @property
    def arriving_bytes(self) -> int:
        """How large a frame that is still arriving claims to be; 0 where none is."""
        return 0 if self._own is None else self._own_size

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. Valid until the next call of `buffer_updated`."""
        if self._own is None:
            return self._scratch
        if self._own_filled == len(self._own):
            self._own = _grown(self._own, self._own_filled, min(self._own_size, 2 * len(self._own)))
        return memoryview(self._own)[self._own_filled :]

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Frames that are complete with the `count` bytes that were written into the buffer, without their lengths.

        Their memory is theirs: it is never written again. Raises WireError where the stream is not the Kafka protocol or a frame is too large.
        """
        if self._own is None:
            return self._split(count)
        self._own_filled += count
        if self._own_filled < self._own_size:
            return []
        frame = memoryview(self._own)
        self._trusted_bytes = min(FRAME_TRUST_BYTES_MAX, max(self._trusted_bytes, self._own_size))
        self._own = None
        return [frame]

    def feed(self, data: Buffer) -> list[memoryview]:
        """The same for bytes that come in another way."""
        left = memoryview(data).cast("B")
        frames: list[memoryview] = []
        while left:
            buffer = self.get_buffer()
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            frames += self.buffer_updated(count)
            left = left[count:]
        return frames

    def _split(self, count: int) -> list[memoryview]:
        data: memoryview = self._scratch[:count]
        if self._rest:
            data = memoryview(self._rest + bytes(data))
            self._rest = b""
        frames: list[memoryview] = []
        position = 0
        left = len(data)
        while left >= _LENGTH_AND_KEY.size:
            size, api_key = _LENGTH_AND_KEY.unpack_from(data, position)
            self._check(data, position, size, api_key)
            position += _LENGTH.size
            left -= _LENGTH.size
            if size > left:
                self._begin_own(data[position:], size)
                return frames
            frames.append(memoryview(bytes(data[position : position + size])))
            position += size
            left -= size
        if left >= _LENGTH.size:
            self._check(data, position, _LENGTH.unpack_from(data, position)[0], None)
        self._rest = bytes(data[position:])
        return frames

    def _check(self, data: memoryview, position: int, size: int, api_key: int | None) -> None:
        if size > FIRST_FRAME_BYTES_MAX or size < _HEADER.size:
            start = bytes(data[position : position + _LENGTH.size])
            if start[:2] == b"\x16\x03":
                raise WireError("a TLS hello on a plaintext listener: set the client's security.protocol to PLAINTEXT")
            if start in _HTTP_STARTS:
                raise WireError(f"an HTTP request ({start.decode().strip()}…) on the Kafka listener")
            if size < _HEADER.size:
                raise WireError(f"a frame of {size} bytes: not the Kafka protocol")
            if api_key is not None and size > self._frame_bytes_max(api_key):
                raise WireError(f"a frame of {size} bytes for API key {api_key}; at most {self._frame_bytes_max(api_key)} are allowed")

    def _begin_own(self, start: memoryview, size: int) -> None:
        self._own = bytearray(min(size, max(self._trusted_bytes, 2 * len(start))))
        self._own[: len(start)] = start
        self._own_size = size
        self._own_filled = len(start)


def _grown(old: bytearray, filled: int, size: int) -> bytearray:
    # Not resized in place: the transport may still hold a view of it.
    new = bytearray(size)
    new[:filled] = memoryview(old)[:filled]
    return new


class RequestHeader(NamedTuple):
    """A request's header; the body starts at `body_position` of the frame. For an API that is not served, only the numbers are read."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int

    @property
    def is_served(self) -> bool:
        api = SERVED.get(self.api_key)
        return api is not None and api.serves(self.api_version)


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Reads header version 1 or 2, whichever the API's version has. Tagged fields are skipped. Raises WireError."""
    view = memoryview(frame)
    if len(view) < _HEADER.size:
        raise WireError(f"a request of {len(view)} bytes")
    api_key, api_version, correlation_id = _HEADER.unpack_from(view)
    api = SERVED.get(api_key)
    if api is None or api_version < 0:
        return RequestHeader(api_key, api_version, correlation_id, None, len(view))
    if api.key == ApiKey.API_VERSIONS and api_version > api.version_max:
        # A newer client's header may be of a version not known here; the answer is always one in version 0.
        return RequestHeader(api_key, api_version, correlation_id, None, len(view))
    client_id, position = _client_id(view, _HEADER.size)
    if api_version >= api.flexible_from:
        position = _skip_tags(view, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def encode_response_frame(header_version: int, correlation_id: int, parts: Sequence[Buffer]) -> list[Buffer]:
    """The frame as buffers to be written one after the other: length and header, then the parts. Small ones are joined into one."""
    size = sum([memoryview(part).nbytes for part in parts])
    head = _RESPONSE_V1.pack(size + 5, correlation_id, 0) if header_version else _RESPONSE_V0.pack(size + 4, correlation_id)
    if size <= _JOIN_BYTES_MAX:
        return [b"".join((head, *parts))]
    return [head, *parts]


def encode_request_frame(*, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Buffer) -> bytes:
    """A whole request: for clients (tests, the simulator, tools)."""
    raw = None if client_id is None else client_id.encode()
    name = _INT16.pack(-1) if raw is None else _INT16.pack(len(raw)) + raw
    tags = b"\x00" if SERVED[api_key].is_flexible(api_version) else b""
    rest = b"".join((_HEADER.pack(api_key, api_version, correlation_id), name, tags, body))
    return _LENGTH.pack(len(rest)) + rest


def parse_response_header(frame: Buffer, *, api_key: int, api_version: int) -> tuple[int, int]:
    """(correlation id, position of the body) of a response frame without its length. Raises WireError."""
    view = memoryview(frame)
    if len(view) < _LENGTH.size:
        raise WireError(f"a response of {len(view)} bytes")
    (correlation_id,) = _LENGTH.unpack_from(view)
    if SERVED[api_key].response_header_version(api_version) == 0:
        return correlation_id, _LENGTH.size
    return correlation_id, _skip_tags(view, _LENGTH.size)


def _client_id(view: memoryview, position: int) -> tuple[str | None, int]:
    if len(view) < position + _INT16.size:
        raise WireError("a request header without a client id")
    (length,) = _INT16.unpack_from(view, position)
    position += _INT16.size
    if length == -1:
        return None, position
    if length < 0 or length > len(view) - position:
        raise WireError(f"a client id of {length} bytes where {len(view) - position} are left")
    try:
        return str(view[position : position + length], "utf-8"), position + length
    except UnicodeDecodeError as error:
        raise WireError(f"a client id that is not UTF-8: {error}") from error


def _skip_tags(view: memoryview, position: int) -> int:
    try:
        if view[position] == 0:
            return position + 1
        count, position = _uvarint(view, position)
        if count > HEADER_TAGS_MAX:
            raise WireError(f"a header with {count} tagged fields; at most {HEADER_TAGS_MAX} are allowed")
        for _ in range(count):
            _, position = _uvarint(view, position)
            size, position = _uvarint(view, position)
            if size > len(view) - position:
                raise WireError(f"a tagged header field of {size} bytes where {len(view) - position} are left")
            position += size
    except IndexError:
        raise WireError("a header that is truncated in its tagged fields") from None
    return position


def _uvarint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_UVARINT_BYTES_MAX):
        byte = view[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise WireError("a varint of more than five bytes")
