"""Frames between nodes. No sockets: bytes in, frames out (docs/formats/internal-protocol.md).

    u32 length of what follows | u8 kind | i16 API key | u64 correlation id | u32 header length | u32 CRC32C of the
    header | u32 CRC32C of the 23 bytes before | header | attachments

The header holds what this side reads; attachments are record batches, which it does not look at and which have
checksums of their own. What a peer only claims costs nothing: lengths are checked before anything is allocated, and a
large frame's memory grows with what came.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.internal.limits import ATTACHMENT_BYTES_MAX, FRAME_TRUST_BYTES, HEADER_BYTES_MAX, HELLO_BYTES_MAX
from bmq.wire.splitting import HTTP_STARTS, TLS_START, FrameSplitter

_PREFIX: Final = struct.Struct(">IBhQII")
_CRC: Final = struct.Struct(">I")
_LENGTH_SIZE_BYTES: Final = 4
PREFIX_SIZE_BYTES: Final = _PREFIX.size + _CRC.size
_REST_OF_PREFIX_BYTES: Final = PREFIX_SIZE_BYTES - _LENGTH_SIZE_BYTES
_STRANGER_BYTES: Final = PREFIX_SIZE_BYTES + HELLO_BYTES_MAX
_JOIN_BYTES_MAX: Final = 16 << 10


class Kind(IntEnum):
    """What a frame is. The correlation id and the API key are 0 where a kind has no use for them."""

    HELLO = 1
    """The first frame of each side."""
    REQUEST = 2
    REPLY = 3
    ERROR = 4
    """Instead of a reply; with correlation id 0 instead of a hello."""
    CANCEL = 5
    """The caller does not want the reply any more."""
    ALIVE = 6
    """The server is there: it works on something, or was asked."""
    GOODBYE = 7
    """The server takes no new calls here: the client closes the connection once everything is answered."""
    CHALLENGE = 8
    """The server, which has a secret, wants to know whether the client has it too, before it says hello."""
    PROOF = 9
    """The client's answer to that."""
    PING = 10
    """The client, which waits for nothing, wants to know whether the server is there. From version 2 on."""
    PART = 11
    """The header's next bytes of a reply that is too long for one frame; the REPLY has the last of them. From version 3
    on."""


_KINDS: Final = frozenset(int(kind) for kind in Kind)


class Frame(NamedTuple):
    """`header` and `attachments` are views of memory that is the frame's own and is never written again."""

    kind: int
    api_key: int
    correlation_id: int
    header: memoryview
    attachments: memoryview

    @property
    def size_bytes(self) -> int:
        """How many bytes its header and its attachments have."""
        return len(self.header) + len(self.attachments)


def encode_frame(
    kind: Kind, *, api_key: int = 0, correlation_id: int = 0, header: bytes = b"", attachments: Sequence[Buffer] = ()
) -> list[Buffer]:
    """The frame as buffers to be written one after the other. Attachments are not copied, unless they are small."""
    size_bytes = 0
    for part in attachments:
        size_bytes += memoryview(part).nbytes
    head = _PREFIX.pack(
        _REST_OF_PREFIX_BYTES + len(header) + size_bytes, kind, api_key, correlation_id, len(header), crc32c(header)
    )
    head = b"".join((head, _CRC.pack(crc32c(head)), header))
    if not size_bytes:
        return [head]
    if size_bytes <= _JOIN_BYTES_MAX:
        return [b"".join((head, *attachments))]
    return [head, *attachments]


class _Prefix(NamedTuple):
    kind: int
    api_key: int
    correlation_id: int
    header_bytes: int
    header_crc: int
    size_bytes: int
    """How many bytes the whole frame has, its prefix included."""


class FrameReader(FrameSplitter[Frame]):
    """Frames whose prefix and header match their checksums. WireError: they do not, or the stream is something else, or
    a frame is too large.

    Of a stranger no more is read at once than one hello has, and of that one frame is looked at before it is known what
    becomes of it: hundreds of strangers may send all they can in the same turn of the loop.
    """

    def __init__(
        self,
        *,
        scratch: bytearray | None = None,
        header_bytes_max: int = HELLO_BYTES_MAX,
        attachment_bytes_max: int = 0,
    ) -> None:
        """The limits are those of a stranger; `trust` raises them."""
        super().__init__(scratch)
        self._header_bytes_max = header_bytes_max
        self._attachment_bytes_max = attachment_bytes_max
        self._is_trusted = False
        self._prefix: _Prefix | None = None
        """The prefix of a frame that did not arrive at once; None: no frame has only begun to arrive."""

    @property
    def is_between_frames(self) -> bool:
        """Whether the connection may end here without anything being cut off."""
        return self._prefix is None and not self._rest

    def trust(
        self, *, header_bytes_max: int = HEADER_BYTES_MAX, attachment_bytes_max: int = ATTACHMENT_BYTES_MAX
    ) -> None:
        """The other side has said who it is: from now on frames may be so large."""
        self._header_bytes_max = header_bytes_max
        self._attachment_bytes_max = attachment_bytes_max
        self._is_trusted = True

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """As every splitter's, and a stranger's is short."""
        buffer = super().get_buffer(sizehint)
        return buffer if self._is_trusted else buffer[:_STRANGER_BYTES]

    def arrived(self, count: int) -> Iterator[Frame]:
        """As `buffer_updated`, one after the other: what was done with one frame may decide about the next. Whoever
        ends the connection takes no more.
        """
        yield from self.buffer_updated(count)
        while self.has_more:
            yield from self.split_more()

    def _split(self, data: memoryview) -> list[Frame]:
        frames: list[Frame] = []
        position, end = 0, len(data)
        while end - position >= PREFIX_SIZE_BYTES:
            if frames and not self._is_trusted:
                self._split_later(data[position:])
                return frames
            prefix = self._checked_prefix(data[position : position + PREFIX_SIZE_BYTES])
            size_bytes = prefix.size_bytes
            if size_bytes > end - position:
                self._begin_own(data[position:], size_bytes, trusted_bytes=FRAME_TRUST_BYTES)
                self._prefix = prefix
                return frames
            frames.append(_frame(prefix, memoryview(bytes(data[position : position + size_bytes]))))
            position += size_bytes
        self._rest = bytes(data[position:])
        return frames

    def _grown(self, whole: memoryview) -> Frame:
        prefix, self._prefix = self._prefix, None
        assert prefix is not None
        return _frame(prefix, whole)

    def _checked_prefix(self, raw: memoryview) -> _Prefix:
        length, kind, api_key, correlation_id, header_bytes, header_crc = _PREFIX.unpack_from(raw)
        if _CRC.unpack_from(raw, _PREFIX.size)[0] != crc32c(raw[: _PREFIX.size]):
            raise WireError(_stranger(bytes(raw[:_LENGTH_SIZE_BYTES])))
        attachment_bytes = length - _REST_OF_PREFIX_BYTES - header_bytes
        if kind not in _KINDS:
            raise WireError(f"a frame of kind {kind}, which this bmq does not know")
        if attachment_bytes < 0:
            raise WireError(f"a frame of {length} bytes with a header of {header_bytes}")
        if header_bytes > self._header_bytes_max:
            raise WireError(f"a header of {header_bytes} bytes; at most {self._header_bytes_max} are allowed here")
        if attachment_bytes > self._attachment_bytes_max:
            raise WireError(
                f"attachments of {attachment_bytes} bytes; at most {self._attachment_bytes_max} are allowed here"
            )
        return _Prefix(kind, api_key, correlation_id, header_bytes, header_crc, _LENGTH_SIZE_BYTES + length)


def too_large(
    *,
    header_bytes: int,
    attachment_bytes: int,
    attachment_bytes_max: int,
    header_bytes_max: int = HEADER_BYTES_MAX,
) -> str | None:
    """What it is of such a frame for which the other side would refuse it, and end the connection, so that it is never
    sent: what follows the frame's name in a sentence. None: it would not.
    """
    if header_bytes > header_bytes_max:
        return f"has {header_bytes} bytes, and at most {header_bytes_max} travel between nodes: ask for less"
    if attachment_bytes > attachment_bytes_max:
        return (
            f"has {attachment_bytes} bytes of records, and at most {attachment_bytes_max} travel between nodes: ask "
            "for less"
        )
    return None


def decode_frame(data: Buffer) -> Frame:
    """One whole frame and nothing else. Raises WireError."""
    reader = FrameReader(header_bytes_max=HEADER_BYTES_MAX, attachment_bytes_max=ATTACHMENT_BYTES_MAX)
    frames = reader.feed(data)
    if len(frames) != 1 or not reader.is_between_frames:
        raise WireError(f"{memoryview(data).nbytes} bytes are not one frame")
    return frames[0]


def cut(attachments: memoryview, sizes_bytes: Sequence[int]) -> list[memoryview]:
    """Views of `attachments`, one after the other. Raises WireError where the sizes do not add up to all of it."""
    parts = []
    position = 0
    for size_bytes in sizes_bytes:
        if size_bytes < 0:
            raise WireError(f"an attachment of {size_bytes} bytes")
        parts.append(attachments[position : position + size_bytes])
        position += size_bytes
    if position != len(attachments):
        raise WireError(f"attachments of {position} bytes were announced, {len(attachments)} came")
    return parts


def _frame(prefix: _Prefix, whole: memoryview) -> Frame:
    end = PREFIX_SIZE_BYTES + prefix.header_bytes
    header = whole[PREFIX_SIZE_BYTES:end]
    if crc32c(header) != prefix.header_crc:
        raise WireError("a frame's header does not match its checksum")
    return Frame(prefix.kind, prefix.api_key, prefix.correlation_id, header, whole[end:])


def _stranger(start: bytes) -> str:
    if start.startswith(TLS_START):
        return "a TLS hello on bmq's internal listener, which speaks plaintext"
    if start in HTTP_STARTS:
        return f"an HTTP request ({start.decode().strip()}…) on bmq's internal listener"
    return (
        "not bmq's internal protocol: this listener is for nodes of the cluster; Kafka clients belong to the "
        "proxies' port"
    )
