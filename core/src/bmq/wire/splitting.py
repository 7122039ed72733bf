"""What every framing shares: how the bytes of one connection become frames, and who it is that speaks another protocol.
No sockets.

What a peer only claims costs nothing: a large frame's memory grows with what has arrived.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from typing_extensions import Buffer

from bmq.wire.limits import RECEIVE_BUFFER_BYTES

F = TypeVar("F")

TLS_START: Final = b"\x16\x03"
HTTP_STARTS: Final = frozenset(
    {b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "}
)
"""The first four bytes."""


class FrameSplitter(ABC, Generic[F]):
    """Splits what arrives on one connection. Made for asyncio's BufferedProtocol: `get_buffer`, then `buffer_updated`.

    `scratch` may be shared by all connections of a loop, as nothing stays in it between two calls; so an idle
    connection holds no memory. A frame is copied once at most: out of `scratch`; what follows of a large one is read
    into its place.
    """

    def __init__(self, scratch: bytearray | None, has_room: Callable[[int], bool] | None = None) -> None:
        """`has_room` tells whether so many bytes may be set aside before they are asked for (`needed_bytes`); None:
        always.
        """
        self._has_room = has_room
        self._scratch = memoryview(bytearray(RECEIVE_BUFFER_BYTES) if scratch is None else scratch)
        self._rest: bytes | memoryview = b""
        """The start of a frame that says too little yet, or (`has_more`) what is split later."""
        self.has_more = False
        """Whether there is more to be split by `split_more`."""
        self._own: bytearray | None = None
        """A frame that did not arrive at once; grows up to `_own_size`."""
        self._own_size = 0
        self._own_filled = 0
        self._own_trusted_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory held for a frame that is still arriving."""
        return len(self._rest) if self._own is None else len(self._own)

    @property
    def needed_bytes(self) -> int:
        """Memory that the next call of `get_buffer` will hold for a frame that is still arriving; 0 where none is."""
        if self._own is None:
            return 0
        if self._own_filled < len(self._own):
            return len(self._own)
        return min(self._own_size, max(self._own_trusted_bytes, 2 * len(self._own)))

    @property
    def whole_bytes(self) -> int:
        """What the frame that is still arriving claims to come to; 0 where none is."""
        return 0 if self._own is None else self._own_size

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. Valid until the next call of `buffer_updated`."""
        if self._own is None:
            return self._scratch
        if self._own_filled == len(self._own):
            # Not resized in place: the transport may still hold a view of it.
            grown = bytearray(self.needed_bytes)
            grown[: self._own_filled] = self._own
            self._own = grown
        return memoryview(self._own)[self._own_filled :]

    def buffer_updated(self, count: int) -> list[F]:
        """Frames that are complete with the `count` bytes that were written into the buffer.

        Their memory is theirs: it is never written again. Raises WireError: the connection is to be closed.
        """
        if self._own is not None:
            self._own_filled += count
            if self._own_filled < self._own_size:
                return []
            own, self._own = self._own, None
            return [self._grown(memoryview(own))]
        data: memoryview = self._scratch[:count]
        if self._rest:
            data = memoryview(b"".join((self._rest, data)))
            self._rest = b""
        self.has_more = False
        return self._split(data)

    def split_more(self) -> list[F]:
        """Frames of what came before. Raises WireError."""
        data = memoryview(self._rest)
        self._rest = b""
        self.has_more = False
        return self._split(data)

    def _split_later(self, data: memoryview) -> None:
        """Keeps what follows the frames that are enough for now."""
        self._rest = data if data.readonly else bytes(data)  # what is not is scratch
        self.has_more = True

    def feed(self, data: Buffer) -> list[F]:
        """The same for bytes that come in another way."""
        left = memoryview(data).cast("B")
        frames: list[F] = []
        while left:
            buffer = self.get_buffer()
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            frames += self.buffer_updated(count)
            left = left[count:]
        return frames

    @property
    def arrived_bytes(self) -> int:
        """What has come of the frame that is still arriving."""
        return self._own_filled if self._own is not None else 0

    def _begin_own(self, start: memoryview, size: int, *, trusted_bytes: int) -> None:
        """A frame of `size` bytes begins with `start`: `trusted_bytes` of it are set aside at once, where there is no
        room when it is read on.
        """
        aside_bytes = min(size, max(trusted_bytes, 2 * len(start)))
        if self._has_room is None or self._has_room(aside_bytes):
            self._own = bytearray(aside_bytes)
            self._own[: len(start)] = start
        else:
            self._own = bytearray(start)
        self._own_size = size
        self._own_filled = len(start)
        self._own_trusted_bytes = trusted_bytes

    @abstractmethod
    def _split(self, data: memoryview) -> list[F]:
        """Frames that are whole in `data`, copied out of it; what follows them goes to `_begin_own` or `_rest`. Raises
        WireError.
        """

    @abstractmethod
    def _grown(self, whole: memoryview) -> F:
        """The frame that was begun by `_begin_own`. Raises WireError."""
