"""What is written by a request of HTTP: whole bodies, and streams of lines."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage, DatabusError, EndlessLine, NoObjects
from bmq_databus.http.answers import JSON, Reply, document, refusal
from bmq_databus.http.bodies import BODY_BYTES_MAX, Bodies, BodyTooLarge
from bmq_databus.http.incoming import BadBody, Incoming, Scope, TooSlow
from bmq_databus.http.parameters import MANY, message_headers, messages_of
from bmq_databus.http.streams import LARGE_LINES_MAX, Stream, StreamForm
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.outcomes import Outcome, retry_after_s, whole
from bmq_databus.requests.idempotency import HEADER, Answer, BadKey, KeyReused, KeyUnderWay, key_of
from bmq_databus.requests.places import StreamPlaces
from bmq_databus.requests.room import OneBody, TooMuchAtOnce
from bmq_databus.requests.written import PATIENCE_S, Requests, fingerprint

ZSTD_STREAMS_MAX: Final = 16
"""Each has a window of 8 MiB."""
_STATUSES: Final[tuple[tuple[type[DatabusError], int], ...]] = (
    (BadBody, 400),
    (BadKey, 400),
    (BadMessage, 400),
    (NoObjects, 400),
    (TooSlow, 408),
    (KeyUnderWay, 409),
    (BodyTooLarge, 413),
    (EndlessLine, 413),
    (KeyReused, 422),
    (TooMuchAtOnce, 503),
)
_REFUSES: Final = tuple(kind for kind, _ in _STATUSES)


class Form(Protocol):
    """How the messages of a whole body, and their results, are written down."""

    content_type: str
    """Its answer's."""

    def messages(self, body: bytes, scope: Scope) -> Iterator[list[NewMessage | BadMessage]]:
        """In slices of bounded work. Raises BadMessage, also while they are read."""

    def reply(self, outcomes: list[Outcome]) -> Reply:
        """The answer."""

    def parts(self, body: bytes, scope: Scope) -> tuple[bytes, ...]:
        """What makes a request another one: those of a key are on disk, and outlive an upgrade."""


class OfMedia:
    """As the content type says."""

    content_type = JSON

    def __init__(self, media: str) -> None:
        self._media = media

    def messages(self, body: bytes, scope: Scope) -> Iterator[list[NewMessage | BadMessage]]:
        """In slices of bounded work. Raises BadMessage, also while they are read."""
        return messages_of(self._media, body, scope)

    def reply(self, outcomes: list[Outcome]) -> Reply:
        """A result, or those of many."""
        if self._media not in MANY:
            return document(outcomes[0]["status"], outcomes[0])
        return document(whole(outcomes), {"results": outcomes})

    def parts(self, body: bytes, scope: Scope) -> tuple[bytes, ...]:
        """Content type, query, body, and headers of the message."""
        headers = [part for header in message_headers(scope) for part in header]
        return (self._media.encode(), scope.get("query_string", b""), body, *headers)


class ChannelWrites:
    """Those of one sidecar."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._bodies = Bodies()
        self._large_lines = asyncio.Semaphore(LARGE_LINES_MAX)
        self._zstd_streams = StreamPlaces[Stream](ZSTD_STREAMS_MAX, what="streams of zstd")

    def room(self, channel: Channel) -> AbstractContextManager[OneBody]:
        """What a request to the channel holds until its answer is taken."""
        return self._requests.room(channel)

    async def write(self, channel: Channel, form: Form, incoming: Incoming, room: OneBody) -> Reply:
        """A whole body."""
        try:
            key = key_of(incoming.values(HEADER))
            encoding = _encoding(incoming)
            body = await self._bodies.read(incoming, encoding=encoding, bytes_max=BODY_BYTES_MAX, room=room)
            if key is None:
                reply = await self._written(channel, form, body, incoming, room)
            else:
                reply = await self._written_once(channel, form, body, incoming, key=key, room=room)
        except _REFUSES as error:
            reply = self.counted(channel, _refused(error))
        room.hold(len(reply.body))
        return reply

    def stream(self, channel: Channel, incoming: Incoming, form: StreamForm | None = None) -> Reply | Stream:
        """A stream to be run while it is `open`, or why there is none."""
        try:
            if incoming.values(HEADER):
                raise BadKey(f"a stream has no {HEADER}: send bodies of at most {BODY_BYTES_MAX} bytes with one each")
            if _encoding(incoming) == "zstd":
                self._zstd_streams.check()
            self._requests.streams.check()
            return Stream(
                self._requests.writing,
                channel,
                incoming,
                form,
                large_lines=self._large_lines,
                patience_s=PATIENCE_S,
                unanswered_bytes_max=self._requests.streams.unanswered_bytes_max,
            )
        except _REFUSES as error:
            return self.counted(channel, _refused(error))

    @contextmanager
    def open(self, stream: Stream) -> Iterator[None]:
        """While it lasts."""
        with self._requests.streams.open(stream), self._zstd_streams.open(stream) if stream.is_zstd else nullcontext():
            yield

    def counted(self, channel: Channel, reply: Reply) -> Reply:
        """A request of which nothing was looked at."""
        self._requests.refused(channel, reply.status)
        return reply

    async def _written_once(
        self, channel: Channel, form: Form, body: bytes, incoming: Incoming, *, key: str, room: OneBody
    ) -> Reply:
        """Raises KeyReused, KeyUnderWay, BadMessage, TooMuchAtOnce."""
        parts = form.parts(body, incoming.scope)

        def answer(outcomes: list[Outcome]) -> Answer:
            reply = form.reply(outcomes)
            return Answer(reply.status, reply.body)

        given, outcomes = await self._requests.written_once(
            channel,
            partial(form.messages, body, incoming.scope),
            request=incoming.scope["headers"],
            room=room,
            key=key,
            fingerprint=await fingerprint(channel, *parts, request=incoming.scope["headers"]),
            answer=answer,
        )
        return Reply(status=given.status, body=given.body, content_type=form.content_type, headers=_later(outcomes))

    async def _written(self, channel: Channel, form: Form, body: bytes, incoming: Incoming, room: OneBody) -> Reply:
        """Raises BadMessage, TooMuchAtOnce."""
        messages = partial(form.messages, body, incoming.scope)
        outcomes = await self._requests.written(channel, messages, request=incoming.scope["headers"], room=room)
        reply, later = form.reply(outcomes), _later(outcomes)
        return replace(reply, headers={**reply.headers, **later}) if later else reply


def _later(outcomes: list[Outcome]) -> dict[str, str]:
    later_s = retry_after_s(outcomes)
    return {} if later_s is None else {"retry-after": str(later_s)}


def _refused(error: DatabusError) -> Reply:
    return refusal(next(status for kind, status in _STATUSES if isinstance(error, kind)), error)


def _encoding(incoming: Incoming) -> str:
    return incoming.headers.get("content-encoding", "").strip().lower()
