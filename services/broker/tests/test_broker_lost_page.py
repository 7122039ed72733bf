"""A page of a partition's manifest that is lost, where retention wants to look into it: what is old goes all the same,
page by page.
"""

import asyncio

import pytest
from broker_under_test import Cluster

from bmq.storage.keys import manifest_page_prefix, segment_prefix
from bmq.values import Offset, TopicPartition
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time

MINUTE_S = 60
PAGED = BrokerSettings(
    manifest_entries_max=4, merge_count=1000, retention_interval_ms=1_000, collect_again_ms=1_440_000
)


async def with_pages(**configs: str) -> tuple[Cluster, TopicPartition]:
    """A record a minute, each in a segment of its own; the older ones on pages."""
    cluster = Cluster(settings=PAGED)
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={name.replace("_", "."): value for name, value in configs.items()})
    for number in range(8):
        await cluster.append(tp, b"%d" % number)
        await cluster.roll(tp)
        await asyncio.sleep(MINUTE_S)
    assert cluster.store.keys(manifest_page_prefix(tp))
    return cluster, tp


@pytest.mark.parametrize("how", ["lost", "damaged"])
@on_virtual_time
async def test_retention_goes_on_though_the_first_page_cannot_be_read(how: str) -> None:
    cluster, tp = await with_pages(retention_ms=str(9 * MINUTE_S * 1_000 + 1))
    partition = await cluster.broker._ownership.open(tp)
    first = partition.manifest.pages[0]
    cluster.store.apply_delete("a bad disk", first.key)
    if how == "damaged":
        cluster.store.apply_create("a bad disk", first.key, b"no page")
    await asyncio.sleep(MINUTE_S)
    assert partition.log_start == 0, "what is old is on a page with what is not"
    await asyncio.sleep(6 * MINUTE_S)
    assert partition.log_start > first.last_offset
    await asyncio.sleep(10 * MINUTE_S)
    assert partition.log_start == Offset(8)
    assert (await cluster.append(tp, b"8")).base_offset == 8
    await cluster.roll(tp)
    await cluster.stop()
    await cluster.start("again")
    assert await cluster.read_all(tp) == [(8, b"8")]
    await cluster.stop()


@on_virtual_time
async def test_what_a_lost_page_named_is_collected_once_the_log_start_has_passed_it() -> None:
    cluster, tp = await with_pages(retention_ms=str(9 * MINUTE_S * 1_000 + 1))
    partition = await cluster.broker._ownership.open(tp)
    cluster.store.apply_delete("a bad disk", partition.manifest.pages[0].key)
    await asyncio.sleep(20 * MINUTE_S)
    await cluster.append(tp, b"8")
    await cluster.roll(tp)
    await asyncio.sleep(50 * MINUTE_S)
    assert len(cluster.store.keys(segment_prefix(tp))) <= 1
    await cluster.stop()
