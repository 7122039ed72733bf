"""Real nodes of which the base's clients say in a header which lane a record is for."""

import asyncio
from typing import Any

from admin_api_asked import ask
from nodes_in_one_loop import Cluster, run, until
from test_lanes_apart import Client
from tests.bare_client import AsyncBareClient
from tests.waiting import until_async

from bmq.config.topic_config import LANE_HEADER
from bmq.runtime.system import SystemRng
from bmq.wire.apis import ApiKey
from bmq.wire.batches import Record, build_batch, iterate_records, split
from bmq.wire.error_codes import ErrorCode
from bmq_audit.audit import AuditOptions, audit_store
from bmq_audit.findings import Level
from bmq_broker.coordinators.groups.snapshot import decode_state
from bmq_broker.partitions.producers import Producers
from bmq_broker.segments.manifests import KEPT_VERSIONS
from bmq_node.node import Node

OPTIONS = AuditOptions(
    decode_producers=Producers.decode, decode_state=lambda _, data: decode_state(data), versions_kept=KEPT_VERSIONS
)
NOW_MS = 1_700_000_000_000
Values = list[tuple[int, bytes]]


def batch(sequence: int, *lanes: str | None) -> bytes:
    """Of an idempotent producer: a record for each of these lanes, or for the base, which says its number."""
    records = [
        Record(0, NOW_MS, None, b"%d" % number, () if lane is None else (("X-Lane", lane.encode()),))
        for number, lane in enumerate(lanes, sequence)
    ]
    return build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)


SENT = (batch(0, None, "dev"), batch(2, "dev", "dev"), batch(4, None), batch(5, "prod", None, "dev"))
IN_BASE: Values = [(0, b"0"), (4, b"4"), (6, b"6")]
IN_DEV: Values = [(1, b"1"), (2, b"2"), (3, b"3"), (6, b"7")]


async def set_up(node: Node, **quota: int) -> None:
    for path, body in (
        ("topics", {"name": "orders", "partitions": 3, "configs": {LANE_HEADER: "x-lane"}}),
        ("lanes", {"name": "dev"}),
        ("lanes", {"name": "prod", "quota": quota} if quota else {"name": "prod"}),
    ):
        answer = await ask(node, "POST", f"/v1/{path}", body)
        assert answer.status == 201, answer.body


async def produced(node: Node, *batches: bytes, partition: int = 0) -> list[Any]:
    """What is said of each, all sent in one write."""
    assert node.proxy is not None
    await until(node.proxy.proxy.metadata.real, lambda image: {"dev", "prod"} <= set(image.lanes))
    await until(node.proxy.proxy.metadata.real, lambda image: image.topic("orders") is not None)
    client = await AsyncBareClient.connect("127.0.0.1", node.proxy.port)
    for one in batches:
        topics = [{"name": "orders", "partition_data": [{"index": partition, "records": one}]}]
        client.send(
            ApiKey.PRODUCE, 9, {"transactional_id": None, "acks": -1, "timeout_ms": 10_000, "topic_data": topics}
        )
    found = [(await client.receive())[1].responses[0].partition_responses[0] for _ in batches]
    client.close()
    return found


async def read(node: Node, lane: str = "", partition: int = 0) -> Values:
    """(offset, value) of what clients of a lane, or of the base, get of the topic."""
    one = {
        "partition": partition, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20
    }  # fmt: skip
    wanted: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
    wanted |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    client = Client(node, f"lane={lane}" if lane else "app")
    reply = await client.answer(ApiKey.FETCH, 11, **wanted, topics=[{"topic": "orders", "partitions": [one]}])
    [found] = reply.responses[0].partitions
    assert found.error_code == 0
    data = found.records or b""
    return [(record.offset, record.value or b"") for header in split(data) for record in iterate_records(data, header)]


async def sound(cluster: Cluster) -> None:
    report = (await audit_store(cluster.store, rng=SystemRng(), options=OPTIONS)).report
    assert not report.count(Level.FAULT), report.findings[Level.FAULT]


def test_records_go_over_the_nodes_own_protocol_to_the_owners_of_their_lanes_and_an_heir_knows_them_all() -> None:
    async def test(cluster: Cluster) -> None:
        control = await cluster.start(1, "controller")
        await cluster.start(101, "broker")
        node = await cluster.start(3, "proxy")
        await set_up(control)
        told = await produced(node, *SENT)
        assert [(one.error_code, one.base_offset) for one in told] == [(0, 0), (0, 2), (0, 4), (0, 5)]
        assert (await read(node), await read(node, "dev"), await read(node, "prod")) == (IN_BASE, IN_DEV, [(0, b"5")])
        await sound(cluster)
        await cluster.stop(101, grace_s=0)
        await cluster.start(102, "broker")
        again = await until_async(
            lambda: produced(node, *SENT),
            "another broker to take it over",
            holds=lambda told: not any(one.error_code for one in told),
            every_s=0.1,
        )
        assert [one.base_offset for one in again] == [0, 2, 4, 5], "copies"
        assert (await read(node), await read(node, "dev"), await read(node, "prod")) == (IN_BASE, IN_DEV, [(0, b"5")])
        [late] = await produced(node, batch(8, "dev", None))
        assert (late.error_code, late.base_offset) == (0, 8)
        assert (await read(node), await read(node, "dev")) == ([*IN_BASE, (9, b"9")], [*IN_DEV, (7, b"8")])
        await sound(cluster)

    run(test)


def test_a_producer_whose_batches_go_over_two_proxies_at_once_has_each_once_and_in_order() -> None:
    async def test(cluster: Cluster) -> None:
        control = await cluster.start(1, "controller")
        await cluster.start(101, "broker")
        nodes = [await cluster.start(number, "proxy") for number in (3, 4)]
        await set_up(control)
        lanes = [None, "dev", "prod"]
        sent = {2 * number: batch(2 * number, lanes[number % 3], lanes[number % 2]) for number in range(30)}
        left = sorted(sent)
        overtaken = 0
        while left:
            some = left[:5]
            halves = some[1::2], some[::2]  # the later ones first
            told = await asyncio.gather(
                *[produced(node, *[sent[one] for one in half]) for node, half in zip(nodes, halves, strict=True)]
            )
            for half, answers in zip(halves, told, strict=True):
                for one, answer in zip(half, answers, strict=True):
                    assert answer.error_code in (0, ErrorCode.not_leader_or_follower)
                    overtaken += bool(answer.error_code)
                    if not answer.error_code:
                        assert answer.base_offset == one
                        left.remove(one)
        assert overtaken
        by_lane: dict[str, Values] = {"": [], "dev": [], "prod": []}
        for first in sorted(sent):
            for number, lane in ((first, lanes[first // 2 % 3]), (first + 1, lanes[first // 2 % 2])):
                by_lane[lane or ""].append((number, b"%d" % number))
        for lane, values in by_lane.items():
            for node in nodes:
                found = await read(node, lane)
                assert [value for _, value in found] == [value for _, value in values]
                assert lane or found == values
        await sound(cluster)

    run(test)


def test_a_lane_whose_quota_has_no_room_for_the_topic_is_told_of_and_the_base_and_other_lanes_go_on() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        await set_up(node, partitions=2)
        [refused] = await produced(node, batch(0, None, "prod", "dev"))
        assert refused.error_code == ErrorCode.invalid_record
        [wrong] = refused.record_errors
        assert wrong.batch_index == 1
        assert "lane prod has no topic orders: " in wrong.batch_index_error_message
        assert "its quota is 2" in wrong.batch_index_error_message
        assert await read(node) == []
        [taken] = await produced(node, batch(0, None, "dev"))
        assert taken.error_code == 0
        assert (await read(node), await read(node, "dev")) == ([(0, b"0")], [(1, b"1")])
        await sound(cluster)

    run(test)


def test_owners_refuse_two_batches_for_a_partition_and_what_clients_may_not_write() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        await set_up(node)
        gap = [Record(0, NOW_MS, None, b"x", (("x-lane", b"dev"),))]
        refused = [
            batch(0, "dev") + batch(1, "dev"),
            build_batch(gap, first_offset=0, next_offset=3),
            build_batch([], first_offset=0, next_offset=3),
            build_batch(gap, is_control=True),
        ]
        told = await produced(node, *refused)
        assert [ErrorCode(one.error_code) for one in told] == [ErrorCode.invalid_record] * len(refused)
        assert (await ask(node, "GET", "/v1/topics/dev:orders")).status == 404
        [told] = await produced(
            node, build_batch(gap, is_transactional=True, producer_id=8, producer_epoch=0, base_sequence=0)
        )
        assert told.error_code == ErrorCode.invalid_record
        assert await read(node) == await read(node, "dev") == []

    run(test)
