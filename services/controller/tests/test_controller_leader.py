"""Who leads: a new cluster, another controller on the same store, leaders that are killed, sleep and come back."""

import asyncio
from random import Random

import pytest
from leading_controller import entries, loaded, registration, start

from bmq.errors import ControllerUnavailable, Fenced
from bmq.metadata.codec import LOG_PREFIX, encode_records
from bmq.metadata.records import ClusterCreated, LeaderElected, ProducerIdsAllocated
from bmq.roles.controller import NewTopic
from bmq.storage.flatlog import Entry, decode_entry, encode_entry
from bmq.storage.numbered import numbered_key
from bmq.values import NodeId, Nonce
from bmq_controller.settings import ControllerSettings
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.process import SimProcess
from bmq_sim.store import SimStore, StoreFaults


def test_an_empty_store_becomes_a_cluster_with_a_kafka_style_id() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        cluster_id = role.metadata.image.cluster_id
        assert len(cluster_id) == 22
        assert entries(store) == [[ClusterCreated(cluster_id=cluster_id), LeaderElected(controller_epoch=1, node_id=1)]]
        await role.stop()

    run(main())


def test_a_second_controller_deposes_the_first_for_good() -> None:
    async def main() -> None:
        store = SimStore()
        first = await start(store, seed=1)
        await first.controller.create_topics([NewTopic(name="t")])
        second = await start(store, seed=2, node_id=NodeId(2))
        with pytest.raises(ControllerUnavailable, match="does not lead"):
            await first.controller.create_topics([NewTopic(name="from-the-first")])
        assert "epoch 2" in first.deposed.result()
        with pytest.raises(ControllerUnavailable):
            await first.controller.allocate_producer_ids(1)
        await second.controller.create_topics([NewTopic(name="u")])
        image = await loaded(store)
        assert set(image.topic_ids) == {"t", "u"}
        assert (image.controller_id, image.controller_epoch) == (2, 2)
        await first.stop()
        await second.stop()

    run(main())


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_leader_that_meets_an_entry_that_it_did_not_write_leads_no_more_whatever_its_epoch(epoch: int) -> None:
    """It would build on an image that lacks it. One of an earlier epoch is no sleeper's: above a claim that held none
    can come to stand.
    """

    async def main() -> None:
        store = SimStore()
        role = await start(store, settings=ControllerSettings(leading_check_s=1_000))
        claim = decode_entry(store.objects[store.keys(LOG_PREFIX)[-1]].data, what="the claim")
        records = encode_records([ProducerIdsAllocated(next_producer_id=5_000)])
        other = Entry(
            number=2, epoch=epoch, nonce=Nonce(bytes(16)), predecessor=claim.nonce, claim=epoch > 1, payload=records
        )
        store.apply_create("other", numbered_key(LOG_PREFIX, 2), b"".join(bytes(part) for part in encode_entry(other)))
        with pytest.raises(ControllerUnavailable):
            await role.controller.create_topics([NewTopic(name="lost")])
        assert "entry 2" in await role.deposed
        assert role.metadata.image.position == 1
        assert len(store.keys(LOG_PREFIX)) == 2
        assert (await loaded(store)).next_producer_id == 5_000
        await role.stop()

    run(main())


def test_an_idle_leader_notices_its_successor() -> None:
    async def main() -> None:
        store = SimStore()
        first = await start(store, seed=1)
        second = await start(store, seed=2)
        async with asyncio.timeout(ControllerSettings().leading_check_s * 2):
            assert "metadata entry 2" in await first.deposed
        assert not second.deposed.done()
        await first.stop()
        await second.stop()

    run(main())


def test_controllers_that_start_at_once_agree_on_one_cluster_and_one_leader() -> None:
    async def main() -> None:
        store = SimStore(rng=Random(3), faults=StoreFaults(latency_s_min=0.01, latency_s_max=0.1))
        roles = await asyncio.gather(*(start(store, seed=seed, node_id=NodeId(seed)) for seed in range(1, 5)))
        await asyncio.sleep(ControllerSettings().leading_check_s * 3)
        leading = [role for role in roles if not role.deposed.done()]
        assert len(leading) == 1
        assert len({role.metadata.image.cluster_id for role in roles}) == 1
        assert leading[0].metadata.image == await loaded(store)
        for role in roles:
            await role.stop()

    run(main())


@pytest.mark.parametrize("step", range(0, 400, 7))
def test_a_leader_killed_at_any_moment_leaves_what_it_answered_and_nothing_half_done(step: int) -> None:
    """Also between the creation of an entry and its application."""
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore(rng=Random(step), faults=StoreFaults(latency_s_max=0.02))
        process = SimProcess("first", host="first")
        answered: list[str] = []

        async def live() -> None:
            role = await start(store, settings=ControllerSettings(snapshot_entries=3))
            await role.controller.register(registration())
            for number in range(10):
                await role.controller.create_topics([NewTopic(name=f"t{number}", partitions=2)])
                answered.append(f"t{number}")

        process.start(live())
        loop.at_step(loop.steps + step, lambda: loop.kill(process))
        await asyncio.sleep(5)
        loop.kill(process)  # where it had yet to come so far
        again = await start(store, seed=2)
        image = again.metadata.image
        assert set(answered) <= set(image.topic_ids)
        assert all(len(topic.partitions) == 2 and topic.partitions[0].node_id == 1 for topic in image.topics.values())
        await again.stop()

    run(main(), loop=loop)


@pytest.mark.parametrize("seed", range(30))
def test_leaders_that_sleep_die_and_come_back_never_give_an_id_twice_nor_lose_an_answer(seed: int) -> None:
    """Several processes on one faulty store, each of which believes at times that it leads."""
    loop = VirtualLoop()
    dice = Random(seed)

    async def main() -> None:
        faults = StoreFaults(
            latency_s_max=0.3,
            slow_probability=0.05,
            slow_s_max=4.0,
            not_applied_probability=0.05,
            unknown_applied_probability=0.05,
            unknown_late_probability=0.05,
            late_s_max=8.0,
            unavailable_probability=0.05,
        )
        store = SimStore(rng=Random(seed), faults=faults)
        given: list[int] = []
        names: list[str] = []

        async def live(number: int) -> None:
            settings = ControllerSettings(snapshot_entries=4, leading_check_s=1.0)
            try:
                role = await start(store, seed=1000 * seed + number, settings=settings, node_id=NodeId(number))
            except Fenced:
                return
            while not role.deposed.done():
                try:
                    given.extend(await role.controller.allocate_producer_ids(2))
                    [result] = await role.controller.create_topics([NewTopic(name=f"t{number}-{len(names)}")])
                    if result.error is None:
                        names.append(result.name)
                except ControllerUnavailable:
                    pass
                await asyncio.sleep(dice.random())
            await role.stop()

        processes = [SimProcess(f"c{number}", host=f"c{number}") for number in range(1, 9)]
        for number, process in enumerate(processes, 1):
            process.start(live(number))
            await asyncio.sleep(5 + 10 * dice.random())
            match dice.randrange(3):
                case 0:
                    loop.kill(process)
                case 1:
                    loop.pause(process)
                    loop.call_later(5 + 20 * dice.random(), loop.resume, process)
        await asyncio.sleep(40)
        for process in processes:
            loop.kill(process)
        store.heal()
        last = await start(store, seed=1000 * seed + 999)
        image = last.metadata.image
        assert len(set(given)) == len(given) > 10
        assert max(given) < image.next_producer_id
        assert set(names) <= set(image.topic_ids)
        assert image == await loaded(store)
        await last.stop()

    run(main(), loop=loop)
