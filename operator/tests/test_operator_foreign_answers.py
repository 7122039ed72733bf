"""What answers in the place of a Cluster's controllers may be anything, as whoever may make a pod there gives it their
labels: it takes no more memory than a cluster's own answers, and the resources tell what is wrong.
"""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from clusters_world import World, cluster
from served import served_at
from tests.waiting import until_async

from bmq_admin.client import AdminClient
from bmq_operator import main
from bmq_operator.clusters import asking
from bmq_operator.clusters.asking import ask_state
from bmq_operator.clusters.troubles import last_words
from bmq_operator.known import Known
from bmq_operator.main import CLIENTS_MAX, Operator
from bmq_operator.settings import OperatorSettings
from bmq_operator.topics import known as topics_known
from bmq_operator.topics.known import topics_of
from bmq_resources.cluster import Cluster

MIB = 1 << 20
NODE = {
    "state": "alive",
    "leads": False,
    "cordoned": False,
    "draining": False,
    "partitions": 0,
    "moving_away": 0,
    "moving_here": 0,
    "listeners": {f"l{number}": "b.example:9092" for number in range(9)},
}
TOPIC = {
    "apiVersion": "bmq.io/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "orders", "namespace": "shop", "uid": "uid-orders", "generation": 1},
    "spec": {"clusterRef": {"name": "prod"}},
}
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def always(data: bytes, **headers: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=data, headers=headers)

    return answer


async def many_lists(request: web.Request) -> web.StreamResponse:
    """Sixty megabytes of them, which take more than a gigabyte."""
    stream = web.StreamResponse()
    await stream.prepare(request)
    await stream.write(b"[")
    try:
        for _ in range(60):
            await stream.write(b"[]," * (MIB // 3))
    except ConnectionError:
        pass
    return stream


FOREIGN: dict[str, tuple[Answer, str]] = {
    "sixty megabytes of empty lists": (many_lists, "an answer of more than 1048576 bytes"),
    "a megabyte that becomes a hundred": (
        always(gzip.compress(b" " * (100 * MIB)), **{"content-encoding": "gzip"}),
        "a compressed answer",
    ),
    "no object": (always(b"[" + b"[]," * 300_000 + b"[]]"), "Expected `object`"),
    "nested without end": (always(b'{"junk": ' + b"[" * 500_000), "it is nested too deeply"),
    "another document": (always(b"{}"), "is "),
    "no JSON": (always(b"<html>"), "it is not JSON"),
}


def with_answers(answer: Answer, use: Callable[[World], Awaitable[None]], *manifests: dict[str, Any]) -> None:
    async def run() -> None:
        async with served_at(answer) as url:
            world, clients = World(cluster(), *manifests), dict[tuple[str, str], AdminClient]()

            def admin(_: str, token: str) -> AdminClient:
                return clients.setdefault((url, token), AdminClient(url, token=token))

            object.__setattr__(world.context, "admin", admin)
            try:
                await use(world)
            finally:
                for one in clients.values():
                    await one.close()

    asyncio.run(run())


@pytest.mark.parametrize(("answer", "why"), FOREIGN.values(), ids=FOREIGN)
def test_who_pretends_to_be_a_clusters_controller_takes_little_memory_and_the_resources_tell(
    answer: Answer, why: str
) -> None:
    async def use(world: World) -> None:
        for _ in range(2):
            await world.look("prod")
            world.pods_are_made()
        tracemalloc.start()
        for kind, name in (("Cluster", "prod"), ("Topic", "orders")):
            status, _, text = await world.look(name, kind)
            assert status == "Unknown" and "does not answer as bmq does" in text and why in text
            assert "See which pods Service shop/prod-admin leads to" in text
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 48 * MIB

    with_answers(answer, use, TOPIC)


def nodes_of(count: int, pool: str = "") -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/v1/cluster":
                return web.json_response({"cluster_id": "c", "partitions_unowned": 0})
            case "/v1/debug/store":
                return web.json_response({"ok": True, "steps": []})
        first, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        items = [{**NODE, "node_id": one, "pool": pool} for one in range(first, min(count, first + limit))]
        return web.json_response({"items": items, "continue": str(first + limit) if first + limit < count else None})

    return answer


def test_a_cluster_of_a_thousand_brokers_and_as_many_proxies_is_known() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        found = await ask_state(world.context, Cluster.model_validate(world.there("Cluster", "prod")))
        assert found.state is not None and sorted(found.state.nodes) == list(range(2_003))

    with_answers(nodes_of(2_003), use)


def test_nodes_without_end_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "NODES_BYTES_MAX", MIB)

    async def use(world: World) -> None:
        await world.look("prod")
        found = await ask_state(world.context, Cluster.model_validate(world.there("Cluster", "prod")))
        assert found.state is None and "more nodes are told of than fit into 1 MiB" in found.why_not

    with_answers(nodes_of(20_000, pool="p" * 1_000), use)


def topics(count: int, **configs: str) -> Answer:
    def view(number: int) -> dict[str, Any]:
        return {"name": f"t{number}", "topic_id": f"id{number}", "version": "1", "partitions": 1, "configs": configs}

    async def answer(request: web.Request) -> web.StreamResponse:
        if (name := request.path.removeprefix("/v1/topics").removeprefix("/")) != "":
            return web.json_response(view(int(name[1:])))
        first, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        items = [view(one) for one in range(first, min(count, first + limit))]
        more = str(first + limit) if first + limit < count else None
        return web.Response(text=json.dumps({"items": items, "continue": more}))

    return answer


def test_of_many_topics_those_are_kept_that_somebody_asks_for() -> None:
    async def use() -> None:
        async with served_at(topics(5_000)) as url:
            client = AdminClient(url)
            known = topics_of(Known(), client)
            assert await known.present("t4999") is None, "nobody has looked at it yet"
            seen = await known.present_now("t4999")
            known.forget()
            assert await known.present("t4999") is seen is not None
            assert await known._list() == {"t4999": "1"}
            await client.close()

    asyncio.run(use())


def test_what_is_kept_of_all_clusters_topics_is_bounded_and_read_anew_where_it_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics_known, "KEPT_BYTES_MAX", 100_000)

    async def use() -> None:
        known = Known()
        async with served_at(topics(20)) as small, served_at(topics(20, junk="x" * 20_000)) as large:
            clients = [AdminClient(small), AdminClient(large)]
            for number in range(20):
                for client in clients:
                    assert await topics_of(known, client).present_now(f"t{number}") is not None
                    assert sum(one.kept_bytes for one in known.topics.values()) < 150_000
            assert topics_of(known, clients[0]).kept_bytes > 20 * 300, "of the one that takes little all are kept"
            assert await topics_of(known, clients[1]).present("t0") is None
            for client in clients:
                await client.close()

    asyncio.run(use())


def test_last_words_that_are_nested_without_end_are_words() -> None:
    assert last_words('ready\n{"event": "over", "deep": ' + "[" * 2_000 + "]" * 2_000 + "}") == "over"
    assert last_words("[" * 4_000) == "[" * 4_000


def test_clients_of_many_clusters_are_closed_once_nobody_can_be_using_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself, and not one after the other: those of a hundred Clusters would be more and more."""
    monkeypatch.setattr(main, "RECONCILE_TIMEOUT_S", 0.02)

    async def use() -> None:
        operator = Operator(OperatorSettings(), None)  # type: ignore[arg-type]
        closing = asyncio.create_task(operator._close_retired())
        retired = [operator._admin(f"http://c{number}", "t") for number in range(100)]
        for number in range(CLIENTS_MAX):
            operator._admin(f"http://d{number}", "t")
        await until_async(
            lambda: all(one._connections._client.is_closed for one in retired), "all of them closed", every_s=0.01
        )
        closing.cancel()

    asyncio.run(use())
