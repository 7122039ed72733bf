"""Stores in which partitions have changed hands, or do while they are copied: nodes start over what was copied, and
over what was repaired.
"""

from collections.abc import Iterable
from random import Random

import pytest
from broker_under_test import records_of
from moving_brokers import Brokers
from test_broker_copies import OPTIONS
from test_broker_real_moves import started
from tests.waiting import until_async

from bmq.errors import PartitionStopped
from bmq.metadata.image import Image
from bmq.roles.controller import NewTopic
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicId, TopicPartition
from bmq.wire.batches import Record, build_batch
from bmq_audit.audit import audit_store
from bmq_audit.findings import Kind, Level
from bmq_audit.reading import Progress, Reader
from bmq_backup.copying import Copier
from bmq_broker.main import BrokerRole
from bmq_controller.main import ControllerRole, start_controller
from bmq_sim.clock import SimRng
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults


class Nodes:
    """A controller and two brokers, all real, over one store."""

    def __init__(self, store: SimStore) -> None:
        self.brokers = Brokers(store)
        self.controller: ControllerRole
        self.roles: dict[int, BrokerRole] = {}

    async def start(self) -> None:
        brokers = self.brokers
        self.controller = await start_controller(
            brokers.store.for_node("controller"), node_id=NodeId(0), clock=brokers.clock, rng=brokers.rng
        )
        self.roles = {node: await started(brokers, self.controller, node) for node in (1, 2)}

    async def kill(self) -> None:
        for role in self.roles.values():
            await role.kill()
        await self.controller.stop()
        await self.brokers.controller.close()

    async def topic(self, name: str) -> TopicPartition:
        (made,) = await self.controller.controller.create_topics([NewTopic(name=name, partitions=1)])
        assert made.topic_id is not None
        return TopicPartition(made.topic_id, 0)

    def owner(self, tp: TopicPartition) -> int:
        meta = self.controller.metadata.image.partition(tp)
        assert meta is not None
        return int(meta.node_id)

    async def append(self, tp: TopicPartition, value: bytes) -> None:
        record = Record(offset=0, timestamp_ms=self.brokers.clock.now_ms(), key=None, value=value, headers=())
        await self.roles[self.owner(tp)].owner.append(tp, build_batch([record]), produce_version=9)

    async def move(self, tp: TopicPartition) -> None:
        before = self.owner(tp)
        await self.controller.controller.move(tp, NodeId(3 - before))
        await until_async(lambda: self.owner(tp) != before, "another owner", every_s=0.01)

    async def values(self, tp: TopicPartition) -> list[bytes]:
        return [value for _, value in await records_of(self.roles[self.owner(tp)], tp)]


@on_virtual_time
async def test_nodes_start_over_a_copy_during_which_a_topic_was_made_and_moved() -> None:
    nodes = Nodes(SimStore(faults=StoreFaults(latency_s_min=0.001, latency_s_max=0.01)))
    await nodes.start()
    early = [await nodes.topic(name) for name in ("a", "b")]
    for tp in early:
        await nodes.append(tp, b"early")

    class Late(Copier):
        """Something happens behind the WAL, and before the manifests."""

        has_happened = False

        async def _topics(self, image: Image, topics: Iterable[TopicId]) -> bool:
            if not self.has_happened:
                self.has_happened = True
                late = await nodes.topic("late")
                await nodes.append(late, b"late")
                await nodes.move(late)
            return await super()._topics(image, topics)

    copy = SimStore(page_keys=7)
    reader = Reader(nodes.brokers.store.for_node("copier"), rng=SimRng(Random(1)), at_once=3, progress=Progress())
    await Late(reader, copy.for_node("copier"), rng=SimRng(Random(1))).run()
    await nodes.kill()
    found = await audit_store(copy.for_node("audit"), rng=SimRng(Random(0)), options=OPTIONS)
    assert found.report.findings[Level.FAULT] == []

    restored = Nodes(copy)
    await restored.start()
    assert sorted(restored.roles) == [1, 2]
    for tp in early:
        assert await restored.values(tp) == [b"early"]
    topics = restored.controller.metadata.image.topics
    for tp in [TopicPartition(topic_id, 0) for topic_id in topics]:
        await restored.append(tp, b"more")
        assert (await restored.values(tp))[-1] == b"more"
    await restored.kill()


@on_virtual_time
async def test_a_check_tells_that_a_stream_ends_before_what_an_heir_has_to_read_of_it() -> None:
    nodes = Nodes(SimStore())
    await nodes.start()
    tp = await nodes.topic("orders")
    first = nodes.owner(tp)
    for number in range(4):
        await nodes.append(tp, b"%d" % number)
    await nodes.move(tp)
    await nodes.kill()
    store = nodes.brokers.store.for_node("audit")
    found = await audit_store(store, rng=SimRng(Random(0)), options=OPTIONS)
    assert found.report.findings[Level.FAULT] == []
    objects = [meta.key async for meta in store.list(StreamId(NodeId(first), BrokerEpoch(1)).prefix)]
    assert len(objects) == 4
    for at, told in ((3, 1), (2, 2), (1, 3), (0, 1)):
        await store.delete(objects[at])
        found = await audit_store(store, rng=SimRng(Random(0)), options=OPTIONS)
        assert [(each.kind, each.key) for each in found.report.findings[Level.FAULT]] == [
            (Kind.LOST, key) for key in objects[4 - told :]
        ]


@on_virtual_time
async def test_a_check_names_the_object_that_is_missing_and_not_the_whole_ones_below_it() -> None:
    nodes = Nodes(SimStore())
    await nodes.start()
    tp = await nodes.topic("orders")
    for number in range(6):
        await nodes.append(tp, b"%d" % number)
    stream = StreamId(NodeId(nodes.owner(tp)), BrokerEpoch(1))
    await nodes.kill()
    store = nodes.brokers.store.for_node("audit")
    objects = [meta.key async for meta in store.list(stream.prefix)]
    await store.delete(objects[4])
    found = await audit_store(store, rng=SimRng(Random(0)), options=OPTIONS)
    lost = [each for each in found.report.findings[Level.FAULT] if each.kind is Kind.LOST]
    assert [each.key for each in lost] == [objects[4]]
    assert "nobody reads 4 offsets below it, from 0 to 3" in lost[0].means


@on_virtual_time
async def test_a_torn_object_that_an_heir_has_to_read_is_not_taken_for_an_end_of_the_stream_that_nobody_waits_for() -> (
    None
):
    nodes = Nodes(SimStore())
    await nodes.start()
    tp = await nodes.topic("orders")
    stream = StreamId(NodeId(nodes.owner(tp)), BrokerEpoch(1))
    for number in range(4):
        await nodes.append(tp, b"%d" % number)
    await nodes.move(tp)
    await nodes.kill()
    store = nodes.brokers.store.for_node("audit")
    newest = max([meta.key async for meta in store.list(stream.prefix)])
    data = await store.get(newest)
    await store.delete(newest)
    await store.create(newest, [data[:-5]])
    found = await audit_store(store, rng=SimRng(Random(0)), options=OPTIONS)
    assert [(each.kind, each.key, each.repair) for each in found.report.findings[Level.FAULT]] == [
        (Kind.DAMAGED, newest, "")
    ]
    assert found.report.repairs == []
    again = Nodes(nodes.brokers.store)
    await again.start()
    other = await again.topic("other")
    await again.append(other, b"goes on")
    assert await again.values(other) == [b"goes on"]
    with pytest.raises(PartitionStopped):
        await again.append(tp, b"more")
    await again.kill()
