"""What a manifest names no more is given up, and nothing else: through pages, and when a version comes to stand after
its partition has left.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from broker_under_test import Cluster
from held_store import HeldStore
from moving_brokers import Brokers

from bmq.errors import BmqError, Fenced, UnknownOutcome
from bmq.storage.keys import manifest_page_prefix, manifest_prefix, segment_prefix
from bmq.storage.manifest import Manifest
from bmq.storage.manifest_format import check_page
from bmq.storage.numbered import numbered_key
from bmq.values import Offset, TopicPartition
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore

PAGED = BrokerSettings(manifest_entries_max=6, merge_count=1000)
LATER_S = 4_000.0
"""Longer than readers may still want what was given up."""


def missing_of(store: SimStore, tp: TopicPartition, manifest: Manifest) -> list[str]:
    """What a manifest names, on its pages too, and the store has not."""
    names = set(manifest.keys())
    for page in manifest.pages:
        if page.key in store.objects:
            names |= {entry.key for entry in check_page(page, tp, store.objects[page.key].data)}
    return sorted(names - set(store.objects))


@pytest.mark.parametrize("how", ["bytes", "time", "delete-records"])
def test_a_log_start_at_an_entry_of_a_page_keeps_everything_from_there_on(how: str) -> None:
    @on_virtual_time
    async def run() -> None:
        configs = {"bytes": {"retention.bytes": "2000"}, "time": {"retention.ms": "3600000"}, "delete-records": {}}[how]
        cluster = Cluster(settings=PAGED)
        await cluster.start()
        (tp,) = await cluster.topic("orders", configs=configs | {"segment.ms": "604800000"})
        partition = await cluster.broker._ownership.open(tp)
        for number in range(40):
            await cluster.append(tp, b"%04d" % number)
            await cluster.roll(tp)
            if how == "time":
                await asyncio.sleep(150)
        if how == "delete-records":
            await cluster.broker.owner.delete_records(tp, Offset(14))
        await asyncio.sleep(LATER_S if how != "time" else 1_000)
        manifest = partition.manifest
        assert manifest.pages
        assert 0 < manifest.log_start < 40
        assert missing_of(cluster.store, tp, manifest) == []
        first = manifest.log_start
        assert await cluster.read_all(tp) == [(number, b"%04d" % number) for number in range(first, 40)]
        await asyncio.sleep(LATER_S if how != "time" else 0)
        if how != "time":  # there, some of it was given up a moment ago
            assert len(cluster.store.keys(segment_prefix(tp))) == manifest.segment_count
            assert len(cluster.store.keys(manifest_page_prefix(tp))) == len(manifest.pages)
        await cluster.kill()

    run()


@on_virtual_time
async def test_a_log_start_beyond_whole_pages_gives_up_what_they_name() -> None:
    cluster = Cluster(settings=PAGED)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for number in range(30):
        await cluster.append(tp, b"%d" % number)
        await cluster.roll(tp)
    partition = await cluster.broker._ownership.open(tp)
    assert len(partition.manifest.pages) >= 3
    await cluster.broker.owner.delete_records(tp, Offset(28))
    await asyncio.sleep(LATER_S)
    assert len(cluster.store.keys(segment_prefix(tp))) == 2
    assert cluster.store.keys(manifest_page_prefix(tp)) == []
    assert await cluster.read_all(tp) == [(28, b"28"), (29, b"29")]
    await cluster.kill()


@on_virtual_time
async def test_what_a_page_that_cannot_be_read_names_goes_with_the_page_in_the_end() -> None:
    cluster = Cluster(settings=replace(PAGED, collect_again_ms=10_000))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for number in range(20):
        await cluster.append(tp, b"%d" % number)
        await cluster.roll(tp)
    partition = await cluster.broker._ownership.open(tp)
    lost = partition.manifest.pages[0]
    cluster.store.apply_delete("disaster", lost.key)
    # in its middle: it cannot be written again
    await cluster.broker.owner.delete_records(tp, Offset(lost.base_offset + 1))
    await asyncio.sleep(LATER_S)
    assert partition.manifest.pages[0] == lost
    assert missing_of(cluster.store, tp, partition.manifest) == [lost.key]
    await cluster.broker.owner.delete_records(tp, Offset(lost.last_offset + 1))
    await asyncio.sleep(LATER_S)
    assert missing_of(cluster.store, tp, partition.manifest) == []
    assert len(cluster.store.keys(segment_prefix(tp))) == partition.manifest.segment_count
    await cluster.kill()


Work = Callable[[Brokers, TopicPartition], Coroutine[Any, Any, Any]]


async def _delete_records(brokers: Brokers, tp: TopicPartition) -> None:
    await brokers.roles[1].owner.delete_records(tp, Offset(3))


async def _merge(brokers: Brokers, tp: TopicPartition) -> None:
    role = brokers.roles[1]
    role._upkeep._merger._settings = replace(brokers.settings, merge_count=2)
    if await role._upkeep._merger.merge(role._ownership.partitions[tp]):
        raise UnknownOutcome("merged")  # the partition has left: what the merge names its heir learns in time


async def _save(brokers: Brokers, tp: TopicPartition) -> None:
    role = brokers.roles[1]
    partition = role._ownership.partitions[tp]
    await role._coordinators._snapshots.save(partition, partition.high_watermark, b"newer")
    raise UnknownOutcome("saved")


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("work", [_delete_records, _merge, _save])
def test_a_version_that_comes_to_stand_after_its_partition_has_moved_gives_up_nothing(work: Work, pages: bool) -> None:
    @on_virtual_time
    async def run() -> None:
        store = HeldStore()
        brokers = Brokers(store, settings=replace(PAGED, manifest_entries_max=6 if pages else 1024))
        await brokers.start(1, 2)
        (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
        for number in range(8):
            await brokers.append(tp, b"%d" % number)
            await brokers.roll(tp)
        partition = brokers.roles[1]._ownership.partitions[tp]
        await brokers.roles[1]._coordinators._snapshots.save(partition, partition.high_watermark, b"older")
        await brokers.roles[1].owner.delete_records(tp, Offset(1))
        version = f"node-1:{numbered_key(manifest_prefix(tp), partition.manifest_version + 1)}"
        store.held.add(version)
        working = asyncio.ensure_future(work(brokers, tp))
        await asyncio.sleep(0.1)
        await brokers.moved(tp, to=2)
        everything = [(number, b"%d" % number) for number in range(1, 8)]
        assert await brokers.read_all(tp) == everything
        heir = brokers.roles[2]._ownership.partitions[tp]
        named = heir.manifest
        store.let_go(version)
        with pytest.raises(BmqError):
            await working
        await asyncio.sleep(LATER_S)
        assert heir.manifest == named, "nobody writes: the heir has no reason to look"
        assert missing_of(store, tp, named) == []
        assert await brokers.read_all(tp) == everything
        await brokers.append(tp, b"8")
        await brokers.roll(tp)
        await asyncio.sleep(LATER_S)
        assert missing_of(store, tp, heir.manifest) == []
        first = heir.manifest.log_start
        assert await brokers.read_all(tp) == [each for each in [*everything, (8, b"8")] if each[0] >= first]
        found = await _named_segments(store, tp, heir.manifest)
        assert set(store.keys(segment_prefix(tp))) == found, (
            "what the late version named no more goes with the heir's first one"
        )
        await brokers.stop()

    run()


async def _named_segments(store: SimStore, tp: TopicPartition, manifest: Manifest) -> set[str]:
    entries = [entry for page in manifest.pages for entry in check_page(page, tp, store.objects[page.key].data)]
    return {entry.key for entry in (*entries, *manifest.entries)}


@on_virtual_time
async def test_an_owner_that_was_replaced_and_does_not_know_deletes_nothing_that_it_gave_up() -> None:
    store = SimStore()
    brokers = Brokers(
        store, settings=replace(PAGED, segment_linger_ms=0, lease_ms=10_000_000, upkeep_interval_ms=10_000_000)
    )
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    for number in range(8):
        await brokers.append(tp, b"%d" % number)
        await brokers.roll(tp)
    old = brokers.roles[1]
    brokers.controller.feed(1).publish = lambda image: None  # type: ignore[method-assign]
    await brokers.controller.fence(1)
    heir = await brokers.roles[2]._ownership.open(tp)
    await old._upkeep._retention.raise_log_start(old._ownership.partitions[tp], Offset(5))
    with pytest.raises(Fenced):
        await old._upkeep._garbage.sweep()
    assert missing_of(store, tp, heir.manifest) == []
    assert await brokers.read_all(tp) == [(number, b"%d" % number) for number in range(8)]
    await brokers.stop()
