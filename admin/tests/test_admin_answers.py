"""Whatever is answered in a cluster's place: it is read within bounds, and what bmq never says is told as that."""

import asyncio
import gzip
import json
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from random import Random
from typing import Any

import httpx
import pytest
from api_server import Answer, ok, serving

from bmq_admin import client as of_the_operator
from bmq_admin import documents, pages
from bmq_admin.answers import read
from bmq_admin.blocking import BlockingAdminClient
from bmq_admin.client import ANSWER_BYTES_MAX, PAGES_MAX, AdminClient
from bmq_admin.documents import page_of
from bmq_admin.errors import AdminError, AdminProblem, AdminUnreachable, NotBmq, TimedOut
from bmq_admin.requests import Listing, Request, request_for

NODE = {
    "node_id": 7,
    "state": "alive",
    "leads": False,
    "cordoned": False,
    "draining": False,
    "partitions": 1,
    "moving_away": 0,
    "moving_here": 0,
}
LANE = {
    "name": "dev",
    "number": 1,
    "version": "3-4",
    "created_ms": 1,
    "expires_ms": None,
    "ttl_seconds": 0,
    "own_brokers": False,
    "reads_base": {"enabled": False, "topics": [], "bytes_per_second": 1},
    "fallback": "none",
    "topics": 0,
}
PROBLEM = {"what": "w", "why": "y", "remedy": "r", "code": "c"}
DEEP = b"[" * 100_000 + b"]" * 100_000


def blocking(url: str, asked: Request[Any] | Listing[Any]) -> Any:
    client = BlockingAdminClient([url], timeout_s=5, sleep=lambda _: None)
    return list(client.all(asked)) if isinstance(asked, Listing) else client.ask(asked)


def awaited(url: str, asked: Request[Any] | Listing[Any]) -> Any:
    async def run() -> Any:
        client = AdminClient(url, timeout_s=5)
        try:
            return [one async for one in client.all(asked)] if isinstance(asked, Listing) else await client.ask(asked)
        finally:
            await client.close()

    return asyncio.run(run())


def answered(document: Any) -> bytes:
    return json.dumps(document).encode()


FOREIGN: dict[str, tuple[Request[Any] | Listing[Any], bytes, str]] = {
    "nested too deeply": (pages.cluster(), b'{"junk": ' + DEEP + b"}", "it is nested too deeply"),
    "another thing": (pages.cluster(), b"[]", "Expected `object`, got `array`"),
    "null": (pages.cluster(), b"null", "Expected `object`, got `null`"),
    "no JSON": (pages.cluster(), b"<html>", "it is not JSON"),
    "nothing": (pages.cluster(), b"", "it is not JSON"),
    "a number without end": (
        pages.node(7),
        b'{"node_id": ' + b"9" * 10_000 + b"}",
        "Integer value out of range - at `$.node_id`",
    ),
    "no page": (pages.nodes(), b"[]", "Expected `object`, got `array`"),
    "a page without items": (pages.nodes(), b"{}", "Object missing required field `items`"),
    "items that are none": (
        pages.topics(),
        answered({"items": ["a"], "continue": None}),
        "Expected `object`, got `str` - at `$.items[0]`",
    ),
    "a token that no address can carry": (
        pages.nodes(),
        answered({"items": [NODE], "continue": "a\n"}),
        "Expected `str` matching regex '^[ -~]*\\\\Z' - at `$.continue`",
    ),
    "a token without end": (
        pages.nodes(),
        answered({"items": [NODE], "continue": "a" * 2_001}),
        "Expected `str` of length <= 2000 - at `$.continue`",
    ),
    "a field of another type": (
        pages.nodes(),
        answered({"items": [NODE, {**NODE, "partitions": "1"}], "continue": None}),
        "Expected `int`, got `str` - at `$.items[1].partitions`",
    ),
    "true for a number": (
        pages.node(7),
        answered({**NODE, "node_id": True}),
        "Expected `int`, got `bool` - at `$.node_id`",
    ),
    "more than any log holds": (
        pages.node(7),
        answered({**NODE, "partitions": 1 << 63}),
        f"Expected `int` <= {(1 << 63) - 1} - at `$.partitions`",
    ),
    "no number at all": (pages.node(7), b'{"node_id": NaN}', "it is not JSON"),
    "a field that is missing": (
        pages.lane("dev"),
        answered({**LANE, "reads_base": {}}),
        "Object missing required field `enabled` - at `$.reads_base`",
    ),
    "a time that nothing is written in": (
        pages.lane("dev"),
        answered({**LANE, "expires_ms": 1 << 62}),
        "Expected `int` <= 253402300799999 - at `$.expires_ms`",
    ),
    "a version that no header can carry": (
        pages.lane("dev"),
        answered({**LANE, "version": "1\r\nx: y"}),
        "Expected `str` matching regex '^[ -~]*\\\\Z' - at `$.version`",
    ),
    "settings that are no text": (
        pages.topic("a"),
        answered({"name": "a", "topic_id": "x", "version": "1", "partitions": 1, "configs": {"b": {}}}),
        "Expected `str`, got `object` - at `$.configs[...]`",
    ),
}


@pytest.mark.parametrize("face", [blocking, awaited])
@pytest.mark.parametrize(("asked", "data", "why"), FOREIGN.values(), ids=FOREIGN)
def test_what_bmq_never_says_is_told_as_that(
    face: Callable[..., Any], asked: Request[Any] | Listing[Any], data: bytes, why: str
) -> None:
    with serving((200, {}, data)) as server, pytest.raises(NotBmq) as raised:
        face(server.url, asked)
    assert str(raised.value).endswith(f": {why}"), raised.value


@pytest.mark.parametrize("face", [blocking, awaited])
def test_an_answer_without_content_is_none_where_a_document_is_due(face: Callable[..., Any]) -> None:
    with serving((204, {}, b"")) as server, pytest.raises(NotBmq, match="GET /v1/clock: Expected `object`, got `null`"):
        face(server.url, pages.clock())
    with serving((204, {}, b"")) as server:
        assert face(server.url, pages.delete_lane("dev")) is None


@pytest.mark.parametrize("face", [blocking, awaited])
@pytest.mark.parametrize(
    "data",
    [DEEP, answered({**PROBLEM, "why": ["y"] * 9}), answered({"code": "c"}), b"null"],
    ids=["nested too deeply", "no text", "parts are missing", "null"],
)
def test_a_refusal_that_bmq_never_gives_is_told_as_that(face: Callable[..., Any], data: bytes) -> None:
    with serving((409, {}, data)) as server, pytest.raises(NotBmq, match="answers 409, and not as bmq does"):
        face(server.url, pages.cluster())


@pytest.mark.parametrize("face", [blocking, awaited])
def test_of_a_refusal_no_more_is_kept_than_somebody_reads(face: Callable[..., Any]) -> None:
    long: Answer = (409, {}, answered({**PROBLEM, "why": "y" * 100_000}))
    with serving(long) as server, pytest.raises(AdminProblem) as raised:
        face(server.url, pages.cluster())
    assert len(raised.value.why) == 2_000


@pytest.mark.parametrize("face", [blocking, awaited])
def test_nothing_is_unpacked(face: Callable[..., Any]) -> None:
    small: Answer = (200, {"content-encoding": "gzip"}, gzip.compress(b" " * (50 << 20)))
    with serving(small) as server, pytest.raises(NotBmq, match="a compressed answer, which was not asked for"):
        face(server.url, pages.cluster())
    assert server.asked[0][2]["accept-encoding"] == "identity"


def test_of_a_document_the_operator_has_the_fields_that_it_reads_and_a_command_all() -> None:
    more = {**NODE, "pool": "p", "junk": [[]] * 1_000}
    with serving(ok(more)) as server:
        assert awaited(server.url, pages.node(7)) == {**NODE, "pool": "p"}
    with serving(ok(more)) as server:
        assert blocking(server.url, pages.node(7)) == more


def use(answer: Callable[[httpx.Request], httpx.Response], asked: Request[Any] | Listing[Any], **more: Any) -> Any:
    async def run() -> Any:
        client = AdminClient("http://bmq", transport=httpx.MockTransport(answer), **more)
        try:
            return [one async for one in client.all(asked)] if isinstance(asked, Listing) else await client.ask(asked)
        finally:
            await client.close()

    return asyncio.run(run())


def test_a_list_without_end_is_given_up() -> None:
    count = 0

    def endless(request: httpx.Request) -> httpx.Response:
        nonlocal count
        count += 1
        return httpx.Response(200, json={"items": [NODE], "continue": "again"})

    with pytest.raises(AdminUnreachable, match=f"/v1/nodes: a list of more than {PAGES_MAX} pages"):
        use(endless, pages.nodes())
    assert count == PAGES_MAX


@pytest.mark.parametrize("face", [blocking, awaited])
def test_a_page_without_anything_is_the_last(face: Callable[..., Any]) -> None:
    with serving(ok({"items": [], "continue": "x"})) as server, pytest.raises(AdminUnreachable, match="an empty page"):
        face(server.url, pages.topics())


def test_an_answer_that_goes_on_and_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def drips() -> AsyncIterator[bytes]:
        yield b" "
        await asyncio.Event().wait()

    monkeypatch.setattr(of_the_operator, "ANSWER_S_MAX", 0.05)
    with pytest.raises(TimedOut):
        use(lambda _: httpx.Response(200, content=drips()), pages.cluster(), timeout_s=0.01)


@pytest.mark.parametrize(
    "data",
    [b"[" + b"1," * (ANSWER_BYTES_MAX // 4), b"[" + b"1," * (ANSWER_BYTES_MAX // 4) + b"1]", b"x" * (2 << 20)],
    ids=["no JSON", "no document", "too large"],
)
def test_an_error_that_is_kept_keeps_nothing_of_the_answer(data: bytes) -> None:
    async def run() -> AdminError:
        client = AdminClient("http://bmq", transport=httpx.MockTransport(lambda _: httpx.Response(200, content=data)))
        try:
            await client.ask(pages.cluster())
        except AdminError as error:
            return error
        raise AssertionError("it was read")

    assert [
        one for one in held_by(asyncio.run(run())) if isinstance(one, list | bytes | str) and len(one) > 1_000
    ] == []


def held_by(error: BaseException | None) -> Iterator[Any]:
    """What its frames have, and those of what it came of."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if not frame.f_code.co_filename.startswith(__file__):
                yield from frame.f_locals.values()
        yield getattr(error, "doc", None)
        error = error.__cause__ or error.__context__


KINDS = [one for one in vars(documents).values() if isinstance(one, type) and hasattr(one, "__required_keys__")]


def anything(rng: Random, depth: int = 4, *, near: Sequence[str] = ()) -> Any:
    """`near`: names that are taken rather than others."""
    kind = rng.random()
    if depth <= 0 or kind < 0.3:
        return rng.choice([None, True, 0, -1, 1 << 70, 0.5, "", "a", "\r\n"])
    if kind < 0.6:
        return [anything(rng, depth - 1, near=near) for _ in range(rng.randint(0, 3))]
    names = [name for kind in (*KINDS, {"items": 0, "continue": 0}) for name in getattr(kind, "__annotations__", kind)]
    names += near * (2 * len(names) // max(1, len(near)))
    return {rng.choice(names): anything(rng, depth - 1, near=near) for _ in range(rng.randint(0, 12))}


def test_whatever_is_answered_is_a_document_or_is_none() -> None:
    rng, fit = Random(7), 0
    for _ in range(5_000):
        kind = rng.choice(KINDS)
        near = (*kind.__annotations__, "items", "continue")
        for one in (kind, page_of(kind)):
            asked: Request[Any] = request_for("GET", ("x",), document=one)
            try:
                found = read(
                    "http://bmq", asked, status=200, reason="", data=answered(anything(rng, near=near)), whole=False
                )
            except NotBmq:
                continue
            fit += 1
            assert set(found.document) <= set(one.__annotations__)
    assert fit, "some do"
