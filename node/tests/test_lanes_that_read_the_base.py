"""A lane's client that sends no leader epochs, read the base, and meets the lane's own topic: offsets alone say which
of the two they are of.
"""

from typing import Any

import pytest
from admin_api_asked import ask
from nodes_in_one_loop import Cluster, run
from test_lanes_apart import TOPIC, Client, fetched
from test_lanes_stale_commits import commit, write
from tests.waiting import until_async

from bmq.config.topic_config import FIRST_OFFSET, READING_LANES_FIRST_OFFSET
from bmq.runtime.system import SystemRng
from bmq.wire.apis import ApiKey
from bmq.wire.batches import split
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
FIRST = READING_LANES_FIRST_OFFSET


async def reading_lane(cluster: Cluster) -> tuple[Node, Client, Client]:
    """(the node, a client of the base, one of the lane); the base's `orders` has five records."""
    node = await cluster.start(1, "controller,broker,proxy")
    assert (await ask(node, "POST", "/v1/topics", {"name": "orders", "partitions": 2})).status == 201
    lane = {"name": "dev", "reads_base": {"enabled": True, "topics": ["ord*"], "bytes_per_second": 1_000_000}}
    assert (await ask(node, "POST", "/v1/lanes", lane)).status == 201
    outside = Client(node)
    await write(outside, "orders", 5)
    return node, outside, Client(node, "lane=dev")


async def fetch(client: Client, offset: int) -> tuple[int, int, list[int]]:
    """(error code, log start, offsets that came)."""
    partition = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20
    }  # fmt: skip
    wanted: dict[str, Any] = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
    }
    wanted |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    reply = await client.answer(ApiKey.FETCH, 11, **wanted, topics=[{"topic": "orders", "partitions": [partition]}])
    [found] = reply.responses[0].partitions
    offsets = [offset for one in split(found.records or b"") for offset in range(one.base_offset, one.next_offset)]
    return found.error_code, found.log_start_offset, offsets


async def edge(client: Client, timestamp: int) -> int:
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    reply = await client.answer(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=topics)
    return int(reply.topics[0].partitions[0].offset)


def test_an_offset_of_the_base_is_nowhere_in_the_lanes_own_topic_however_far_that_has_grown() -> None:
    async def test(cluster: Cluster) -> None:
        _, _, inside = await reading_lane(cluster)
        assert (await fetch(inside, 2))[2] == [2, 3, 4], "the base's"
        assert await commit(inside, "g", ("orders", 5)) == {"orders": 0}
        assert await fetched(inside, "g", "orders") == 5
        await write(inside, "orders", 9)
        assert await edge(inside, -2) == FIRST
        assert await edge(inside, -1) == FIRST + 9
        for offset in (0, 3, 5, 9, FIRST - 1):
            error, _, offsets = await fetch(inside, offset)
            assert (error, offsets) == (int(ErrorCode.offset_out_of_range), [])
        assert await fetch(inside, FIRST) == (0, FIRST, list(range(FIRST, FIRST + 9)))
        assert await fetched(inside, "g", "orders") == -1, "what was committed was of the base's"
        for offset in (0, 5, 7):
            assert await commit(inside, "g", ("orders", offset)) == {"orders": 0}
            assert await fetched(inside, "g", "orders") == -1, "nothing of the lane's is skipped"
        assert await commit(inside, "g", ("orders", FIRST + 4)) == {"orders": 0}
        assert await fetched(inside, "g", "orders") == FIRST + 4

    run(test)


def test_a_topic_that_begins_high_is_taken_over_from_the_wal_alone_and_is_found_whole() -> None:
    async def test(cluster: Cluster) -> None:
        node, outside, inside = await reading_lane(cluster)
        await write(inside, "orders", 3)
        assert (await ask(node, "GET", f"/v1/topics/{TOPIC}")).body["configs"][FIRST_OFFSET] == str(FIRST)
        report = (await audit_store(cluster.store, rng=SystemRng(), options=OPTIONS)).report
        assert not report.count(Level.FAULT), report.findings[Level.FAULT]
        await cluster.stop(1, grace_s=0)
        node = await cluster.start(2, "controller,broker,proxy")
        inside, outside = Client(node, "lane=dev"), Client(node)
        # the first node is taken for dead after a while
        await until_async(
            lambda: fetch(inside, FIRST),
            "the records of the base",
            holds=lambda found: found == (0, FIRST, list(range(FIRST, FIRST + 3))),
            every_s=0.1,
        )
        await write(inside, "orders", 2)
        assert await fetch(inside, FIRST) == (0, FIRST, list(range(FIRST, FIRST + 5)))
        assert await fetch(outside, 0) == (0, 0, list(range(5))), "the base's is as it was"

    run(test)


@pytest.mark.parametrize("value", ["7", "-1", "x", str(FIRST + 1)])
def test_nobody_sets_a_first_offset(value: str) -> None:
    async def test(cluster: Cluster) -> None:
        node, _, inside = await reading_lane(cluster)
        for lane in ("", "dev"):
            made = await ask(
                node,
                "POST",
                "/v1/topics",
                {"name": "high", "lane": lane, "partitions": 1, "configs": {FIRST_OFFSET: value}},
            )
            assert made.status == 400 and FIRST_OFFSET in str(made.body)
        await write(inside, "orders", 1)
        for path in ("orders", TOPIC):
            changed = await ask(node, "PATCH", f"/v1/topics/{path}/configs", {FIRST_OFFSET: value})
            assert changed.status == 400 and FIRST_OFFSET in str(changed.body)

    run(test)


def test_legacy_alter_configs_leave_the_first_offset_as_it_is() -> None:
    async def test(cluster: Cluster) -> None:
        node, _, inside = await reading_lane(cluster)
        await write(inside, "orders", 1)
        resource = {
            "resource_type": 2,
            "resource_name": "orders",
            "configs": [{"name": "retention.ms", "value": "1000000"}],
        }
        reply = await inside.answer(ApiKey.ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert reply.responses[0].error_code == 0, reply
        configs = (await ask(node, "GET", f"/v1/topics/{TOPIC}")).body["configs"]
        assert configs == {FIRST_OFFSET: str(FIRST), "retention.ms": "1000000"}

    run(test)


def test_a_lane_that_reads_the_base_no_more_begins_its_topic_where_no_offset_of_the_bases_leads() -> None:
    async def test(cluster: Cluster) -> None:
        node, _, inside = await reading_lane(cluster)
        assert (await fetch(inside, 2))[2] == [2, 3, 4], "the base's"
        assert (await ask(node, "PUT", "/v1/lanes/dev", {"reads_base": {"enabled": False}})).status == 200
        await until_async(
            lambda: fetch(inside, 2),
            "the proxy to hear of it",
            holds=lambda found: found[0] == int(ErrorCode.offset_out_of_range),
            every_s=0.05,
        )
        assert (await edge(inside, -2), await edge(inside, -1)) == (FIRST, FIRST), "before it is there, too"
        assert await fetch(inside, FIRST) == (0, FIRST, []), "so that who waits there misses nothing"
        await write(inside, "orders", 9)
        assert await fetch(inside, 5) == (int(ErrorCode.offset_out_of_range), FIRST, [])
        assert await fetch(inside, FIRST) == (0, FIRST, list(range(FIRST, FIRST + 9)))
        assert await commit(inside, "g", ("orders", 5)) == {"orders": 0}
        assert await fetched(inside, "g", "orders") == -1

    run(test)
