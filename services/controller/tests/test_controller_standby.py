"""Leadership among several controllers, and what a leader owes to the nodes: leases, fencing, moves. On the simulator's
loop.
"""

import asyncio
from random import Random

import pytest
from controllers_in_memory import Controllers, SimBroker

from bmq.errors import ControllerUnavailable, Fenced
from bmq.metadata.image import Image
from bmq.roles.controller import ClosedPartition, NewTopic
from bmq.values import NodeId, TopicPartition
from bmq_controller.machine.fencing import begin_fencing
from bmq_controller.settings import ControllerSettings
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.store import SimStore, StoreFaults

SETTINGS = ControllerSettings()
FAST = StoreFaults(latency_s_min=0.005, latency_s_max=0.05)


def owners(image: Image, name: str) -> list[int]:
    topic = image.topic(name)
    return [] if topic is None else [meta.node_id for meta in topic.partitions]


async def create(controllers: Controllers, name: str, partitions: int) -> None:
    [result] = await controllers.ask(
        lambda controller: controller.create_topics([NewTopic(name=name, partitions=partitions)])
    )
    assert result.error is None


@pytest.mark.parametrize("polling", [True, False])
def test_one_of_several_controllers_leads_and_the_others_follow(polling: bool) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST), polling=polling)
        for node_id in (1, 2, 3):
            controllers.start(node_id)
        leader = await controllers.until_led()
        await asyncio.sleep(5)
        for number in range(20):
            await create(controllers, f"t{number}", 1)
            await asyncio.sleep(5)
        assert controllers.leading() == [leader]
        images = [role.metadata.image for role in controllers.roles.values()]
        assert {image.controller_epoch for image in images} == {1}, "nobody tried to take over"
        assert {(image.controller_id, image.controller_host, image.controller_port) for image in images} == {
            (leader, f"c{leader}", 9000 + leader)
        }
        assert {len(image.topics) for image in images} == {20}
        assert set(images[0].nodes) == {1, 2, 3}

    run(main(), loop=loop)


@pytest.mark.parametrize("polling", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_standby_takes_over_within_three_seconds_of_the_leaders_death(seed: int, polling: bool) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(seed), faults=FAST), polling=polling)
        for node_id in (1, 2, 3):
            controllers.start(node_id)
        first = await controllers.until_led()
        await asyncio.sleep(10 + Random(seed).random())
        await create(controllers, "t", 1)
        died_s = loop.time()
        controllers.kill(first)
        second = await controllers.until_led(by_other_than=first)
        took_s = loop.time() - died_s
        assert SETTINGS.takeover_s - SETTINGS.sign_of_life_s - 0.1 <= took_s <= 3.0
        assert "t" in controllers.roles[second].metadata.image.topic_ids
        await create(controllers, "u", 1)
        await asyncio.sleep(10)
        assert controllers.leading() == [second]
        assert first not in (await controllers.image()).nodes, "its registration ran out"

    run(main(), loop=loop)


def test_a_stalled_leader_that_wakes_changes_nothing_and_follows() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST))
        for node_id in (1, 2):
            controllers.start(node_id)
        first = await controllers.until_led()
        await asyncio.sleep(5)
        controllers.pause(first)
        second = await controllers.until_led(by_other_than=first)
        await create(controllers, "of-the-second", 1)
        stale = controllers.roles[first].controller
        controllers.resume(first)
        with pytest.raises(ControllerUnavailable):
            await stale.create_topics([NewTopic(name="of-the-first")])
        await asyncio.sleep(2)
        assert controllers.leading() == [second]
        image = await controllers.image()
        assert (image.controller_id, set(image.topic_ids)) == (second, {"of-the-second"})
        assert controllers.roles[first].metadata.image.controller_epoch == 2
        with pytest.raises(ControllerUnavailable, match=f"node {second} at c{second}"):
            await stale.allocate_producer_ids(1)

        controllers.kill(second)
        assert await controllers.until_led(by_other_than=second, within_s=3) == first

    run(main(), loop=loop)


def test_a_leader_that_restarts_leads_again_at_once() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST))
        controllers.start(1)
        await controllers.until_led()
        controllers.kill(1)
        controllers.start(1)
        assert await controllers.until_led(within_s=1) == 1
        assert controllers.roles[1].metadata.image.controller_epoch == 2

    run(main(), loop=loop)


def test_a_lone_controller_writes_nothing_while_nothing_happens() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore())
        controllers.start(1)
        await controllers.until_led()
        await asyncio.sleep(5)
        position = (await controllers.image()).position
        await asyncio.sleep(100)
        assert (await controllers.image()).position == position

    run(main(), loop=loop)


def test_no_controller_takes_an_outage_of_the_store_for_the_leaders_death() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore(rng=Random(1), faults=FAST)
        controllers = Controllers(loop, store)
        for node_id in (1, 2, 3):
            controllers.start(node_id)
        await controllers.until_led()
        brokers = [SimBroker(controllers, node_id) for node_id in (11, 12)]
        await asyncio.sleep(10)
        store.outage(30)
        await asyncio.sleep(60)
        assert len(controllers.leading()) == 1
        image = await controllers.image()
        assert set(image.nodes) == {1, 2, 3, 11, 12}
        assert [broker.fenced for broker in brokers] == [0, 0]

    run(main(), loop=loop)


def test_a_dead_brokers_partitions_go_to_the_others_and_it_may_only_register_again() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST))
        controllers.start(1)
        await controllers.until_led()
        dead, other = SimBroker(controllers, 11), SimBroker(controllers, 12)
        await dead.registered()
        await other.registered()
        await create(controllers, "t", 6)
        await dead.write(3, cluster_id=(await controllers.image()).cluster_id)
        loop.pause(dead.process)
        silent_s = loop.time()
        image = await controllers.until(lambda image: owners(image, "t") == [12] * 6)
        assert SETTINGS.lease_s - 2.1 <= loop.time() - silent_s <= SETTINGS.lease_s + 1
        assert image.sealed == {dead.stream: 3}
        assert NodeId(11) not in image.nodes
        with pytest.raises(Fenced):
            await dead.beat()
        loop.resume(dead.process)
        await controllers.until(lambda image: NodeId(11) in image.nodes)
        await asyncio.sleep(30)
        assert (dead.fenced, other.fenced) == (1, 0)
        assert owners(await controllers.image(), "t") == [12] * 6

    run(main(), loop=loop)


def test_a_leader_that_decides_in_a_thread_for_long_is_not_taken_for_dead() -> None:
    """Its sign of life waited behind what it decided about: standbys deposed it, decided the same anew, and so on."""
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(
            loop, SimStore(rng=Random(1), faults=FAST), settings=ControllerSettings(decided_beside_partitions=2)
        )
        for node_id in (1, 2, 3):
            controllers.start(node_id)
        leader = await controllers.until_led()
        dead, other = SimBroker(controllers, 11), SimBroker(controllers, 12)
        await dead.registered()
        await other.registered()
        await create(controllers, "t", 6)
        loop.executor_delay_s = lambda: 5 * SETTINGS.takeover_s
        loop.kill(dead.process)
        silent_s = loop.time()
        image = await controllers.until(lambda image: owners(image, "t") == [12] * 6)
        assert loop.time() - silent_s >= 5 * SETTINGS.takeover_s + SETTINGS.lease_s - 2.1
        assert (image.controller_epoch, controllers.leading(), other.fenced) == (1, [leader], 0)
        await create(controllers, "u", 1)

    run(main(), loop=loop)


def test_the_last_broker_is_not_fenced_however_silent_it_is() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST))
        controllers.start(1)
        await controllers.until_led()
        first = SimBroker(controllers, 11)
        await first.registered()
        await create(controllers, "t", 2)
        loop.kill(first.process)
        await asyncio.sleep(60)
        assert owners(await controllers.image(), "t") == [11, 11]
        second = SimBroker(controllers, 12)
        await second.registered()
        await controllers.until(lambda image: owners(image, "t") == [12, 12], within_s=SETTINGS.lease_s)

    run(main(), loop=loop)


def test_the_last_broker_of_a_pool_is_not_fenced_while_another_pool_has_some() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST))
        controllers.start(1)
        await controllers.until_led()
        alone, _ = SimBroker(controllers, 11, pool="gold"), SimBroker(controllers, 12)
        await alone.registered()
        [made] = await controllers.ask(
            lambda controller: controller.create_topics(
                [NewTopic(name="t", partitions=2, configs={"bmq.pool": "gold"})]
            )
        )
        assert made.error is None
        loop.pause(alone.process)
        await asyncio.sleep(60)
        assert owners(await controllers.image(), "t") == [11, 11]
        loop.resume(alone.process)
        await asyncio.sleep(10)
        assert alone.fenced == 0, "it goes on under the same epoch"
        second = SimBroker(controllers, 13, pool="gold")
        await second.registered()
        loop.kill(alone.process)
        await controllers.until(lambda image: owners(image, "t") == [13, 13], within_s=2 * SETTINGS.lease_s)

    run(main(), loop=loop)


def test_a_leader_that_slept_fences_nobody_for_what_it_did_not_hear() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST))
        controllers.start(1)
        await controllers.until_led()
        brokers = [SimBroker(controllers, node_id) for node_id in (11, 12, 13)]
        await asyncio.sleep(5)
        for sleep_s in (3.0, 7.0, 60.0):
            controllers.pause(1)
            await asyncio.sleep(sleep_s)
            controllers.resume(1)
            await asyncio.sleep(20)
        assert [broker.fenced for broker in brokers] == [0, 0, 0]
        assert (await controllers.image()).controller_epoch == 1

    run(main(), loop=loop)


def test_a_new_leader_knows_how_long_a_broker_has_been_silent() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST))
        for node_id in (1, 2):
            controllers.start(node_id)
        first = await controllers.until_led()
        dead, other = SimBroker(controllers, 11), SimBroker(controllers, 12)
        await asyncio.sleep(10)
        await create(controllers, "t", 2)
        loop.kill(dead.process)
        silent_s = loop.time()
        await asyncio.sleep(3.5)
        controllers.kill(first)
        await controllers.until(lambda image: owners(image, "t") == [12, 12])
        took_s = loop.time() - silent_s
        assert took_s <= SETTINGS.lease_s + 4.4, "without that it would be a whole lease from the takeover on"
        assert other.fenced == 0

    run(main(), loop=loop)


def test_a_new_leader_completes_the_fencing_that_it_finds_begun() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST))
        for node_id in (1, 2):
            controllers.start(node_id)
        first = await controllers.until_led()
        brokers = [SimBroker(controllers, node_id) for node_id in (11, 12)]
        await asyncio.sleep(10)
        await create(controllers, "t", 2)
        leading = controllers.roles[first].controller.leading
        assert leading is not None
        begun = await leading._leader.operate(
            "fence", lambda image: begin_fencing(image, (NodeId(11), brokers[0].epoch))
        )
        assert begun
        controllers.kill(first)
        loop.kill(brokers[0].process)
        image = await controllers.until(lambda image: owners(image, "t") == [12, 12], within_s=4)
        assert image.fencing == {}
        assert brokers[0].stream not in image.sealed, "it held nothing"

    run(main(), loop=loop)


def test_a_partition_moves_when_its_owner_reports_that_it_closed_it() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(loop, SimStore(rng=Random(1), faults=FAST))
        controllers.start(1)
        await controllers.until_led()
        old = SimBroker(controllers, 11)
        await old.registered()
        await create(controllers, "t", 1)
        new = SimBroker(controllers, 12)
        await new.registered()
        tp = TopicPartition((await controllers.image()).topic_ids["t"], 0)
        await controllers.ask(lambda controller: controller.move(tp, NodeId(12)))
        meta = (await controllers.image()).partition(tp)
        assert meta is not None
        assert (meta.node_id, meta.moving_to) == (11, 12)
        report = ClosedPartition(tp=tp, leader_epoch=meta.leader_epoch, end=4)
        old.closed = lambda: (report,)
        for _ in range(3):
            reply = await old.beat()
        image = await controllers.image()
        assert reply.position == image.position
        assert (owners(image, "t"), image.moving) == ([12], {})
        await controllers.ask(lambda controller: controller.drain(NodeId(12)))
        assert (await controllers.image()).moving == {tp: 11}

    run(main(), loop=loop)


def test_a_broker_that_joins_gets_its_share_and_a_drained_one_loses_everything() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        controllers = Controllers(
            loop, SimStore(rng=Random(1), faults=FAST), settings=ControllerSettings(balance_interval_s=1.0)
        )
        controllers.start(1)
        await controllers.until_led()
        first = SimBroker(controllers, 11)
        first.lets_go()
        await first.registered()
        await create(controllers, "t", 12)
        second = SimBroker(controllers, 12)
        second.lets_go()
        await second.registered()
        await controllers.until(lambda image: image.owned_counts == {11: 6, 12: 6}, within_s=120)
        position = (await controllers.image()).position
        await asyncio.sleep(200)
        assert (await controllers.image()).position == position, "it came to an end"
        await controllers.ask(lambda controller: controller.drain(NodeId(11)))
        await controllers.until(lambda image: image.owned_counts == {12: 12}, within_s=10)
        await asyncio.sleep(200)
        assert (await controllers.image()).owned_counts == {12: 12}, "it is cordoned"

    run(main(), loop=loop)


def test_heartbeats_that_say_nothing_new_cost_the_store_nothing() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore()
        controllers = Controllers(
            loop, store, settings=ControllerSettings(leading_check_s=1000, collect_interval_s=1000)
        )
        controllers.start(1)
        await controllers.until_led()
        broker = SimBroker(controllers, 11)
        await broker.registered()
        await create(controllers, "t", 1)
        before = store.requests.total()
        for _ in range(100):
            reply = await broker.beat()
        assert reply.lease_ms == 6000
        assert store.requests.total() == before

    run(main(), loop=loop)


@pytest.mark.parametrize("seed", range(20))
def test_controllers_that_die_sleep_and_come_back_lose_no_answer_and_agree_in_the_end(seed: int) -> None:
    loop = VirtualLoop()
    dice = Random(seed)

    async def main() -> None:
        faults = StoreFaults(
            latency_s_max=0.2,
            slow_probability=0.02,
            slow_s_max=3.0,
            not_applied_probability=0.03,
            unknown_applied_probability=0.03,
            unknown_late_probability=0.03,
            late_s_max=8.0,
            unavailable_probability=0.03,
        )
        store = SimStore(rng=Random(seed), faults=faults)
        controllers = Controllers(
            loop, store, settings=ControllerSettings(snapshot_entries=20), polling=dice.random() < 0.5
        )
        for node_id in (1, 2, 3):
            controllers.start(node_id)
        brokers = [SimBroker(controllers, node_id) for node_id in (11, 12, 13)]
        given: list[int] = []
        names: list[str] = []

        async def work() -> None:
            while True:
                try:
                    given.extend(await controllers.ask(lambda controller: controller.allocate_producer_ids(2)))
                    [result] = await controllers.ask(
                        lambda controller: controller.create_topics([NewTopic(name=f"t{len(given)}", partitions=2)])
                    )
                    if result.error is None:
                        names.append(result.name)
                except ControllerUnavailable:
                    pass
                await asyncio.sleep(dice.random())

        worker = asyncio.ensure_future(work())
        for _ in range(15):
            await asyncio.sleep(8 * dice.random())
            victim = dice.choice((1, 2, 3))
            match dice.randrange(4):
                case 0 if controllers.runs(victim):
                    controllers.kill(victim)
                    controllers.start(victim)
                case 1 if controllers.runs(victim):
                    controllers.pause(victim)
                    loop.call_later(10 * dice.random(), controllers.resume, victim)
                case 2:
                    store.cut_off(f"c{victim}", 8 * dice.random())
                case _:
                    broker = dice.choice(brokers)
                    loop.pause(broker.process)
                    loop.call_later(15 * dice.random(), loop.resume, broker.process)
        store.heal()
        await asyncio.sleep(60)
        worker.cancel()
        leader = await controllers.until_led()
        await asyncio.sleep(2)
        image = await controllers.image()
        assert controllers.leading() == [leader]
        assert len(set(given)) == len(given) > 10
        assert max(given) < image.next_producer_id
        assert set(names) <= set(image.topic_ids)
        assert (image.fencing, image.moving) == ({}, {})
        assert set(image.nodes) == {1, 2, 3, 11, 12, 13}
        assert {node_id for name in names for node_id in owners(image, name)} <= {11, 12, 13}

    run(main(), loop=loop)
