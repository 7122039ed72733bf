"""Openings that come to nothing: who waits is told, the loop hears of what is a bug, and the next opening is a new
one.
"""

import asyncio

import pytest
from broker_under_test import small
from held_store import LISTINGS, HeldStore
from moving_brokers import Brokers

from bmq.errors import BmqError, NotOwner, NotReady
from bmq.metadata.records import PartitionChange, Range
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, TopicPartition
from bmq_broker.segments.manifests import Loaded, Manifests
from bmq_sim.loop import on_virtual_time

LEFT_BY_2 = "wal/0000000002/"


@on_virtual_time
async def test_a_partition_that_came_back_while_its_opening_waited_opens_with_what_was_written_elsewhere() -> None:
    store = HeldStore()
    brokers = Brokers(store, settings=small(open_concurrency=1))
    await brokers.start(1, 2)
    (slow, tp) = brokers.controller.create_topic("orders", partitions=2, owner=1)
    (other,) = brokers.controller.create_topic("other", partitions=1, owner=2)
    await brokers.append(other, b"node 2 has a stream")
    store.held |= {LISTINGS, LEFT_BY_2}
    first = brokers.append(slow, b"a")
    waits = brokers.append(tp, b"b")
    await asyncio.sleep(0.1)
    brokers.controller.commit(came_back(brokers, tp))
    store.let_go(LISTINGS)
    await first
    with pytest.raises(NotReady, match="changed while it was being opened"):
        await waits
    again = brokers.append(tp, b"c")
    await asyncio.sleep(1)
    assert not again.done(), "what node 2 left is still to be read"
    store.let_go(LEFT_BY_2)
    assert (await again).base_offset == 0
    assert await brokers.read_all(tp) == [(0, b"c")]
    await brokers.stop()


def came_back(brokers: Brokers, tp: TopicPartition) -> PartitionChange:
    """What an image that was behind shows at once of a way to node 2 and back."""
    meta = brokers.controller.meta(tp)
    return PartitionChange(
        topic_id=tp.topic_id,
        partition=tp.partition,
        node_id=meta.node_id,
        broker_epoch=meta.broker_epoch,
        leader_epoch=LeaderEpoch(meta.leader_epoch + 2),
        ranges=(Range(NodeId(2), BrokerEpoch(1), LeaderEpoch(meta.leader_epoch + 1), 1, 0),),
    )


@on_virtual_time
async def test_a_bug_in_an_opening_is_told_to_the_loop_and_to_who_waits_and_the_next_opening_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(settings=small())
    await brokers.start(1)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    told = told_to_the_loop()
    with monkeypatch.context() as planted:
        planted.setattr(Manifests, "load", has_a_bug)
        with pytest.raises(NotReady, match="planted"):
            await brokers.append(tp, b"a")
    assert [str(error) for error in told] == ["planted"]
    assert brokers.roles[1]._ownership._waiting.size_bytes == 0
    assert (await brokers.append(tp, b"a")).base_offset == 0
    await brokers.stop()


@on_virtual_time
async def test_a_bug_in_an_opening_that_was_given_up_is_told_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(settings=small())
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    told = told_to_the_loop()
    monkeypatch.setattr(Manifests, "load", has_a_bug_when_it_is_ended)
    waits = brokers.append(tp, b"a")
    await asyncio.sleep(1)
    monkeypatch.undo()
    await brokers.moved(tp, to=2)
    with pytest.raises(BmqError) as refused:
        await waits
    assert isinstance(refused.value, NotOwner | NotReady)
    await asyncio.sleep(0)
    assert [str(error) for error in told] == ["planted"]
    assert (await brokers.append(tp, b"a")).base_offset == 0
    await brokers.stop()


async def has_a_bug(*_: object, **__: object) -> Loaded:
    raise RuntimeError("planted")


async def has_a_bug_when_it_is_ended(*_: object, **__: object) -> Loaded:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        raise RuntimeError("planted")


def told_to_the_loop() -> list[BaseException]:
    """What its handler of bugs hears from now on."""
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    return told
