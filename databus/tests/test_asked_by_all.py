"""What anybody may ask of a sidecar costs as much as it has channels: however many ask, it is made once for them."""

import asyncio
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from test_streams import in_a_loop

from bmq_databus.channels.channel import Channel
from bmq_databus.grpc.asked import Asked
from bmq_databus.grpc.call import Call
from bmq_databus.http.app import App
from bmq_databus.requests.admission import Admission
from bmq_databus.requests.readiness import Readiness
from bmq_databus.requests.written import Requests

ASK = 50


@dataclass
class Writing:
    channels: dict[str, Channel] = field(
        default_factory=lambda: {name: Channel(name=name, topic=name) for name in ("clicks", "orders")}
    )
    any_topic: None = None
    looked: int = 0

    def troubles(self) -> dict[str, str]:
        self.looked += 1
        return {"orders": "the cluster is away"}


class Everybody:
    """An admission that lets all in."""

    is_ending = knows_nothing = False

    async def why_unknown(self, _: str) -> str:
        return ""


async def got(app: App, path: str) -> Any:
    body = bytearray()

    async def receive() -> Mapping[str, Any]:
        raise AssertionError("it has no body")

    async def send(event: MutableMapping[str, Any]) -> None:
        body.extend(event.get("body", b""))

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return msgspec.json.decode(body)


@pytest.mark.parametrize("path", ["/readyz", "/v1/channels"])
@in_a_loop
async def test_channels_are_looked_at_once_for_all_who_ask_by_http(path: str) -> None:
    writing = Writing()
    app = App(cast(Requests, SimpleNamespace(writing=writing)), cast(Admission, Everybody()))
    answers = await asyncio.gather(*(got(app, path) for _ in range(ASK)))
    assert answers == [answers[0]] * ASK
    assert "the cluster is away" in str(answers[0])
    assert 1 <= writing.looked <= 2
    before = writing.looked
    await got(app, path)
    assert writing.looked > before, "the next one is made anew"


@in_a_loop
async def test_and_by_grpc() -> None:
    writing, told = Writing(), []

    async def request() -> bytes:
        return b""

    async def answer(data: bytes) -> None:
        told.append(data)

    async def serve(one: Any, *_: object, **__: object) -> None:
        await one(cast(Call, SimpleNamespace(request=request, answer=answer, party="one")))

    readiness = Readiness(cast(Any, writing), cast(Admission, Everybody()))
    check = cast(Any, Asked(serve, readiness).handlers[0]).service(
        SimpleNamespace(method="/grpc.health.v1.Health/Check", invocation_metadata=())
    )
    await asyncio.gather(*(check.stream_stream(None, None) for _ in range(ASK)))
    assert told == [told[0]] * ASK
    assert 1 <= writing.looked < ASK / 5
