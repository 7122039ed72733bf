"""Splitting a byte stream into request frames, reading request headers, framing responses. No sockets: bytes in, frames
out.

A frame is a length (int32) and as many bytes.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire.apis import SERVED, ApiKey, frame_bytes_max
from bmq.wire.limits import (
    FIRST_FRAME_BYTES_MAX,
    FRAME_GROWTH_FIRST_BYTES,
    FRAME_TRUST_BYTES_MAX,
    RECEIVE_BUFFER_BYTES,
    STRUCT_TAGS_MAX,
)
from bmq.wire.splitting import HTTP_STARTS, TLS_START, FrameSplitter

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AND_KEY: Final = struct.Struct(">ih")
_HEADER: Final = struct.Struct(">hhi")
_INT16: Final = struct.Struct(">h")
_RESPONSE_V0: Final = struct.Struct(">ii")
_RESPONSE_V1: Final = struct.Struct(">iiB")
_UVARINT_BYTES_MAX: Final = 5
_JOIN_BYTES_MAX: Final = 16 << 10


class FrameReader(FrameSplitter[memoryview]):
    """Frames without their lengths. WireError: the stream is not the Kafka protocol, or a frame is too large."""

    def __init__(
        self,
        *,
        scratch: bytearray | None = None,
        frame_bytes_max: Callable[[int], int] = frame_bytes_max,
        frames_max: Callable[[], int] = lambda: RECEIVE_BUFFER_BYTES,
        has_room: Callable[[int], bool] | None = None,
    ) -> None:
        """`frame_bytes_max` tells how large a frame of an API key may be. Beyond as many as `frames_max` tells at
        that time they are left for `split_more`.
        """
        super().__init__(scratch, has_room)
        self._frame_bytes_max = frame_bytes_max
        self._frames_max = frames_max
        self._trusted_bytes = FRAME_GROWTH_FIRST_BYTES
        """The largest frame that this peer has really sent: so much is set aside at once for its next one."""

    def _split(self, data: memoryview) -> list[memoryview]:
        frames: list[memoryview] = []
        position = 0
        left = len(data)
        frames_max = self._frames_max()
        while left >= _LENGTH_AND_KEY.size:
            if len(frames) >= frames_max:
                self._split_later(data[position:])
                return frames
            size, api_key = _LENGTH_AND_KEY.unpack_from(data, position)
            self._check(data, position, size, api_key)
            position += _LENGTH.size
            left -= _LENGTH.size
            if size > left:
                self._begin_own(data[position:], size, trusted_bytes=self._trusted_bytes)
                return frames
            frames.append(memoryview(bytes(data[position : position + size])))
            position += size
            left -= size
        if left >= _LENGTH.size:
            self._check(data, position, _LENGTH.unpack_from(data, position)[0], None)
        self._rest = bytes(data[position:])
        return frames

    def _grown(self, whole: memoryview) -> memoryview:
        self._trusted_bytes = min(FRAME_TRUST_BYTES_MAX, max(self._trusted_bytes, len(whole)))
        return whole

    def _check(self, data: memoryview, position: int, size: int, api_key: int | None) -> None:
        if size > FIRST_FRAME_BYTES_MAX or size < _HEADER.size:
            start = bytes(data[position : position + _LENGTH.size])
            if start.startswith(TLS_START):
                raise WireError("a TLS hello on a plaintext listener: set the client's security.protocol to PLAINTEXT")
            if start in HTTP_STARTS:
                raise WireError(f"an HTTP request ({start.decode().strip()}…) on the Kafka listener")
            if size < _HEADER.size:
                raise WireError(f"a frame of {size} bytes: not the Kafka protocol")
            if api_key is not None and size > self._frame_bytes_max(api_key):
                raise WireError(
                    f"a frame of {size} bytes for API key {api_key}; at most {self._frame_bytes_max(api_key)} are "
                    "allowed"
                )


class RequestHeader(NamedTuple):
    """A request's header; the body starts at `body_position` of the frame. For an API that is not served, only the
    numbers are read.
    """

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
    """The frame as buffers to be written one after the other: length and header, then the parts. Small ones are joined
    into one.
    """
    size = sum([memoryview(part).nbytes for part in parts])
    head = (
        _RESPONSE_V1.pack(size + 5, correlation_id, 0)
        if header_version
        else _RESPONSE_V0.pack(size + 4, correlation_id)
    )
    if size <= _JOIN_BYTES_MAX:
        return [b"".join((head, *parts))]
    return [head, *parts]


def encode_request_frame(
    *, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Buffer
) -> bytes:
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
        if count > STRUCT_TAGS_MAX:
            raise WireError(f"a header with {count} tagged fields; at most {STRUCT_TAGS_MAX} are allowed")
        previous = -1
        for _ in range(count):
            tag, position = _uvarint(view, position)
            if tag <= previous:
                raise WireError(f"tagged field {tag} follows {previous}")
            previous = tag
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
