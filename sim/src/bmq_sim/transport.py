"""One end of an in-memory connection: asyncio's transport contract, with a window, cuts and delays as TCP has them.

Bytes go: write buffer -> in flight (at most a window ahead of what the peer's program has read) -> the peer's receive
queue -> its protocol. A connection ends by close (what was written arrives, then the end), by abort or the process's
death (a reset follows what was sent), or by loss (a suffix of what is in flight never arrives, both ends see a reset).
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from bmq_sim.process import SimProcess

if TYPE_CHECKING:
    from bmq_sim.network import Network

Address = tuple[str, int]

WINDOW_BYTES: Final = 256 * 1024
HIGH_WATER_BYTES: Final = 64 * 1024

_END: Final = object()
_RESET: Final = object()


class SimTransport(asyncio.Transport):
    """One end. `connect` gives it its peer, `start_soon` calls connection_made."""

    def __init__(
        self,
        network: "Network",
        protocol: asyncio.BaseProtocol,
        process: SimProcess | None,
        *,
        number: int,
        local: Address,
        remote: Address,
        latency_s: float,
    ) -> None:
        super().__init__(extra={"peername": remote, "sockname": local})
        self.number = number
        self.local = local
        self.remote = remote
        self._loop = asyncio.get_running_loop()
        self._network = network
        self._protocol = protocol
        self._context = process.context() if process is not None else contextvars.copy_context()
        self._kernel = contextvars.Context()
        self._latency_s = latency_s
        self._peer: SimTransport | None = None
        self._forget_death = process.on_death(self._die) if process is not None else None
        self._writing: deque[bytes] = deque()
        self._writing_bytes = 0
        self._unread_bytes = 0
        self._in_flight: deque[tuple[float, Any]] = deque()
        self._pump_scheduled = False
        self._delivery: asyncio.TimerHandle | None = None
        self._received: deque[Any] = deque()
        self._started = False
        self._reading = True
        self._read_scheduled = False
        self._closing = False
        self._end_sent = False
        self._over = False
        self._paused_writing = False
        self._high_bytes = HIGH_WATER_BYTES
        self._low_bytes = HIGH_WATER_BYTES // 4

    def __repr__(self) -> str:
        return f"<{self.local[0]}:{self.local[1]} -> {self.remote[0]}:{self.remote[1]}>"

    def write(self, data: Any) -> None:
        if self._over or self._closing or not data:
            return
        assert not self._end_sent, "write after write_eof"
        chunk = bytes(data)
        if self._network.watcher is not None:
            self._network.watcher.wrote(self, chunk)
        self._writing.append(chunk)
        self._writing_bytes += len(chunk)
        self._pump_soon()
        if not self._paused_writing and self._writing_bytes > self._high_bytes:
            self._paused_writing = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._end_sent and not self._over:
            self._end_sent = True
            self._pump_soon()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._writing_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = high if high is not None else (HIGH_WATER_BYTES if low is None else 4 * low)
        self._low_bytes = low if low is not None else self._high_bytes // 4
        if self._low_bytes > self._high_bytes:
            raise ValueError(f"high ({self._high_bytes}) must be >= low ({self._low_bytes})")

    def is_reading(self) -> bool:
        return self._reading and not self._closing and not self._over

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._read_soon()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing or self._over

    def close(self) -> None:
        if not self._closing and not self._over:
            self._closing = True
            self._received.clear()
            self._pump_soon()

    def abort(self) -> None:
        if not self._over:
            self._send(_RESET)
            self._finish(None)

    @property
    def peer(self) -> "SimTransport | None":
        """The other end."""
        return self._peer

    def connect(self, peer: "SimTransport") -> None:
        """Who is at the other end."""
        self._peer = peer

    def start_soon(self, connected: "asyncio.Future[None] | None" = None) -> None:
        """Calls the protocol's connection_made, then resolves `connected`."""

        def start() -> None:
            self._started = True
            self._protocol.connection_made(self)
            if connected is not None and not connected.done():
                connected.set_result(None)
            self._read()

        self._loop.call_soon(start, context=self._context)

    def lose(self) -> None:
        """The connection breaks: a suffix of what is in flight either way is lost, both ends see a reset."""
        peer = self._peer
        self._network.injected["cut"] += 1
        for end in (self, peer):
            if end is not None and not end._over:
                keep = self._network.rng.randrange(len(end._in_flight) + 1)
                while len(end._in_flight) > keep:
                    end._in_flight.pop()
                end._writing.clear()
                end._writing_bytes = 0
                end._send(_RESET)

    def unblock(self) -> None:
        """The way to the peer may be open again."""
        self._deliver()

    def _pump_soon(self) -> None:
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump, context=self._kernel)

    def _pump(self) -> None:
        """Moves bytes from the write buffer into flight, as far as the window reaches."""
        self._pump_scheduled = False
        if self._over:
            return
        room = WINDOW_BYTES - self._unread_bytes
        if self._writing and room > 0:
            data = self._writing.popleft() if len(self._writing) == 1 else b"".join(self._writing)
            self._writing.clear()
            if len(data) > room:
                self._writing.append(data[room:])
                data = data[:room]
            self._writing_bytes -= len(data)
            self._unread_bytes += len(data)
            self._send_cut(data)
        if self._paused_writing and self._writing_bytes <= self._low_bytes:
            self._paused_writing = False
            self._loop.call_soon(self._protocol.resume_writing, context=self._context)
        if self._writing:
            return
        if self._end_sent and not self._closing:
            self._send(_END)
        elif self._closing:
            self._send(_END)
            self._finish(None)

    def _send_cut(self, data: bytes) -> None:
        rng, faults = self._network.rng, self._network.faults
        if faults.loss_probability and rng.random() < faults.loss_probability:
            self._send(data)
            self.lose()
            return
        while faults.split_probability and len(data) > 1 and rng.random() < faults.split_probability:
            cut = rng.randrange(1, min(len(data), 64)) if rng.random() < 0.5 else rng.randrange(1, len(data))
            self._send(data[:cut])
            data = data[cut:]
        self._send(data)

    def _send(self, item: Any) -> None:
        faults = self._network.faults
        due = self._loop.time() + self._latency_s
        if faults.jitter_s:
            due += self._network.rng.random() * faults.jitter_s
        if self._in_flight and self._in_flight[-1][0] > due:
            due = self._in_flight[-1][0]
        self._in_flight.append((due, item))
        if self._delivery is None:
            self._delivery = self._loop.call_at(due, self._deliver, context=self._kernel)

    def _deliver(self) -> None:
        """Hands over what is due."""
        if self._delivery is not None:
            self._delivery.cancel()
            self._delivery = None
        if self._peer is None:
            return
        if self._network.is_blocked(self.local[0], self.remote[0]):
            self._network.hold_back(self)
            return
        now = self._loop.time()
        while self._in_flight and self._in_flight[0][0] <= now:
            self._peer._receive(self._in_flight.popleft()[1])
        if self._in_flight:
            self._delivery = self._loop.call_at(self._in_flight[0][0], self._deliver, context=self._kernel)

    def _was_read(self, size_bytes: int) -> None:
        self._unread_bytes -= size_bytes
        if self._writing:
            self._pump_soon()

    def _receive(self, item: Any) -> None:
        if self._over:
            if item is not _END and item is not _RESET:
                self._send(_RESET)  # the kernel's answer to bytes for a socket that is gone
            return
        if self._closing and item is not _RESET:
            if item is not _END and self._peer is not None:
                self._peer._was_read(len(item))
            return
        self._received.append(item)
        if item is _RESET or self._reading:
            self._read_soon()

    def _read_soon(self) -> None:
        if not self._read_scheduled and self._received:
            self._read_scheduled = True
            self._loop.call_soon(self._read_scheduled_now, context=self._context)

    def _read_scheduled_now(self) -> None:
        self._read_scheduled = False
        self._read()

    def _read(self) -> None:
        while self._started and self._received and not self._over:
            item = self._received[0]
            if not self._reading and item is not _RESET:
                if self._received[-1] is _RESET:
                    self._finish(ConnectionResetError(104, "connection reset by peer"))
                return
            self._received.popleft()
            if item is _RESET:
                self._finish(ConnectionResetError(104, "connection reset by peer"))
            elif item is _END:
                self._read_end()
            else:
                self._read_bytes(item)

    def _read_bytes(self, data: bytes) -> None:
        self._network.bytes_delivered += len(data)
        if self._peer is not None:
            self._peer._was_read(len(data))
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(data)
            return
        view = memoryview(data)
        while view and not self._over:
            buffer = memoryview(protocol.get_buffer(-1)).cast("B")
            assert len(buffer) > 0, "get_buffer() returned an empty buffer"
            size_bytes = min(len(buffer), len(view))
            buffer[:size_bytes] = view[:size_bytes]
            view = view[size_bytes:]
            protocol.buffer_updated(size_bytes)
            if view and not self._reading:
                self._received.appendleft(bytes(view))
                if self._peer is not None:
                    self._peer._unread_bytes += len(view)
                return

    def _read_end(self) -> None:
        protocol = self._protocol
        keep_open = (
            protocol.eof_received() if isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol) else None
        )
        if not keep_open:
            self.close()

    def _finish(self, error: Exception | None) -> None:
        """Over for this end: the protocol learns it, bytes that are in flight still arrive."""
        if self._over:
            return
        self._over = self._closing = True
        self._received.clear()
        self._writing.clear()
        self._writing_bytes = 0
        if self._forget_death is not None:
            self._forget_death()
            self._forget_death = None
        self._network.closed(self)
        self._loop.call_soon(self._connection_lost, error, context=self._context)

    def _connection_lost(self, error: Exception | None) -> None:
        if not self._started:
            return
        self._protocol.connection_lost(error)

    def _die(self) -> None:
        """The process is dead: the kernel closes the socket."""
        self._forget_death = None
        if not self._over:
            if self._writing:
                self._pump()
            self._send(_RESET)
            self._over = self._closing = True
            self._network.closed(self)
