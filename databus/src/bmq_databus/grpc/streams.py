"""A WriteStream: requests without an end, written as they come, with results as soon as they are known."""

import asyncio
from typing import Final

from bmq_databus.channels.channel import Channel
from bmq_databus.errors import DatabusError
from bmq_databus.grpc.call import Call
from bmq_databus.grpc.errors import BadRequest, StreamOver
from bmq_databus.grpc.requests import Cut, message_of
from bmq_databus.grpc.results import results_on_wire
from bmq_databus.grpc.statuses import REFUSES, Failure, failure_of
from bmq_databus.producing.outcomes import Outcome
from bmq_databus.requests.admission import Ending
from bmq_databus.requests.places import GaveWay
from bmq_databus.requests.room import TooMuchAtOnce
from bmq_databus.requests.streams import IDLE_S, StreamWriting
from bmq_databus.requests.written import PATIENCE_S, Requests

LARGE_BYTES: Final = 256 << 10
"""A request that is longer is a large one, of which all streams together have few at a time."""
LARGE_MAX: Final = 4
LARGE_WITHIN_S: Final = 30.0
"""How long one waits for its turn."""
RESULTS_BYTES: Final = 64 << 10
"""What one response has, about."""
RESULT_BYTES: Final = 32
"""And a result of a message that is written."""


class Stream:
    """One call's. `run` answers it."""

    def __init__(self, requests: Requests, channel: Channel, call: Call, *, large: asyncio.Semaphore) -> None:
        """`large`: the turns of large requests, for all streams."""
        self._writing = StreamWriting(
            requests.writing,
            channel.name,
            message_of,
            request=call.headers,
            patience_s=PATIENCE_S,
            unanswered_bytes_max=requests.streams.unanswered_bytes_max,
        )
        self._turns = requests.writing.turns
        self._name = channel.name
        self._call = call
        self._large = large
        self._end: Failure | None = None
        """Why nothing more is read; None: all was."""

    def end(self) -> None:
        """The sidecar ends: nothing more is read. What is under way is answered, if it comes in time."""
        self._read_no_more(Ending("this sidecar is ending: send the rest again"))

    def give_way(self) -> None:
        """Others wait for its place: nothing more is read."""
        self._read_no_more(GaveWay())

    def _read_no_more(self, why: DatabusError) -> None:
        self._writing.end(why)
        self._call.interrupt()

    @property
    def is_leaving(self) -> bool:
        """Whether nothing more is read."""
        return self._writing.is_ending

    @property
    def quiet_s(self) -> float:
        """How long ago its last message came, or was answered; 0: one is under way."""
        return self._writing.quiet_s

    async def run(self, first: Cut) -> Failure | None:
        """The whole answer, and what it ends by; `first` is the request that named the channel. Raises ClientGone."""
        reading = asyncio.get_running_loop().create_task(self._read(first), name=f"gRPC stream to {self._name}")
        try:
            while True:
                outcomes, size_bytes = await self._writing.results.take()
                self._writing.count()
                if not outcomes:
                    break
                for some in _in_responses(outcomes):
                    await self._call.answer(results_on_wire(some))
                self._writing.answered(size_bytes)
            await reading
        finally:
            self._writing.count()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return self._end

    async def _read(self, first: Cut) -> None:
        """To its end, whatever that is."""
        try:
            request: Cut | None = first
            while request is not None and not self._writing.is_ending:
                await self._write(request)
                request = await self._next()
            if self._writing.ending is not None:
                self._end = failure_of(self._writing.ending)
        except REFUSES as error:
            self._end = failure_of(error)
        except BaseException:
            self._writing.results.abandon()
            raise
        finally:
            self._writing.results.close()

    async def _next(self) -> Cut | None:
        try:
            request = await self._call.request_within(max(0.0, IDLE_S - self._writing.quiet_s))
            return None if request is None else Cut(request)
        except TimeoutError:
            raise StreamOver(f"no message came for {IDLE_S:g} s: begin another stream") from None

    async def _write(self, request: Cut) -> None:
        if request.size_bytes <= LARGE_BYTES:
            await self._write_now(request)
            return
        try:
            async with asyncio.timeout(LARGE_WITHIN_S):
                await self._large.acquire()
        except TimeoutError:
            raise TooMuchAtOnce(
                f"{LARGE_MAX} requests of streams of more than {LARGE_BYTES} bytes are under way already: try again"
            ) from None
        try:
            await self._write_now(request)
            await self._writing.results.answered()
        finally:
            self._large.release()

    async def _write_now(self, cut: Cut) -> None:
        """Nothing of a request that is none is written."""
        while cut.go_on():
            await self._turns.turn()
        if cut.channel not in ("", self._name):
            raise BadRequest(f"the stream is channel {self._name}'s: write to another one by another stream")
        await self._writing.write(cut.messages)
        cut.messages = []  # who began the stream with it has it until the stream's end


class Begun:
    """A call that is to be a stream, and has its place, before its first request names a channel and from then on."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._since_s = asyncio.get_running_loop().time()
        self._stream: Stream | None = None
        self._is_first_there = False
        self._is_leaving = False

    @property
    def is_leaving(self) -> bool:
        """Whether nothing more of it is read."""
        return self._is_leaving or (self._stream is not None and self._stream.is_leaving)

    @property
    def quiet_s(self) -> float:
        """For how long it has waited for a message of its client's; 0: it does not."""
        if self._stream is not None:
            return self._stream.quiet_s
        return 0.0 if self._is_first_there else asyncio.get_running_loop().time() - self._since_s

    def give_way(self) -> None:
        """Others wait for its place: nothing more is read."""
        self._is_leaving = True
        if self._stream is not None:
            self._stream.give_way()
        else:
            self._call.interrupt()

    async def first(self, *, within_s: float) -> bytes | None:
        """The request that names the channel. Raises TimeoutError, GaveWay."""
        request = await self._call.request_within(within_s)
        if self.is_leaving:
            raise GaveWay
        self._is_first_there = True
        return request

    async def run(self, stream: Stream, first: Cut) -> Failure | None:
        """As that stream, whose first request is there. Raises ClientGone."""
        self._stream = stream
        return await stream.run(first)


def _in_responses(outcomes: list[Outcome]) -> list[list[Outcome]]:
    """Each is of bounded size."""
    found: list[list[Outcome]] = []
    left_bytes = 0
    for outcome in outcomes:
        if left_bytes <= 0:
            found.append([])
            left_bytes = RESULTS_BYTES
        found[-1].append(outcome)
        left_bytes -= RESULT_BYTES + len(outcome.get("error", ""))
    return found
