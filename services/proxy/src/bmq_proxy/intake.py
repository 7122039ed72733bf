"""What comes in on one connection: frames, the memory set aside for one that is still arriving, and when the transport
is read.
"""

import asyncio
from collections.abc import Callable

from bmq.wire.frames import FrameReader
from bmq_proxy.arriving import ArrivingMemory
from bmq_proxy.calls import Lease
from bmq_proxy.fair_memory import FairMemory

SPLIT_AT_ONCE = 32
"""Frames that are taken at a time out of what was read: the next ones when these have begun. One, where nothing more
begins in this turn of the loop: all that thousands of connections bring would be taken in before it ends."""

GRANTED_BYTES = 512 << 10
"""While others wait a frame asks for so much at once; else for twice what has come."""
UNASKED_BYTES_MAX = 4 << 10
"""What a connection may bring in while there is no memory."""


class Intake:
    """Reads while its connection wants it and there is memory.

    A frame that does not arrive at once needs memory of its own (`arriving`) before more of it is read. Nothing is read
    while whole requests use up theirs, which comes back by itself.
    """

    __slots__ = (
        "_arriving",
        "_arriving_bytes",
        "_broken",
        "_frames",
        "_granted",
        "_later",
        "_peer",
        "_reading",
        "_requests",
        "_transport",
        "_waits_for_room",
        "_wanted",
        "arrived_at",
        "arrived_bytes",
        "frame_since",
        "has_more",
        "memory",
        "whole_bytes",
    )

    def __init__(
        self,
        scratch: bytearray,
        memory: FairMemory,
        arriving: ArrivingMemory,
        broken: Callable[[str, str], None],
        turn_is_full: Callable[[], bool],
    ) -> None:
        """`memory` is of whole requests, `arriving` of those that are not. `broken` is told who is cut off, and why;
        `turn_is_full` tells whether nothing more begins in this turn of the loop.
        """
        self._broken = broken
        self._peer = ""
        self._frames = FrameReader(
            scratch=scratch, frames_max=lambda: 1 if turn_is_full() else SPLIT_AT_ONCE, has_room=arriving.has_room
        )
        self.memory = memory.of("")
        self._requests = memory
        self._arriving = arriving
        self._transport: asyncio.Transport | None = None
        self._arriving_bytes = 0
        self._later: Lease | None = None
        """Counts the bytes of what is split later; None: there is nothing."""
        self.has_more = False
        """Whether there are frames beyond those that were handed out."""
        self._granted = True
        self._reading = True
        self._waits_for_room = False
        self._wanted = True
        self.frame_since = 0.0
        self.arrived_bytes = 0
        self.whole_bytes = 0
        self.arrived_at = 0.0

    def open(self, transport: asyncio.Transport) -> None:
        """The connection is there, and is read."""
        self._transport = transport
        name = transport.get_extra_info("peername")
        self._peer = str(name[0]) if isinstance(name, tuple) and name else str(name or "")
        self.memory = self._requests.of(self._peer)
        if not self.memory.has_room:
            # Not at once: uvloop starts to read right after this, whatever was paused before.
            asyncio.get_running_loop().call_soon(self._update)

    def close(self) -> None:
        """The connection is gone."""
        self._transport = None
        self._forget_frame()
        if self._later is not None:
            self._later.let_go()
        if self._waits_for_room:
            self.memory.withdraw(self._room)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put the next bytes."""
        buffer = self._frames.get_buffer(sizehint)
        if not self._arriving_bytes and (
            not self.memory.has_room or (self._arriving.is_overdrawn and not self._arriving.may_bring(self._peer))
        ):
            return buffer[:UNASKED_BYTES_MAX]  # a new connection is read once, whether it was paused or not
        return buffer

    def received(self, count: int) -> list[memoryview]:
        """Frames that are complete now, the first ones of many. Raises WireError."""
        frames = self._frames.buffer_updated(count)
        if self._frames.has_more:
            if self._later is not None:
                self._later.let_go()
            self._later = Lease(self.memory, self._frames.held_bytes)
            self.has_more = True
        return frames

    @property
    def is_within_frame(self) -> bool:
        """Whether a part of a frame has come, and the rest has not."""
        return bool(self._frames.needed_bytes)

    def more(self) -> list[memoryview]:
        """The next of them. Raises WireError."""
        frames = self._frames.split_more()
        if not self._frames.has_more and self._later is not None:
            self._later.let_go()
            self._later = None
            self.has_more = False
        return frames

    def reserve(self) -> None:
        """Asks for the memory that the frame which is arriving needs; gives back that of one that is whole (and counted
        by its request).
        """
        needed_bytes = self._frames.needed_bytes
        if not needed_bytes:
            if self._arriving_bytes:
                self._forget_frame()
            return
        self.arrived_at = asyncio.get_running_loop().time()
        if not self._arriving_bytes:
            self.frame_since = self.arrived_at
        if needed_bytes > self._arriving_bytes:
            if self._arriving.is_waited_for:  # one that is not large waits once, not for each time that it grows
                needed_bytes = max(needed_bytes, min(self._frames.whole_bytes, GRANTED_BYTES))
            self._arriving_bytes = needed_bytes
            self.whole_bytes = self._frames.whole_bytes
            self.arrived_bytes = self._frames.arrived_bytes
            self._granted = self._arriving.ask(self, needed_bytes)
        else:
            self._arriving.moved(self)

    def go_on(self) -> None:
        """Memory came free for the frame that waited for it."""
        self._granted = True
        self.arrived_at = asyncio.get_running_loop().time()
        self._update()

    @property
    def is_read(self) -> bool:
        """Whether it is for the peer to send more."""
        return self._reading

    @property
    def peer(self) -> str:
        """The other side's address."""
        return self._peer

    def make_room(self, reason: str) -> None:
        """Others need what this frame holds."""
        self._broken(self.peer, reason)
        self.abort()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def update(self, *, wanted: bool) -> None:
        """Reads on, or stops: `wanted` is whether the connection can take more."""
        self._wanted = wanted
        self._update()

    def _update(self, *, has_room: bool = False) -> None:
        """`has_room`: there is memory, no need to ask."""
        if self._transport is None:
            return
        read = self._wanted and self._granted
        if read and not has_room and not self.memory.has_room:
            if not self._waits_for_room:
                self._waits_for_room = True
                self.memory.wait(self._room)
            read = False
        if read and not self._reading:
            self._reading = True
            self._transport.resume_reading()
        elif not read and self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _room(self) -> None:
        """It is this connection's turn to read on, even where others wait behind it."""
        self._waits_for_room = False
        self._update(has_room=True)

    def _forget_frame(self) -> None:
        """The frame is whole, or never will be."""
        self._arriving_bytes = 0
        self._granted = True
        self._arriving.forget(self)
