"""What a broker says to the controller, what it does when nobody answers, and how it ends."""

import asyncio
import re
from itertools import pairwise

import pytest
from broker_under_test import small
from moving_brokers import Brokers

from bmq.errors import BmqError, NotOwner
from bmq.metadata.image import Image
from bmq.metadata.records import NodeUnregistered
from bmq.roles.controller import PartitionLoad
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

SLOW = StoreFaults(latency_s_min=0.005, latency_s_max=0.02)


async def two_brokers(monkeypatch: pytest.MonkeyPatch, *, reports_max: int) -> Brokers:
    """Whose heartbeats tell of so many closed partitions at most."""
    for module in ("bmq_broker.heartbeats", "bmq_broker.main"):
        monkeypatch.setattr(f"{module}.REPORTS_MAX", reports_max)
    brokers = Brokers()
    await brokers.start(1, 2)
    return brokers


@on_virtual_time
async def test_an_idle_broker_is_heard_at_least_three_times_a_lease_and_no_two_intervals_are_alike() -> None:
    brokers = Brokers()
    await brokers.start(1)
    beats = brokers.controller.beats
    beats.clear()
    times_s: list[float] = []
    for _ in range(600):
        await asyncio.sleep(0.1)
        if len(beats) > len(times_s):
            times_s.append(asyncio.get_running_loop().time())
    gaps = [later - earlier for earlier, later in pairwise(times_s)]
    assert max(gaps) <= 2.1
    assert 28 < len(beats) < 45
    assert len({round(gap, 1) for gap in gaps}) > 2
    await brokers.stop()


@on_virtual_time
async def test_a_broker_goes_on_producing_while_the_controller_cannot_be_reached_and_reports_afterwards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    brokers = Brokers(SimStore(faults=SLOW))
    await brokers.start(1, 2)
    (tp, moving) = brokers.controller.create_topic("orders", partitions=2, owner=1)
    await brokers.append(moving, b"a")
    capsys.readouterr()
    brokers.controller.reachable = False
    brokers.controller.move(moving, to=2)
    for number in range(100):
        assert (await brokers.append(tp, b"x")).base_offset == number
        await asyncio.sleep(1)
    assert capsys.readouterr().out.count("cannot be reached") == 2  # once for each broker
    assert brokers.owner(moving) == 1
    brokers.controller.reachable = True
    await asyncio.wait_for(brokers.until_owned(moving, by=2), 3)
    assert await brokers.read_all(moving) == [(0, b"a")]
    await brokers.stop()


@on_virtual_time
async def test_a_closed_partition_is_reported_at_once() -> None:
    brokers = Brokers()
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    began_s = asyncio.get_running_loop().time()
    await brokers.moved(tp, to=2)
    assert asyncio.get_running_loop().time() - began_s < 0.01
    await brokers.stop()


@on_virtual_time
async def test_more_closed_partitions_than_one_heartbeat_tells_are_told_one_heartbeat_behind_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They take no batches meanwhile: a drain of a hundred thousand held each of them up for twenty seconds."""
    brokers = await two_brokers(monkeypatch, reports_max=2)
    tps = brokers.controller.create_topic("orders", partitions=21, owner=1)
    brokers.controller.lag_s = lambda: 0.01
    began_s = asyncio.get_running_loop().time()
    brokers.controller.beats.clear()
    brokers.controller.move(*tps, to=2)
    for tp in tps:
        await brokers.until_owned(tp, by=2)
    assert asyncio.get_running_loop().time() - began_s < 0.5
    told = [beat for beat in brokers.controller.beats if beat.closed]
    assert len(told) <= 12  # none twice
    await brokers.stop()


@on_virtual_time
async def test_closed_partitions_of_which_nothing_comes_are_told_again_at_the_usual_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = await two_brokers(monkeypatch, reports_max=1)
    brokers.controller.finishes_moves = False
    tps = brokers.controller.create_topic("orders", partitions=3, owner=1)
    brokers.controller.move(*tps, to=2)
    await asyncio.sleep(0.1)
    brokers.controller.beats.clear()
    await asyncio.sleep(20)
    assert len([beat for beat in brokers.controller.beats if beat.node_id == 1]) < 20
    await brokers.stop()


@on_virtual_time
async def test_partitions_that_were_open_are_told_before_those_that_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = await two_brokers(monkeypatch, reports_max=1)
    tps = brokers.controller.create_topic("orders", partitions=4, owner=1)
    await brokers.append(tps[-1], b"a")
    brokers.controller.beats.clear()
    brokers.controller.move(*tps, to=2)
    for tp in tps:
        await brokers.until_owned(tp, by=2)
    told = [closed.tp for beat in brokers.controller.beats for closed in beat.closed]
    assert told.index(tps[-1]) <= 1
    await brokers.stop()


@on_virtual_time
async def test_heartbeats_tell_the_busiest_partitions() -> None:
    brokers = Brokers(settings=small(loads_max=2))
    await brokers.start(1)
    tps = brokers.controller.create_topic("orders", partitions=4, owner=1)
    for _ in range(600):
        for size, tp in zip((100, 1000, 5000), tps, strict=False):
            await brokers.append(tp, bytes(size))
        await asyncio.sleep(0.1)
    loads = brokers.controller.beats[-1].loads
    assert [load.tp for load in loads] == [tps[2], tps[1]]
    assert 40_000 < loads[0].bytes_per_s < 55_000
    assert all(isinstance(load, PartitionLoad) for load in loads)
    await asyncio.sleep(200)
    assert brokers.controller.beats[-1].loads == ()
    await brokers.stop()


@on_virtual_time
async def test_a_broker_tells_what_keeps_it_from_writing_until_it_writes_again() -> None:
    brokers = Brokers()
    await brokers.start(1)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    brokers.store.outage(60)
    appended = asyncio.ensure_future(brokers.append(tp, b"b"))
    await asyncio.sleep(4)
    assert brokers.controller.beats[-1].trouble == "", "a moment is nothing to tell"
    await asyncio.sleep(41)
    assert re.fullmatch(r"cannot write to the store for 4\d s: .+", brokers.controller.beats[-1].trouble)
    await appended
    await asyncio.sleep(3)
    assert brokers.controller.beats[-1].trouble == ""
    await brokers.stop()


@on_virtual_time
async def test_a_broker_that_is_told_that_it_is_not_registered_any_more_throws_its_state_away() -> None:
    brokers = Brokers()
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.controller.fence(1)
    await asyncio.sleep(0)
    assert [node for node, _ in brokers.fenced] == [1]
    with pytest.raises(BmqError):
        await brokers.append(tp, b"lost", node=1)
    assert await brokers.read_all(tp) == [(0, b"a")]
    await brokers.stop()


@on_virtual_time
async def test_a_broker_waits_for_its_own_registration_to_come_to_its_image() -> None:
    brokers = Brokers()
    await brokers.start(1)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.roles[1].kill()
    role = await brokers.make(1)
    feed = brokers.controller.feed(1)
    held: list[Image] = []
    feed.publish = held.append  # type: ignore[method-assign]
    starting = asyncio.ensure_future(role.start())
    await asyncio.sleep(5)
    assert not starting.done()
    del feed.publish  # type: ignore[method-assign]
    feed.publish(held[-1])
    await starting
    brokers.roles[1] = role
    assert await brokers.read_all(tp) == [(0, b"a")]
    await brokers.stop()


@on_virtual_time
async def test_a_hand_over_rolls_larger_tails_and_leaves_the_rest_to_the_heirs() -> None:
    brokers = Brokers(SimStore(faults=SLOW))
    await brokers.start(1, 2)
    (large, small_one) = brokers.controller.create_topic("orders", partitions=2, owner=1)
    await asyncio.gather(*(brokers.append(large, bytes(300_000)) for _ in range(4)))
    await brokers.append(small_one, b"a")
    waiting = asyncio.ensure_future(brokers.tail(small_one, 1, node=1, max_wait_ms=60_000))
    await asyncio.sleep(0.1)
    await brokers.roles[1].hand_over()
    with pytest.raises(NotOwner):
        await waiting
    with pytest.raises(NotOwner):
        await brokers.append(small_one, b"b", node=1)
    assert brokers.owner(large) == brokers.owner(small_one) == 2
    assert [key for key in brokers.store.keys("topics/") if "/segment/" in key]
    assert (await brokers.append_wherever(small_one, b"b")).base_offset == 1
    assert (await brokers.append_wherever(large, b"b")).base_offset == 4
    await brokers.roles[1].stop()
    assert brokers.fenced == []
    await asyncio.sleep(30)
    assert len(await brokers.read_all(large)) == 5
    await brokers.stop()


@on_virtual_time
async def test_a_broker_whose_node_was_unregistered_has_nothing_to_say() -> None:
    brokers = Brokers()
    await brokers.start(1)
    node = next(iter(brokers.controller.image.nodes.values()))
    brokers.controller.commit(NodeUnregistered(node_id=1, broker_epoch=node.broker_epoch))
    await asyncio.sleep(0)
    assert brokers.fenced
    await brokers.stop()
