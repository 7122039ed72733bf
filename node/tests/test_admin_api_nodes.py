"""What the admin API tells of nodes and placement, and what it moves."""

import asyncio
import threading
from typing import Any

import pytest
from admin_api_asked import FAST, ask, owners, started, with_topic
from nodes_in_one_loop import BROKERS, Cluster, run, until
from tests.bare_client import AsyncBareClient
from tests.waiting import until_async

from bmq.config.limits import Limits
from bmq.roles.admin import AdminRequest
from bmq.roles.controller import Heartbeat
from bmq.values import NodeId
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq_controller import balancer


def test_a_moved_partition_is_shown_with_its_new_owner() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        before = await ask(proxy, "GET", "/v1/placement/orders/2")
        to = next(broker for broker in BROKERS if broker != before.body["owner"])
        refused = await ask(proxy, "POST", "/v1/placement/orders/2/move", {"to": 999})
        assert (refused.status, "no registered broker" in refused.body["why"]) == (400, True)
        assert (await ask(proxy, "POST", "/v1/placement/orders/9/move", {"to": to})).status == 404
        begun = await ask(
            proxy, "POST", "/v1/placement/orders/2/move", {"to": to}, headers={"if-match": before.headers["etag"]}
        )
        assert (begun.status, begun.body["moving_to"] in (to, None)) == (202, True)
        now = await until_async(
            lambda: ask(proxy, "GET", "/v1/placement/orders/2"),
            f"{to} to own it",
            holds=lambda page: page.body["owner"] == to,
            every_s=0.02,
        )
        assert now.body["leader_epoch"] > before.body["leader_epoch"]
        assert (
            await ask(
                proxy, "POST", "/v1/placement/orders/2/move", {"to": 101}, headers={"if-match": before.headers["etag"]}
            )
        ).status == 412

    run(test)


def test_one_partition_is_moved_so_often_for_who_asks_by_whichever_way_and_drained_all_the_same() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)

        async def owner() -> int:
            found = await until_async(
                lambda: ask(proxy, "GET", "/v1/placement/orders/0"),
                "no move to be under way",
                holds=lambda page: page.body["moving_to"] is None,
                every_s=0.02,
            )
            return int(found.body["owner"])

        def other_than(here: int) -> int:
            return next(broker for broker in BROKERS if broker != here)

        for _ in range(Limits().partition_moves_burst):
            to = other_than(await owner())
            assert (await ask(proxy, "POST", "/v1/placement/orders/0/move", {"to": to})).status == 202
            await until_async(owner, f"{to} to own it", holds=lambda now, to=to: now == to)  # type: ignore[misc]
        here = await owner()
        refused = await ask(proxy, "POST", "/v1/placement/orders/0/move", {"to": other_than(here)})
        assert (refused.status, "partition_moves_burst = 3" in refused.body["why"]) == (429, True)
        assert proxy.proxy is not None
        client = await AsyncBareClient.connect("127.0.0.1", proxy.proxy.port)
        wanted = {"partition_index": 0, "replicas": [other_than(here)]}
        answer = await client.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            0,
            {"timeout_ms": 10_000, "topics": [{"name": "orders", "partitions": [wanted]}]},
        )
        assert answer.responses[0].partitions[0].error_code == ErrorCode.throttling_quota_exceeded
        client.close()
        assert (await ask(proxy, "POST", f"/v1/nodes/{here}/drain")).status == 202
        await until_async(owner, "the other one to own it", holds=lambda now: now != here)

    run(test)


def test_a_drained_broker_holds_nothing_and_gets_nothing_until_it_is_uncordoned() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        assert set(await owners(proxy)) == set(BROKERS)
        begun = await ask(proxy, "POST", "/v1/nodes/101/drain")
        assert (begun.status, begun.body["cordoned"], begun.body["draining"]) == (202, True, True)
        node = (
            await until_async(
                lambda: ask(proxy, "GET", "/v1/nodes/101"),
                "no partition to be left",
                holds=lambda page: not page.body["partitions"],
                every_s=0.02,
            )
        ).body
        assert (node["state"], node["moving_away"]) == ("alive", 0)
        assert set(await owners(proxy)) == {102}
        refused = await ask(proxy, "POST", "/v1/nodes/102/drain")
        assert (refused.status, refused.body["code"]) == (409, "NoHeir")
        back = await ask(proxy, "POST", "/v1/nodes/101/uncordon", headers={"if-match": f'"{node["version"]}"'})
        assert (back.body["cordoned"], back.body["draining"]) == (False, False)

    run(test)


def test_a_broker_is_not_drained_where_the_only_other_one_stops_soon() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        assert proxy.admin.front.state.sources is not None
        other = proxy.admin.front.state.sources.image.nodes[NodeId(102)]
        sources = cluster.nodes[201].admin.front.state.sources
        assert sources is not None
        await sources.leader().heartbeat(
            Heartbeat(node_id=other.node_id, broker_epoch=other.broker_epoch, boot=other.boot, draining=True)
        )
        refused = await ask(proxy, "POST", "/v1/nodes/101/drain")
        assert (refused.status, refused.body["code"]) == (409, "NoHeir")
        assert (await ask(proxy, "GET", "/v1/nodes/101")).body["cordoned"] is False

    run(test)


def test_a_broker_with_a_wrong_clock_keeps_what_it_has_is_not_said_to_be_drained_and_can_be() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        sources = cluster.nodes[201].admin.front.state.sources
        assert sources is not None
        one = sources.image.nodes[NodeId(101)]
        wrong = Heartbeat(node_id=one.node_id, broker_epoch=one.broker_epoch, boot=one.boot, clock_differs=True)
        await sources.leader().heartbeat(wrong)
        assert NodeId(101) in sources.leader().avoided
        shown = (await ask(proxy, "GET", "/v1/nodes/101")).body
        assert (shown["draining"], shown["moving_away"]) == (False, 0)
        assert shown["partitions"] and "clock" in shown["trouble"]
        begun = await ask(proxy, "POST", "/v1/nodes/101/drain")
        assert (begun.status, begun.body["draining"]) == (202, True)

    run(test)


def test_what_is_no_broker_is_not_drained_and_what_was_never_there_is_unknown() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        assert (await ask(proxy, "POST", "/v1/nodes/1/drain")).body["code"] == "NotABroker"
        for path in ("drain", "cordon", "uncordon", "self", "metrics"):
            answer = await ask(proxy, "GET" if path in ("self", "metrics") else "POST", f"/v1/nodes/77/{path}")
            assert (answer.status, answer.body["code"]) == (404, "UnknownNode"), path
        assert (await ask(proxy, "GET", "/v1/nodes/77")).status == 404

    run(test)


def test_nodes_are_shown_with_what_the_leader_knows_of_them() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        nodes = {one["node_id"]: one for one in (await ask(proxy, "GET", "/v1/nodes")).body["items"]}
        assert set(nodes) == {1, 201, 202, FAST, *BROKERS}
        assert nodes[FAST]["pool"] == "fast"
        assert {one["state"] for one in nodes.values()} == {"alive"}
        assert [number for number, one in nodes.items() if one["leads"]] == [201]
        assert sum(one["partitions"] for one in nodes.values()) == 4
        assert all(one["last_heard_s"] < 6 for number, one in nodes.items() if number != 201)

    run(test)


def test_any_nodes_own_page_and_metrics_are_had_through_any_other() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        for number in (1, 101, 201, 202):
            told = await ask(proxy, "GET", f"/v1/nodes/{number}/self")
            assert (told.status, told.body["node_id"], told.body["leads"]) == (200, number, number == 201)
            assert told.body["configuration"]["store"] == "memory://"
            assert b"bmq_" in (await ask(proxy, "GET", f"/v1/nodes/{number}/metrics")).body
        assert (await ask(proxy, "GET", "/v1/cluster")).status == 200
        assert [number for number, node in cluster.nodes.items() if node.admin.front.has_pages] == [201], (
            "only the leader needs the framework"
        )

    run(test)


def test_a_plan_names_its_reasons_and_balancing_carries_it_out_round_by_round() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster, partitions=5)
        assert (await ask(proxy, "PATCH", "/v1/topics/orders/configs", {"bmq.pool": "fast"})).status == 200
        plan = await until_async(
            lambda: ask(proxy, "GET", "/v1/balance"),
            "the loads to be known",
            holds=lambda page: page.status != 503 or page.body["code"] != "LoadsUnknown",
            every_s=0.1,
        )
        moves = plan.body["moves"]
        assert [(one["topic"], one["kind"], one["target"], bool(one["reason"])) for one in moves] == [
            ("orders", "pin", FAST, True)
        ] * 5
        assert {one["node_id"]: one["partitions_after"] for one in plan.body["brokers"]} == {101: 0, 102: 0, FAST: 5}
        assert plan.body["before"]["misplaced"] == 5
        assert set(await owners(proxy)) <= set(BROKERS), "a plan moves nothing"
        begun = await ask(proxy, "POST", "/v1/balance", {"moves_max": 2})
        assert (begun.status, len(begun.body["begun"])) == (202, 2)
        await until_async(
            lambda: owners(proxy), "two to be moved", holds=lambda found: found.count(FAST) >= 2, every_s=0.02
        )
        await ask(proxy, "POST", "/v1/balance")
        await until_async(
            lambda: owners(proxy), "all to be moved", holds=lambda found: set(found) == {FAST}, every_s=0.02
        )
        assert (await ask(proxy, "POST", "/v1/balance")).body == {"begun": [], "planned": 0, "problems": []}

    run(test)


def test_of_all_plans_that_are_asked_for_at_once_one_is_computed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six at a time left the loop a sixth of the interpreter: writes of others took a hundred times as long."""
    lock, at_once, most = threading.Lock(), 0, 0

    def planned(*arguments: Any, **named: Any) -> Any:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        try:
            threading.Event().wait(0.02)
            return computed(*arguments, **named)
        finally:
            with lock:
                at_once -= 1

    computed = balancer.plan
    monkeypatch.setattr(balancer, "plan", planned)

    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        await until_async(
            lambda: ask(proxy, "GET", "/v1/balance"), "a plan", holds=lambda page: page.status == 200, every_s=0.1
        )
        pages = await asyncio.gather(*(ask(proxy, "GET", "/v1/balance") for _ in range(12)))
        assert {page.status for page in pages} == {200}

    run(test)
    assert most <= 2, "one that was asked for, and the cluster's own"


def test_a_cordoned_node_that_is_gone_is_still_shown_and_can_be_uncordoned() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        assert (await ask(proxy, "POST", "/v1/nodes/102/cordon")).body["cordoned"] is True
        await cluster.stop(102)
        node = await until_async(
            lambda: ask(proxy, "GET", "/v1/nodes/102"),
            "the node to be gone",
            holds=lambda page: page.body["state"] == "gone",
            every_s=0.02,
        )
        assert (node.body["roles"], node.body["epoch"], node.body["cordoned"]) == ([], -1, True)
        assert 102 in {one["node_id"] for one in (await ask(proxy, "GET", "/v1/nodes")).body["items"]}
        assert (await ask(proxy, "GET", "/v1/cluster")).body["cordoned"] == [102]
        await ask(proxy, "POST", "/v1/nodes/102/uncordon")
        assert (await ask(proxy, "GET", "/v1/nodes/102")).status == 404

    run(test)


def test_nodes_ask_each_other_with_the_token_of_who_asks() -> None:
    class Tokens:
        async def admits(self, presented: str) -> bool:
            return presented == "a-token-of-the-operators"

        async def admits_watch(self, presented: str) -> bool:
            return False

    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        for node in cluster.nodes.values():
            node.admin.front.state.tokens = Tokens()
        assert (await ask(proxy, "GET", "/v1/nodes/101/self")).status == 401
        token = {"authorization": "Bearer a-token-of-the-operators"}
        assert (await ask(proxy, "GET", "/v1/nodes/101/self", headers=token)).body["node_id"] == 101
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "a"}, headers=token)).status == 201
        proxy.admin.front.state.tokens = None
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "b"})).status == 401, "the leader asks for one"

    run(test)


def test_a_request_for_a_node_that_is_gone_is_told_so() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        await cluster.stop(102)
        await until(proxy.admin.front.state.sources.metadata, lambda image: NodeId(102) not in image.nodes)  # type: ignore[union-attr]
        assert (await ask(proxy, "GET", "/v1/nodes/102/self")).status == 503
        reply = await proxy.admin.front.answer(AdminRequest(method="GET", path="/v1/self", trusted=True))
        assert reply.status == 200

    run(test)
