"""One connection of a server: hello, calls in, answers out in whatever order they are ready. Knows nothing of what the
calls mean.

A produce connection is not read while too much of it is being worked on, or its answers are not read. The others are
read whatever is worked on, and what is too much there is refused: only while their peer leaves too much of its answers
unread they are not. Clients always read, so that no two nodes ever wait for each other. A long answer goes out in parts
as the peer takes them, and others' in between. What the peer would refuse fails its call and no other.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import msgspec
from typing_extensions import Buffer

from bmq.errors import BmqError, InvalidRequest, NotOwner, NotReady, UnknownOutcome, WireError
from bmq.internal import limits
from bmq.internal.framing.apis import (
    APIS,
    PARTS_FROM,
    Purpose,
    api_name,
    attachments_of_answers_max,
    attachments_of_calls_max,
)
from bmq.internal.framing.failures import encode_failure
from bmq.internal.framing.frames import Frame, FrameReader, Kind, encode_frame, too_large
from bmq.internal.framing.hello import BYTES, HELLO, WELCOME, Hello, Identity, Welcome, check_proof, welcome
from bmq.internal.framing.packing import whole
from bmq.internal.framing.refusals import Refusals
from bmq.internal.framing.routes import Handlers, Incoming, Kept, Outgoing, Route
from bmq.internal.framing.secret import Challenge
from bmq.internal.links.long_answers import LongAnswers, Unsendable
from bmq.internal.links.room import ProduceRoom


class Service(Protocol):
    """What a connection needs of its server."""

    me: Identity
    handlers: Handlers
    room: ProduceRoom
    scratch: bytearray
    is_stopping: bool

    def opened(self, connection: "Connection") -> bool:
        """False: there are too many."""

    def welcomed(self, connection: "Connection") -> bool:
        """It has shown that it belongs here. False: there are too many of those."""

    def closed(self, connection: "Connection") -> None: ...

    def broken(self, peer: str, reason: str) -> None:
        """Somebody sent what is not the protocol, or does not belong here."""

    def began(self, work: "asyncio.Task[Any]") -> None:
        """A task of this server works on a call, and may outlive its connection."""


@dataclass(slots=True)
class _Challenged:
    """A client that has yet to prove that it knows the secret, and what it is answered then."""

    said: Hello
    answer: Welcome
    challenge: Challenge


@dataclass(slots=True)
class _Running:
    route: Route[Any]
    work: "asyncio.Future[Any]"
    api_key: int
    size_bytes: int


class Connection(asyncio.BufferedProtocol):
    """Plumbing between a transport and a Service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._reader = FrameReader(scratch=service.scratch)
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._purpose: Purpose | None = None
        self._version = 0
        self._challenged: _Challenged | None = None
        self._running: dict[int, _Running] = {}
        self._waiting: deque[Frame] = deque()
        """Calls that start when the peer reads its answers again."""
        self._waiting_bytes = 0
        self._held_bytes = 0
        self._refusals = Refusals()
        self._kept = Kept(service.began)
        self._outgoing: list[Buffer] = []
        self._flush_due = False
        self._long = LongAnswers()
        self._part_due = False
        self._reading = True
        self._write_paused = False
        self._leaving = False
        self._closing = False
        self._spoke = False
        self._unsent_bytes = 0
        self._still_ticks = 0
        """For how many ticks nothing came of what is waited for: the hello, a call, the peer's reading or closing."""

    @property
    def peer(self) -> str:
        """The other side's address, with its port."""
        return self._peer

    @property
    def host(self) -> str:
        """The same without the port."""
        return self._peer.rpartition(":")[0]

    @property
    def has_work(self) -> bool:
        """Whether calls are not answered yet."""
        return bool(self._running or self._waiting or self._long)

    @property
    def _calls(self) -> int:
        return len(self._running) + len(self._waiting) + len(self._long)

    @property
    def is_read(self) -> bool:
        """Whether more is taken of what the peer sends."""
        return self._reading

    @property
    def untaken_bytes(self) -> int:
        """Answers that the peer has not read, and calls that wait until it does."""
        written_bytes = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._waiting_bytes + self._long.packed_bytes + written_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else str(peer or "")
        if not self._service.opened(self):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._transport = None
        self._outgoing.clear()
        self._long.clear()
        self._clear_waiting()
        self._service.room.withdraw(self._update_reading)
        for running in list(self._running.values()):
            # Everything else is carried through; its memory is given back when it is over.
            if self._ends_with_caller(running):
                running.work.cancel()
        self._kept.close()
        self._service.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        try:
            for frame in self._reader.arrived(nbytes):
                self._arrived(frame)
                if self._closing:
                    return
        except WireError as error:
            self._refuse_peer(error)
            return
        self._update_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._update_reading()
        while self._waiting and not self._write_paused and not self._closing:
            frame = self._waiting.popleft()
            self._waiting_bytes -= frame.size_bytes
            self._begin(frame)
        self._part_soon()

    def tick(self) -> None:
        """Once every ALIVE_EVERY_S: says that this side is there, ends what nobody uses or reads."""
        if self._transport is None:
            return
        unsent_bytes = self._transport.get_write_buffer_size()
        stalled = self._write_paused and unsent_bytes >= self._unsent_bytes
        self._unsent_bytes = unsent_bytes
        waited_for = self._purpose is not None and (self.has_work or not self._reading)
        self._still_ticks = 0 if waited_for and not stalled else self._still_ticks + 1
        if self._purpose is None:
            if self._still_ticks > limits.HELLO_WITHIN_TICKS:
                self.abort()
        elif stalled or (self._leaving and not waited_for):
            if self._still_ticks > limits.STALLED_TICKS_MAX:
                self.abort()
        elif self._still_ticks > limits.IDLE_TICKS_MAX:
            self.say_goodbye()
        elif waited_for and not self._spoke:
            self._transport.writelines(cast("list[memoryview]", encode_frame(Kind.ALIVE)))
        self._spoke = False

    def say_goodbye(self) -> None:
        """Takes no new calls; the other side closes once everything is answered. Long polls end now."""
        if self._leaving or self._closing:
            return
        if self._purpose is None:
            self.abort()
            return
        self._leaving = True
        self._still_ticks = 0
        self._send(encode_frame(Kind.GOODBYE))
        for frame in self._clear_waiting():
            self._fail(frame.correlation_id, self._gone())
        for correlation_id, running in list(self._running.items()):
            if APIS[running.api_key].stoppable:
                self._stop(correlation_id, running)
                self._fail(correlation_id, self._gone())
        self._update_reading()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _arrived(self, frame: Frame) -> None:
        if self._purpose is None:
            self._greet(frame)
        elif frame.kind == Kind.REQUEST:
            self._request(frame)
        elif frame.kind == Kind.CANCEL:
            self._cancel(frame.correlation_id)
        elif frame.kind == Kind.PING:
            self._send(encode_frame(Kind.ALIVE))
        else:
            raise WireError(f"a client sent a frame of kind {frame.kind}")

    def _greet(self, frame: Frame) -> None:
        """Says hello to who belongs here and, where this node has a secret, has proved that it knows it."""
        challenged = self._challenged
        if challenged is not None and frame.kind == Kind.PROOF:
            check_proof(challenged.said, challenged.challenge, BYTES.decode(frame.header))
            answer = msgspec.structs.replace(challenged.answer, proof=challenged.challenge.server_proof())
            self._welcome(Purpose(challenged.said.purpose), answer)
            return
        if challenged is not None or frame.kind != Kind.HELLO:
            raise WireError(f"a frame of kind {frame.kind} before the hello")
        said = HELLO.decode(frame.header)
        answer = welcome(self._service.me, said)
        secret = self._service.me.secret
        if secret is None:
            self._welcome(Purpose(said.purpose), answer)
            return
        self._challenged = _Challenged(said, answer, secret.challenge(bytes(frame.header), secret.nonce()))
        self._send(encode_frame(Kind.CHALLENGE, header=BYTES.encode(self._challenged.challenge.nonce)))

    def _welcome(self, purpose: Purpose, answer: Welcome) -> None:
        if self._service.is_stopping:
            raise WireError(f"node {self._service.me.node_id} is stopping")
        if not self._service.welcomed(self):
            raise WireError(
                f"node {self._service.me.node_id} has {limits.CONNECTIONS_MAX} connections of nodes already"
            )
        self._purpose = purpose
        self._challenged = None
        self._still_ticks = 0
        self._version = answer.version
        self._reader.trust(attachment_bytes_max=attachments_of_calls_max(purpose))
        self._send(encode_frame(Kind.HELLO, header=WELCOME.encode(answer)))

    def _request(self, frame: Frame) -> None:
        correlation_id = frame.correlation_id
        if not correlation_id or correlation_id in self._running or correlation_id in self._long:
            raise WireError(f"correlation id {correlation_id} is used twice")
        if not self._leaving:
            self._still_ticks = 0
        if frame.api_key not in self._service.handlers:
            self._fail(
                correlation_id,
                NotOwner(
                    f"node {self._service.me.node_id} does not serve {api_name(frame.api_key)}: it has not that role"
                ),
            )
        elif APIS[frame.api_key].purpose is not self._purpose:
            raise WireError(f"{api_name(frame.api_key)} on a connection of another purpose")
        elif self._leaving or self._service.is_stopping:
            self._fail(correlation_id, self._gone())
        elif self._purpose is not Purpose.PRODUCE and self._calls >= limits.CALLS_MAX:
            self._fail(
                correlation_id,
                NotReady(f"node {self._service.me.node_id} has {limits.CALLS_MAX} calls of this connection to answer"),
            )
        elif self._write_paused and self._purpose is not Purpose.PRODUCE:
            self._waiting.append(frame)
            self._waiting_bytes += frame.size_bytes
        else:
            self._begin(frame)

    def _begin(self, frame: Frame) -> None:
        correlation_id = frame.correlation_id
        route = self._service.handlers[frame.api_key]
        try:
            work = route.begin(Incoming(correlation_id, frame.header, frame.attachments, self._refusals, self._kept))
        except BmqError as error:
            self._fail(correlation_id, error)
            return
        except Exception as error:  # noqa: BLE001 - a bug: it is told to the loop and to the caller, and the connection lives on
            self._bug(frame.api_key, error)
            self._fail(correlation_id, error)
            return
        if work.done():
            self._answer(correlation_id, frame.api_key, route, work)
            return
        size_bytes = frame.size_bytes
        self._running[correlation_id] = _Running(route, work, frame.api_key, size_bytes)
        self._held_bytes += size_bytes
        if self._purpose is Purpose.PRODUCE:
            self._service.room.hold(size_bytes)
        if isinstance(work, asyncio.Task):
            self._service.began(work)
        work.add_done_callback(partial(self._done, correlation_id, size_bytes, route))

    def _cancel(self, correlation_id: int) -> None:
        """The caller has forgotten the call: no answer is sent to one that can be stopped."""
        running = self._running.get(correlation_id)
        if running is not None and self._ends_with_caller(running):
            self._stop(correlation_id, running)
        elif running is None and correlation_id in self._long:
            self._long.drop(correlation_id)
        elif running is None and self._waiting:
            waiting = self._clear_waiting()
            self._waiting.extend(frame for frame in waiting if frame.correlation_id != correlation_id)
            self._waiting_bytes = sum([frame.size_bytes for frame in self._waiting])

    def _clear_waiting(self) -> list[Frame]:
        """What waited."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return waiting

    def _ends_with_caller(self, running: _Running) -> bool:
        return APIS[running.api_key].stoppable or running.work in self._kept.ending

    def _stop(self, correlation_id: int, running: _Running) -> None:
        del self._running[correlation_id]
        running.work.cancel()

    def _done(self, correlation_id: int, size_bytes: int, route: Route[Any], work: "asyncio.Future[Any]") -> None:
        running = self._running.pop(correlation_id, None)
        self._held_bytes -= size_bytes
        if running is not None and self._transport is not None and not self._closing:
            self._answer(correlation_id, running.api_key, running.route, work)
            self._update_reading()
        elif not work.cancelled() and work.exception() is None:  # nobody is there any more to be told
            route.drop(work.result())
        if self._purpose is Purpose.PRODUCE:
            self._service.room.give_back(size_bytes)

    def _answer(self, correlation_id: int, api_key: int, route: Route[Any], work: "asyncio.Future[Any]") -> None:
        if work.cancelled():
            stoppable = APIS[api_key].stoppable
            text = f"node {self._service.me.node_id} gave up {api_name(api_key)}"
            self._fail(correlation_id, NotReady(text) if stoppable else UnknownOutcome(f"{text} half-way"))
            return
        try:
            reply = self._checked(api_key, route.encode(work.result()))
        except BmqError as error:
            self._fail(correlation_id, error)
        except Exception as error:  # noqa: BLE001 - a bug: it is told to the loop and to the caller
            self._bug(api_key, error)
            self._fail(correlation_id, error)
        else:
            self._reply(correlation_id, api_key, reply)

    def _checked(self, api_key: int, reply: Outgoing) -> Outgoing:
        """The reply as the peer takes it. Raises InvalidRequest, where it would not, and what packing it raises."""
        assert self._purpose is not None
        in_parts = self._version >= PARTS_FROM
        try:
            if not in_parts:
                reply = reply._replace(header=whole(reply.header))
            header = reply.header
            reason = too_large(
                header_bytes=len(header) if isinstance(header, bytes) else 0,
                header_bytes_max=limits.ANSWER_BYTES_MAX if in_parts else limits.HEADER_BYTES_MAX,
                attachment_bytes=sum([memoryview(part).nbytes for part in reply.attachments]),
                attachment_bytes_max=attachments_of_answers_max(self._purpose),
            )
            if reason is not None:
                raise InvalidRequest(f"the answer to {api_name(api_key)} {reason}")
        except BaseException:
            reply.over()
            raise
        return reply

    def _reply(self, correlation_id: int, api_key: int, reply: Outgoing) -> None:
        header = reply.header
        if isinstance(header, bytes) and (len(header) <= limits.PART_BYTES or self._version < PARTS_FROM):
            self._send(
                encode_frame(
                    Kind.REPLY,
                    api_key=api_key,
                    correlation_id=correlation_id,
                    header=header,
                    attachments=reply.attachments,
                )
            )
            reply.over()
        else:
            self._long.add(correlation_id, api_key, reply)
            self._part_soon()

    def _part_soon(self) -> None:
        if self._long and not self._part_due and not self._write_paused and not self._closing:
            self._part_due = True
            self._loop.call_soon(self._send_parts)

    def _send_parts(self) -> None:
        """About PART_BYTES in one turn of the loop, and more only as the peer takes them."""
        self._part_due = False
        sent_bytes = 0
        while self._long and sent_bytes < limits.PART_BYTES and not self._write_paused and not self._closing:
            try:
                parts = self._long.next_frame()
            except Unsendable as unsendable:
                if not isinstance(unsendable.error, BmqError):
                    self._bug(unsendable.api_key, unsendable.error)
                self._fail(unsendable.correlation_id, unsendable.error)
                continue
            sent_bytes += sum([memoryview(part).nbytes for part in parts])
            self._spoke = True
            if self._transport is not None:
                self._transport.writelines(cast("list[memoryview]", parts))
        self._part_soon()
        self._update_reading()

    def _bug(self, api_key: int, error: BaseException) -> None:
        self._loop.call_exception_handler(
            {"message": f"{api_name(api_key)} of {self._peer} failed", "exception": error}
        )

    def _gone(self) -> NotReady:
        return NotReady(f"node {self._service.me.node_id} takes no more calls on this connection")

    def _fail(self, correlation_id: int, error: BaseException) -> None:
        refusal = self._refusals.take(correlation_id)
        self._send(encode_frame(Kind.ERROR, correlation_id=correlation_id, header=encode_failure(error, refusal)))

    def _send(self, parts: list[Buffer]) -> None:
        """Answers that are ready in one turn of the loop go out in one write."""
        self._outgoing += parts
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._transport is not None and self._outgoing:
            outgoing, self._outgoing = self._outgoing, []
            self._spoke = True
            self._transport.writelines(cast("list[memoryview]", outgoing))

    def _refuse_peer(self, error: WireError) -> None:
        """Says why, and closes."""
        self._closing = True
        self._service.broken(self._peer, str(error))
        self._outgoing += encode_frame(Kind.ERROR, header=encode_failure(error))
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _update_reading(self) -> None:
        """As long as there is room for what comes."""
        if self._transport is None or self._closing:
            return
        read = self._has_room_for_appends() if self._purpose is Purpose.PRODUCE else self._has_room()
        if read and not self._reading:
            self._reading = True
            self._transport.resume_reading()
        elif not read and self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _has_room(self) -> bool:
        is_taken = not self._write_paused and not self._long.packed_bytes
        return is_taken or self.untaken_bytes < limits.UNTAKEN_BYTES_MAX

    def _has_room_for_appends(self) -> bool:
        mine_full = (
            self._write_paused
            or self._held_bytes >= limits.PRODUCE_CONNECTION_BYTES_MAX
            or len(self._running) >= limits.CALLS_MAX
        )
        full = self._service.room.is_full
        if full and not mine_full:
            self._service.room.wait(self._update_reading)
        return not (mine_full or full)
