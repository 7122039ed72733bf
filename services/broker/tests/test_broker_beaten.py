"""What a broker begins and an heir, or a later record, overtakes: it is given up, nobody is served by it, and only who
was replaced is fenced.
"""

import asyncio

import pytest
from held_store import HeldStore
from moving_brokers import Brokers, ScriptedController

from bmq.errors import BmqError, Fenced, NotOwner, NotReady
from bmq.metadata.records import PartitionChange
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.owner import Caller
from bmq.storage.flatlog import FlatLog
from bmq.storage.keys import manifest_prefix, segment_prefix
from bmq.storage.manifest import Manifest
from bmq.storage.manifest_format import encode_manifest
from bmq.values import LeaderEpoch, TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.settings import BrokerSettings
from bmq_sim.clock import SimRng
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore


async def claimed_by_an_heir(store: SimStore, tp: TopicPartition, *, epoch: int) -> None:
    """An heir's first version, of which no image here tells yet."""
    log = FlatLog(store.for_node("heir"), manifest_prefix(tp), rng=SimRng(99), what="the heir's")
    await log.claim(await log.newest(), epoch=epoch, payload=encode_manifest(Manifest()))


def renamed(controller: ScriptedController, tp: TopicPartition) -> None:
    """The same broker owns it under another leader epoch: an image that jumped over what was between."""
    meta = controller.meta(tp)
    epoch = LeaderEpoch(meta.leader_epoch + 1)
    controller.commit(
        PartitionChange(
            topic_id=tp.topic_id,
            partition=tp.partition,
            node_id=meta.node_id,
            broker_epoch=meta.broker_epoch,
            leader_epoch=epoch,
            ranges=meta.ranges,
        )
    )


@on_virtual_time
async def test_an_opening_that_finds_an_heirs_manifest_takes_no_batch_and_ends_the_broker() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await claimed_by_an_heir(store, tp, epoch=brokers.controller.meta(tp).leader_epoch + 1)
    with pytest.raises((Fenced, NotReady)):
        await brokers.append(tp, b"a")
    assert [node for node, error in brokers.fenced if isinstance(error, Fenced)] == [1]
    assert tp not in brokers.roles[1]._ownership.partitions
    assert store.keys("wal/") == []
    await brokers.stop()


@pytest.mark.parametrize("held", ["wal/0000000001/", "/manifest/"])
@on_virtual_time
async def test_an_opening_that_its_own_image_overtakes_serves_nobody_under_the_old_epoch(held: str) -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.roll(tp)
    await brokers.append(tp, b"b")
    store.held.add(held)
    await brokers.moved(tp, to=2)
    waiting = brokers.append(tp, b"c")
    await asyncio.sleep(1)
    assert not waiting.done()
    renamed(brokers.controller, tp)
    epoch = brokers.controller.meta(tp).leader_epoch
    store.let_go(held)
    try:
        assert (await waiting).base_offset == 2
    except NotReady:
        assert (await brokers.append_wherever(tp, b"c")).base_offset == 2
    partition = await brokers.roles[2]._ownership.open(tp)
    assert partition.leader_epoch == epoch
    assert [each.epoch for each in partition.epochs][-1] == epoch
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert brokers.fenced == []
    await brokers.stop()


@on_virtual_time
async def test_who_looks_for_the_newest_manifest_and_finds_an_heirs_is_fenced() -> None:
    store = SimStore()
    brokers = Brokers(store)
    await brokers.start(1)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    role = brokers.roles[1]
    partition = await role._ownership.open(tp)
    await claimed_by_an_heir(store, tp, epoch=partition.leader_epoch + 1)
    with pytest.raises(Fenced):
        async with role._manifests.lock(tp):
            await role._manifests.refresh(partition)
    assert [node for node, _ in brokers.fenced] == [1]
    assert partition.manifest == Manifest()
    with pytest.raises(BmqError):
        await brokers.append(tp, b"b")
    await brokers.stop()


@on_virtual_time
async def test_who_looks_for_the_newest_manifest_while_the_partition_leaves_is_told_that_it_is_not_its_own() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    role = brokers.roles[1]
    partition = await role._ownership.open(tp)
    store.held.add("node-1:" + manifest_prefix(tp))

    async def refresh() -> None:
        async with role._manifests.lock(tp):
            await role._manifests.refresh(partition)

    await claimed_by_an_heir(store, tp, epoch=0)  # something to read
    looking = asyncio.ensure_future(refresh())
    await asyncio.sleep(1)
    await brokers.moved(tp, to=2)
    await brokers.roll(tp)
    store.let_go("node-1:" + manifest_prefix(tp))
    with pytest.raises(NotOwner):
        await looking
    assert brokers.fenced == []
    assert partition.manifest == Manifest()
    assert await brokers.read_all(tp) == [(0, b"a")]
    await brokers.stop()


@on_virtual_time
async def test_a_coordinator_that_leaves_while_it_loads_answers_nobody_and_its_heir_answers_all() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (orders,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    (tp,) = brokers.controller.create_topic(CONSUMER_OFFSETS, partitions=1, owner=1)
    caller = Caller(client_id="c", client_host="h")
    listed = Message(states_filter=(), types_filter=())

    async def asked(node: int) -> int:
        try:
            return int((await brokers.roles[node].owner.group_call(0, 16, listed, caller))["error_code"])
        except NotOwner:
            return -1

    assert await asked(1) == 0
    for offset in (4, 5):
        await commit(brokers, 1, orders, offset=offset)
        await brokers.roll(tp)
    await brokers.moved(tp, to=2)
    assert await asked(2) == 0
    first, _ = store.keys(segment_prefix(tp))  # the opening reads the other one
    store.held.add("node-1:" + first)
    await brokers.moved(tp, to=1)
    waiting = [asyncio.ensure_future(asked(1)) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert tp in brokers.roles[1]._ownership.partitions
    assert not any(one.done() for one in waiting)
    await brokers.moved(tp, to=2)
    assert set(await asyncio.gather(*waiting)) <= {
        -1,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
    }
    assert brokers.roles[1]._coordinators._shards == {}
    assert await asked(2) == 0
    assert await fetched(brokers, 2, orders) == 5
    store.let_go("node-1:" + first)
    await brokers.moved(tp, to=1)
    await asyncio.sleep(1)
    assert await fetched(brokers, 1, orders) == 5
    assert brokers.fenced == []
    await brokers.stop()


async def commit(brokers: Brokers, node: int, tp: TopicPartition, *, offset: int) -> None:
    part = Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
    topic = Message(name="orders", topic_id=tp.topic_id, partitions=[part])
    request = Message(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[topic],
    )
    reply = await brokers.roles[node].owner.group_call(0, 8, request, Caller(client_id="c", client_host="h"))
    assert [part["error_code"] for topic in reply["topics"] for part in topic["partitions"]] == [0]


async def fetched(brokers: Brokers, node: int, tp: TopicPartition) -> int:
    topic = Message(name="orders", topic_id=tp.topic_id, partition_indexes=[0])
    group = Message(group_id="g", member_id=None, member_epoch=-1, topics=[topic])
    reply = await brokers.roles[node].owner.group_call(
        0, 9, Message(groups=[group], require_stable=False), Caller(client_id="c", client_host="h")
    )
    return int(reply["groups"][0]["topics"][0]["partitions"][0]["committed_offset"])


@on_virtual_time
async def test_batches_for_a_partition_that_is_being_opened_are_bounded_and_taken_in_order() -> None:
    store = HeldStore()
    brokers = Brokers(store, settings=BrokerSettings(pending_bytes_max=4_000))
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    store.held.add("wal/0000000001/")
    await brokers.moved(tp, to=2)
    sent = [brokers.append(tp, bytes(900)) for _ in range(6)]
    refused = [one for one in sent if one.done() and isinstance(one.exception(), NotReady)]
    assert refused == sent[2:]
    assert brokers.roles[2]._ownership._waiting.size_bytes <= 2_000
    store.let_go("wal/0000000001/")
    assert [(await one).base_offset for one in sent[:2]] == [1, 2]
    assert brokers.roles[2]._ownership._waiting.size_bytes == 0
    await brokers.stop()
