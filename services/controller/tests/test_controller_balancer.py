"""The balancer of the leading controller, at the interval that `bmq server` has: what it leaves alone, what it evens
out, and that it ends.
"""

import asyncio
from collections.abc import Mapping
from random import Random

import pytest
from controllers_in_memory import Controllers, SimBroker

from bmq.metadata.image import Image
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic, PartitionLoad
from bmq.values import NodeId, TopicPartition
from bmq_controller.settings import ControllerSettings
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.store import SimStore, StoreFaults

FAST = StoreFaults(latency_s_min=0.005, latency_s_max=0.05)
BALANCED = ControllerSettings(balance_interval_s=1.0)
RESTED_S = 65
"""A partition rests for a minute where it came to."""


async def started(
    loop: VirtualLoop, *node_ids: int, pools: Mapping[int, str] | None = None
) -> tuple[Controllers, dict[int, SimBroker]]:
    controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST), settings=BALANCED)
    controllers.start(1)
    await controllers.until_led()
    brokers = {}
    for node_id in node_ids:
        brokers[node_id] = await joined(controllers, node_id, pool=(pools or {}).get(node_id, ""))
    return controllers, brokers


async def joined(controllers: Controllers, node_id: int, *, pool: str = "") -> SimBroker:
    broker = SimBroker(controllers, node_id, pool=pool)
    broker.lets_go()
    await broker.registered()
    return broker


async def create(controllers: Controllers, *topics: NewTopic) -> None:
    for result in await controllers.ask(lambda controller: controller.create_topics(topics)):
        assert result.error is None


def writes(brokers: Mapping[int, SimBroker], image: Image, bytes_per_s: Mapping[TopicPartition, float]) -> None:
    """From now on each broker reports what is written to the partitions that it owns."""
    for node_id, broker in brokers.items():
        mine = {
            tp: load
            for tp, load in bytes_per_s.items()
            if (meta := image.partition(tp)) is not None and meta.node_id == node_id
        }
        broker.loads = tuple(PartitionLoad(tp=tp, bytes_per_s=load) for tp, load in mine.items())


def bytes_of(image: Image, bytes_per_s: Mapping[TopicPartition, float]) -> dict[int, float]:
    """What each broker takes."""
    found: dict[int, float] = dict.fromkeys(
        (node_id for node_id, node in image.nodes.items() if "broker" in node.roles), 0.0
    )
    for tp, load in bytes_per_s.items():
        meta = image.partition(tp)
        assert meta is not None
        found[meta.node_id] += load
    return found


async def moves_within(controllers: Controllers, seconds: float) -> int:
    """How many moves begin."""
    [leader] = controllers.leading()
    begun = 0

    def changed(old: Image, new: Image) -> None:
        nonlocal begun
        begun += len(new.moving.keys() - old.moving.keys())

    unsubscribe = controllers.roles[leader].metadata.subscribe(changed)
    await asyncio.sleep(seconds)
    unsubscribe()
    return begun


def test_an_idle_cluster_and_a_single_broker_make_no_moves() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        for node_ids in ((11,), (11, 12, 13)):
            controllers, _ = await started(loop, *node_ids)
            await create(
                controllers,
                NewTopic(name="a", partitions=7),
                NewTopic(name="b", partitions=1),
                NewTopic(name="c", partitions=12),
            )
            assert await moves_within(controllers, 300) == 0

    run(main(), loop=loop)


def test_loads_that_change_a_little_move_nothing() -> None:
    loop = VirtualLoop()
    dice = Random(3)

    async def main() -> None:
        controllers, brokers = await started(loop, 11, 12, 13)
        await create(controllers, NewTopic(name="a", partitions=24))
        image = await controllers.image()
        tps = [TopicPartition(image.topic_ids["a"], index) for index in range(24)]
        began = asyncio.ensure_future(moves_within(controllers, 300))
        for _ in range(150):
            writes(brokers, image, {tp: 1e6 * (0.9 + 0.2 * dice.random()) for tp in tps})
            await asyncio.sleep(2)
        assert await began == 0

    run(main(), loop=loop)


def test_a_broker_that_joins_a_loaded_cluster_evens_bytes_within_a_tenth_in_half_a_minute_and_then_nothing_moves() -> (
    None
):
    loop = VirtualLoop()
    dice = Random(5)

    async def main() -> None:
        controllers, brokers = await started(loop, 11, 12)
        await create(controllers, NewTopic(name="a", partitions=40), NewTopic(name="b", partitions=40))
        image = await controllers.image()
        load = {
            TopicPartition(image.topic_ids[name], index): 1e5 * (1 + dice.random())
            for name in ("a", "b")
            for index in range(40)
        }
        writes(brokers, image, load)
        await asyncio.sleep(RESTED_S)
        brokers[13] = await joined(controllers, 13)

        async def follow_the_owners() -> None:
            while True:
                writes(brokers, await controllers.image(), load)
                await asyncio.sleep(0.5)

        following = asyncio.ensure_future(follow_the_owners())
        await asyncio.sleep(30)
        shares = bytes_of(await controllers.image(), load)
        mean = sum(shares.values()) / 3
        assert all(abs(share - mean) <= 0.1 * mean for share in shares.values()), shares
        assert await moves_within(controllers, 300) <= 20, "counts are evened out as far as bytes stay even"
        assert await moves_within(controllers, 300) == 0
        following.cancel()

    run(main(), loop=loop)


def test_a_topic_that_is_pinned_while_it_is_in_use_moves_to_its_pool() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers, _ = await started(loop, 11, 12, 21, pools={21: "gold"})
        await create(
            controllers,
            NewTopic(name="a", partitions=6),
            NewTopic(name="b", partitions=2, configs={"bmq.pool": "gold"}),
        )
        image = await controllers.image()
        assert image.owned_counts == {11: 3, 12: 3, 21: 2}
        resource, pin = (
            ConfigResource(kind="topic", name="a"),
            ConfigChange(name="bmq.pool", operation="set", value="gold"),
        )
        await controllers.ask(lambda controller: controller.alter_configs(resource, [pin]))
        topic = image.topic_ids["a"]
        await controllers.until(
            lambda image: {meta.node_id for meta in image.topics[topic].partitions} == {NodeId(21)}, within_s=10
        )
        assert await moves_within(controllers, 200) == 0

    run(main(), loop=loop)


def test_a_dead_broker_that_nobody_can_inherit_keeps_no_other_pool_from_being_balanced_under_a_new_leader() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers, brokers = await started(loop, 11, 12, 21, pools={21: "gold"})
        await create(
            controllers,
            NewTopic(name="a", partitions=12),
            NewTopic(name="b", partitions=2, configs={"bmq.pool": "gold"}),
        )
        loop.kill(brokers.pop(21).process)
        await controllers.stop(1)
        controllers.start(2)
        await controllers.until_led(by_other_than=1)
        brokers[13] = await joined(controllers, 13)
        await controllers.until(lambda image: image.owned_counts.get(NodeId(13), 0) == 4, within_s=RESTED_S)
        assert (await controllers.image()).owned_counts == {11: 4, 12: 4, 13: 4, 21: 2}

    run(main(), loop=loop)


def test_a_broker_that_is_silent_and_spared_gets_nothing() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers, brokers = await started(loop, 11, 12, 21, pools={21: "gold"})
        await create(
            controllers,
            NewTopic(name="a", partitions=6),
            NewTopic(name="b", partitions=2, configs={"bmq.pool": "gold"}),
        )
        loop.kill(brokers[21].process)
        await asyncio.sleep(10)
        resource, pin = (
            ConfigResource(kind="topic", name="a"),
            ConfigChange(name="bmq.pool", operation="set", value="gold"),
        )
        await controllers.ask(lambda controller: controller.alter_configs(resource, [pin]))
        assert await moves_within(controllers, 30) == 0
        assert (await controllers.image()).owned_counts == {11: 3, 12: 3, 21: 2}

    run(main(), loop=loop)


def test_a_broker_that_stops_soon_gets_nothing_inherits_nothing_and_is_not_emptied_move_by_move() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers, brokers = await started(loop, 11, 12, 13)
        await create(controllers, NewTopic(name="a", partitions=9))
        brokers[11].draining = True
        await brokers[11].beat()
        await create(controllers, NewTopic(name="b", partitions=4))
        image = await controllers.image()
        assert image.owned_counts == {11: 3, 12: 5, 13: 5}
        loop.kill(brokers[12].process)
        image = await controllers.until(lambda image: NodeId(12) not in image.nodes)
        assert image.owned_counts == {11: 3, 13: 10}
        assert await moves_within(controllers, 20) == 0, "it hands everything over itself, at once"
        await controllers.ask(lambda controller: controller.report_stopped(NodeId(11), brokers[11].epoch, 0))
        assert (await controllers.image()).owned_counts == {13: 13}

    run(main(), loop=loop)


def test_a_broker_with_a_wrong_clock_keeps_what_it_has_and_gets_nothing_until_its_clock_is_right() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers, brokers = await started(loop, 11, 12, 13)
        await create(controllers, NewTopic(name="a", partitions=9))
        brokers[11].clock_differs = True
        brokers[12].trouble = "cannot write to the store for 7 s: full"
        await brokers[11].beat()
        await brokers[12].beat()
        off_time = {NodeId(11): "has another time than its store: it gets no partitions until its clock is right"}
        assert controllers.leader().troubles == off_time | {12: brokers[12].trouble}
        brokers[12].trouble = ""
        await brokers[12].beat()
        assert controllers.leader().troubles == off_time
        await create(controllers, NewTopic(name="b", partitions=4))
        assert (await controllers.image()).owned_counts == {11: 3, 12: 5, 13: 5}
        loop.kill(brokers[12].process)
        image = await controllers.until(lambda image: NodeId(12) not in image.nodes)
        assert image.owned_counts == {11: 3, 13: 10}
        assert await moves_within(controllers, 20) == 0
        brokers[11].clock_differs = False
        await brokers[11].beat()
        assert controllers.leader().troubles == {}
        await create(controllers, NewTopic(name="c", partitions=3))
        assert (await controllers.image()).owned_counts[NodeId(11)] > 3

    run(main(), loop=loop)


@pytest.mark.parametrize("by", ["clock", "drain"])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_made_while_the_only_broker_comes_back_into_use_has_an_owner(by: str, is_first: bool) -> None:
    """What nobody may have when it is decided about, and is durable when nobody comes for it any more."""
    loop = VirtualLoop()

    async def main() -> None:
        controllers, brokers = await started(loop, 11)

        async def use(again: bool) -> None:
            if by == "clock":
                brokers[11].clock_differs = not again
                await brokers[11].beat()
            elif again:
                await controllers.ask(lambda controller: controller.cordon(NodeId(11), False))
            else:
                await controllers.ask(lambda controller: controller.drain(NodeId(11)))

        for number in range(60):
            await use(again=False)
            steps = [create(controllers, NewTopic(name=f"t{number}", partitions=1)), use(again=True)]
            first, second = steps if is_first else reversed(steps)
            begun = asyncio.ensure_future(first)
            await asyncio.sleep(number / 1000)
            await second
            await begun
            assert (await controllers.image()).owned_counts == {11: number + 1}
            assert controllers.leader().avoided == frozenset()

    run(main(), loop=loop)


def test_planning_takes_at_most_a_tenth_of_the_time_however_large_the_cluster_is() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers, _ = await started(loop, 11, 12)
        await create(controllers, NewTopic(name="a", partitions=8))
        plans = 0

        def takes_two_seconds() -> float:
            nonlocal plans
            plans += 1
            return 2.0

        loop.executor_delay_s = takes_two_seconds
        await asyncio.sleep(220)
        loop.executor_delay_s = None
        assert 5 <= plans <= 11

    run(main(), loop=loop)
