"""What is read of an API server's answers has a bound, whatever somebody writes into his resources."""

import asyncio
import json
from random import Random
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web
from kopf._cogs.clients import auth, watching
from kopf._cogs.configs.configuration import OperatorSettings
from kopf._cogs.structs.credentials import Vault, VaultKey
from kopf._cogs.structs.references import Resource
from paged_server import LANES, PagedServer, lane
from served import served, served_at

from bmq_operator import answers
from bmq_operator.answers import ANSWER_BYTES_MAX, LABELS_MAX, PAGE, PAGE_BYTES_MAX, PageSize, parsed, part_of, slim
from bmq_operator.clusters.names import OF_LANE
from bmq_operator.handlers import HEARD, PLURALS
from bmq_operator.lanes.claims import lane_claims
from bmq_operator.watches import LeanSession

DEEP = "[" * 9_000 + "]" * 9_000
"""Deeper than Python reads, and not too deep for an API server."""


def test_a_list_of_large_objects_comes_in_pages_of_so_many_bytes_and_nothing_more_is_read() -> None:
    server = PagedServer([lane(f"l{number:03}", junk="x" * (PAGE_BYTES_MAX // 3)) for number in range(12)])

    async def main() -> None:
        async with served(server.answer) as kube:
            kept = await kube.each("Lane", keep=part_of)
            assert [one["metadata"]["name"] for one in kept] == [f"l{number:03}" for number in range(12)]
            assert len(lane_claims(kept).uids) == 12
            assert server.limits[:2] == [PAGE, PAGE // 4] and max(server.limits[-4:]) <= 2
            server.limits.clear()
            assert len(await kube.each("Lane", keep=part_of)) == 12
            assert max(server.limits) <= 2, "what fits is remembered"

    asyncio.run(main())


def test_small_objects_come_in_large_pages_again_once_the_large_ones_are_gone() -> None:
    size = PageSize(objects=1)
    assert size.bytes_max == ANSWER_BYTES_MAX, "one object is read however large it is"
    for _ in range(20):
        size.fits(1_000)
    assert (size.objects, size.bytes_max) == (PAGE, PAGE_BYTES_MAX)
    size.fits(PAGE_BYTES_MAX)
    assert size.objects == PAGE


def test_one_object_that_is_nested_too_deep_for_python_keeps_nobody_from_reading_the_others() -> None:
    server = PagedServer([lane("a"), lane("odd"), lane("z")])
    server.texts[1] = server.texts[1].replace('"junk": ""', f'"junk": {DEEP}')

    async def main() -> None:
        async with served(server.answer) as kube:
            assert await kube.each("Lane", keep=lambda one: one["metadata"]["name"]) == ["a", "odd", "z"]

    asyncio.run(main())


def _any(rng: Random, depth: int) -> Any:
    kind = rng.random()
    if depth <= 0 or kind < 0.3:
        return rng.choice([1, None, 'a[]{}\\"', "", True, "\\"])
    if kind < 0.7:
        return [_any(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(["a", 'b["', "\\"]): _any(rng, depth - 1) for _ in range(rng.randint(0, 3))}


def _cut(value: Any, depth: int = 0) -> Any:
    """The obvious way."""
    if not isinstance(value, list | dict):
        return value
    if depth >= answers.DEPTH_MAX:
        return None
    if isinstance(value, list):
        return [_cut(one, depth + 1) for one in value]
    return {name: _cut(one, depth + 1) for name, one in value.items()}


def test_what_is_too_deep_is_left_out_and_all_else_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parsed(f'{{"a": "\\\\\\"[[", "deep": {{"b": {DEEP}}}, "after": ["]]"]}}'.encode())
    assert (found["a"], found["after"]) == ('\\"[[', ["]]"])
    monkeypatch.setattr(answers, "DEPTH_MAX", 4)
    rng = Random(7)
    for _ in range(2_000):
        value = _any(rng, 7)
        assert json.loads(answers._shallow(json.dumps(value).encode())) == _cut(value)


@pytest.mark.parametrize("text", ["[" * 9_000, "[" * 9_000 + "]" * 8_000], ids=["never", "not far enough"])
def test_what_is_nested_too_deep_and_never_ends_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        parsed(text.encode())


def test_of_thousands_of_labels_those_of_bmq_count() -> None:
    labels = {f"l{number}": "" for number in range(LABELS_MAX)} | {"bmq.io/cluster": "prod"}
    manifest = {"metadata": {"name": "a", "labels": labels}}
    assert slim(manifest)["metadata"]["labels"] == {"bmq.io/cluster": "prod"}
    few = {"metadata": {"name": "a", "labels": {"x": "y"}}}
    assert slim(few)["metadata"]["labels"] == {"x": "y"}


def test_kopf_is_told_of_an_object_what_is_heard_of_it_and_no_more() -> None:
    meta = {"labels": {"bmq.io/use": "allowed", "x": "y"}, "annotations": {OF_LANE: "dev", "note": "n" * 1_000}}
    spec = {"clusterRef": {"name": "prod"}}
    server = PagedServer(
        [lane(f"l{number}", junk="x" * (PAGE_BYTES_MAX // 3), spec=spec, **meta) for number in range(5)]
    )
    server.texts[2] = server.texts[2].replace('"junk": "', f'"deep": {DEEP}, "junk": "')
    server.events = [
        json.dumps({"type": "MODIFIED", "object": lane("l1", junk="x" * 300_000, spec=spec, **meta)}),
        json.dumps({"type": "BOOKMARK", "object": {"kind": "Lane", "metadata": {"resourceVersion": "77"}}}),
        json.dumps({"type": "DELETED", "object": lane("l3")}).replace('"junk": ""', f'"junk": {DEEP}'),
        json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410}}),
    ]

    async def heard(url: str) -> list[Any]:
        info = kopf.ConnectionInfo(server=url)
        session = LeanSession(info, plurals=PLURALS, names=HEARD)
        known = kopf.AiohttpSession(server=url, aiohttp_session=session)  # type: ignore[arg-type]
        auth.vault_var.set(Vault({VaultKey("a"): known}))
        stream = watching.continuous_watch(
            settings=OperatorSettings(),
            resource=Resource(group="bmq.io", version="v1alpha1", plural=LANES, namespaced=True),
            namespace="shop",
            operator_pause_waiter=asyncio.get_running_loop().create_future(),
        )
        try:
            return [one async for one in stream]
        finally:
            await session.close()

    async def main() -> None:
        async with served_at(server.answer) as url:
            *listed, mark, changed, bookmark, gone = await heard(url)
        assert [one["object"]["metadata"]["name"] for one in listed] == [f"l{number}" for number in range(5)]
        assert (mark, changed["type"], bookmark["type"], gone["type"]) == (
            watching.Bookmark.LISTED,
            "MODIFIED",
            "BOOKMARK",
            "DELETED",
        )
        for one in (*listed, changed):
            told = one["object"]
            assert told["spec"] == spec and told["metadata"]["uid"] == f"uid-{told['metadata']['name']}"
            assert told["metadata"]["labels"] == {"bmq.io/use": "allowed"}
            assert told["metadata"]["annotations"] == {OF_LANE: "dev"}
            assert len(json.dumps(told)) < 1_000
        assert max(server.limits[-3:]) <= 2, "pages of so many bytes"

    asyncio.run(main())


def test_what_kopf_asks_for_otherwise_comes_through_as_it_is() -> None:
    async def main() -> None:
        async def answer(request: web.Request) -> web.Response:
            if request.path.endswith(LANES):
                return web.json_response({"kind": "Status", "code": 403}, status=403)
            return web.json_response({"items": [{"spec": {"group": "bmq.io"}}]})

        async with served_at(answer) as url:
            session = LeanSession(kopf.ConnectionInfo(server="http://x"), plurals=PLURALS, names=HEARD)
            crds = await session.request(method="get", url=f"{url}/apis/x/v1/customresourcedefinitions")
            assert await crds.json() == {"items": [{"spec": {"group": "bmq.io"}}]}
            for query in ("limit=500", "watch=true"):
                refused = await session.request(method="get", url=f"{url}/apis/bmq.io/v1/{LANES}?{query}")
                assert refused.status == 403 and (await refused.json())["kind"] == "Status"
            await session.close()
            assert session.closed and isinstance(refused, aiohttp.ClientResponse)

    asyncio.run(main())
