"""Calls to one node over one connection, which is made when it is first needed and again after it was lost.

Owns which calls are waiting to be sent and which to be answered, and what is said of them when the connection ends: a
call of which nothing was written certainly was not applied (NotSent, a NotReady), of any other nobody knows
(ConnectionLost, an UnknownOutcome). After a loss nothing is sent for a moment: who waits for the calls that failed
learns of them before a later one of theirs can overtake.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import structlog
from typing_extensions import Buffer

from bmq.errors import BmqError, InvalidRequest, NotReady, WireError
from bmq.internal import limits
from bmq.internal.framing.apis import PINGS_FROM, Api, Purpose, api_name, attachments_of_calls_max
from bmq.internal.framing.failures import ConnectionLost, Failure, NotSent, decode_failure
from bmq.internal.framing.frames import PREFIX_SIZE_BYTES, Frame, Kind, encode_frame, too_large
from bmq.internal.framing.hello import Identity
from bmq.internal.links.link import Link
from bmq.roles.unheard import Settling
from bmq.values import NodeId

T = TypeVar("T")
log = structlog.get_logger(__name__)

WRITE_BYTES = 256 << 10
"""So much is handed to the transport at a time: what it does not take is still certain not to have been sent."""


class _Call:
    """`parts` None: it was written. `key` orders it among refused ones. `answer` is what has come of an answer that
    comes in parts.
    """

    __slots__ = ("answer", "answer_bytes", "api", "correlation_id", "decode", "future", "key", "parts", "size_bytes")

    def __init__(
        self,
        api: Api,
        correlation_id: int,
        parts: list[Buffer],
        *,
        size_bytes: int,
        decode: Callable[[Frame], Any],
        key: Hashable,
    ) -> None:
        self.api = api
        self.correlation_id = correlation_id
        self.parts: list[Buffer] | None = parts
        self.size_bytes = size_bytes
        self.decode = decode
        self.key = key
        self.answer: list[memoryview] = []
        self.answer_bytes = 0
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def fail(self, error: BmqError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class InternalClient:
    """Calls to node `peer` at (host, port) for one purpose."""

    def __init__(
        self, host: str, port: int, *, peer: NodeId, purpose: Purpose, me: Identity, scratch: bytearray | None = None
    ) -> None:
        """`scratch` may be shared by the clients of a loop."""
        self.peer = peer
        self.purpose = purpose
        self.me = me
        self.scratch = bytearray(limits.RECEIVE_BUFFER_BYTES) if scratch is None else scratch
        self.refusal_heard = 0
        """The number of the newest refused append of this connection that is known here."""
        self._host = host
        self._port = port
        self._name = f"node {peer} at {host}:{port}"
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._link: Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._next_id = 1
        self._calls: dict[int, _Call] = {}
        """Not answered yet, in the order of their calling."""
        self._by_key: dict[Hashable, dict[int, _Call]] = {}
        """Those of them that have a key."""
        self._settling = Settling(self._loop)
        self._queue: deque[_Call] = deque()
        self._queued_bytes = 0
        self._cancelled: list[int] = []
        self._flush_due = False
        self._backoff_s = limits.BACKOFF_FIRST_S
        self._retry_at = 0.0
        self._reason = ""
        self._ticker: asyncio.TimerHandle | None = None
        self._silent_ticks = 0

    @property
    def is_connected(self) -> bool:
        """Whether calls go out now."""
        return self._link is not None

    @property
    def unanswered(self) -> int:
        """Calls that wait to be sent or answered."""
        return len(self._calls)

    def submit(
        self,
        api: Api,
        header: bytes,
        decode: Callable[[Frame], T],
        *,
        attachments: Sequence[Buffer] = (),
        key: Hashable = None,
    ) -> "asyncio.Future[T]":
        """Takes a call before it returns: calls go out in their order. The future gets what `decode` makes of the
        reply, or a BmqError.

        With a `key` (APPEND: the partition), what was called behind a refused call of that key fails with it
        (bmq.internal.framing.refusals).
        """
        return self._take(api, header, decode, attachments, key).future

    async def call(self, api: Api, header: bytes, decode: Callable[[Frame], T], *, timeout_s: float | None = None) -> T:
        """One call and its reply. Who is cancelled or out of time tells the other side to stop.

        Raises NotSent, ConnectionLost (also where the time was up), and what the other side raised.
        """
        call = self._take(api, header, decode, (), None)
        del header  # an answer may take long
        try:
            async with asyncio.timeout(timeout_s):
                result: T = await call.future
                return result
        except TimeoutError:
            raise self._unanswered(call, f"did not answer within {timeout_s} s") from None
        finally:
            self._forget(call)

    async def close(self) -> None:
        """Ends the connection; what was not answered fails."""
        self._closed = True
        self._reason = f"the connection to {self._name} was closed here"
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
        if self._link is not None:
            self._link.abort("it was closed here")
        self._fail_all("it was closed here")

    def _take(
        self, api: Api, header: bytes, decode: Callable[[Frame], Any], attachments: Sequence[Buffer], key: Hashable
    ) -> _Call:
        correlation_id, self._next_id = self._next_id, self._next_id + 1
        parts = encode_frame(
            Kind.REQUEST, api_key=api, correlation_id=correlation_id, header=header, attachments=attachments
        )
        size_bytes = sum([memoryview(part).nbytes for part in parts])
        call = _Call(api, correlation_id, parts, size_bytes=size_bytes, decode=decode, key=key)
        refused = self._unsendable(call, len(header)) or self._refusal(size_bytes, key)
        if refused is not None:
            call.fail(refused)
            return call
        self._calls[correlation_id] = call
        if key is not None:
            self._by_key.setdefault(key, {})[correlation_id] = call
        self._queue.append(call)
        self._queued_bytes += size_bytes
        if self._link is None:
            self._connect()
        else:
            self._flush_soon()
        return call

    def _unsendable(self, call: _Call, header_bytes: int) -> InvalidRequest | None:
        """Why the other side would end the connection, and fail all other calls, if it were sent this one."""
        reason = too_large(
            header_bytes=header_bytes,
            attachment_bytes=call.size_bytes - PREFIX_SIZE_BYTES - header_bytes,
            attachment_bytes_max=attachments_of_calls_max(self.purpose),
        )
        return None if reason is None else InvalidRequest(f"{api_name(call.api)} {reason}")

    def _refusal(self, size_bytes: int, key: Hashable) -> NotSent | None:
        """Why nothing is taken now. Nothing was applied then."""
        link = self._link
        if self._closed or (link is None and self._connecting is None and self._loop.time() < self._retry_at):
            return NotSent(self._reason)
        if key in self._settling:
            return NotSent(f"{self._name} refused an earlier batch of {key} in this moment")
        if link is not None and link.is_leaving:
            return NotSent(f"{self._name} is stopping")
        if len(self._calls) >= limits.CALLS_MAX:
            return NotSent(f"{limits.CALLS_MAX} calls to {self._name} are not answered yet")
        if self._queue and self._queued_bytes + size_bytes > limits.QUEUED_BYTES_MAX:
            return NotSent(f"{self._name} takes no more for now: {self._queued_bytes} bytes are waiting")
        return None

    def _flush_soon(self) -> None:
        """What is called in one turn of the loop goes out in one write."""
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        link = self._link
        if link is None or link.is_paused:
            return
        parts: list[Buffer] = []
        for correlation_id in self._cancelled:
            parts += encode_frame(Kind.CANCEL, correlation_id=correlation_id)
        self._cancelled.clear()
        size_bytes = 0
        queue = self._queue
        while queue and not link.is_paused:
            call = queue.popleft()
            self._queued_bytes -= call.size_bytes
            assert call.parts is not None
            if call.future.done():
                self._remove(call)
                continue
            parts += call.parts
            call.parts = None
            size_bytes += call.size_bytes
            if size_bytes >= WRITE_BYTES:
                link.write(parts)
                parts, size_bytes = [], 0
        if parts:
            link.write(parts)

    def _forget(self, call: _Call) -> None:
        """Its caller is gone. Answered ones are forgotten already."""
        if not self._remove(call):
            return
        call.future.cancel()
        if call.parts is None and self._link is not None:
            self._cancelled.append(call.correlation_id)
            self._flush_soon()

    def _remove(self, call: _Call) -> bool:
        """False: it was forgotten already."""
        if self._calls.pop(call.correlation_id, None) is None:
            return False
        if call.key is not None:
            same = self._by_key[call.key]
            del same[call.correlation_id]
            if not same:
                del self._by_key[call.key]
        return True

    def _unanswered(self, call: _Call, why: str) -> BmqError:
        if call.parts is not None:
            return NotSent(f"{self._name} {why}; {api_name(call.api)} was not sent")
        return ConnectionLost(f"{self._name} {why}: whether {api_name(call.api)} was carried out is not known")

    def _connect(self) -> None:
        if self._connecting is None:
            self._connecting = self._loop.create_task(
                self._connected(), name=f"connect to {self._name} for {self.purpose.name.lower()}"
            )

    async def _connected(self) -> None:
        """Makes one try; `welcomed` or `lost` says how it went, unless there was no connection at all."""
        link = Link(self)
        reason = "it was not reached"
        try:
            async with asyncio.timeout(limits.CONNECT_TIMEOUT_S):
                await self._loop.create_connection(lambda: link, self._host, self._port)
                await link.greeted
                return
        except TimeoutError:
            reason = f"no answer within {limits.CONNECT_TIMEOUT_S} s"
        except OSError as error:
            reason = f"it cannot be reached ({error})"
        except BmqError:
            return
        finally:
            self._connecting = None
            if self._link is not link:
                link.abort(reason)

    def welcomed(self, link: Link) -> None:
        """The link's: calls may go."""
        self._link = link
        self._backoff_s = limits.BACKOFF_FIRST_S
        self._listen()
        self._flush_soon()

    def writable(self, link: Link) -> None:
        """The link's."""
        if link is self._link:
            self._flush_soon()

    def lost(self, link: Link, reason: str) -> None:
        """The link's: it is over. What was written is unknown, the rest was not sent, in the order in which it was
        called.
        """
        stood = link is self._link
        if stood:
            self._link = None
            self._cancelled.clear()
        elif self._backoff_s == limits.BACKOFF_FIRST_S and not self._closed:
            log.warning("no internal connection", peer=self._name, purpose=self.purpose.name.lower(), reason=reason)
        if not self._closed:
            self._reason = f"{self._name}: {reason}"
        self._retry_at = self._loop.time() + (limits.BACKOFF_FIRST_S if stood else self._backoff_s)
        self._backoff_s = limits.BACKOFF_FIRST_S if stood else min(2 * self._backoff_s, limits.BACKOFF_MAX_S)
        self.refusal_heard = 0  # here and not with the next welcome: what waits for that is written down already
        self._fail_all(reason)

    def _fail_all(self, reason: str) -> None:
        calls, self._calls = self._calls, {}
        self._by_key.clear()
        self._queue.clear()
        self._queued_bytes = 0
        for call in calls.values():
            call.fail(self._unanswered(call, f"({reason})"))

    def received(self, link: Link, frame: Frame) -> None:
        """The link's. Raises WireError."""
        match frame.kind:
            case Kind.REPLY | Kind.ERROR | Kind.PART:
                self._answered(frame)
            case Kind.ALIVE:
                pass
            case Kind.GOODBYE:
                self._leave(link)
            case _:
                raise WireError(f"a server sent a frame of kind {frame.kind}")
        if link.is_leaving and not self._calls:
            link.close()

    def _answered(self, frame: Frame) -> None:
        call = self._calls.get(frame.correlation_id)
        if call is None:
            if frame.correlation_id >= self._next_id:
                raise WireError(f"an answer to call {frame.correlation_id}, which was not made")
            return  # nobody wants it any more
        if call.parts is not None:
            raise WireError(f"an answer to call {frame.correlation_id}, which was not sent")
        if frame.kind == Kind.PART:
            call.answer.append(frame.header)
            call.answer_bytes += len(frame.header)
            if call.answer_bytes > limits.ANSWER_BYTES_MAX:
                raise WireError(f"an answer of more than {limits.ANSWER_BYTES_MAX} bytes to call {call.correlation_id}")
            return
        # Read before it is forgotten: an answer that cannot be read ends the connection, and the outcome is unknown.
        if frame.kind == Kind.ERROR:
            failure = decode_failure(frame.header)
            self._remove(call)
            call.fail(failure.error())
            if failure.refusal and call.key is not None:
                self._refused(call, failure)
            return
        if call.answer:
            frame = frame._replace(header=memoryview(b"".join((*call.answer, frame.header))))
            call.answer.clear()
        result = call.decode(frame)
        self._remove(call)
        if not call.future.done():
            call.future.set_result(result)

    def _refused(self, call: _Call, failure: Failure) -> None:
        """What follows a refused call is refused as well, so it fails here and now: whoever sends them again sends them
        in order.
        """
        self.refusal_heard = failure.refusal
        for behind in list(self._by_key.get(call.key, {}).values()):
            if behind.correlation_id > failure.looked_at:
                self._remove(behind)
                behind.fail(
                    NotReady(f"{self._name} refused an earlier batch of {call.key}, which has to be sent again first")
                )
        self._settling.refused(call.key)

    def _leave(self, link: Link) -> None:
        """Everything written is still answered; nothing more goes out, and what waited certainly was not sent."""
        link.is_leaving = True
        while self._queue:
            call = self._queue.popleft()
            self._queued_bytes -= call.size_bytes
            self._remove(call)
            call.fail(self._unanswered(call, "is stopping"))

    def _listen(self) -> None:
        """From the welcome on, whether something is waited for or not: that a peer is gone is known before the next
        call needs it.
        """
        self._silent_ticks = 0
        if self._ticker is None:
            self._ticker = self._loop.call_later(limits.ALIVE_EVERY_S, self._tick)

    def _tick(self) -> None:
        self._ticker = None
        link = self._link
        if link is None:
            return
        self._silent_ticks = 0 if link.was_heard else self._silent_ticks + 1
        link.was_heard = False
        if self._silent_ticks >= limits.SILENT_TICKS_MAX:
            link.abort(f"nothing was heard of it for {limits.SILENT_TICKS_MAX * limits.ALIVE_EVERY_S:.0f} s")
            return
        if self._silent_ticks and not self._calls and link.version >= PINGS_FROM:
            link.write(encode_frame(Kind.PING))
        self._ticker = self._loop.call_later(limits.ALIVE_EVERY_S, self._tick)
