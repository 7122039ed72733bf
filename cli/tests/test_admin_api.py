"""The admin API of a cluster's nodes: each takes every request, and the leading controller answers what only it can."""

import asyncio
import json
from typing import Any, NamedTuple

from nodes_in_one_loop import BROKERS, Cluster, run, until

from bmq.roles.admin import AdminRequest
from bmq.runtime.system import SystemClock
from bmq.values import NodeId, TopicPartition
from bmq.wire.message import Message
from bmq.wire.records import Record, build_batch
from bmq_cli.cluster_node import ClusterNode

FAST = 103


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


async def ask(node: ClusterNode, method: str, path: str, body: Any = None, *, query: str = "", headers: dict[str, str] | None = None) -> Answer:
    """Over the front as a server calls it, from this machine."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    given = {"host": "127.0.0.1:9080", "content-type": "application/json", **(headers or {})}
    await node.admin.front(
        {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
        },
        receive,
        send,
    )
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    text = sent[1]["body"]
    return Answer(sent[0]["status"], found, json.loads(text) if "json" in found.get("content-type", "") and text else text)


async def started(cluster: Cluster) -> ClusterNode:
    """A leading controller, a standby, two brokers (the second one in the pool `fast`) and a proxy; nothing is balanced by itself. The proxy."""
    await cluster.start(201, "controller", balance_interval_ms="0")
    await asyncio.gather(
        cluster.start(202, "controller", balance_interval_ms="0"),
        *(cluster.start(broker, "broker") for broker in BROKERS),
        cluster.start(FAST, "broker", pool="fast"),
        cluster.start(1, "proxy"),
    )
    nodes = {1, 201, 202, FAST, *BROKERS}
    for node in cluster.nodes.values():
        assert node.admin.front.state.sources is not None
        await until(node.admin.front.state.sources.metadata, lambda image: nodes <= set(image.nodes))
    return cluster.nodes[1]


async def with_topic(cluster: Cluster, *, partitions: int = 4) -> ClusterNode:
    proxy = await started(cluster)
    assert (await ask(proxy, "POST", "/v1/topics", {"name": "orders", "partitions": partitions})).status == 201
    return proxy


async def owners(node: ClusterNode) -> list[int]:
    return [one["owner"] for one in (await ask(node, "GET", "/v1/placement", query="topic=orders")).body["items"]]


def test_every_node_takes_a_request_and_the_leader_answers_it() -> None:
    async def test(cluster: Cluster) -> None:
        await started(cluster)
        for number, node in enumerate(cluster.nodes.values()):
            created = await ask(node, "POST", "/v1/topics", {"name": f"t{number}", "partitions": 2, "configs": {"retention.ms": 60_000}})
            assert (created.status, created.headers["location"]) == (201, f"/v1/topics/t{number}")
            assert created.body["configs"] == {"retention.ms": "60000"}
            listed = (await ask(node, "GET", "/v1/topics", query="prefix=t")).body["items"]
            assert [one["name"] for one in listed] == [f"t{i}" for i in range(number + 1)]
            assert (await ask(node, "GET", "/v1/cluster")).body["answered_by"] == next(id for id, one in cluster.nodes.items() if one is node)

    run(test)


def test_while_nobody_leads_the_cluster_is_still_shown_and_everything_else_is_a_503() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        await cluster.stop(202)
        await cluster.stop(201, grace_s=0)
        assert (await ask(proxy, "GET", "/v1/cluster")).body["controller_id"] == 201
        assert (await ask(proxy, "GET", "/v1/debug/store")).body["ok"]
        refused = await ask(proxy, "POST", "/v1/topics", {"name": "orders"})
        assert (refused.status, refused.body["code"], refused.headers["content-type"]) == (503, "NoLeader", "application/problem+json")

    run(test)


def test_a_standby_hands_on_and_answers_itself_once_it_leads() -> None:
    async def test(cluster: Cluster) -> None:
        await started(cluster)
        standby = cluster.nodes[202]
        assert (await ask(standby, "GET", "/v1/self")).body["leads"] is False
        assert (await ask(standby, "GET", "/v1/nodes/201")).body["leads"] is True
        await cluster.stop(201, grace_s=0)
        while not (await ask(standby, "GET", "/v1/self")).body["leads"]:
            await asyncio.sleep(0.05)
        assert (await ask(standby, "GET", "/v1/nodes/202")).body["leads"] is True
        assert (await ask(cluster.nodes[1], "POST", "/v1/topics", {"name": "later"})).status in (201, 503)

    run(test)


def test_a_change_is_made_to_the_version_that_was_read_or_not_at_all() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        read = await ask(proxy, "GET", "/v1/topics/orders")
        seen = {"if-match": read.headers["etag"]}
        changed = await ask(proxy, "PATCH", "/v1/topics/orders/configs", {"retention.ms": "1000"}, headers=seen)
        assert (changed.status, changed.headers["etag"] == read.headers["etag"]) == (200, False)
        for method, path, body in (
            ("PATCH", "/v1/topics/orders/configs", {"retention.ms": "2000"}),
            ("POST", "/v1/topics/orders/partitions", {"total": 9}),
            ("DELETE", "/v1/topics/orders", None),
        ):
            refused = await ask(proxy, method, path, body, headers=seen)
            assert (refused.status, refused.body["code"]) == (412, "VersionMismatch"), path
        now = await ask(proxy, "GET", "/v1/topics/orders")
        assert (now.body["configs"], now.body["partitions"], now.headers["etag"]) == ({"retention.ms": "1000"}, 4, changed.headers["etag"])
        assert (await ask(proxy, "DELETE", "/v1/topics/orders", headers={"if-match": now.headers["etag"]})).status == 204
        assert (await ask(proxy, "GET", "/v1/topics/orders")).status == 404

    run(test)


def test_of_two_changes_of_one_version_at_once_one_is_made() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        seen = {"if-match": (await ask(proxy, "GET", "/v1/topics/orders")).headers["etag"]}
        answers = await asyncio.gather(
            *(ask(node, "PATCH", "/v1/topics/orders/configs", {"retention.ms": 1_000 + n}, headers=seen) for n, node in cluster.nodes.items())
        )
        assert sorted(one.status for one in answers) == [200, *[412] * (len(answers) - 1)]

    run(test)


def test_what_would_be_refused_is_told_without_changing_anything() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        look = "validate_only=true"
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "more", "partitions": 3}, query=look)).status == 200
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "orders"}, query=look)).body["code"] == "TopicExists"
        assert (await ask(proxy, "PATCH", "/v1/topics/orders/configs", {"retention.ms": 5}, query=look)).status == 200
        assert (await ask(proxy, "PATCH", "/v1/configs", {"num.partitions": 0}, query=look)).body["code"] == "InvalidConfig"
        assert (await ask(proxy, "POST", "/v1/topics/orders/partitions", {"total": 9}, query=look)).status == 200
        assert [one["name"] for one in (await ask(proxy, "GET", "/v1/topics")).body["items"]] == ["orders"]
        assert (await ask(proxy, "GET", "/v1/topics/orders")).body["configs"] == {}

    run(test)


def test_the_clusters_configuration_is_shown_with_where_values_come_from() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        changed = await ask(proxy, "PATCH", "/v1/configs", {"num.partitions": 7, "log.retention.ms": "60000"})
        rows = {row["name"]: row for row in changed.body["configs"]}
        assert (rows["num.partitions"]["value"], rows["num.partitions"]["source"]) == ("7", "cluster")
        assert rows["auto.create.topics.enable"]["source"] == "default"
        of_topic = {row["name"]: row for row in (await ask(proxy, "GET", "/v1/topics/orders/configs")).body["configs"]}
        assert (of_topic["retention.ms"]["value"], of_topic["retention.ms"]["source"]) == ("60000", "cluster")
        back = await ask(proxy, "PATCH", "/v1/configs", {"num.partitions": None})
        assert {row["name"]: row["source"] for row in back.body["configs"]}["num.partitions"] == "default"
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "by-default"})).body["partitions"] == 1

    run(test)


def test_partitions_are_shown_with_the_offsets_that_their_owners_tell() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster, partitions=5)
        assert proxy.proxy is not None
        topic = await until(proxy.proxy.proxy.metadata, lambda image: image.topic("orders") is not None)
        tp = TopicPartition(topic.topic_ids["orders"], 3)
        records = build_batch([Record(0, 1_000, None, b"value")])
        give_up_at = asyncio.get_running_loop().time() + 20
        await proxy.proxy.proxy.appends.submit(tp, records, produce_version=9, give_up_at=give_up_at).done
        first = (await ask(proxy, "GET", "/v1/topics/orders/partitions", query="limit=3")).body
        then = (await ask(proxy, "GET", "/v1/topics/orders/partitions", query=f"limit=3&continue={first['continue']}")).body
        assert [one["partition"] for one in (*first["items"], *then["items"])] == [0, 1, 2, 3, 4]
        assert then["continue"] is None
        assert [one["high_watermark"] for one in then["items"] if one["partition"] == 3] == [1]

    run(test)


def test_a_moved_partition_is_shown_with_its_new_owner() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        before = await ask(proxy, "GET", "/v1/placement/orders/2")
        to = next(broker for broker in BROKERS if broker != before.body["owner"])
        refused = await ask(proxy, "POST", "/v1/placement/orders/2/move", {"to": 999})
        assert (refused.status, "no registered broker" in refused.body["why"]) == (400, True)
        assert (await ask(proxy, "POST", "/v1/placement/orders/9/move", {"to": to})).status == 404
        begun = await ask(proxy, "POST", "/v1/placement/orders/2/move", {"to": to}, headers={"if-match": before.headers["etag"]})
        assert (begun.status, begun.body["moving_to"] in (to, None)) == (202, True)
        while (now := await ask(proxy, "GET", "/v1/placement/orders/2")).body["owner"] != to:
            await asyncio.sleep(0.02)
        assert now.body["leader_epoch"] > before.body["leader_epoch"]
        assert (await ask(proxy, "POST", "/v1/placement/orders/2/move", {"to": 101}, headers={"if-match": before.headers["etag"]})).status == 412

    run(test)


def test_a_drained_broker_holds_nothing_and_gets_nothing_until_it_is_uncordoned() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        assert set(await owners(proxy)) == set(BROKERS)
        begun = await ask(proxy, "POST", "/v1/nodes/101/drain")
        assert (begun.status, begun.body["cordoned"], begun.body["draining"]) == (202, True, True)
        while (node := (await ask(proxy, "GET", "/v1/nodes/101")).body)["partitions"]:
            await asyncio.sleep(0.02)
        assert (node["state"], node["moving_away"]) == ("alive", 0)
        assert set(await owners(proxy)) == {102}
        refused = await ask(proxy, "POST", "/v1/nodes/102/drain")
        assert (refused.status, refused.body["code"]) == (409, "NoHeir")
        back = await ask(proxy, "POST", "/v1/nodes/101/uncordon", headers={"if-match": f'"{node["version"]}"'})
        assert (back.body["cordoned"], back.body["draining"]) == (False, False)

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

    run(test)


def test_a_plan_names_its_reasons_and_balancing_carries_it_out_round_by_round() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster, partitions=5)
        assert (await ask(proxy, "PATCH", "/v1/topics/orders/configs", {"bmq.pool": "fast"})).status == 200
        while (plan := await ask(proxy, "GET", "/v1/balance")).status == 503:
            assert plan.body["code"] == "LoadsUnknown"
            await asyncio.sleep(0.1)
        moves = plan.body["moves"]
        assert [(one["topic"], one["kind"], one["target"], bool(one["reason"])) for one in moves] == [("orders", "pin", FAST, True)] * 5
        assert {one["node_id"]: one["partitions_after"] for one in plan.body["brokers"]} == {101: 0, 102: 0, FAST: 5}
        assert plan.body["before"]["misplaced"] == 5
        assert set(await owners(proxy)) <= set(BROKERS), "a plan moves nothing"
        begun = await ask(proxy, "POST", "/v1/balance", {"moves_max": 2})
        assert (begun.status, len(begun.body["begun"])) == (202, 2)
        while (await owners(proxy)).count(FAST) < 2:
            await asyncio.sleep(0.02)
        await ask(proxy, "POST", "/v1/balance")
        while set(await owners(proxy)) != {FAST}:
            await asyncio.sleep(0.02)
        assert (await ask(proxy, "POST", "/v1/balance")).body == {"begun": [], "planned": 0, "problems": []}

    run(test)


def test_groups_are_reached_through_the_owners_of_their_partitions() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        assert (await ask(proxy, "GET", "/v1/groups")).body == {"items": [], "continue": None}
        assert (await ask(proxy, "DELETE", "/v1/groups/none")).status == 404
        assert proxy.proxy is not None
        tp = TopicPartition(proxy.proxy.proxy.image.topic_ids["orders"], 1)
        for timestamp_ms in (1_000, 5_000):
            records = build_batch([Record(0, timestamp_ms, None, b"value")])
            await proxy.proxy.proxy.appends.submit(tp, records, produce_version=9, give_up_at=asyncio.get_running_loop().time() + 20).done
        await commit(proxy, "team/billing", offset=1)
        assert [one["group_id"] for one in (await ask(proxy, "GET", "/v1/groups")).body["items"]] == ["team/billing"]
        group = (await ask(proxy, "GET", "/v1/groups/team/billing")).body
        [offset] = group["offsets"]
        assert (offset["topic"], offset["partition"], offset["high_watermark"], offset["lag_records"]) == ("orders", 1, 2, 1)
        now_ms = SystemClock().now_ms()
        assert abs(offset["lag_seconds"] - (now_ms - 5_000) / 1000) < 60, "told by the leader, which has no proxy"
        assert (await ask(proxy, "GET", "/v1/groups/none")).status == 404
        assert (await ask(proxy, "DELETE", "/v1/groups/team/billing")).status == 204
        assert (await ask(proxy, "GET", "/v1/groups/team/billing")).status == 404

    run(test)


async def commit(node: ClusterNode, group_id: str, *, offset: int) -> None:
    """An offset committed by hand, as tools do, for partition 1 of the topic."""
    from bmq.wire.apis import ApiKey
    from bmq_proxy.budget import MemoryBudget
    from bmq_proxy.calls import Call, Lease

    assert node.proxy is not None
    proxy = node.proxy.proxy
    partition = Message(partition_index=1, committed_offset=offset, committed_leader_epoch=-1, commit_timestamp=-1, committed_metadata="")
    topic = Message(name="orders", topic_id=proxy.image.topic_ids["orders"], partitions=[partition])
    request = Message(group_id=group_id, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None, retention_time_ms=-1, topics=[topic])
    call = Call(
        api_key=ApiKey.OFFSET_COMMIT,
        version=9,
        correlation_id=0,
        client_id="test",
        client_host="/127.0.0.1",
        lease=Lease(MemoryBudget(1), 0),
        arrived=0.0,
    )
    reply = await proxy.coordinators.call(group_id, ApiKey.OFFSET_COMMIT, request, call)
    fields = reply if isinstance(reply, dict) else reply.__dict__
    assert [one for topic in fields["topics"] for one in (topic if isinstance(topic, dict) else topic.__dict__)["partitions"]]


def test_the_api_describes_itself() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        document = (await ask(node, "GET", "/openapi.json")).body
        for path in ("/v1/topics", "/v1/nodes/{node_id}/drain", "/v1/placement/{topic}/{partition}/move", "/v1/balance", "/v1/groups/{group_id}"):
            assert path in document["paths"]
        assert "Problem" in document["components"]["schemas"]
        page = (await ask(node, "GET", "/docs")).body.decode()
        assert "src=" not in page, "it needs nothing from elsewhere"

    run(test)


def test_what_was_not_understood_is_told_with_the_field_that_it_is_about() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        for path, body, words in (
            ("/v1/topics", {"name": "a", "colour": "red"}, "colour"),
            ("/v1/topics", {"partitions": 1}, "name"),
            ("/v1/topics", [1], "body"),
        ):
            refused = await ask(node, "POST", path, body)
            assert (refused.status, refused.body["code"], words in refused.body["why"]) == (400, "InvalidRequest", True), refused
        assert (await ask(node, "GET", "/v1/topics", query="limit=5000")).status == 400
        assert (await ask(node, "GET", "/v1/topics", query="continue=%21")).body["code"] == "InvalidContinue"
        assert (await ask(node, "PUT", "/v1/topics")).status == 405
        assert (await ask(node, "GET", "/v1/nothing")).status == 404

    run(test)


def test_no_page_tells_the_clusters_secret() -> None:
    async def test(cluster: Cluster) -> None:
        secret = "known-to-the-nodes-alone"
        node = await cluster.start(1, "controller,broker,proxy", cluster_secret=secret)
        for path in ("/v1/self", "/v1/nodes/1/self", "/v1/debug/image", "/v1/debug/log", "/v1/configs", "/v1/cluster"):
            answer = await ask(node, "GET", path)
            assert answer.status == 200, answer
            assert secret not in json.dumps(answer.body), path
        assert (await ask(node, "GET", "/v1/self")).body["configuration"]["cluster_secret"] == "(hidden)"

    run(test)


def test_the_metadata_and_its_log_are_shown_for_whoever_looks_for_a_fault() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        image = (await ask(proxy, "GET", "/v1/debug/image")).body
        assert [one["name"] for one in image["topics"]] == ["orders"]
        log = (await ask(proxy, "GET", "/v1/debug/log", query="limit=1000")).body["entries"]
        assert log[0]["records"][0]["record"] == "cluster"
        assert [one["position"] for one in log] == list(range(1, len(log) + 1))
        assert any(record["record"] == "topic" and record["name"] == "orders" for one in log for record in one["records"])

    run(test)


def test_nodes_ask_each_other_with_the_token_of_who_asks() -> None:
    class Tokens:
        async def admits(self, presented: str) -> bool:
            return presented == "a-token-of-the-operators"

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
