"""Batches that wait for a place among the creates in flight: each becomes durable in order, whatever is asked about it
meanwhile.
"""

import asyncio

import pytest
from broker_under_test import Cluster, image_with, partition_log, small
from held_store import HeldStore

from bmq.errors import BmqError, NotOwner, UnknownOutcome
from bmq.metadata.records import PartitionChange
from bmq.roles.owner import Appended
from bmq.storage.numbered import wal_key
from bmq.values import TopicPartition
from bmq_broker.wal.commit import BUFFER_MAX_FLUSHES
from bmq_sim.loop import on_virtual_time

FLUSH_BYTES = 1_000


class Slow:
    """One create in flight at a time, each until the test lets it go. `quiet` has one batch, in the first of the
    buffers that are full.
    """

    async def begin(self) -> None:
        self.store = HeldStore()
        settings = small(
            in_flight_max=1,
            flush_bytes=FLUSH_BYTES,
            tail_budget_bytes=100_000,
            tail_limit_bytes=100_000,
            wal_budget_bytes=100_000,
        )
        self.cluster = Cluster(self.store, settings=settings)
        await self.cluster.start()
        self.busy, self.quiet = await self.cluster.topic("orders", partitions=2)
        for tp in (self.busy, self.quiet):
            await self.cluster.append(tp, b"opened")
        self.first = self.cluster.broker._writer.durable_below
        self.store.held |= {self.key(at) for at in range(10)}
        self.flying = self.numbered(self.busy, 0)
        self.waiting = self.numbered(self.quiet, 0)
        self.behind = [self.numbered(self.busy, 1 + number) for number in range(2 * BUFFER_MAX_FLUSHES)]
        await asyncio.sleep(1)
        quiet = await self.cluster.broker._ownership.open(self.quiet)
        assert quiet.appended_slot is not None
        assert quiet.appended_slot is self.cluster.broker._commit._full[0].slot

    def key(self, at: int) -> str:
        """Of the object that is sent so many after the first one."""
        return wal_key(self.cluster.broker.stream, self.first + at)

    def numbered(self, tp: TopicPartition, number: int) -> "asyncio.Future[Appended]":
        return self.cluster.append(tp, bytes(FLUSH_BYTES), producer_id=7, producer_epoch=0, base_sequence=number)

    async def let_go(self, at: int) -> None:
        self.store.let_go(self.key(at))
        await asyncio.sleep(1)


@on_virtual_time
async def test_a_copy_of_a_batch_in_a_full_buffer_is_answered_once_that_is_durable_and_no_later() -> None:
    slow = Slow()
    await slow.begin()
    copy = slow.numbered(slow.quiet, 0)
    await slow.let_go(0)
    assert slow.flying.done()
    assert not copy.done()
    await slow.let_go(1)
    assert (await copy).base_offset == (await slow.waiting).base_offset == 1
    assert not slow.behind[-1].done()
    for at in range(2, 10):
        await slow.let_go(at)
    assert [(await one).base_offset for one in slow.behind] == list(range(2, 2 + len(slow.behind)))
    await slow.cluster.stop()


@on_virtual_time
async def test_what_a_killed_broker_had_in_full_buffers_is_unknown_to_all_who_wait_for_it() -> None:
    slow = Slow()
    await slow.begin()
    copy = slow.numbered(slow.quiet, 0)
    await slow.cluster.kill()
    for one in (slow.flying, slow.waiting, copy, *slow.behind):
        with pytest.raises(UnknownOutcome):
            await one
    slow.store.held.clear()
    await slow.cluster.start("again")
    assert (await slow.cluster.append(slow.quiet, b"then")).base_offset == 1
    await slow.cluster.stop()


@on_virtual_time
async def test_a_coordinators_records_are_refused_once_its_partition_has_left() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"opened")
    log, image = partition_log(cluster, tp), cluster.controller.metadata.image
    meta = image.partition(tp)
    assert meta is not None
    change = PartitionChange(
        topic_id=tp.topic_id, partition=tp.partition, node_id=9, broker_epoch=9, leader_epoch=meta.leader_epoch + 1
    )
    cluster.broker._image_changed(image, image_with(image, change))
    with pytest.raises(NotOwner):
        await log.append([(b"key", b"value")])
    assert log.end_offset() == 1
    cluster.broker._ended.fence(NotOwner("over"))
    cluster.broker._commit.end()
    with pytest.raises(BmqError, match="over"):
        await log.append([(b"key", b"value")])
    await cluster.kill()
