"""A roll while an earlier owner, who was asleep, still writes versions of the manifest: each one counts, and no record
is lost or named twice.
"""

import asyncio
from dataclasses import replace

import pytest
from broker_under_test import Cluster

from bmq.storage.keys import manifest_prefix, segment_prefix
from bmq.values import TopicPartition
from bmq_broker.segments.manifests import ManifestMoved
from bmq_broker.segments.roll_writing import ATTEMPTS_MAX
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import Request

RECORDS = ATTEMPTS_MAX + 3


class Asleep:
    """An earlier owner whose creates of versions were sent long ago: each arrives just before another's create of that
    number.
    """

    def __init__(self, cluster: Cluster, versions: dict[str, bytes]) -> None:
        self._cluster = cluster
        self.versions = versions

    def began(self, request: Request) -> None:
        if request.verb == "create" and request.key in self.versions:
            self._cluster.store.apply_create("asleep", request.key, self.versions.pop(request.key))

    def ended(self, request: Request) -> None:
        pass


async def rolled_asleep(cluster: Cluster, tp: TopicPartition, *, versions: int) -> Asleep:
    """The owner is killed after so many rolls of a record each, of which the segments are there, and the versions of
    the manifest on their way.
    """
    for number in range(RECORDS):
        await cluster.append(tp, b"%d" % number)
    store = cluster.store
    partition = await cluster.broker._ownership.open(tp)
    partition.config = replace(partition.config, segment_bytes=1)
    cluster.broker._writer.checkpoint = lambda number: None  # type: ignore[method-assign]  # no version is there yet: all of the WAL is
    writer, manifests = cluster.broker._roller._writer, cluster.broker._manifests
    for _ in range(versions):
        async with manifests.lock(tp):
            assert await writer.roll(partition, "test")
    await cluster.kill()
    late = {key: store.objects[key].data for key in store.keys(manifest_prefix(tp))}
    assert len(late) == versions
    for key in late:
        store.apply_delete("not there yet", key)
    store.deleted -= set(late)
    return Asleep(cluster, late)


@on_virtual_time
async def test_a_roll_that_is_overtaken_as_often_as_it_tries_gives_up_and_the_next_one_rolls_what_is_left() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    asleep = await rolled_asleep(cluster, tp, versions=ATTEMPTS_MAX)
    await cluster.start("heir")
    everything = [(number, b"%d" % number) for number in range(RECORDS)]
    assert await cluster.read_all(tp) == everything
    cluster.store.watcher = asleep
    partition = await cluster.broker._ownership.open(tp)
    with pytest.raises(ManifestMoved, match=f"moved {ATTEMPTS_MAX} times"):
        await cluster.roll(tp)
    assert asleep.versions == {}
    assert partition.unnamed is None
    assert partition.tail_start == ATTEMPTS_MAX
    assert [entry.base_offset for entry in partition.manifest.entries] == list(range(ATTEMPTS_MAX))
    assert await cluster.read_all(tp) == everything
    await cluster.roll(tp)
    assert partition.tail_start == RECORDS
    assert await cluster.read_all(tp) == everything
    await cluster.kill()
    await cluster.start("later")
    assert await cluster.read_all(tp) == everything
    await cluster.stop()


@on_virtual_time
async def test_a_roll_that_gave_up_is_tried_again_by_itself_and_what_it_wrote_in_vain_is_collected() -> None:
    cluster = Cluster(settings=BrokerSettings(segment_linger_ms=1_000, collect_again_ms=10_000, merge_count=1_000))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    asleep = await rolled_asleep(cluster, tp, versions=ATTEMPTS_MAX)
    await cluster.start("heir")
    cluster.store.watcher = asleep
    partition = await cluster.broker._ownership.open(tp)
    assert cluster.broker._roller.start(partition, "test")
    await asyncio.sleep(600)
    assert asleep.versions == {}
    assert partition.tail_start == RECORDS
    assert await cluster.read_all(tp) == [(number, b"%d" % number) for number in range(RECORDS)]
    assert sorted(cluster.store.keys(segment_prefix(tp))) == sorted(entry.key for entry in partition.manifest.entries)
    await cluster.stop()
