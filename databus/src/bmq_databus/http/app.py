"""The paths of the sidecar.

`POST /v1/channels/{channel}/messages` takes one message as it is, many as `application/json`, or many as lines
(`application/x-ndjson`), these also as a stream. `GET /v1/channels`, `/livez`, `/readyz` and `/metrics` are for people
and machines that watch.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any, Final, Protocol

from prometheus_client import generate_latest

from bmq.naming.bearer import bearer_of
from bmq_databus.channels.channel import Channel
from bmq_databus.http.answers import Reply, document, refusal
from bmq_databus.http.incoming import ClientGone, Incoming, Receive, Scope, Send
from bmq_databus.http.outgoing import Outgoing
from bmq_databus.http.parameters import FORMS, LINES, media_of, wants_lines
from bmq_databus.http.streams import Stream
from bmq_databus.http.writes import ChannelWrites
from bmq_databus.producing.writing import Writing

OPEN: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Nobody is asked who they are there."""
_PREFIX: Final = "/v1/channels/"
_SUFFIX: Final = "/messages"


class Tokens(Protocol):
    """Those of which a request presents one."""

    async def admits(self, presented: str) -> bool:
        """Compares in constant time."""


class Followed(Protocol):
    """A control plane whose channels they are."""

    @property
    def known(self) -> object | None:
        """None: which channels there are is not known yet."""

    def status(self) -> Mapping[str, Any]:
        """For people: what is known, and how well."""


class App:
    """ASGI, without lifespan."""

    def __init__(
        self, writing: Writing, *, tokens: Tokens | None = None, configuration: Followed | None = None
    ) -> None:
        """`tokens` None: whoever reaches it may write. `configuration` None: channels are those that it began with."""
        self._configuration = configuration
        self._channels = writing.channels
        self._writes = ChannelWrites(writing)
        self._tokens = tokens
        self._is_ending = False

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
            await outgoing.begin(answer.head())
            if not incoming.is_over:
                # Told at once, and kept open for those who look for an answer once all is sent.
                await outgoing.go_on(answer.body)
                until_sent.close()
                await incoming.pass_over()
                await outgoing.end()
            else:
                await outgoing.end(answer.body)

    def end(self) -> None:
        """Nothing more is taken, and streams end."""
        self._is_ending = True
        self._writes.end_streams()

    async def _answer(self, incoming: Incoming, until_sent: ExitStack) -> Reply | Stream:
        path, method = incoming.scope["path"], incoming.scope["method"]
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
                return self._ready()
            case "/metrics":
                exposed = await asyncio.get_running_loop().run_in_executor(None, generate_latest)
                return Reply(status=200, body=exposed, content_type="text/plain; version=0.0.4")
            case "/v1/channels":
                return document(200, {"channels": [_shown(one) for one in self._channels.values()]})
        return refusal(404, f"GET {path[:200]} is not served: see POST {_PREFIX}CHANNEL{_SUFFIX}")

    @property
    def _knows_nothing(self) -> bool:
        return self._configuration is not None and self._configuration.known is None

    def _ready(self) -> Reply:
        if self._is_ending:
            return document(503, {"status": "ending"})
        if self._configuration is None:
            return document(200, {"status": "ok"})
        status = "no channels are known yet" if self._knows_nothing else "ok"
        told = {"status": status, "configuration": self._configuration.status()}
        return document(503 if self._knows_nothing else 200, told)

    async def _unknown(self, incoming: Incoming) -> Reply | None:
        """The refusal of who presents no token that is known."""
        if self._tokens is None:
            return None
        presented = bearer_of(incoming.headers.get("authorization", ""))
        if await self._tokens.admits(presented):
            return None
        why = "its token is none of this sidecar's" if presented else "it has no bearer token"
        error = ' error="invalid_token"' if presented else ""
        return refusal(
            401,
            f"{why}: send Authorization: Bearer TOKEN with one of its --token-file",
            www_authenticate=f'Bearer realm="bmq-databus"{"," if error else ""}{error}',
        )

    async def _write(self, name: str, incoming: Incoming, until_sent: ExitStack) -> Reply | Stream:
        channel = self._channels.get(name)
        if channel is None and self._knows_nothing:
            return refusal(503, "which channels there are is not known yet: try again", retry_after="1")
        if channel is None:
            known = ", ".join(sorted(self._channels)[:10])
            return refusal(404, f"there is no channel {name[:200]!r}; there are {known or 'none'}")
        if not channel.enabled:
            refused = refusal(403, f"channel {name} is turned off")
        elif self._is_ending:
            refused = refusal(503, "this sidecar is ending: try again")
        elif (media := media_of(incoming.headers.get("content-type", ""))) in FORMS:
            why = f"content-type {media} is what curl says by itself: say text/plain, or what it is"
            refused = refusal(415, why)
        elif media in LINES and wants_lines(",".join(incoming.values("accept"))):
            return self._writes.stream(channel, incoming)
        else:
            room = until_sent.enter_context(self._writes.room(channel))
            return await self._writes.write(channel, media, incoming, room)
        return self._writes.counted(channel, refused)


def _shown(channel: Channel) -> Mapping[str, Any]:
    return {
        "name": channel.name,
        "topic": channel.topic,
        "acknowledgement": channel.acknowledgement,
        "enabled": channel.enabled,
    }
