"""Partitions that do not begin at 0: a lane's own of a topic of the base that its clients have read."""

import pytest
from broker_under_test import Cluster, small

from bmq.config.topic_config import READING_LANES_FIRST_OFFSET as FIRST
from bmq.roles.controller import NewTopic
from bmq.values import TopicPartition
from bmq_broker.ownership import ownership
from bmq_controller.machine.lanes import LaneWanted
from bmq_sim.loop import on_virtual_time


async def overlay(cluster: Cluster) -> TopicPartition:
    await cluster.topic("orders")
    wanted = LaneWanted(name="dev", reads_base=("*",), reads_base_bytes_per_s=1_000_000)
    await cluster.controller.controller.create_lane(wanted)
    (made,) = await cluster.controller.controller.create_topics([NewTopic(name="orders", lane="dev")])
    assert made.topic_id is not None
    return TopicPartition(made.topic_id, 0)


@on_virtual_time
async def test_it_begins_there_through_deaths_rolls_and_deleted_records() -> None:
    cluster = Cluster(settings=small())
    await cluster.start()
    tp = await overlay(cluster)
    assert (await cluster.append(tp, b"a")).base_offset == FIRST
    await cluster.append(tp, b"b")
    await cluster.kill()
    await cluster.start("again")
    assert await cluster.read_all(tp) == [(FIRST, b"a"), (FIRST + 1, b"b")]
    await cluster.roll(tp)
    await cluster.append(tp, b"c")
    await cluster.kill()
    await cluster.start("and again")
    assert await cluster.read_all(tp) == [(FIRST, b"a"), (FIRST + 1, b"b"), (FIRST + 2, b"c")]
    assert await cluster.broker.owner.delete_records(tp, FIRST + 2) == FIRST + 2  # type: ignore[arg-type]
    assert (await cluster.append(tp, b"d")).base_offset == FIRST + 3
    assert await cluster.read_all(tp) == [(FIRST + 2, b"c"), (FIRST + 3, b"d")]
    await cluster.stop()


@on_virtual_time
async def test_what_an_earlier_version_began_at_0_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    await cluster.start()
    with monkeypatch.context() as earlier:
        earlier.setattr(ownership, "begins_at", lambda first_offset, written: 0)
        tp = await overlay(cluster)
        await cluster.append(tp, b"a")
        await cluster.kill()
    await cluster.start("newer")
    assert await cluster.read_all(tp) == [(0, b"a")]
    assert (await cluster.append(tp, b"b")).base_offset == 1
    await cluster.stop()
