"""The calls of `bmq.databus.v1.Databus`. Both are streams here, also that of one request: so who calls, and how much
comes at a time, is looked at before the request is read.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import grpc
from grpc import StatusCode

from bmq.fairness.steps import Steps
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import DatabusError
from bmq_databus.grpc.arrivals import Arrivals
from bmq_databus.grpc.call import Call, Context
from bmq_databus.grpc.errors import BadRequest, ClientGone, TooSlow, Unauthenticated
from bmq_databus.grpc.requests import Cut, message_of
from bmq_databus.grpc.results import code_of_all, failed_on_wire, results_on_wire
from bmq_databus.grpc.statuses import (
    REFUSES,
    WHY_CHARS_MAX,
    Failure,
    code_numbered,
    failure_of,
    number_of,
    refusal,
)
from bmq_databus.grpc.streams import LARGE_MAX, Begun, Stream
from bmq_databus.messages.forms import in_slices
from bmq_databus.producing.outcomes import Outcome, retry_after_s
from bmq_databus.producing.writing import SLICE_MESSAGES
from bmq_databus.requests.admission import Admission
from bmq_databus.requests.idempotency import HEADER, Answer, BadKey, key_of
from bmq_databus.requests.places import StreamPlaces
from bmq_databus.requests.room import OneBody
from bmq_databus.requests.written import Requests, fingerprint

SERVICE: Final = "bmq.databus.v1.Databus"
STREAMS_MAX: Final = 32
"""Each has room for a whole request, as nobody can tell whether one comes."""
FIRST_WITHIN_S: Final = 10.0
TURN_CALLS: Final = 8
"""So many begin in one turn of the loop."""
FORM: Final = b"application/grpc"
"""What makes a request that comes again another one than a body of HTTP."""

Answering = Callable[[Call], Awaitable[Failure | None]]
"""Answers a call; what it fails by instead. Raises what `REFUSES` has, and ClientGone."""


class Service:
    """`handlers` are what grpc.aio calls."""

    def __init__(
        self,
        requests: Requests,
        admission: Admission,
        cut: Callable[[str], object],
        called: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """`cut` ends the connection with that peer; `called`: it has a call meanwhile."""
        self._requests = requests
        self._admission = admission
        self._cut_off = cut
        self._called = called
        self._arrivals = Arrivals()
        self._begins = Steps(TURN_CALLS)
        self._large = asyncio.Semaphore(LARGE_MAX)
        self._streams = StreamPlaces[Begun](STREAMS_MAX)
        self._writes: set[asyncio.Task[Failure | None]] = set()

    @property
    def handlers(self) -> grpc.GenericRpcHandler:
        """Requests and answers are bytes."""
        calls = {"Write": self._write, "WriteStream": self._write_stream}
        served: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.stream_stream_rpc_method_handler(partial(self.serve, answer)) for name, answer in calls.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, served)

    async def close(self, *, patience_s: float) -> None:
        """Waits for the outcomes of what was written, also where those who called have left."""
        if self._writes:
            await asyncio.wait(self._writes, timeout=patience_s)
        for one in self._writes:
            one.cancel()

    async def serve(self, answer: Answering, _: object, context: Context, *, is_open: bool = False) -> None:
        """One call, when it is its turn. `is_open`: nobody is asked who they are.

        It ends here, whatever it ends by: no error is being handled any more, and nothing here knows its requests. They
        are let go before anybody waits for its client.
        """
        call = Call(context, self._cut_off)
        with self._called(call.party):
            try:
                failure = await self._answered(answer, call, is_open=is_open)
                if failure is not None:
                    await call.fail(failure)
                return
            except ClientGone:
                pass
            await call.give_up()

    async def _answered(self, answer: Answering, call: Call, *, is_open: bool) -> Failure | None:
        """What it fails by; None: it is answered. Raises ClientGone."""
        try:
            call.check()
            await self._turn(call)
            presented = "".join(call.values("authorization")[:1])
            if not is_open and (why := await self._admission.why_unknown(presented)):
                raise Unauthenticated(f"{why}: send authorization: Bearer TOKEN with one of its --token-file")
            return await answer(call)
        except REFUSES as error:
            return failure_of(error)

    async def _turn(self, call: Call) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if not turn.done():
                turn.set_result(None)

        if not self._begins.may_take(begin, party=call.party):
            await turn

    async def _write(self, call: Call) -> Failure | None:
        request = await self._arrivals.whole(call.request, party=call.party)
        if request is None:
            raise BadRequest("the call has no request")
        cut = await self._cut(request)
        channel = await self._admission.named(cut.channel)
        writing = asyncio.get_running_loop().create_task(
            self._answer(call, channel, request, cut), name=f"gRPC write to {channel.name}"
        )
        self._writes.add(writing)
        writing.add_done_callback(self._is_answered)
        try:
            # Who leaves does not end it: what is written by half would come again with its key as if it were not.
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            call.is_gone = True
            raise
        finally:
            del writing  # what it raises has this frame, with the request, and would be had by it

    def _is_answered(self, writing: "asyncio.Task[Failure | None]") -> None:
        self._writes.discard(writing)
        if not writing.cancelled():
            writing.exception()  # whoever waits for it has it; who does not has left

    async def _answer(self, call: Call, channel: Channel, request: bytes, cut: Cut) -> Failure | None:
        with self._requests.room(channel) as room:
            try:
                answer, later_s = await self._written(call, channel, request, cut, room)
            except REFUSES as error:
                return self._counted(channel, error)
            room.hold(len(answer.body))
            code = code_numbered(answer.status)
            if code is not StatusCode.OK:
                return Failure(code=code, why=answer.body.decode()[:WHY_CHARS_MAX], retry_after_s=later_s)
            await call.answer(answer.body)
            return None

    async def _written(
        self, call: Call, channel: Channel, request: bytes, cut: Cut, room: OneBody
    ) -> tuple[Answer, int | None]:
        """And in how many seconds what was refused would be taken. Raises what `REFUSES` has."""
        self._admission.check(channel)
        key = key_of(call.values(HEADER))
        room.take(len(request))
        messages = partial(in_slices, cut.messages, message_of)
        if key is None:
            outcomes = await self._requests.written(channel, messages, request=call.headers, room=room)
            return await self._answer_to(outcomes), retry_after_s(outcomes)
        answer, outcomes = await self._requests.written_once(
            channel,
            messages,
            request=call.headers,
            room=room,
            key=key,
            fingerprint=await fingerprint(channel, FORM, request, request=call.headers),
            answer=_answer_to,
        )
        return answer, retry_after_s(outcomes)

    async def _answer_to(self, outcomes: list[Outcome]) -> Answer:
        """In slices."""
        if len(outcomes) <= SLICE_MESSAGES or code_of_all(outcomes) is not StatusCode.OK:
            return _answer_to(outcomes)
        found = []
        for at in range(0, len(outcomes), SLICE_MESSAGES):
            found.append(results_on_wire(outcomes[at : at + SLICE_MESSAGES]))
            await self._requests.writing.turns.turn()
        return Answer(number_of(StatusCode.OK), b"".join((*found, failed_on_wire(outcomes))))

    async def _write_stream(self, call: Call) -> Failure | None:
        self._streams.check()
        begun = Begun(call)
        with self._streams.open(begun):
            first = await self._first(begun)
            channel = await self._admission.named(first.channel)
            try:
                self._admission.check(channel)
                if call.values(HEADER):
                    raise BadKey(f"a stream has no {HEADER}: use Write with one each")
                self._requests.streams.check()
            except REFUSES as error:
                return self._counted(channel, error)
            stream = Stream(self._requests, channel, call, large=self._large)
            with self._requests.streams.open(stream):
                return await begun.run(stream, first)

    async def _first(self, begun: Begun) -> Cut:
        """The request that names the channel. Raises TooSlow, BadRequest, GaveWay."""
        try:
            request = await begun.first(within_s=FIRST_WITHIN_S)
        except TimeoutError:
            raise TooSlow(f"no request came within {FIRST_WITHIN_S:g} s") from None
        if request is None:
            raise BadRequest("the stream has no request that names a channel")
        return await self._cut(request)

    async def _cut(self, request: bytes) -> Cut:
        """Raises BadRequest."""
        cut = Cut(request)
        while cut.go_on():
            await self._requests.writing.turns.turn()
        return cut

    def _counted(self, channel: Channel, error: DatabusError) -> Failure:
        self._requests.refused(channel, refusal(error)[1])
        return failure_of(error)


def _answer_to(outcomes: list[Outcome]) -> Answer:
    """A call's: its code, and its response or what is wrong."""
    code = code_of_all(outcomes)
    if code is StatusCode.OK:
        return Answer(number_of(code), results_on_wire(outcomes) + failed_on_wire(outcomes))
    many = f"none of {len(outcomes)} messages: " if len(outcomes) > 1 else ""
    return Answer(number_of(code), f"{many}{outcomes[0]['error']}".encode())
