"""The leading controller in another process answers as one in this process, wherever it is at the moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

import pytest
from internal_under_test import (
    CLIENT,
    RUNNER_IDS,
    RUNNERS,
    SERVER,
    TOPIC,
    MemoryController,
    Runner,
    led_by,
    serving,
    tp,
)
from tests.waiting import until_async

from bmq.errors import ControllerUnavailable, Fenced, InvalidConfig, NoLeader, NoMoveUnderWay, NotReady, TopicExists
from bmq.internal import (
    Identity,
    InternalServer,
    LeadingController,
    RemoteController,
    controller_handlers,
    metadata_handlers,
)
from bmq.internal.calls.controller_calls import ENTRIES_BYTES_MAX
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.image import Image
from bmq.metadata.records import Range
from bmq.roles.controller import (
    BrokerControl,
    ClosedPartition,
    ClusterControl,
    ConfigChange,
    ConfigResource,
    Controller,
    Heartbeat,
    HeartbeatReply,
    MetadataSource,
    NewTopic,
    PartitionLoad,
    Reassignment,
    Registration,
    TopicResult,
)
from bmq.values import BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId

every_loop = pytest.mark.parametrize("run", RUNNERS, ids=RUNNER_IDS)

BEAT = Heartbeat(
    node_id=NodeId(3),
    broker_epoch=BrokerEpoch(11),
    boot=UUID(int=5),
    closed=(ClosedPartition(tp=tp(1), leader_epoch=LeaderEpoch(4), end=77),),
    covered=((tp(2), (Range(node_id=1, broker_epoch=2, leader_epoch=3, end=4),)),),
    loads=(PartitionLoad(tp=tp(3), bytes_per_s=1.5e6),),
    draining=True,
    manifests=((tp(2), ManifestVersion(7)),),
)


@dataclass
class Cluster:
    """One node that can lead, and another that asks whoever leads."""

    leading: MemoryController | None
    server: InternalServer
    address: tuple[str, int]
    feed: MetadataFeed
    there: RemoteController


@asynccontextmanager
async def cluster(controller: MemoryController) -> AsyncIterator[Cluster]:
    found: Cluster

    def leading() -> MemoryController | None:
        return found.leading

    async with serving({**controller_handlers(leading), **metadata_handlers(leading)}) as (server, host, port):
        feed = MetadataFeed(led_by(host, port))
        there = RemoteController(feed, me=CLIENT)
        found = Cluster(controller, server, (host, port), feed, there)
        try:
            yield found
        finally:
            await there.close()


def protocols_agree(
    there: RemoteController,
) -> tuple[Controller, BrokerControl, ClusterControl, MetadataSource, LeadingController]:
    return there, there, there, there, there


@every_loop
def test_every_call_arrives_as_it_was_made(run: Runner) -> None:
    async def main() -> None:
        controller = MemoryController()
        controller.results = [
            TopicResult(name="orders", topic_id=TOPIC, partitions=6, configs={"retention.ms": "1000"}),
            TopicResult(name="taken", error=TopicExists("topic 'taken' exists")),
        ]
        new = [
            NewTopic(name="orders", partitions=6, configs=MappingProxyType({"a": "b", "c": None})),
            NewTopic(name="taken", manual_assignment=True, assignments=[[1, 2], [2, 1]]),
        ]
        resource = ConfigResource(kind="topic", name="orders")
        changes = [ConfigChange(name="a", operation="set", value="1"), ConfigChange(name="b", operation="delete")]
        registration = Registration(
            node_id=NodeId(3),
            boot=UUID(int=5),
            roles=("broker", "proxy"),
            host="kafka",
            port=9092,
            rack="a",
            internal_host="in",
            internal_port=9,
        )
        async with cluster(controller) as found:
            there = found.there
            created, taken = await there.create_topics(new, validate_only=True)
            assert created == controller.results[0]
            assert isinstance(taken.error, TopicExists)
            assert str(taken.error) == "topic 'taken' exists"
            assert (await there.delete_topics([TOPIC]))[0] == controller.results[0]
            assert await there.create_partitions("orders", 9, assignments=[[3]]) == controller.results[0]
            await there.alter_configs(resource, changes, validate_only=True)
            await there.replace_configs(resource, {"a": None})
            assert await there.allocate_producer_ids(500) == range(1000, 1500)
            begun, refused = await there.reassign(
                [Reassignment(tp=tp(4), to=NodeId(2)), Reassignment(tp=tp(5), to=None)]
            )
            assert begun is None
            assert isinstance(refused, NoMoveUnderWay)
            assert str(refused) == "nothing to take back"
            assert await there.register(registration) == 9
            await there.report_stopped(NodeId(3), BrokerEpoch(11), 42)
            assert await there.heartbeat(BEAT) == HeartbeatReply(lease_ms=6000, position=12)
            await there.move(tp(4), NodeId(2))
            await there.drain(NodeId(2))
            await there.cordon(NodeId(2), True)
            controller.entries = [b"entry 13", bytes(100_000)]
            assert await there.metadata_poll(12, 500) == controller.entries
            assert controller.asked == [
                ("create_topics", [NewTopic(name="orders", partitions=6, configs={"a": "b", "c": None}), new[1]], True),
                ("delete_topics", [TOPIC]),
                ("create_partitions", "orders", 9, [[3]], False),
                ("alter_configs", resource, changes, True),
                ("replace_configs", resource, {"a": None}, False),
                ("allocate_producer_ids", 500),
                ("reassign", [Reassignment(tp=tp(4), to=NodeId(2)), Reassignment(tp=tp(5), to=None)]),
                ("register", registration),
                ("report_stopped", 3, 11, 42),
                ("heartbeat", BEAT),
                ("move", tp(4), 2),
                ("drain", 2),
                ("cordon", 2, True),
                ("metadata_poll", 12, 500),
            ]

    run(main())


@every_loop
def test_what_the_controller_refuses_is_refused_here(run: Runner) -> None:
    async def main() -> None:
        controller = MemoryController()
        async with cluster(controller) as found:
            controller.refuse = Fenced("node 3 registered again under epoch 12")
            with pytest.raises(Fenced, match="epoch 12"):
                await found.there.heartbeat(BEAT)
            controller.refuse = InvalidConfig("retention.ms: 'x' is no number")
            with pytest.raises(InvalidConfig, match="no number"):
                await found.there.alter_configs(ConfigResource(kind="topic", name="t"), [])

    run(main())


@every_loop
def test_without_a_leader_and_while_it_is_not_reached_the_controller_is_unavailable(run: Runner) -> None:
    async def main() -> None:
        async with cluster(MemoryController()) as found:
            found.leading = None
            with pytest.raises(NoLeader, match="does not lead"):
                await found.there.heartbeat(BEAT)
            with pytest.raises(ControllerUnavailable, match="does not lead"):
                await found.there.metadata_poll(1, 0)
            await found.server.stop()
            for _ in range(3):
                with pytest.raises(ControllerUnavailable):
                    await found.there.heartbeat(BEAT)
                with pytest.raises(ControllerUnavailable):
                    await found.there.metadata_poll(1, 0)
            nobody = RemoteController(MetadataFeed(Image(position=1)), me=CLIENT)
            with pytest.raises(NoLeader, match="no controller leads"):
                await nobody.heartbeat(BEAT)
            await nobody.close()
            with pytest.raises(ControllerUnavailable, match="stopping"):
                await nobody.heartbeat(BEAT)

    run(main())


@every_loop
def test_a_leader_without_an_address_for_other_nodes_is_told_with_what_to_do(run: Runner) -> None:
    async def main() -> None:
        alone = RemoteController(
            MetadataFeed(Image(position=1, controller_epoch=1, controller_id=NodeId(1))), me=CLIENT
        )
        for call in (alone.heartbeat(BEAT), alone.metadata_poll(1, 0)):
            with pytest.raises(
                NoLeader, match=r"node 1 led last, by a `bmq up` of one process, .* stop it and start a cluster"
            ):
                await call
        await alone.close()

    run(main())


@every_loop
def test_calls_follow_the_image_to_a_new_leader(run: Runner) -> None:
    async def main() -> None:
        old, new = MemoryController(), MemoryController()
        other = Identity(cluster_id=SERVER.cluster_id, node_id=NodeId(8))
        async with cluster(old) as found, serving(controller_handlers(lambda: new), me=other) as (_, host, port):
            await found.there.heartbeat(BEAT)
            found.feed.publish(led_by(host, port, node_id=NodeId(8), position=2))
            await found.there.heartbeat(BEAT)
            await found.there.heartbeat(BEAT)
            assert (len(old.asked), len(new.asked)) == (1, 2)
            await until_async(lambda: not found.server.connections, "all connections to end")

    run(main())


@every_loop
def test_a_poll_that_finds_a_gap_says_so_and_one_that_is_given_up_ends_there(run: Runner) -> None:
    class Waiting(MemoryController):
        waiting = 0

        async def metadata_poll(self, after_position: int, wait_ms: int) -> list[bytes]:
            if self.refuse is not None:
                raise self.refuse
            self.waiting += 1
            try:
                await asyncio.sleep(wait_ms / 1000)
            finally:
                self.waiting -= 1
            return []

    async def main() -> None:
        controller = Waiting()
        async with cluster(controller) as found:
            controller.refuse = NotReady("entry 7 is not here any more")
            with pytest.raises(NotReady, match="entry 7"):
                await found.there.metadata_poll(6, 100)
            controller.refuse = None
            assert await found.there.metadata_poll(6, 10) == []
            poll = asyncio.ensure_future(found.there.metadata_poll(6, 60_000))
            await until_async(lambda: controller.waiting == 1, "the poll to wait")
            await found.there.heartbeat(BEAT)
            poll.cancel()
            await until_async(lambda: controller.waiting == 0, "the poll to be given up")

    run(main())


@every_loop
def test_a_poll_brings_many_entries_in_several_answers(run: Runner) -> None:
    async def main() -> None:
        controller = MemoryController()
        controller.entries = [bytes(3 << 20)] * 5
        async with cluster(controller) as found:
            got = await found.there.metadata_poll(1, 0)
            assert 1 < len(got) < 5
            assert sum(map(len, got)) <= ENTRIES_BYTES_MAX
            controller.entries = [bytes(2 * ENTRIES_BYTES_MAX)] * 2
            assert [len(entry) for entry in await found.there.metadata_poll(1, 0)] == [2 * ENTRIES_BYTES_MAX]

    run(main())
