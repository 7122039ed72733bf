"""The admin API of a cluster's nodes: each takes every request, and the leading controller answers what only it can."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from admin_api_asked import ask, started, with_topic
from nodes_in_one_loop import Cluster, run, until
from tests.waiting import until_async

from bmq.runtime.system import SystemClock
from bmq.values import TopicPartition
from bmq.wire.message import Message
from bmq.wire.records import Record, build_batch
from bmq_controller.api import coordinators as coordinators_page
from bmq_controller.api import groups as groups_page
from bmq_controller.api import node as node_page
from bmq_controller.api.node_models import LogView
from bmq_node.node import Node


def test_every_node_takes_a_request_and_the_leader_answers_it() -> None:
    async def test(cluster: Cluster) -> None:
        await started(cluster)
        for number, node in enumerate(cluster.nodes.values()):
            created = await ask(
                node, "POST", "/v1/topics", {"name": f"t{number}", "partitions": 2, "configs": {"retention.ms": 60_000}}
            )
            assert (created.status, created.headers["location"]) == (201, f"/v1/topics/t{number}")
            assert created.body["configs"] == {"retention.ms": "60000"}
            listed = (await ask(node, "GET", "/v1/topics", query="prefix=t")).body["items"]
            assert [one["name"] for one in listed] == [f"t{i}" for i in range(number + 1)]
            assert (await ask(node, "GET", "/v1/cluster")).body["answered_by"] == next(
                id for id, one in cluster.nodes.items() if one is node
            )

    run(test)


def test_while_nobody_leads_the_cluster_is_still_shown_and_everything_else_is_a_503() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        await cluster.stop(202)
        await cluster.stop(201, grace_s=0)
        assert (await ask(proxy, "GET", "/v1/cluster")).body["controller_id"] == 201
        assert (await ask(proxy, "GET", "/v1/debug/store")).body["ok"]
        refused = await ask(proxy, "POST", "/v1/topics", {"name": "orders"})
        assert (refused.status, refused.body["code"], refused.headers["content-type"]) == (
            503,
            "NoLeader",
            "application/problem+json",
        )

    run(test)


def test_a_standby_hands_on_and_answers_itself_once_it_leads() -> None:
    async def test(cluster: Cluster) -> None:
        await started(cluster)
        standby = cluster.nodes[202]
        assert (await ask(standby, "GET", "/v1/self")).body["leads"] is False
        assert (await ask(standby, "GET", "/v1/nodes/201")).body["leads"] is True
        await cluster.stop(201, grace_s=0)
        await until_async(
            lambda: ask(standby, "GET", "/v1/self"),
            "the standby to lead",
            holds=lambda page: page.body["leads"],
            every_s=0.05,
        )
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
        assert (now.body["configs"], now.body["partitions"], now.headers["etag"]) == (
            {"retention.ms": "1000"},
            4,
            changed.headers["etag"],
        )
        assert (
            await ask(proxy, "DELETE", "/v1/topics/orders", headers={"if-match": now.headers["etag"]})
        ).status == 204
        assert (await ask(proxy, "GET", "/v1/topics/orders")).status == 404

    run(test)


def test_of_two_changes_of_one_version_at_once_one_is_made() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        seen = {"if-match": (await ask(proxy, "GET", "/v1/topics/orders")).headers["etag"]}
        answers = await asyncio.gather(
            *(
                ask(node, "PATCH", "/v1/topics/orders/configs", {"retention.ms": 1_000 + n}, headers=seen)
                for n, node in cluster.nodes.items()
            )
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
        assert (await ask(proxy, "PATCH", "/v1/configs", {"num.partitions": 0}, query=look)).body[
            "code"
        ] == "InvalidConfig"
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
        then = (
            await ask(proxy, "GET", "/v1/topics/orders/partitions", query=f"limit=3&continue={first['continue']}")
        ).body
        assert [one["partition"] for one in (*first["items"], *then["items"])] == [0, 1, 2, 3, 4]
        assert then["continue"] is None
        assert [one["high_watermark"] for one in then["items"] if one["partition"] == 3] == [1]

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
            await proxy.proxy.proxy.appends.submit(
                tp, records, produce_version=9, give_up_at=asyncio.get_running_loop().time() + 20
            ).done
        await commit(proxy, "team/billing", offset=1)
        assert [one["group_id"] for one in (await ask(proxy, "GET", "/v1/groups")).body["items"]] == ["team/billing"]
        group = (await ask(proxy, "GET", "/v1/groups/team/billing")).body
        [offset] = group["offsets"]
        assert (offset["topic"], offset["partition"], offset["high_watermark"], offset["lag_records"]) == (
            "orders",
            1,
            2,
            1,
        )
        now_ms = SystemClock().now_ms()
        assert abs(offset["lag_seconds"] - (now_ms - 5_000) / 1000) < 60, "told by the leader, which has no proxy"
        assert (await ask(proxy, "GET", "/v1/groups/none")).status == 404
        assert (await ask(proxy, "DELETE", "/v1/groups/team/billing")).status == 204
        assert (await ask(proxy, "GET", "/v1/groups/team/billing")).status == 404

    run(test)


def test_a_group_with_many_offsets_is_looked_at_few_at_a_time_and_written_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    threads: set[str] = set()
    statuses, written = coordinators_page.partition_statuses, groups_page.encode_group

    def noted_statuses(sources: Any, tps: list[TopicPartition]) -> Any:
        asked.append(len(tps))
        return statuses(sources, tps)

    def noted_writing(*arguments: Any) -> bytes:
        threads.add(threading.current_thread().name)
        return written(*arguments)

    monkeypatch.setattr(coordinators_page, "OFFSETS_PER_TURN", 2)
    monkeypatch.setattr(coordinators_page, "partition_statuses", noted_statuses)
    monkeypatch.setattr(groups_page, "encode_group", noted_writing)

    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        assert proxy.proxy is not None
        await until(proxy.proxy.proxy.metadata, lambda image: image.topic("orders") is not None)
        await commit(proxy, "billing", offset=1, partitions=(0, 1, 2))
        group = (await ask(proxy, "GET", "/v1/groups/billing")).body
        assert sorted(one["partition"] for one in group["offsets"]) == [0, 1, 2]

    run(test)
    assert asked == [2, 1]
    assert threads == {"admin page_0"}


def test_the_offsets_of_a_group_come_in_pages_and_only_those_of_the_page_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    statuses = coordinators_page.partition_statuses

    def noted_statuses(sources: Any, tps: list[TopicPartition]) -> Any:
        asked.append(len(tps))
        return statuses(sources, tps)

    monkeypatch.setattr(coordinators_page, "partition_statuses", noted_statuses)

    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        assert proxy.proxy is not None
        await until(proxy.proxy.proxy.metadata, lambda image: image.topic("orders") is not None)
        assert (await ask(proxy, "GET", "/v1/groups/none", query="limit=2")).status == 404
        await commit(proxy, "team/billing", offset=0, partitions=(2, 0, 1))
        first = (await ask(proxy, "GET", "/v1/groups/team/billing", query="limit=2")).body
        assert [one["partition"] for one in first["offsets"]] == [0, 1]
        assert first["continue"]
        second = (
            await ask(proxy, "GET", "/v1/groups/team/billing", query=f"limit=2&continue={first['continue']}")
        ).body
        assert ([one["partition"] for one in second["offsets"]], second["continue"], second["state"]) == (
            [2],
            None,
            "Empty",
        )
        assert asked == [2, 1]
        foreign = (await ask(proxy, "GET", "/v1/topics", query="limit=1")).body["continue"] or "x"
        assert (await ask(proxy, "GET", "/v1/groups/team/billing", query=f"continue={foreign}")).status == 400
        assert (await ask(proxy, "GET", "/v1/groups/team/billing", query="limit=1001")).status == 400

    run(test)


async def commit(node: Node, group_id: str, *, offset: int, partitions: Sequence[int] = (1,)) -> None:
    """An offset committed by hand, as tools do, for some partitions of the topic."""
    from bmq.wire.apis import ApiKey
    from bmq_proxy.budget import MemoryBudget
    from bmq_proxy.calls import Call, Lease

    assert node.proxy is not None
    proxy = node.proxy.proxy
    values = {
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "commit_timestamp": -1,
        "committed_metadata": "",
    }
    named = [Message(partition_index=index, **values) for index in partitions]
    topic = Message(name="orders", topic_id=proxy.image.topic_ids["orders"], partitions=named)
    request = Message(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[topic],
    )
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
    assert [
        one
        for topic in fields["topics"]
        for one in (topic if isinstance(topic, dict) else topic.__dict__)["partitions"]
    ]


def test_the_api_describes_itself() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        document = (await ask(node, "GET", "/openapi.json")).body
        for path in (
            "/v1/topics",
            "/v1/nodes/{node_id}/drain",
            "/v1/placement/{topic}/{partition}/move",
            "/v1/balance",
            "/v1/groups/{group_id}",
        ):
            assert path in document["paths"]
        assert "Problem" in document["components"]["schemas"]
        page = (await ask(node, "GET", "/docs")).body.decode()
        assert "src=" not in page, "it needs nothing from elsewhere"

    run(test)


def test_the_metadata_log_is_decoded_and_written_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    entry, written = node_page._entry, LogView.model_dump_json

    def noted(work: Any) -> Any:
        def run_it(*arguments: Any, **options: Any) -> Any:
            threads.add(threading.current_thread().name)
            return work(*arguments, **options)

        return run_it

    monkeypatch.setattr(node_page, "_entry", noted(entry))
    monkeypatch.setattr(LogView, "model_dump_json", noted(written))

    async def test(cluster: Cluster) -> None:
        assert (await ask(await with_topic(cluster), "GET", "/v1/debug/log")).body["entries"]

    run(test)
    assert threads == {"admin page_0"}


def test_the_metadata_and_its_log_are_shown_for_whoever_looks_for_a_fault() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        image = (await ask(proxy, "GET", "/v1/debug/image")).body
        assert [one["name"] for one in image["topics"]] == ["orders"]
        log = (await ask(proxy, "GET", "/v1/debug/log", query="limit=1000")).body["entries"]
        assert log[0]["records"][0]["record"] == "cluster"
        assert [one["position"] for one in log] == list(range(1, len(log) + 1))
        assert any(
            record["record"] == "topic" and record["name"] == "orders" for one in log for record in one["records"]
        )

    run(test)


def test_pages_of_all_that_a_node_knows_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are made by the same thread."""
    asked = most = 0
    in_thread = node_page.in_thread

    async def counted(compute: Callable[[], Any]) -> Any:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        try:
            return await in_thread(compute)
        finally:
            asked -= 1

    monkeypatch.setattr(node_page, "in_thread", counted)

    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        paths = ("/v1/debug/image", "/v1/debug/log") * 5
        answers = await asyncio.gather(*(ask(proxy, "GET", path) for path in paths))
        assert [answer.status for answer in answers] == [200] * 10
        assert most == 1

    run(test)
