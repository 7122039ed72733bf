"""The paths of the sidecar.

`POST /v1/channels/{channel}/messages` takes one message as it is, many as `application/json`, or many as lines
(`application/x-ndjson`). `GET /v1/channels`, `/livez`, `/readyz` and `/metrics` are for people and machines that watch.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes

import msgspec
from prometheus_client import generate_latest

from bmq_databus import metrics
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage, DatabusError
from bmq_databus.http.bodies import (
    BODY_BYTES_MAX,
    BadBody,
    BodyRoom,
    BodyTooLarge,
    ClientGone,
    Receive,
    TooMuchAtOnce,
    TooSlow,
    read_body,
)
from bmq_databus.messages.forms import NewMessage, from_json, from_json_array, from_json_lines, raw
from bmq_databus.producing.outcomes import Outcome, whole
from bmq_databus.producing.writing import Writing

BODIES_BYTES_MAX: Final = 64 << 20
"""What all requests together hold until they are answered."""
PATIENCE_S: Final = 30.0
"""How long a writer waits for room, beside the time that delivery takes."""
HEADER_PREFIX: Final = b"bmq-header-"
MANY: Final = frozenset(
    {"application/json", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)
"""Bodies with a message or several, each with an outcome of its own."""
FORMS: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})
NUMBERS: Final = ("timestamp", "partition")
_PREFIX: Final = "/v1/channels/"
_SUFFIX: Final = "/messages"
_json: Final = msgspec.json.Encoder().encode

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class App:
    """ASGI, without lifespan."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._bodies = BodyRoom(BODIES_BYTES_MAX)
        self.is_ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        try:
            status, body = await self._answer(scope, receive)
        except ClientGone:
            return
        content_type = b"text/plain; version=0.0.4" if isinstance(body, bytes) else b"application/json"
        data = body if isinstance(body, bytes) else _json(body)
        headers = [(b"content-type", content_type), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, Mapping[str, Any] | bytes]:
        path, method = scope["path"], scope["method"]
        if path.startswith(_PREFIX) and path.endswith(_SUFFIX) and len(path) > len(_PREFIX) + len(_SUFFIX):
            if method != "POST":
                return 405, {"error": f"{method} is not served here: use POST"}
            return await self._write(path[len(_PREFIX) : -len(_SUFFIX)], scope, receive)
        if method != "GET":
            return 404, {"error": f"{method} {path[:200]} is not served: see POST {_PREFIX}CHANNEL{_SUFFIX}"}
        match path:
            case "/livez":
                return 200, {"status": "ok"}
            case "/readyz":
                return (503, {"status": "ending"}) if self.is_ending else (200, {"status": "ok"})
            case "/metrics":
                return 200, generate_latest()
            case "/v1/channels":
                return 200, {"channels": [_shown(one) for one in self._writing.channels.values()]}
        return 404, {"error": f"GET {path[:200]} is not served: see POST {_PREFIX}CHANNEL{_SUFFIX}"}

    async def _write(self, name: str, scope: Scope, receive: Receive) -> tuple[int, Mapping[str, Any]]:
        channel = self._writing.channels.get(name)
        if channel is None:
            known = ", ".join(sorted(self._writing.channels)[:10])
            return 404, {"error": f"there is no channel {name[:200]!r}; there are {known}"}
        status, answer = await self._write_to(channel, scope, receive)
        results = answer.get("results", [{"status": status}])
        for one, count in Counter(result["status"] for result in results).items():
            metrics.MESSAGES.labels(name, str(one)).inc(count)
        return status, answer

    async def _write_to(self, channel: Channel, scope: Scope, receive: Receive) -> tuple[int, Mapping[str, Any]]:
        if not channel.enabled:
            return 403, {"error": f"channel {channel.name} is turned off"}
        if self.is_ending:
            return 503, {"error": "this sidecar is ending: try again"}
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        encoding = headers.get("content-encoding", "").strip().lower()
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media in FORMS:
            return 415, {"error": f"content-type {media} is what curl says by itself: say text/plain, or what it is"}
        try:
            with self._bodies.one() as room:
                body = await read_body(receive, encoding=encoding, bytes_max=BODY_BYTES_MAX, room=room)
                news = _messages(media, body, scope)
                del body
                outcomes = await self._writing.write(channel, news, patience_s=PATIENCE_S)
        except BodyTooLarge as error:
            return 413, _error(error)
        except TooMuchAtOnce as error:
            return 503, _error(error)
        except TooSlow as error:
            return 408, _error(error)
        except (BadBody, BadMessage) as error:
            return 400, _error(error)
        if media not in MANY:
            return outcomes[0]["status"], outcomes[0]
        return whole(outcomes), {"results": outcomes}


def _messages(media: str, body: bytes, scope: Scope) -> list[NewMessage | BadMessage]:
    if media == "application/json":
        return from_json_array(body) if body.lstrip()[:1] == b"[" else [from_json(body)]
    if media in MANY:
        return from_json_lines(body)
    asked = _query(scope.get("query_string", b""))
    if unknown := asked.keys() - {"key", "timestamp", "partition"}:
        raise BadMessage(f"parameter {min(unknown)[:40]!r} means nothing here: key, timestamp and partition do")
    headers: list[tuple[str, bytes]] = [
        (name[len(HEADER_PREFIX) :].decode("latin-1"), value)
        for name, value in scope["headers"]
        if name.startswith(HEADER_PREFIX)
    ]
    timestamp, partition = (None if one is None else one.decode("latin-1") for one in map(asked.get, NUMBERS))
    return [raw(body, key=asked.get("key"), headers=headers, timestamp=timestamp, partition=partition)]


def _query(query: bytes) -> dict[str, bytes]:
    """Values as the bytes that they are."""
    parts = [part.partition(b"=") for part in query.split(b"&") if part]
    return {unquote(name.decode("latin-1")): unquote_to_bytes(value.replace(b"+", b" ")) for name, _, value in parts}


def _error(error: DatabusError) -> Outcome:
    return {"error": str(error)}


def _shown(channel: Channel) -> Mapping[str, Any]:
    return {
        "name": channel.name,
        "topic": channel.topic,
        "acknowledgement": channel.acknowledgement,
        "enabled": channel.enabled,
    }
