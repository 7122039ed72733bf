"""A partition whose opening takes long, because the store is slow for what it left elsewhere, holds up nobody who asks
for others too.
"""

import asyncio

from broker_under_test import small
from held_store import HeldStore
from moving_brokers import Brokers

from bmq.errors import NotOwner, NotReady
from bmq.roles.owner import Appended, TailAnswer, TailRequest
from bmq.values import Offset, TopicPartition
from bmq_broker.broker import READ_PATIENCE_S, STATUS_PATIENCE_S
from bmq_sim.loop import on_virtual_time

LEFT_BY_1 = "wal/0000000001/"
WRITTEN_BY_2 = "wal/0000000002/"


async def with_one_that_is_being_opened(store: HeldStore) -> tuple[Brokers, TopicPartition, TopicPartition]:
    """Broker 2 owns both: `here` with a record, and `moved`, whose records it cannot read yet from what broker 1
    left.
    """
    brokers = Brokers(store)
    await brokers.start(1, 2, 3)
    (moved,) = brokers.controller.create_topic("moved", partitions=1, owner=1)
    (here,) = brokers.controller.create_topic("here", partitions=1, owner=2)
    await brokers.append(moved, b"a")
    await brokers.append(here, b"b")
    store.held.add(LEFT_BY_1)
    await brokers.moved(moved, to=2)
    return brokers, here, moved


def reading(
    brokers: Brokers, *places: tuple[TopicPartition, int], max_wait_ms: int
) -> "asyncio.Task[list[TailAnswer]]":
    """What broker 2 answers."""
    requests = [TailRequest(tp=tp, offset=Offset(offset), max_bytes=1 << 20) for tp, offset in places]
    owner = brokers.roles[2].owner
    return asyncio.ensure_future(owner.read_tail(requests, min_bytes=1, max_bytes=1 << 20, max_wait_ms=max_wait_ms))


def now_s() -> float:
    return asyncio.get_running_loop().time()


@on_virtual_time
async def test_records_of_other_partitions_do_not_wait_for_one_that_is_being_opened() -> None:
    brokers, here, moved = await with_one_that_is_being_opened(HeldStore())
    began_s = now_s()
    answers = await reading(brokers, (here, 0), (moved, 0), max_wait_ms=60_000)
    assert now_s() - began_s < READ_PATIENCE_S + 0.01
    assert [len(answer.batches) for answer in answers] == [1, 0]
    assert isinstance(answers[1].error, NotReady)
    await brokers.stop()


@on_virtual_time
async def test_a_reader_waits_for_records_beside_a_partition_that_is_being_opened_and_no_longer_than_it_asked_for() -> (
    None
):
    brokers, here, moved = await with_one_that_is_being_opened(HeldStore())
    began_s = now_s()
    answers = await reading(brokers, (here, 1), (moved, 0), max_wait_ms=500)
    assert 0.5 <= now_s() - began_s < 0.51
    assert answers[0].error is None
    assert isinstance(answers[1].error, NotReady)
    waits = reading(brokers, (here, 1), (moved, 0), max_wait_ms=60_000)
    await asyncio.sleep(1)
    assert not waits.done()
    await brokers.append(here, b"c")
    assert len((await waits)[0].batches) == 1
    await brokers.stop()


@on_virtual_time
async def test_a_partition_that_opens_while_a_reader_waits_brings_its_records() -> None:
    store = HeldStore()
    brokers, here, moved = await with_one_that_is_being_opened(store)
    waits = reading(brokers, (here, 1), (moved, 0), max_wait_ms=60_000)
    await asyncio.sleep(1)
    assert not waits.done()
    store.let_go(LEFT_BY_1)
    began_s = now_s()
    answers = await waits
    assert now_s() - began_s < 1
    assert [len(answer.batches) for answer in answers] == [0, 1]
    await brokers.stop()


@on_virtual_time
async def test_who_waits_for_a_partition_that_moves_on_unopened_is_sent_elsewhere() -> None:
    brokers, here, moved = await with_one_that_is_being_opened(HeldStore())
    waits = reading(brokers, (here, 1), (moved, 0), max_wait_ms=60_000)
    await asyncio.sleep(1)
    began_s = now_s()
    await brokers.moved(moved, to=3)
    answers = await waits
    assert now_s() - began_s < 1
    assert isinstance(answers[1].error, NotOwner)
    await brokers.stop()


@on_virtual_time
async def test_figures_of_others_are_given_without_those_of_a_partition_that_is_being_opened() -> None:
    brokers, here, moved = await with_one_that_is_being_opened(HeldStore())
    began_s = now_s()
    assert [status.tp for status in await brokers.roles[2].owner.status([moved, here])] == [here]
    assert now_s() - began_s < STATUS_PATIENCE_S + 0.01
    await brokers.stop()


@on_virtual_time
async def test_a_batch_that_is_refused_when_its_partition_opens_is_not_overtaken_by_those_that_waited_behind_it() -> (
    None
):
    store = HeldStore()
    brokers = Brokers(store, settings=small(buffer_max_bytes=10_000))
    await brokers.start(1, 2)
    (moved,) = brokers.controller.create_topic("moved", partitions=1, owner=1)
    (here,) = brokers.controller.create_topic("here", partitions=1, owner=2)
    await numbered(brokers, moved, 0)
    await brokers.append(here, b"a")
    store.held |= {LEFT_BY_1, WRITTEN_BY_2}
    await brokers.moved(moved, to=2)
    waiting = [numbered(brokers, moved, number) for number in (1, 2)]
    fills = brokers.append(here, bytes(11_000))
    store.let_go(LEFT_BY_1)
    await asyncio.wait(waiting, timeout=1)
    assert [type(one.exception()) if one.done() else None for one in waiting] == [NotReady, NotReady]
    store.let_go(WRITTEN_BY_2)
    await fills
    assert [(await numbered(brokers, moved, number)).base_offset for number in (1, 2)] == [1, 2]
    await brokers.stop()


def numbered(brokers: Brokers, tp: TopicPartition, number: int) -> "asyncio.Future[Appended]":
    """A batch of an idempotent producer, of one record."""
    return brokers.append(tp, b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
