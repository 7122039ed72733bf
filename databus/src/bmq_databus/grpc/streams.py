"""A WriteStream: requests without an end, written as they come, with results as soon as they are known."""

import asyncio
from typing import Final

from bmq_databus.channels.channel import Channel
from bmq_databus.grpc.call import Call
from bmq_databus.grpc.errors import BadRequest, StreamOver
from bmq_databus.grpc.requests import Cut, message_of
from bmq_databus.grpc.results import results_on_wire
from bmq_databus.grpc.statuses import REFUSES, Failure, failure_of
from bmq_databus.producing.outcomes import Outcome
from bmq_databus.requests.admission import Ending
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
        self._writing.is_ending = True
        self._call.interrupt()

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
                self._writing.results.give_back(size_bytes)
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
            if self._writing.is_ending:
                self._end = failure_of(Ending("this sidecar is ending: send the rest again"))
        except REFUSES as error:
            self._end = failure_of(error)
        except BaseException:
            self._writing.results.abandon()
            raise
        finally:
            self._writing.results.close()

    async def _next(self) -> Cut | None:
        try:
            request = await self._call.request_within(IDLE_S)
            return None if request is None else Cut(request)
        except TimeoutError:
            raise StreamOver(f"no request came for {IDLE_S:g} s: begin another stream") from None

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
