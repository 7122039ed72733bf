"""What is written by a request: whole bodies, and which of them come again; streams, and how many there may be."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from bmq_databus import metrics
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage, DatabusError
from bmq_databus.http.answers import Reply, document, refusal
from bmq_databus.http.bodies import BODY_BYTES_MAX, Bodies, BodyRoom, BodyTooLarge, OneBody, TooMuchAtOnce
from bmq_databus.http.idempotency import (
    HEADER,
    Answer,
    BadKey,
    Idempotency,
    KeyReused,
    KeyUnderWay,
    fingerprint_of,
    key_of,
)
from bmq_databus.http.incoming import BadBody, Incoming, TooSlow
from bmq_databus.http.parameters import MANY, message_headers, messages_of
from bmq_databus.http.streams import LARGE_LINES_MAX, Stream
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.outcomes import Outcome, may_be_written, retry_after_s, whole
from bmq_databus.producing.writing import SLICE_MESSAGES, Writing
from bmq_databus.rules.lanes import BAGGAGE

BODIES_BYTES_MAX: Final = 64 << 20
"""What all requests together hold until their answers are taken, streams aside, and what each may have anyway."""
MESSAGE_EXTRA_BYTES: Final = 512
HEADER_EXTRA_BYTES: Final = 128
"""What a message and a header take in memory beside the body and until they are answered, about."""
STREAMS_MAX: Final = 128
ZSTD_STREAMS_MAX: Final = 16
"""Each has a window of 8 MiB."""
PATIENCE_S: Final = 30.0
"""How long a writer waits for room, beside the time that delivery takes."""
THREAD_BYTES: Final = 256 << 10
"""What is longer is hashed in a thread."""
_STATUSES: Final[tuple[tuple[type[DatabusError], int], ...]] = (
    (BadBody, 400),
    (BadKey, 400),
    (BadMessage, 400),
    (TooSlow, 408),
    (KeyUnderWay, 409),
    (BodyTooLarge, 413),
    (KeyReused, 422),
    (TooMuchAtOnce, 503),
)
_REFUSES: Final = tuple(kind for kind, _ in _STATUSES)


class ChannelWrites:
    """Those of one sidecar."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._room = BodyRoom(BODIES_BYTES_MAX)
        self._bodies = Bodies()
        self._idempotency = Idempotency(asyncio.get_running_loop().time)
        self._large_lines = asyncio.Semaphore(LARGE_LINES_MAX)
        self._streams: set[Stream] = set()
        self._zstd_streams = 0

    def room(self, channel: Channel) -> AbstractContextManager[OneBody]:
        """What a request to the channel holds until its answer is taken."""
        return self._room.one(channel.name)

    async def write(self, channel: Channel, media: str, incoming: Incoming, room: OneBody) -> Reply:
        """A whole body."""
        try:
            key = key_of(incoming.values(HEADER))
            encoding = _encoding(incoming)
            body = await self._bodies.read(incoming, encoding=encoding, bytes_max=BODY_BYTES_MAX, room=room)
            if key is None:
                reply = await self._written(channel, media, body, incoming, room)
            else:
                reply = await self._written_once(channel, media, body, incoming, key=key, room=room)
        except _REFUSES as error:
            reply = self.counted(channel, _refused(error))
        room.hold(len(reply.body))
        return reply

    def stream(self, channel: Channel, incoming: Incoming) -> Reply | Stream:
        """A stream to be run while it is `open`, or why there is none."""
        try:
            if incoming.values(HEADER):
                raise BadKey(f"a stream has no {HEADER}: send bodies of at most {BODY_BYTES_MAX} bytes with one each")
            if len(self._streams) >= STREAMS_MAX:
                raise TooMuchAtOnce(f"{STREAMS_MAX} streams are open already: write more by one of them, or try again")
            if _encoding(incoming) == "zstd" and self._zstd_streams >= ZSTD_STREAMS_MAX:
                raise TooMuchAtOnce(f"{ZSTD_STREAMS_MAX} streams of zstd are open already: use gzip, or try again")
            return Stream(self._writing, channel, incoming, large_lines=self._large_lines, patience_s=PATIENCE_S)
        except _REFUSES as error:
            return self.counted(channel, _refused(error))

    @contextmanager
    def open(self, stream: Stream) -> Iterator[None]:
        """While it lasts."""
        self._streams.add(stream)
        self._zstd_streams += stream.is_zstd
        metrics.STREAMS.set(len(self._streams))
        try:
            yield
        finally:
            self._streams.discard(stream)
            self._zstd_streams -= stream.is_zstd
            metrics.STREAMS.set(len(self._streams))

    def end_streams(self) -> None:
        """They read nothing more, and are answered."""
        for stream in self._streams:
            stream.end()

    def counted(self, channel: Channel, reply: Reply) -> Reply:
        """A request of which nothing was looked at counts as one message."""
        metrics.MESSAGES.labels(channel.name, str(reply.status)).inc()
        return reply

    async def _written_once(
        self, channel: Channel, media: str, body: bytes, incoming: Incoming, *, key: str, room: OneBody
    ) -> Reply:
        """Raises KeyReused, KeyUnderWay, BadMessage, TooMuchAtOnce."""
        fingerprint = await _fingerprint(channel, media, body, incoming)
        kept = self._idempotency.kept(channel, key, fingerprint)
        if kept is not None:
            return Reply(status=kept.status, body=kept.body)
        with self._idempotency.first(channel, key, fingerprint) as claim:
            outcomes = await self._outcomes(channel, media, body, incoming, room)
            reply = _reply(media, outcomes)
            if any(map(may_be_written, outcomes)):
                claim.keep(Answer(reply.status, reply.body))
            return reply

    async def _written(self, channel: Channel, media: str, body: bytes, incoming: Incoming, room: OneBody) -> Reply:
        return _reply(media, await self._outcomes(channel, media, body, incoming, room))

    async def _outcomes(
        self, channel: Channel, media: str, body: bytes, incoming: Incoming, room: OneBody
    ) -> list[Outcome]:
        """Raises BadMessage, TooMuchAtOnce."""
        news: list[NewMessage | BadMessage] = []
        for some in messages_of(media, body, incoming.scope):
            if news:
                await self._writing.turns.turn()
            room.take(sum(map(_extra_bytes, some)))
            news += some
        outcomes = await self._writing.write(channel, news, patience_s=PATIENCE_S, request=incoming.scope["headers"])
        if len(outcomes) > SLICE_MESSAGES:
            await self._writing.turns.turn()
        for status, count in Counter(one["status"] for one in outcomes).items():
            metrics.MESSAGES.labels(channel.name, str(status)).inc(count)
        return outcomes


def _extra_bytes(one: NewMessage | BadMessage) -> int:
    headers = len(one.headers) if isinstance(one, NewMessage) else 0
    return MESSAGE_EXTRA_BYTES + HEADER_EXTRA_BYTES * headers


def _reply(media: str, outcomes: list[Outcome]) -> Reply:
    later_s = retry_after_s(outcomes)
    headers = {} if later_s is None else {"retry_after": str(later_s)}
    if media not in MANY:
        return document(outcomes[0]["status"], outcomes[0], **headers)
    return document(whole(outcomes), {"results": outcomes}, **headers)


def _refused(error: DatabusError) -> Reply:
    return refusal(next(status for kind, status in _STATUSES if isinstance(error, kind)), error)


async def _fingerprint(channel: Channel, media: str, body: bytes, incoming: Incoming) -> bytes:
    headers = [part for header in message_headers(incoming.scope) for part in header]
    if channel.lane is not None:
        named = (channel.lane.header or BAGGAGE).encode()
        headers += [value for name, value in incoming.scope["headers"] if name == named]
    parts = (media.encode(), incoming.scope.get("query_string", b""), body, *headers)
    if len(body) <= THREAD_BYTES:
        return fingerprint_of(*parts)
    return await asyncio.get_running_loop().run_in_executor(None, fingerprint_of, *parts)


def _encoding(incoming: Incoming) -> str:
    return incoming.headers.get("content-encoding", "").strip().lower()
