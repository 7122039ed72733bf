"""A broker that stops tells a controller so, also where the leading one is being replaced at that moment; a partition
that cannot be read stops.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest
from broker_under_test import Cluster
from held_store import HeldStore
from moving_brokers import Brokers

from bmq.errors import PartitionStopped
from bmq_broker.ownership.handover import REPORT_S, sign_off
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time


@on_virtual_time
async def test_a_stop_is_told_to_the_next_leader_and_no_lease_has_to_run_out() -> None:
    brokers = Brokers()
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    brokers.controller.reachable = False
    stopping = asyncio.ensure_future(brokers.roles[1].stop())
    await asyncio.sleep(3)
    assert not stopping.done()
    brokers.controller.reachable = True
    await stopping
    assert brokers.owner(tp) == 2
    assert await brokers.read_all(tp) == [(0, b"a")]
    await brokers.stop()


@on_virtual_time
async def test_a_stop_that_nobody_hears_ends_all_the_same() -> None:
    brokers = Brokers()
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    brokers.controller.reachable = False
    async with asyncio.timeout(REPORT_S + 1):
        await brokers.roles[1].stop()
    assert brokers.owner(tp) == 1
    await brokers.stop()


@on_virtual_time
async def test_a_roll_that_breaks_down_does_not_keep_a_stop_from_handing_over() -> None:
    brokers = Brokers(settings=BrokerSettings(stop_roll_bytes=1))
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")

    async def roll_to(*_: object) -> None:
        raise TypeError("a bug")

    brokers.roles[1]._roller.roll_to = roll_to  # type: ignore[method-assign, assignment]
    await brokers.roles[1].stop()
    assert brokers.owner(tp) == 2
    assert await brokers.read_all(tp) == [(0, b"a")]
    await brokers.stop()


@on_virtual_time
async def test_a_stop_does_not_stand_still_for_a_roll_in_the_background() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (large,) = brokers.controller.create_topic("large", partitions=1, owner=1, configs={"segment.bytes": "65536"})
    (small_one,) = brokers.controller.create_topic("small", partitions=1, owner=1)
    await brokers.append(small_one, b"a")
    store.held.add("/segment/")
    await brokers.append(large, bytes(70_000))  # a whole segment
    await asyncio.sleep(0.1)
    assert brokers.roles[1]._roller._tasks
    stopping = asyncio.ensure_future(brokers.roles[1].stop())
    await asyncio.sleep(0.5)
    assert stopping.done()
    assert (await brokers.append_wherever(small_one, b"b")).base_offset == 1
    store.let_go("/segment/")
    assert [offset for offset, _ in await brokers.read_all(large)] == [0]
    await asyncio.sleep(30)
    assert [offset for offset, _ in await brokers.read_all(large)] == [0]
    assert brokers.fenced == []
    await brokers.stop()


@on_virtual_time
async def test_the_wal_of_a_newer_bmq_stops_its_partitions_alone_and_says_upgrade() -> None:
    cluster = Cluster()
    await cluster.start()
    (newer,) = await cluster.topic("orders")
    await cluster.append(newer, b"a")
    first = cluster.store.keys("wal/")[0]
    await cluster.append(newer, b"b")  # its stream still ends with what any bmq can read, and so can be sealed
    await cluster.kill()
    stored = cluster.store.objects[first]
    cluster.store.objects[first] = replace(stored, data=stored.data[:4] + (999).to_bytes(2, "big") + stored.data[6:])
    await cluster.start("older")
    with pytest.raises(PartitionStopped, match=r"version 999 .* upgrade it$"):
        await cluster.append(newer, b"c")
    (other,) = await cluster.topic("others")
    await cluster.append(other, b"d")
    assert await cluster.read_all(other) == [(0, b"d")]
    await cluster.stop()


def test_a_sign_off_that_cannot_begin_leaves_nothing_that_was_never_awaited() -> None:
    """As where a start is closed after its loop has ended."""
    begun = []

    async def hand_over() -> None: ...

    def begin() -> Coroutine[None, None, None]:
        begun.append(True)
        return hand_over()

    with pytest.raises(RuntimeError, match="no running event loop"):
        sign_off(begin).send(None)
    assert begun == []
