"""Where messages of a topic go, by the admin API of a cluster's nodes: the same whoever is asked."""

import asyncio
from typing import Any

from admin_api_asked import ask, started
from nodes_in_one_loop import Cluster, run, until
from tests.waiting import until_async

from bmq_node.node import Node

LEADER, STANDBY, PROXY = 201, 202, 1
GRACE_MS = "3000"
WITHIN_S = 25


async def with_lanes(cluster: Cluster, *, partitions: int = 4) -> Node:
    """`orders` in the base; `dev` falls back, `qa` does not; nobody wrote yet."""
    await cluster.start(LEADER, "controller", lane_grace_ms=GRACE_MS)
    await asyncio.gather(
        cluster.start(STANDBY, "controller", lane_grace_ms=GRACE_MS),
        *(cluster.start(broker, "broker", lane_grace_ms=GRACE_MS) for broker in (101, 102)),
        cluster.start(PROXY, "proxy", lane_grace_ms=GRACE_MS),
    )
    for node in cluster.nodes.values():
        assert node.admin.front.state.sources is not None
        await until(node.admin.front.state.sources.metadata, lambda image: len(image.nodes) == 5)
    proxy = cluster.nodes[PROXY]
    for path, body in (
        ("/v1/topics", {"name": "orders", "partitions": partitions}),
        ("/v1/lanes", {"name": "dev", "fallback": "base"}),
        ("/v1/lanes", {"name": "qa"}),
    ):
        assert (await ask(proxy, "POST", path, body)).status == 201
    return proxy


async def routes(node: Node, query: str = "") -> dict[str, Any]:
    answer = await ask(node, "GET", "/v1/routes/orders", query=query)
    assert answer.status == 200, answer.body
    return {one["lane"]: one for one in answer.body["items"]}


def test_the_base_and_each_lane_say_who_handles_what_whoever_is_asked() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_lanes(cluster)
        found = await routes(proxy)
        assert list(found) == ["", "dev", "qa"]
        assert {lane: (one["handled_by"], one["reason"]) for lane, one in found.items()} == {
            "": ("base", "base_itself"),
            "dev": ("base", "not_written"),
            "qa": ("lane", "no_fallback"),
        }
        assert (found["dev"]["partitions"], found["dev"]["base_partitions"]) == (None, 4)
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "orders", "lane": "dev"})).status == 201
        assert (await routes(proxy))["dev"]["reason"] == "waiting"
        for node_id in (LEADER, STANDBY, 101):
            assert await routes(cluster.nodes[node_id]) == await routes(proxy), node_id
        went = await until_async(
            lambda: routes(proxy), "the turn to be the base's", WITHIN_S, holds=lambda now: now["dev"]["turns"]["base"]
        )
        dev = went["dev"]
        assert (dev["handled_by"], dev["reason"]) == ("base", "unconsumed")
        assert dev["waiting"] == {"partitions": 4, "unknown": 0, "records": 0, "seconds": 0.0}
        assert dev["consumers"] == {"groups": [], "group_count": 0, "known": True, "consumed_s_ago": None}

    run(test)


def test_a_lane_shows_its_partitions_page_by_page_or_one_of_them() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_lanes(cluster)
        path = "/v1/lanes/dev/routes/orders"
        unmade = await ask(proxy, "GET", path)
        assert (unmade.body["items"], unmade.body["continue"], unmade.body["partitions"]) == ([], None, None)
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "orders", "lane": "dev"})).status == 201
        first = await ask(proxy, "GET", path, query="limit=3")
        rest = await ask(proxy, "GET", path, query=f"limit=3&continue={first.body['continue']}")
        assert [one["partition"] for page in (first, rest) for one in page.body["items"]] == [0, 1, 2, 3]
        assert rest.body["continue"] is None
        one = await ask(proxy, "GET", path, query="partition=2")
        [shown] = one.body["items"]
        assert shown == {
            "partition": 2,
            "handled_by": "lane",
            "reason": "waiting",
            "since_offset": 0,
            "turn": 0,
            "end_offset": 0,
            "base_next_offset": None,
            "waiting_records": None,
            "waiting_seconds": None,
        }

    run(test)


def test_lanes_come_page_by_page_and_what_is_not_there_is_said() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "orders", "partitions": 1})).status == 201
        for name in ("a", "b", "c"):
            assert (await ask(proxy, "POST", "/v1/lanes", {"name": name})).status == 201
        first = await ask(proxy, "GET", "/v1/routes/orders", query="limit=2")
        rest = await ask(proxy, "GET", "/v1/routes/orders", query=f"limit=2&continue={first.body['continue']}")
        assert [one["lane"] for page in (first, rest) for one in page.body["items"]] == ["", "a", "b", "c"]
        for path, code in (
            ("/v1/routes/nope", "UnknownTopic"),
            ("/v1/routes/a:orders", "UnknownTopic"),
            ("/v1/lanes/a/routes/nope", "UnknownTopic"),
            ("/v1/lanes/a/routes/a:orders", "UnknownTopic"),
            ("/v1/lanes/x/routes/orders", "UnknownLane"),
        ):
            refused = await ask(proxy, "GET", path)
            assert (refused.status, refused.body["code"]) == (404, code), path
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "own", "lane": "b"})).status == 201
        of_own = (await ask(proxy, "GET", "/v1/routes/own")).body["items"]
        assert [(one["lane"], one["partitions"], one["base_partitions"]) for one in of_own] == [
            ("", None, None),
            ("a", None, None),
            ("b", 1, None),
            ("c", None, None),
        ]
        missing = await ask(proxy, "GET", "/v1/lanes/b/routes/own", query="partition=9")
        assert (missing.status, missing.body["code"]) == (404, "UnknownTopic")
        internal = (await ask(proxy, "GET", "/v1/routes/orders", query="limit=101")).status
        assert internal == 400

    run(test)
