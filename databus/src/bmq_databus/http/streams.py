"""A stream: messages without an end, in a body that is answered, message by message, while it lasts."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage, DatabusError, EndlessLine, NoObjects
from bmq_databus.http.incoming import BadBody, ClientGone, Incoming, Send, TooSlow
from bmq_databus.http.opening import STEP_BYTES, opening_of
from bmq_databus.http.outgoing import Outgoing
from bmq_databus.messages.forms import NewMessage, tried
from bmq_databus.messages.lines import Lines
from bmq_databus.producing.outcomes import Outcome
from bmq_databus.requests.admission import Ending
from bmq_databus.requests.places import GaveWay
from bmq_databus.requests.streams import (
    ENDING_WITHIN_S,
    IDLE_S,
    UNANSWERED_BYTES_MAX,
    ChannelGone,
    StreamWriting,
    Writes,
)

LINE_BYTES_MAX: Final = 16 << 20
LARGE_LINE_BYTES: Final = 256 << 10
"""A line that is longer is a large one, of which all streams together have few at a time."""
LARGE_LINES_MAX: Final = 4
LARGE_LINE_WITHIN_S: Final = 30.0
"""How long one waits for its turn, and then may take to be there."""
SILENT_BYTES_MAX: Final = 64 << 20
_line: Final = msgspec.json.Encoder().encode_lines


class Cutter(Protocol):
    """Cuts a body into messages as it comes."""

    @property
    def begun_bytes(self) -> int:
        """What is kept of the message whose end did not come yet."""

    def feed(self, data: bytes) -> Iterator[bytes | BadMessage]:
        """Those that end within it. To be read to its end before more is fed."""

    def end(self) -> Iterator[bytes | BadMessage]:
        """There is no more."""


class StreamForm(Protocol):
    """How one stream's messages and results are written down."""

    media: bytes
    step_bytes: int
    """So much of a body is cut in one go."""

    def cutter(self) -> Cutter:
        """This stream's."""

    def message(self, text: bytes) -> NewMessage | BadMessage:
        """One of those that were cut, in their order."""

    def results(self, outcomes: Sequence[Outcome]) -> bytes:
        """Those of messages in their order."""

    def last(self, end: "End", *, written: int, refused: int) -> bytes:
        """What is told last."""


class OfLines:
    """A message in each line, and a line for each result."""

    media = b"application/x-ndjson"
    step_bytes = STEP_BYTES

    def cutter(self) -> Cutter:
        """This stream's."""
        return Lines(line_bytes_max=LINE_BYTES_MAX, silent_bytes_max=SILENT_BYTES_MAX)

    def message(self, text: bytes) -> NewMessage | BadMessage:
        """One of those that were cut."""
        return tried(text)

    def results(self, outcomes: Sequence[Outcome]) -> bytes:
        """Lines."""
        return _line(outcomes)

    def last(self, end: "End", *, written: int, refused: int) -> bytes:
        """A line that says how it ended."""
        last: dict[str, Any] = {"status": end.status, "written": written, "refused": refused}
        return _line([{"end": {**last, "error": end.error} if end.error else last}])


class LineTooSlow(DatabusError):
    """A large line did not come, or did not get its turn, in time."""


@dataclass(frozen=True, slots=True)
class End:
    """Why nothing more of a stream is read."""

    status: int
    error: str = ""


_STATUSES: Final[tuple[tuple[type[DatabusError], int], ...]] = (
    (BadBody, 400),
    (NoObjects, 400),
    (ChannelGone, 403),
    (TooSlow, 408),
    (EndlessLine, 413),
    (LineTooSlow, 503),
)


class Stream:
    """One request's. `run` answers it."""

    def __init__(
        self,
        writes: Writes,
        channel: Channel,
        incoming: Incoming,
        form: StreamForm | None = None,
        *,
        large_lines: asyncio.Semaphore,
        patience_s: float,
        unanswered_bytes_max: Callable[[], int] = lambda: UNANSWERED_BYTES_MAX,
    ) -> None:
        """`form` None: lines. `large_lines`: the turns of large lines, for all streams. The others: as `StreamWriting`.
        Raises BadBody for an encoding that is not served.
        """
        encoding = incoming.headers.get("content-encoding", "").strip().lower()
        self._opening = opening_of(encoding)
        self.is_zstd = encoding == "zstd"
        self._form = OfLines() if form is None else form
        self._name = channel.name
        self._incoming = incoming
        self._writing = StreamWriting(
            writes,
            channel.name,
            self._form.message,
            request=incoming.scope["headers"],
            patience_s=patience_s,
            unanswered_bytes_max=unanswered_bytes_max,
        )
        self._results = self._writing.results
        self._lines = self._form.cutter()
        self._large_lines = large_lines
        self._large_until_s: float | None = None
        """Until when the large line that is under way has to be there; None: there is none."""
        self._waits_for_turn: asyncio.Timeout | None = None
        self._end = End(200)

    def end(self) -> None:
        """The sidecar ends: nothing more is read. What is under way is answered, if it comes in time."""
        self._read_no_more(Ending("this sidecar is ending: send the rest again"))
        if self._incoming.connection is not None:
            asyncio.get_running_loop().call_later(ENDING_WITHIN_S, self._incoming.connection.abort)

    def give_way(self) -> None:
        """Others wait for its place: nothing more is read."""
        self._read_no_more(GaveWay())

    def _read_no_more(self, why: DatabusError) -> None:
        self._writing.end(why)
        self._incoming.interrupt()
        if self._waits_for_turn is not None:
            self._waits_for_turn.reschedule(asyncio.get_running_loop().time())

    @property
    def is_leaving(self) -> bool:
        """Whether nothing more is read."""
        return self._writing.is_ending

    @property
    def quiet_s(self) -> float:
        """How long ago its last message came, or was answered; 0: one is under way."""
        return self._writing.quiet_s

    @property
    def is_unanswered(self) -> bool:
        """Whether it has messages whose results its client does not have."""
        return bool(self._results.unanswered_bytes)

    async def run(self, send: Send) -> None:
        """The whole answer. Raises ClientGone where nobody takes it."""
        outgoing = Outgoing(self._incoming, send)
        self._tell_connection(self)
        reading = asyncio.get_running_loop().create_task(self._read(), name=f"stream to {self._name}")
        try:
            # It has begun to read then: who waits to be told to go on with the body is told so before the status is.
            await asyncio.sleep(0)
            headers = [(b"content-type", self._form.media), (b"cache-control", b"no-store")]
            await outgoing.begin({"type": "http.response.start", "status": 200, "headers": headers})
            while True:
                outcomes, size_bytes = await self._results.take()
                self._writing.count()
                if not outcomes:
                    break
                await outgoing.go_on(self._form.results(outcomes))
                self._writing.answered(size_bytes)
            await reading
            counts = {"written": self._writing.written, "refused": self._writing.refused}
            await outgoing.go_on(self._form.last(self._end, **counts))
        finally:
            self._writing.count()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            self._tell_connection(None)
        await self._incoming.pass_over()
        await outgoing.end()

    def _tell_connection(self, stream: "Stream | None") -> None:
        if self._incoming.connection is not None:
            self._incoming.connection.stream = stream

    async def _read(self) -> None:
        """To its end, whatever that is."""
        try:
            await self._read_on()
        except ClientGone:
            pass
        except DatabusError as error:
            self._end = End(next(status for kind, status in _STATUSES if isinstance(error, kind)), str(error))
        except BaseException:
            self._results.abandon()
            raise
        finally:
            self._release_large_line()
            self._results.close()

    async def _read_on(self) -> None:
        while (part := await self._part()) is not None:
            for opened in self._opening.feed(part):
                for at in range(0, len(opened), self._form.step_bytes):
                    await self._take(opened[at : at + self._form.step_bytes])
                    await asyncio.sleep(0)  # much may come of few bytes
                    if self._writing.is_ending:
                        break
        if self._writing.ending is not None:
            self._end = End(503, str(self._writing.ending))
            return
        self._opening.end()
        await self._writing.write(self._lines.end())

    async def _part(self) -> bytes | None:
        if self._writing.is_ending:
            return None
        if self._large_until_s is None:
            return await self._part_while_messages_come()
        left_s = self._large_until_s - asyncio.get_running_loop().time()
        try:
            return await self._incoming.part(stall_s=max(0.0, left_s))
        except TooSlow:
            raise TooSlow(
                f"a line of more than {LARGE_LINE_BYTES} bytes did not come within {LARGE_LINE_WITHIN_S:g} s"
            ) from None

    async def _part_while_messages_come(self) -> bytes | None:
        left_s = IDLE_S - self._writing.quiet_s
        try:
            if left_s > 0:
                return await self._incoming.part(stall_s=left_s)
        except TooSlow:
            pass
        raise TooSlow(f"no message came for {IDLE_S:g} s")

    async def _take(self, data: bytes) -> None:
        await self._writing.write(self._lines.feed(data))
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
            if self._writing.is_ending:
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
