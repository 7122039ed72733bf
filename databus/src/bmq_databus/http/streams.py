"""A stream: lines of messages without an end, written as they come, and each answered as soon as its outcome is known.

What is unanswered is bounded: nothing more is read until its results are sent. So a cluster that is slow slows the
client down, and so does a client that does not read.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from bmq.fairness.turns import Turns
from bmq_databus import metrics
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage, DatabusError, EndlessLine, LineTooLong
from bmq_databus.http.incoming import BadBody, ClientGone, Incoming, Send, TooSlow
from bmq_databus.http.opening import opening_of
from bmq_databus.http.outgoing import Outgoing
from bmq_databus.http.results import Results
from bmq_databus.messages.forms import MESSAGE_WORK_BYTES, SLICE_BYTES, NewMessage, tried
from bmq_databus.messages.lines import Lines
from bmq_databus.producing.outcomes import Outcome
from bmq_databus.producing.writing import Settle
from bmq_databus.rules.lanes import Headers

UNANSWERED_BYTES_MAX: Final = 512 << 10
"""So much of a stream, or one line, waits for its results to be sent."""
LINE_BYTES_MAX: Final = 16 << 20
LARGE_LINE_BYTES: Final = 256 << 10
"""A line that is longer is a large one, of which all streams together have few at a time."""
LARGE_LINES_MAX: Final = 4
LARGE_LINE_WITHIN_S: Final = 30.0
"""How long one waits for its turn, and then may take to be there."""
SILENT_BYTES_MAX: Final = 64 << 20
IDLE_S: Final = 60.0
"""A stream of which nothing comes for so long is ended: others wait for its place."""
ENDING_WITHIN_S: Final = 9.0
"""An end of the sidecar waits for a stream so long."""
_line: Final = msgspec.json.Encoder().encode_lines
_WRITTEN: Final = (200, 202)


class Writes(Protocol):
    """Where messages go."""

    @property
    def channels(self) -> Mapping[str, Channel]:
        """By name, as they are now."""

    @property
    def turns(self) -> Turns:
        """Those of all that has many messages."""

    async def hand_over(
        self,
        channel: Channel,
        news: list[NewMessage | BadMessage],
        settle: Settle,
        *,
        patience_s: float,
        request: Headers = (),
        waits: bool = False,
    ) -> None:
        """As `bmq_databus.producing.writing.Writing`."""


class LineTooSlow(DatabusError):
    """A large line did not come, or did not get its turn, in time."""


class ChannelGone(DatabusError):
    """The channel takes nothing any more."""


@dataclass(frozen=True, slots=True)
class _End:
    """Why nothing more of a stream is read."""

    status: int
    error: str = ""


_STATUSES: Final[tuple[tuple[type[DatabusError], int], ...]] = (
    (BadBody, 400),
    (ChannelGone, 403),
    (TooSlow, 408),
    (EndlessLine, 413),
    (LineTooSlow, 503),
)


class Stream:
    """One request's. `run` answers it."""

    def __init__(
        self, writes: Writes, channel: Channel, incoming: Incoming, *, large_lines: asyncio.Semaphore, patience_s: float
    ) -> None:
        """`large_lines`: the turns of large lines, for all streams. `patience_s`: how long messages wait for room.
        Raises BadBody for an encoding that is not served.
        """
        encoding = incoming.headers.get("content-encoding", "").strip().lower()
        self._opening = opening_of(encoding)
        self.is_zstd = encoding == "zstd"
        self._writes = writes
        self._name = channel.name
        self._incoming = incoming
        self._patience_s = patience_s
        self._lines = Lines(line_bytes_max=LINE_BYTES_MAX, silent_bytes_max=SILENT_BYTES_MAX)
        self._large_lines = large_lines
        self._large_until_s: float | None = None
        """Until when the large line that is under way has to be there; None: there is none."""
        self._waits_for_turn: asyncio.Timeout | None = None
        self._results = Results(bytes_max=UNANSWERED_BYTES_MAX)
        self._is_ending = False
        self._end = _End(200)
        self._written = self._refused = 0

    def end(self) -> None:
        """The sidecar ends: nothing more is read. What is under way is answered, if it comes in time."""
        self._is_ending = True
        self._incoming.interrupt()
        if self._waits_for_turn is not None:
            self._waits_for_turn.reschedule(asyncio.get_running_loop().time())
        if self._incoming.connection is not None:
            asyncio.get_running_loop().call_later(ENDING_WITHIN_S, self._incoming.connection.abort)

    async def run(self, send: Send) -> None:
        """The whole answer. Raises ClientGone where nobody takes it."""
        outgoing = Outgoing(self._incoming, send)
        reading = asyncio.get_running_loop().create_task(self._read(), name=f"stream to {self._name}")
        try:
            # It has begun to read then: who waits to be told to go on with the body is told so before the status is.
            await asyncio.sleep(0)
            headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
            await outgoing.begin({"type": "http.response.start", "status": 200, "headers": headers})
            while True:
                outcomes, size_bytes = await self._results.take()
                if not outcomes:
                    break
                await outgoing.go_on(_line(outcomes))
                self._results.give_back(size_bytes)
            await reading
            await outgoing.go_on(_line([{"end": self._last()}]))
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await self._incoming.pass_over()
        await outgoing.end()

    def _last(self) -> Mapping[str, Any]:
        last: dict[str, Any] = {"status": self._end.status, "written": self._written, "refused": self._refused}
        if self._end.error:
            last["error"] = self._end.error
        return last

    async def _read(self) -> None:
        """To its end, whatever that is."""
        try:
            await self._read_on()
        except ClientGone:
            pass
        except DatabusError as error:
            self._end = _End(next(status for kind, status in _STATUSES if isinstance(error, kind)), str(error))
        except BaseException:
            self._results.abandon()
            raise
        finally:
            self._release_large_line()
            self._results.close()

    async def _read_on(self) -> None:
        while (part := await self._part()) is not None:
            for opened in self._opening.feed(part):
                await self._take(opened)
                await asyncio.sleep(0)  # much may come of few bytes
                if self._is_ending:
                    break
        if self._is_ending:
            self._end = _End(503, "this sidecar is ending: send the rest again")
            return
        self._opening.end()
        await self._write(self._lines.end())

    async def _part(self) -> bytes | None:
        if self._is_ending:
            return None
        if self._large_until_s is None:
            return await self._incoming.part(stall_s=IDLE_S)
        left_s = self._large_until_s - asyncio.get_running_loop().time()
        try:
            return await self._incoming.part(stall_s=max(0.0, left_s))
        except TooSlow:
            raise TooSlow(
                f"a line of more than {LARGE_LINE_BYTES} bytes did not come within {LARGE_LINE_WITHIN_S:g} s"
            ) from None

    async def _take(self, data: bytes) -> None:
        await self._write(self._lines.feed(data))
        if self._lines.begun_bytes > LARGE_LINE_BYTES:
            if self._large_until_s is None:
                await self._begin_large_line()
        elif self._large_until_s is not None:
            await self._results.answered()
            self._release_large_line()

    async def _begin_large_line(self) -> None:
        """When it is its turn, or the sidecar ends. Raises LineTooSlow."""
        try:
            async with asyncio.timeout(LARGE_LINE_WITHIN_S) as self._waits_for_turn:
                await self._large_lines.acquire()
        except TimeoutError:
            if self._is_ending:
                return
            raise LineTooSlow(
                f"{LARGE_LINES_MAX} lines of more than {LARGE_LINE_BYTES} bytes are under way already: try again"
            ) from None
        finally:
            self._waits_for_turn = None
        self._large_until_s = asyncio.get_running_loop().time() + LARGE_LINE_WITHIN_S

    def _release_large_line(self) -> None:
        if self._large_until_s is not None:
            self._large_until_s = None
            self._large_lines.release()

    async def _write(self, lines: Iterable[bytes | LineTooLong]) -> None:
        """As many at a time as may be unanswered, and are looked at in one go."""
        channel = self._channel()
        news: list[NewMessage | BadMessage] = []
        work_bytes = 0
        for line in lines:
            line_bytes = len(line) if isinstance(line, bytes) else 0
            work_bytes += line_bytes + MESSAGE_WORK_BYTES
            if not self._results.has_room(line_bytes):
                await self._hand_over(channel, news)
                news = []
                await self._results.room(line_bytes)
                if self._is_ending:
                    return
                channel = self._channel()
            if work_bytes > SLICE_BYTES:
                work_bytes = line_bytes
                await self._writes.turns.turn()
            news.append(tried(line) if isinstance(line, bytes) else line)
            self._results.add(line_bytes)
        await self._hand_over(channel, news)

    async def _hand_over(self, channel: Channel, news: list[NewMessage | BadMessage]) -> None:
        """The messages that were added last."""
        if news:
            settle = partial(self._settle, self._results.end - len(news))
            await self._writes.hand_over(
                channel, news, settle, patience_s=self._patience_s, request=self._incoming.scope["headers"], waits=True
            )

    def _settle(self, first: int, at: int, outcome: Outcome) -> None:
        status: int = outcome["status"]
        if status in _WRITTEN:
            self._written += 1
        else:
            self._refused += 1
        metrics.MESSAGES.labels(self._name, str(status)).inc()
        self._results.settle(first + at, outcome)

    def _channel(self) -> Channel:
        """As it is now. Raises ChannelGone."""
        channel = self._writes.channels.get(self._name)
        if channel is None or not channel.enabled:
            raise ChannelGone(f"channel {self._name} is turned off")
        return channel
