"""What is written by requests, and which of them come again."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import Final

from bmq.naming.lane_choice import BAGGAGE
from bmq_databus import metrics
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage, SpoolFailed
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.outcomes import Outcome, in_short, may_be_written
from bmq_databus.producing.writing import SLICE_MESSAGES, Writing
from bmq_databus.requests.idempotency import Answer, Idempotency, fingerprint_of
from bmq_databus.requests.room import BodyRoom, OneBody, TooMuchAtOnce
from bmq_databus.requests.streams import OpenStreams
from bmq_databus.rules.lanes import Headers
from bmq_databus.spool.frames import Once

BODIES_BYTES_MAX: Final = 64 << 20
"""What all requests together hold until their answers are taken, streams aside, and what each may have anyway."""
MESSAGE_EXTRA_BYTES: Final = 512
HEADER_EXTRA_BYTES: Final = 128
"""What a message and a header take in memory beside the body and until they are answered, about."""
PATIENCE_S: Final = 30.0
"""How long a writer waits for room, beside the time that delivery takes."""
THREAD_BYTES: Final = 256 << 10
"""What is longer is hashed in a thread."""
ANSWER_BYTES_MAX: Final = 256 << 10
"""An answer that is longer is kept in short: it lies on disk twice, and a channel keeps 16 MiB of them."""

_status: Final = itemgetter("status")

Messages = Callable[[], Iterable[list[NewMessage | BadMessage]]]
"""Begins to look at a request's messages, in pieces of bounded work."""


class Requests:
    """Those of one sidecar, by all ways."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing
        self.streams = OpenStreams()
        self._room = BodyRoom(BODIES_BYTES_MAX)
        self._idempotency = Idempotency(asyncio.get_running_loop().time)
        self._recalling = asyncio.Lock()
        """One channel's keys are read at a time."""

    def room(self, channel: Channel) -> AbstractContextManager[OneBody]:
        """What a request to the channel holds until its answer is taken."""
        return self._room.one(channel.name)

    async def written(
        self,
        channel: Channel,
        messages: Messages,
        *,
        request: Headers,
        room: OneBody,
        once: Callable[[list[Outcome]], Once] | None = None,
    ) -> list[Outcome]:
        """An outcome for each, in order; `request`: its headers. As `Writing.write`. Raises TooMuchAtOnce, and what
        `messages` does.
        """
        news: list[NewMessage | BadMessage] = []
        for at, some in enumerate(messages()):
            if at:
                await self.writing.turns.turn()
            room.take(_extra_bytes(some))
            news += some
        outcomes = await self.writing.write(channel, news, patience_s=PATIENCE_S, request=request, once=once)
        if len(outcomes) > SLICE_MESSAGES:
            await self.writing.turns.turn()
        statuses = list(map(_status, outcomes))
        for status in set(statuses):
            metrics.MESSAGES.labels(channel.name, str(status)).inc(statuses.count(status))
        return outcomes

    async def written_once(
        self,
        channel: Channel,
        messages: Messages,
        *,
        request: Headers,
        room: OneBody,
        key: str,
        fingerprint: bytes,
        answer: Callable[[list[Outcome]], Answer],
    ) -> tuple[Answer, list[Outcome]]:
        """The request's answer, and what it was made of; nothing where the request came again. Of a long answer that
        one has the statuses, and where messages are. Raises KeyReused, KeyUnderWay, TooMuchAtOnce, and what `messages`
        does.
        """
        if channel.is_declared and not self.writing.are_keys_read(channel):
            await self._recall(channel)
        kept = self._idempotency.kept(channel, key, fingerprint)
        if kept is not None:
            return kept, []
        with self._idempotency.first(channel, key, fingerprint) as claim:

            def again(outcomes: list[Outcome], given: Answer) -> Answer:
                return given if len(given.body) <= ANSWER_BYTES_MAX else answer(list(map(in_short, outcomes)))

            def once(outcomes: list[Outcome]) -> Once:
                given = again(outcomes, answer(outcomes))
                until_ms = self.writing.now_ms() + int(1000 * channel.idempotency_window_s)
                return Once(key, fingerprint, until_ms, given.status, given.body)

            outcomes = await self.written(channel, messages, request=request, room=room, once=once)
            given = answer(outcomes)
            if any(map(may_be_written, outcomes)):
                claim.keep(again(outcomes, given))
            return given, outcomes

    async def _recall(self, channel: Channel) -> None:
        def told(keys: list[Once]) -> None:
            self._idempotency.remember(channel, keys, now_ms=self.writing.now_ms())

        async with self._recalling:
            try:
                await self.writing.read_keys(channel, told)
            except SpoolFailed as error:  # what comes again would be written again
                raise TooMuchAtOnce(f"not looked at: {error}: send it again in a moment") from error

    def refused(self, channel: Channel, status: int) -> None:
        """A request of which nothing was looked at counts as one message."""
        metrics.MESSAGES.labels(channel.name, str(status)).inc()


async def fingerprint(channel: Channel, *parts: bytes, request: Headers) -> bytes:
    """That of a request, by what makes it the same one and what else its channel goes by."""
    if channel.lane is not None:
        named = (channel.lane.header or BAGGAGE).encode()
        parts += tuple(value for name, value in request if name == named)
    if sum(map(len, parts)) <= THREAD_BYTES:
        return fingerprint_of(*parts)
    return await asyncio.get_running_loop().run_in_executor(None, fingerprint_of, *parts)


def _extra_bytes(news: list[NewMessage | BadMessage]) -> int:
    headers = sum(len(one.headers) for one in news if isinstance(one, NewMessage) and one.headers)
    return MESSAGE_EXTRA_BYTES * len(news) + HEADER_EXTRA_BYTES * headers
