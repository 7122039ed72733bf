"""Streams: messages without an end, written as they come, and each answered as soon as its outcome is known.

What is unanswered is bounded: nothing more is read until its results are sent. So a cluster that is slow slows the
client down, and so does a client that does not read.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from bmq.fairness.turns import Turns
from bmq_databus import metrics
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage, DatabusError
from bmq_databus.messages.forms import MESSAGE_WORK_BYTES, SLICE_BYTES, NewMessage
from bmq_databus.producing.outcomes import Outcome
from bmq_databus.producing.writing import Settle
from bmq_databus.requests.places import Placed, StreamPlaces
from bmq_databus.requests.results import MESSAGE_EXTRA_BYTES, Results
from bmq_databus.rules.lanes import Headers

UNANSWERED_BYTES_MAX: Final = 512 << 10
"""So much of a stream, or one message, waits for its results to be sent, however many streams there are…"""
UNANSWERED_BYTES_ALONE: Final = 2 << 20
"""…and so much where there are few."""
STREAMS_MAX: Final = 128
FEW_STREAMS: Final = 4
"""So many have as much unanswered as one that is alone may."""
IDLE_S: Final = 60.0
"""A stream of which no message comes for so long is ended."""
ENDING_WITHIN_S: Final = 9.0
"""An end of the sidecar waits for a stream so long."""
_WRITTEN: Final = (200, 202)


class ChannelGone(DatabusError):
    """The channel takes nothing any more."""


class Writes(Protocol):
    """Where messages go."""

    def channel(self, name: str) -> Channel | None:
        """The channel of that name, as it is now."""

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


class StreamWriting:
    """What is written of one stream. One writes, and one takes the results."""

    def __init__(
        self,
        writes: Writes,
        name: str,
        decode: Callable[[bytes], NewMessage | BadMessage],
        *,
        request: Headers,
        patience_s: float,
        unanswered_bytes_max: Callable[[], int],
    ) -> None:
        """To the channel of that name. `request`: the stream's headers. `patience_s`: how long messages wait for room.
        `unanswered_bytes_max`: how much may wait for its results, whenever it is asked.
        """
        self._writes = writes
        self._name = name
        self._decode = decode
        self._request = request
        self._patience_s = patience_s
        self.results = Results(bytes_max=unanswered_bytes_max)
        self.ending: DatabusError | None = None
        """Set where nothing more is to be written: why."""
        self._since_s = asyncio.get_running_loop().time()
        """When the last message came, or was answered."""
        self.written = self.refused = 0
        """As of the last `count`."""
        self._uncounted: Counter[int] = Counter()
        """By status, what the metric does not have yet."""

    def end(self, why: DatabusError) -> None:
        """Nothing more is to be written, for the reason that was said first."""
        self.ending = self.ending or why

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is to be written."""
        return self.ending is not None

    @property
    def quiet_s(self) -> float:
        """How long ago the last message came, or was answered; 0: one is under way."""
        return 0.0 if self.results.unanswered_bytes else asyncio.get_running_loop().time() - self._since_s

    def answered(self, size_bytes: int) -> None:
        """So much of the results was sent."""
        self.results.give_back(size_bytes)
        self._since_s = asyncio.get_running_loop().time()

    async def write(self, messages: Iterable[bytes | BadMessage]) -> None:
        """As many at a time as may be unanswered, and are looked at in one go. Raises ChannelGone, and what `messages`
        does.
        """
        channel = self.channel()
        news: list[NewMessage | BadMessage] = []
        work_bytes = 0
        left_bytes = self.results.left_bytes
        for one in messages:
            size_bytes = len(one) if isinstance(one, bytes) else 0
            work_bytes += size_bytes + MESSAGE_WORK_BYTES
            left_bytes -= size_bytes + MESSAGE_EXTRA_BYTES
            if left_bytes < 0 and not self.results.has_room(size_bytes):
                await self._hand_over(channel, news)
                news = []
                await self.results.room(size_bytes)
                if self.is_ending:
                    return
                channel = self.channel()
                left_bytes = self.results.left_bytes - size_bytes - MESSAGE_EXTRA_BYTES
            if work_bytes > SLICE_BYTES:
                work_bytes = size_bytes
                await self._writes.turns.turn()
            news.append(self._decode(one) if isinstance(one, bytes) else one)
            self.results.add(size_bytes)
        await self._hand_over(channel, news)

    def count(self) -> None:
        """What is settled, in the metric, too: once for many, as a counter of it is looked up by texts."""
        for status, count in self._uncounted.items():
            if status in _WRITTEN:
                self.written += count
            else:
                self.refused += count
            metrics.MESSAGES.labels(self._name, str(status)).inc(count)
        self._uncounted.clear()

    def channel(self) -> Channel:
        """As it is now. Raises ChannelGone."""
        channel = self._writes.channel(self._name)
        if channel is None or not channel.enabled:
            raise ChannelGone(f"channel {self._name} is turned off")
        return channel

    async def _hand_over(self, channel: Channel, news: list[NewMessage | BadMessage]) -> None:
        """The messages that were added last."""
        if news:
            self._since_s = asyncio.get_running_loop().time()
            settle = self._settle_from(self.results.end - len(news))
            await self._writes.hand_over(
                channel, news, settle, patience_s=self._patience_s, request=self._request, waits=True
            )

    def _settle_from(self, first: int) -> Settle:
        """For messages whose first one has that number."""
        uncounted, settle = self._uncounted, self.results.settle

        def settled(at: int, outcome: Outcome) -> None:
            uncounted[outcome["status"]] += 1
            settle(first + at, outcome)

        return settled


class Stream(Placed, Protocol):
    """One that is open."""

    def end(self) -> None:
        """The sidecar ends: nothing more is read."""


class OpenStreams:
    """How many there are, of all kinds."""

    def __init__(self) -> None:
        self._places = StreamPlaces[Stream](STREAMS_MAX)

    def check(self) -> None:
        """That there may be one more. Raises TooMuchAtOnce."""
        self._places.check()

    def unanswered_bytes_max(self) -> int:
        """What a stream may have unanswered: what few of them have, shared by all, and what each has anyway."""
        shared = FEW_STREAMS * UNANSWERED_BYTES_ALONE // max(FEW_STREAMS, len(self._places))
        return max(UNANSWERED_BYTES_MAX, shared)

    @contextmanager
    def open(self, stream: Stream) -> Iterator[None]:
        """While it lasts."""
        try:
            with self._places.open(stream):
                metrics.STREAMS.set(len(self._places))
                yield
        finally:
            metrics.STREAMS.set(len(self._places))

    def end(self) -> None:
        """They read nothing more, and are answered."""
        for stream in self._places:
            stream.end()
