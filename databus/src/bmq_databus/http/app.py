"""The paths of the sidecar.

`POST /v1/channels/{channel}/messages` takes one message as it is, many as `application/json`, or many as lines
(`application/x-ndjson`), these also as a stream. Below `/v3` and `/kafka/v3` is what writers need of Confluent's REST
API. `GET /v1/channels`, `/livez`, `/readyz` and `/metrics` are for people and machines that watch.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any, Final

from prometheus_client import generate_latest

from bmq.fairness.made_for_all import MadeForAll
from bmq.naming.bearer import bearer_of
from bmq_databus import metrics
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import NoSuchChannel, NothingKnown, TurnedOff
from bmq_databus.http import confluent
from bmq_databus.http.answers import Reply, document, refusal
from bmq_databus.http.incoming import ClientGone, Incoming, Receive, Scope, Send
from bmq_databus.http.outgoing import Outgoing
from bmq_databus.http.parameters import FORMS, LINES, media_of, wants_lines
from bmq_databus.http.streams import Stream
from bmq_databus.http.writes import ChannelWrites, OfMedia
from bmq_databus.producing.writing import ANY_TOPIC
from bmq_databus.requests.admission import Admission, Ending, Followed
from bmq_databus.requests.readiness import OK, Readiness, told
from bmq_databus.requests.written import Requests

OPEN: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Nobody is asked who they are there."""
_PREFIX: Final = "/v1/channels/"
_SUFFIX: Final = "/messages"


class App:
    """ASGI, without lifespan."""

    def __init__(self, requests: Requests, admission: Admission, *, configuration: Followed | None = None) -> None:
        """`configuration` None: channels are those that it began with."""
        self._configuration = configuration
        self._writing = requests.writing
        self._channels = requests.writing.channels
        self._writes = ChannelWrites(requests)
        self._admission = admission
        self._readiness = Readiness(self._writing, admission)
        self._confluent = confluent.Confluent(self._writing, self._writes, admission)
        self._metrics = MadeForAll(self._metrics_told, name="metrics")
        self._readiness_told = MadeForAll(self._ready, name="readiness")
        self._channels_told = MadeForAll(self._channels_shown, name="channels")
        self._told: set[str] = set()
        """Channels that the metrics have."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        incoming = Incoming(scope, receive)
        with suppress(ClientGone), ExitStack() as until_sent:
            answer = await self._answer(incoming, until_sent)
            if isinstance(answer, Stream):
                with self._writes.open(answer):
                    await answer.run(send)
                return
            outgoing = Outgoing(incoming, send)
            if not incoming.is_over:
                # Told at once, and kept open for those who look for an answer once all is sent.
                await outgoing.begin(answer.head())
                await outgoing.go_on(answer.body)
                until_sent.close()
                await incoming.pass_over()
                await outgoing.end()
            else:
                await outgoing.whole(answer.head(), answer.body)

    async def _answer(self, incoming: Incoming, until_sent: ExitStack) -> Reply | Stream:
        path, method = incoming.scope["path"], incoming.scope["method"]
        if (rest := confluent.path_of(path)) is not None:
            if (unknown := await self._unknown(incoming)) is not None:
                return confluent.shaped(unknown)
            return await self._confluent.answer(rest, incoming, until_sent)
        if path not in OPEN and (unknown := await self._unknown(incoming)) is not None:
            return unknown
        if path.startswith(_PREFIX) and path.endswith(_SUFFIX) and len(path) > len(_PREFIX) + len(_SUFFIX):
            if method != "POST":
                return refusal(405, f"{method} is not served here: use POST", allow="POST")
            return await self._write(path[len(_PREFIX) : -len(_SUFFIX)], incoming, until_sent)
        if method != "GET":
            return refusal(404, f"{method} {path[:200]} is not served: see POST {_PREFIX}CHANNEL{_SUFFIX}")
        match path:
            case "/livez":
                return document(200, {"status": "ok"})
            case "/readyz":
                return await self._readiness_told.get()
            case "/metrics":
                return await self._metrics.get()
            case "/v1/channels":
                return await self._channels_told.get()
        return refusal(404, f"GET {path[:200]} is not served: see POST {_PREFIX}CHANNEL{_SUFFIX}")

    async def _metrics_told(self) -> Reply:
        self._tell_channels()
        text = await asyncio.get_running_loop().run_in_executor(None, generate_latest)
        return Reply(status=200, body=text, content_type="text/plain; version=0.0.4")

    async def _channels_shown(self) -> Reply:
        troubles = self._writing.troubles()
        shown = [_shown(one, troubles.get(one.name, "")) for one in self._channels.values()]
        return document(200, {"channels": shown, **self._topics_shown(troubles)})

    def _topics_shown(self, troubles: Mapping[str, str]) -> Mapping[str, Any]:
        """Those that are written without a channel, where that may be."""
        if self._writing.any_topic is None:
            return {}
        return {"anyTopic": {"written": self._writing.any_topic.names, "trouble": troubles.get(ANY_TOPIC)}}

    def _tell_channels(self) -> None:
        troubles = self._writing.troubles()
        takes = {name: channel.enabled and name not in troubles for name, channel in self._channels.items()}
        if self._writing.any_topic is not None:
            takes[ANY_TOPIC] = ANY_TOPIC not in troubles
        for name in self._told - takes.keys():
            metrics.CHANNEL_TAKES.remove(name)
        self._told = {*takes}
        for name, does in takes.items():
            metrics.CHANNEL_TAKES.labels(name).set(does)

    async def _ready(self) -> Reply:
        status = self._readiness.status()
        if self._readiness.is_ending:
            return document(503, {"status": status})
        shown: dict[str, Any] = {"status": status}
        if self._configuration is not None:
            shown["configuration"] = self._configuration.status()
        if troubles := self._writing.troubles():
            shown |= told("channels", troubles)
        return document(200 if status == OK else 503, shown)

    async def _unknown(self, incoming: Incoming) -> Reply | None:
        """The refusal of who presents no token that is known."""
        why = await self._admission.why_unknown(incoming.headers.get("authorization", ""))
        if not why:
            return None
        error = ' error="invalid_token"' if bearer_of(incoming.headers.get("authorization", "")) else ""
        return refusal(
            401,
            f"{why}: send Authorization: Bearer TOKEN with one of its --token-file",
            www_authenticate=f'Bearer realm="bmq-databus"{"," if error else ""}{error}',
        )

    async def _write(self, name: str, incoming: Incoming, until_sent: ExitStack) -> Reply | Stream:
        try:
            channel = await self._admission.named(name)
        except NothingKnown as error:
            return refusal(503, error, retry_after="1")
        except NoSuchChannel as error:
            return refusal(404, error)
        try:
            self._admission.check(channel)
        except TurnedOff as error:
            return self._writes.counted(channel, refusal(403, error))
        except Ending as error:
            return self._writes.counted(channel, refusal(503, error))
        if (media := media_of(incoming.headers.get("content-type", ""))) in FORMS:
            why = f"content-type {media} is what curl says by itself: say text/plain, or what it is"
            return self._writes.counted(channel, refusal(415, why))
        if media in LINES and wants_lines(",".join(incoming.values("accept"))):
            return self._writes.stream(channel, incoming)
        room = until_sent.enter_context(self._writes.room(channel))
        return await self._writes.write(channel, OfMedia(media), incoming, room)


def _shown(channel: Channel, trouble: str) -> Mapping[str, Any]:
    return {
        "name": channel.name,
        "topic": channel.topic,
        "acknowledgement": channel.acknowledgement,
        "enabled": channel.enabled,
        "trouble": trouble or None,
    }
