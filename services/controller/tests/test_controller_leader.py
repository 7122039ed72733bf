"""The leading controller over a store that is slow, fails and answers wrongly; and over one that another controller writes to."""

import asyncio
from random import Random
from uuid import UUID

import pytest

from bmq.errors import ControllerUnavailable, Corrupt, Fenced, TopicExists, UnknownTopic
from bmq.metadata.codec import LOG_PREFIX, SNAPSHOT_PREFIX, decode_records
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.follower import MetadataFollower
from bmq.metadata.image import Image
from bmq.metadata.journal import MetadataJournal
from bmq.metadata.records import AnyRecord, ClusterCreated, LeaderElected, ProducerIdsAllocated, Range, TopicDeleted
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic, Registration
from bmq.storage.flatlog import decode_entry
from bmq.storage.stream import StreamWriter, seal_stream
from bmq.storage.wal import Seal, decode_any
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicPartition
from bmq_controller.machine.decision import Decision
from bmq_controller.main import ControllerRole, start_controller
from bmq_controller.settings import ControllerSettings
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.process import SimProcess
from bmq_sim.store import NodeStore, SimStore, StoreFaults

NODE = NodeId(1)


async def start(store: SimStore, *, seed: int = 1, settings: ControllerSettings | None = None, node_id: NodeId = NODE) -> ControllerRole:
    return await start_controller(store.for_node(f"n{seed}"), node_id=node_id, clock=SimClock(), rng=SimRng(seed), settings=settings)


def registration(node_id: int = 1, boot: int = 1, roles: tuple[str, ...] = ("broker", "proxy")) -> Registration:
    return Registration(node_id=NodeId(node_id), boot=UUID(int=boot), roles=roles, host="h", port=9092)


def entries(store: SimStore) -> list[list[AnyRecord]]:
    """The records of every entry in the store."""
    return [decode_records(decode_entry(store.objects[key].data, what=key).payload, what=key) for key in store.keys(LOG_PREFIX)]


async def loaded(store: SimStore) -> Image:
    """What a reader of the store sees."""
    return (await MetadataJournal(store.for_node("reader"), rng=SimRng(99)).load()).image


async def write_wal(store: NodeStore, stream: StreamId, count: int, *, cluster_id: str) -> None:
    """A broker's `count` WAL objects."""
    durable: list[int] = []
    writer = StreamWriter(store, stream, cluster_id=cluster_id, rng=SimRng(5), on_durable=durable.append, on_fenced=lambda error: None)
    for _ in range(count):
        writer.submit([])
    while len(durable) < count:
        await asyncio.sleep(0.01)
    await writer.close()


def test_an_empty_store_becomes_a_cluster_with_a_kafka_style_id() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        cluster_id = role.metadata.image.cluster_id
        assert len(cluster_id) == 22
        assert entries(store) == [[ClusterCreated(cluster_id=cluster_id), LeaderElected(controller_epoch=1, node_id=1)]]
        await role.stop()

    run(main())


def test_what_was_answered_is_there_after_a_restart() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        epoch = await role.controller.register(registration())
        [result] = await role.controller.create_topics([NewTopic(name="t", partitions=3, configs={"retention.ms": "5"})])
        assert result.error is None
        ids = await role.controller.allocate_producer_ids(10)
        image = role.metadata.image
        assert {meta.node_id for meta in image.topics[result.topic_id].partitions} == {1}
        await role.stop()

        again = await start(store, seed=2)
        after = again.metadata.image
        assert (after.cluster_id, after.topics, after.next_producer_id) == (image.cluster_id, image.topics, ids.stop)
        assert after.controller_epoch == 2
        assert after.nodes[NODE].broker_epoch == epoch
        await again.stop()

    run(main())


def test_operations_that_come_together_share_one_entry() -> None:
    async def main() -> None:
        store = SimStore(faults=StoreFaults(latency_s_min=0.05, latency_s_max=0.05))
        role = await start(store)
        before = len(store.keys(LOG_PREFIX))
        first = asyncio.ensure_future(role.controller.allocate_producer_ids(1))
        await asyncio.sleep(0.01)
        rest = await asyncio.gather(*(role.controller.allocate_producer_ids(10) for _ in range(100)))
        await first
        assert len(store.keys(LOG_PREFIX)) == before + 2, "the first alone, the hundred in one"
        given = [number for block in rest for number in block]
        assert len(set(given)) == len(given) == 1000
        await role.stop()

    run(main())


def test_a_refusal_waits_until_what_it_rests_on_is_durable() -> None:
    async def main() -> None:
        store = SimStore(faults=StoreFaults(latency_s_min=0.05, latency_s_max=0.05))
        role = await start(store)
        made = asyncio.ensure_future(role.controller.create_topics([NewTopic(name="t")]))
        refused = asyncio.ensure_future(role.controller.create_topics([NewTopic(name="t")]))
        await asyncio.sleep(0.04)
        assert not refused.done()
        assert (await made)[0].error is None
        assert isinstance((await refused)[0].error, TopicExists)
        await role.stop()

    run(main())


def test_subscribers_see_a_change_before_its_caller_is_answered() -> None:
    async def main() -> None:
        role = await start(SimStore())
        seen: list[tuple[int, int]] = []
        role.metadata.subscribe(lambda old, new: seen.append((old.position, new.position)))
        await role.controller.allocate_producer_ids(1)
        assert seen == [(1, 2)]
        assert (await role.metadata.wait_for(2)).next_producer_id == 1
        waiting = asyncio.ensure_future(role.metadata.wait_for(3))
        await role.controller.allocate_producer_ids(1)
        assert (await waiting).position == 3
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


def test_an_outage_shorter_than_the_timeout_is_waited_out() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        store.outage(20)
        [result] = await role.controller.create_topics([NewTopic(name="t")])
        assert result.error is None
        assert "t" in (await loaded(store)).topic_ids
        await role.stop()

    run(main())


def test_operations_time_out_in_a_longer_outage_and_all_goes_on_afterwards() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        store.outage(100)
        with pytest.raises(ControllerUnavailable, match="try again"):
            await role.controller.create_topics([NewTopic(name="in-flight")])
        with pytest.raises(ControllerUnavailable):
            await role.controller.create_topics([NewTopic(name="waited")])
        await asyncio.sleep(60)
        [result] = await role.controller.create_topics([NewTopic(name="later")])
        assert result.error is None
        assert "waited" not in role.metadata.image.topic_ids, "it gave up before an entry took it"
        assert not role.deposed.done()
        await role.stop()

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_lost_replies_neither_depose_the_leader_nor_apply_twice(seed: int) -> None:
    async def main() -> None:
        faults = StoreFaults(
            latency_s_max=0.2,
            not_applied_probability=0.1,
            unknown_applied_probability=0.3,
            unknown_not_applied_probability=0.1,
            unknown_late_probability=0.1,
            late_s_max=3.0,
            unavailable_probability=0.1,
        )
        store = SimStore(rng=Random(seed), faults=faults)
        role = await start(store, seed=seed, settings=ControllerSettings(snapshot_entries=5, operation_timeout_s=600))
        blocks: list[range] = []
        for _ in range(30):
            blocks += await asyncio.gather(*(role.controller.allocate_producer_ids(3) for _ in range(3)))
        assert not role.deposed.done(), role.deposed.result()
        given = [number for block in blocks for number in block]
        assert sorted(given) == list(range(270))
        store.heal()
        assert await loaded(store) == role.metadata.image
        await role.stop()

    run(main())


def test_snapshots_shorten_the_log_and_lead_to_the_same_image() -> None:
    async def main() -> None:
        store = SimStore()
        settings = ControllerSettings(snapshot_entries=10)
        role = await start(store, settings=settings)
        for number in range(57):
            await role.controller.create_topics([NewTopic(name=f"t{number}")])
        await asyncio.sleep(1)
        image = role.metadata.image
        await role.stop()
        snapshots = store.keys(SNAPSHOT_PREFIX)
        assert len(snapshots) == 2
        log = store.keys(LOG_PREFIX)
        assert log[0].endswith("001"), "a claim stays"
        assert len(log) < 35
        assert await loaded(store) == image
        again = await start(store, seed=2, settings=settings)
        assert again.metadata.image.topics == image.topics
        await again.stop()

    run(main())


def test_an_unreadable_snapshot_is_passed_over_for_the_one_before() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store, settings=ControllerSettings(snapshot_entries=10))
        for _ in range(35):
            await role.controller.allocate_producer_ids(1)
        await asyncio.sleep(1)
        await role.stop()
        newest = store.keys(SNAPSHOT_PREFIX)[-1]
        found = store.objects[newest]
        store.objects[newest] = type(found)(found.data[:-7], found.modified_ms)
        assert await loaded(store) == role.metadata.image

    run(main())


def test_restarts_alone_do_not_let_the_log_grow_without_a_snapshot() -> None:
    async def main() -> None:
        store = SimStore()
        for seed in range(25):
            role = await start(store, seed=seed + 1, settings=ControllerSettings(snapshot_entries=10))
            await role.controller.allocate_producer_ids(1)
            await asyncio.sleep(0.5)
            await role.stop()
        assert len(store.keys(SNAPSHOT_PREFIX)) == 2

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


def test_a_registration_seals_the_earlier_incarnation_and_hands_its_partitions_over() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        control = role.controller
        await control.create_topics([NewTopic(name="early")])
        first = await control.register(registration(boot=1))
        await control.create_topics([NewTopic(name="t", partitions=2)])
        stream = StreamId(NODE, first)
        await write_wal(store.for_node("n1"), stream, 3, cluster_id=role.metadata.image.cluster_id)
        second = await control.register(registration(boot=2))
        assert second == first + 1
        image = role.metadata.image
        assert image.sealed == {stream: 3}
        for topic in image.topics.values():
            for meta in topic.partitions:
                assert (meta.node_id, meta.broker_epoch) == (1, second)
                assert meta.ranges == (Range(1, first, meta.leader_epoch - 1, 3),)
        with pytest.raises(Fenced, match="lost its id"):
            await control.register(registration(boot=1))

        covered = [(TopicPartition(t.topic_id, p), meta.ranges) for t in image.topics.values() for p, meta in enumerate(t.partitions)]
        await control.report_covered(NODE, second, covered[:1])
        assert role.metadata.image.sealed == {stream: 3}
        await control.report_covered(NODE, second, covered)
        await control.report_covered(NODE, second, covered)
        assert role.metadata.image.sealed == {}
        await asyncio.sleep(ControllerSettings().collect_interval_s * 2)
        assert role.metadata.image.dropped == {}
        left = [decode_any(store.objects[key].data) for key in store.keys(stream.prefix)]
        assert [type(found) for found in left] == [Seal], "data goes, the seal stays"
        await role.stop()

    run(main())


def test_a_stopped_broker_leaves_its_partitions_to_the_next_one() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        control = role.controller
        first = await control.register(registration())
        await control.create_topics([NewTopic(name="t")])
        stream = StreamId(NODE, first)
        await write_wal(store.for_node("n1"), stream, 2, cluster_id=role.metadata.image.cluster_id)
        end = await seal_stream(store.for_node("n1"), stream, cluster_id=role.metadata.image.cluster_id, rng=SimRng(8))
        for _ in range(2):
            await control.report_stopped(NODE, first, end)
        [meta] = role.metadata.image.topic("t").partitions  # type: ignore[union-attr]
        assert (meta.node_id, meta.ranges) == (-1, (Range(1, first, 1, 2),))
        assert role.metadata.image.nodes == {}
        second = await control.register(registration(boot=2))
        [meta] = role.metadata.image.topic("t").partitions  # type: ignore[union-attr]
        assert (meta.node_id, meta.broker_epoch, meta.leader_epoch) == (1, second, 3)
        assert meta.ranges == (Range(1, first, 1, 2),)
        await role.stop()

    run(main())


def test_a_broker_that_restarts_in_a_loop_without_writing_leaves_no_ranges() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        await role.controller.create_topics([NewTopic(name="t", partitions=5)])
        for boot in range(1, 6):
            await role.controller.register(registration(boot=boot))
        assert all(meta.ranges == () for meta in role.metadata.image.topics.popitem()[1].partitions)  # type: ignore[attr-defined]
        assert role.metadata.image.sealed == {}
        await role.stop()

    run(main())


def test_registrations_of_one_node_at_once_get_epochs_of_their_own() -> None:
    async def main() -> None:
        store = SimStore(faults=StoreFaults(latency_s_max=0.05))
        role = await start(store)
        epochs = await asyncio.gather(*(role.controller.register(registration(boot=boot)) for boot in range(1, 5)))
        assert sorted(epochs) == [1, 2, 3, 4]
        assert role.metadata.image.nodes[NODE].broker_epoch == BrokerEpoch(4)
        await role.stop()

    run(main())


def test_a_deleted_topics_objects_go_after_the_delay_and_across_a_restart() -> None:
    async def main() -> None:
        store = SimStore()
        node = store.for_node("n1")
        role = await start(store)
        [result] = await role.controller.create_topics([NewTopic(name="t")])
        [other] = await role.controller.create_topics([NewTopic(name="u")])
        for topic_id in (result.topic_id, other.topic_id):
            for number in range(7):
                await node.create(f"topics/{topic_id}/0000000000/segment/{number}", [b"x"])
        assert result.topic_id is not None
        [deleted] = await role.controller.delete_topics([result.topic_id])
        assert (deleted.name, deleted.error) == ("t", None)
        [again] = await role.controller.delete_topics([result.topic_id])
        assert isinstance(again.error, UnknownTopic)
        await asyncio.sleep(30)
        await role.stop()
        assert len(store.keys(f"topics/{result.topic_id}/")) == 7

        successor = await start(store, seed=2)
        assert successor.metadata.image.deleted == {result.topic_id: "t"}
        await asyncio.sleep(50)
        assert len(store.keys(f"topics/{result.topic_id}/")) == 7, "each leader waits the whole delay"
        await asyncio.sleep(30)
        assert store.keys(f"topics/{result.topic_id}/") == []
        assert successor.metadata.image.deleted == {}
        assert len(store.keys(f"topics/{other.topic_id}/")) == 7
        await successor.stop()

    run(main())


def test_configurations_of_a_topic_and_of_the_cluster_change_and_are_validated() -> None:
    async def main() -> None:
        role = await start(SimStore(), settings=ControllerSettings(cluster_configs={"num.partitions": "2"}))
        control = role.controller
        await control.create_topics([NewTopic(name="t")])
        topic = ConfigResource(kind="topic", name="t")
        await control.alter_configs(topic, [ConfigChange(name="retention.ms", operation="set", value="9")])
        await control.replace_configs(topic, {"segment.ms": "7"})
        found = role.metadata.image.topic("t")
        assert found is not None
        assert (len(found.partitions), found.configs) == (2, {"segment.ms": "7"})
        await control.alter_configs(ConfigResource(kind="broker", name=""), [ConfigChange(name="num.partitions", operation="set", value="4")])
        [result] = await control.create_topics([NewTopic(name="u")])
        assert result.partitions == 4
        await role.stop()

    run(main())


def test_a_follower_of_the_store_sees_what_the_leader_commits() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store, settings=ControllerSettings(snapshot_entries=4))
        feed = MetadataFeed()
        follower = asyncio.ensure_future(MetadataFollower(store.for_node("f"), rng=SimRng(7), feed=feed).run())
        positions: list[int] = []
        feed.subscribe(lambda old, new: positions.append(new.position))
        for pause_s in [0.1] * 20 + [2.0] * 5:
            await role.controller.allocate_producer_ids(1)
            await asyncio.sleep(pause_s)
        assert feed.image == role.metadata.image
        assert positions == sorted(set(positions))
        follower.cancel()
        await role.stop()

    run(main())


def test_a_stop_commits_what_is_under_way() -> None:
    async def main() -> None:
        store = SimStore(faults=StoreFaults(latency_s_min=0.1, latency_s_max=0.1))
        role = await start(store)
        under_way = asyncio.ensure_future(role.controller.create_topics([NewTopic(name="t")]))
        await asyncio.sleep(0.01)
        await role.stop()
        assert (await under_way)[0].error is None
        with pytest.raises(ControllerUnavailable, match="stopped"):
            await role.controller.create_topics([NewTopic(name="u")])
        await role.stop()
        assert not role.deposed.done()

    run(main())


def test_too_many_waiting_operations_are_refused_at_once() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store, settings=ControllerSettings(operations_waiting_max=3))
        store.outage(10)
        tasks = [asyncio.ensure_future(role.controller.allocate_producer_ids(1)) for _ in range(4)]
        await asyncio.sleep(1)
        more = [asyncio.ensure_future(role.controller.allocate_producer_ids(1)) for _ in range(3)]
        outcomes = await asyncio.gather(*tasks, *more, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, ControllerUnavailable)]
        assert refused
        assert "wait for the controller already" in str(refused[0])
        await role.stop()

    run(main())


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


def test_a_wrong_decision_is_refused_and_those_beside_it_are_committed() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        await role.controller.allocate_producer_ids(10)
        backwards = Decision("never said", (ProducerIdsAllocated(next_producer_id=3),))
        nowhere = Decision("never said", (TopicDeleted(topic_id=UUID(int=4), name="x", last_leader_epoch=0),))
        outcomes = await asyncio.gather(
            role.controller.create_topics([NewTopic(name="a")]),
            role.leader.operate("backwards", lambda image: backwards),
            role.leader.operate("nowhere", lambda image: nowhere),
            role.controller.create_topics([NewTopic(name="b")]),
            return_exceptions=True,
        )
        assert "bug in bmq" in str(outcomes[1])
        assert isinstance(outcomes[2], Corrupt)
        assert set(role.metadata.image.topic_ids) == {"a", "b"}
        assert await loaded(store) == role.metadata.image
        await role.stop()

    run(main())
