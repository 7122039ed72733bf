"""Snapshots of the metadata, and readers of the store."""

import asyncio
from time import process_time
from uuid import UUID

import pytest
from leading_controller import loaded, start

from bmq.errors import Corrupt
from bmq.metadata.codec import LOG_PREFIX, SNAPSHOT_PREFIX, encode_records
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.fold import apply
from bmq.metadata.follower import MetadataFollower
from bmq.metadata.image import Image
from bmq.metadata.journal import MetadataJournal, Position
from bmq.metadata.records import (
    AnyRecord,
    ClusterCreated,
    LeaderElected,
    NodeRegistered,
    PartitionChange,
    Range,
    TopicCreated,
)
from bmq.roles.controller import NewTopic
from bmq_controller.settings import ControllerSettings
from bmq_sim.clock import SimRng
from bmq_sim.loop import run
from bmq_sim.store import Request, SimStore


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


def test_a_metadata_log_with_a_hole_that_no_snapshot_covers_is_no_metadata() -> None:
    """What was committed behind the hole may rest on what was in it: nobody leads with the image before it, or gives
    its offsets anew.
    """

    async def main() -> None:
        store = SimStore()
        role = await start(store, settings=ControllerSettings(snapshot_entries=1_000))
        for number in range(6):
            await role.controller.create_topics([NewTopic(name=f"t{number}")])
        await role.stop()
        hole = store.keys(LOG_PREFIX)[4]
        kept = store.objects[hole].data
        store.apply_delete("disaster", hole)
        with pytest.raises(Corrupt, match="entry 5 is missing, 6 is there, and no snapshot under"):
            await loaded(store)
        before = store.keys()
        with pytest.raises(Corrupt, match="entry 5 is missing"):
            await start(store, seed=2)
        assert store.keys() == before
        store.apply_create("restored", hole, kept)
        assert await loaded(store) == role.metadata.image

    run(main())


def test_a_snapshot_that_lies_under_anothers_position_or_goes_while_it_is_read_is_passed_over() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store, settings=ControllerSettings(snapshot_entries=10))
        for _ in range(35):
            await role.controller.allocate_producer_ids(1)
        await asyncio.sleep(1)
        await role.stop()
        older, newest = store.keys(SNAPSHOT_PREFIX)
        image, found = role.metadata.image, store.objects[newest]
        store.objects[newest] = store.objects[older]
        assert await loaded(store) == image
        store.objects[newest] = found

        class GoneBeforeItIsRead:
            def began(self, request: Request) -> None:
                if request.verb == "get" and request.key == newest and newest in store.objects:
                    store.apply_delete("a newer leader", newest)

            def ended(self, request: Request) -> None:
                pass

        store.watcher = GoneBeforeItIsRead()
        assert await loaded(store) == image
        assert newest not in store.objects

    run(main())


def test_a_snapshot_that_an_earlier_leader_made_of_the_same_position_is_as_good_and_stays_as_it_is() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store, settings=ControllerSettings(snapshot_entries=1_000))
        await role.controller.allocate_producer_ids(1)
        await role.stop()
        journals = [MetadataJournal(store.for_node(f"leader-{seed}"), rng=SimRng(seed)) for seed in (5, 6)]
        for journal in journals:
            await journal.save_snapshot(await journal.load())
        (key,) = store.keys(SNAPSHOT_PREFIX)
        first = store.objects[key].data
        await journals[1].save_snapshot(await journals[1].load())
        assert store.objects[key].data == first
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


def test_the_metadata_of_200_000_partitions_loads_in_less_than_five_seconds_of_processor_time() -> None:
    brokers, topics, partitions = 10, 20_000, 10
    records: list[AnyRecord] = [ClusterCreated(cluster_id="large"), LeaderElected(controller_epoch=1, node_id=1)]
    for node_id in range(brokers):
        records.append(
            NodeRegistered(node_id=node_id, broker_epoch=1, boot=UUID(int=node_id), roles=("broker",), host="h", port=1)
        )
    for number in range(topics):
        topic_id = UUID(int=(number + 1) << 64)
        records.append(
            TopicCreated(
                topic_id=topic_id,
                name=f"topic-{number}",
                partitions=partitions,
                leader_epoch=0,
                configs={"retention.ms": "1"},
            )
        )
        for partition in range(partitions):
            owner, before = (number + partition) % brokers, (number + partition + 1) % brokers
            left = (Range(before, 1, 1, 77),)
            records.append(
                PartitionChange(
                    topic_id=topic_id, partition=partition, node_id=owner, broker_epoch=1, leader_epoch=2, ranges=left
                )
            )

    async def main() -> None:
        store = SimStore()
        journal = MetadataJournal(store.for_node("leader"), rng=SimRng(1))
        await journal.load()
        entry = await journal.log.claim(None, epoch=1, payload=encode_records(records))
        image = apply(Image(), 1, records)
        await journal.save_snapshot(Position(image=image, entry=entry))
        began_s = process_time()
        read = await loaded(store)
        took_s = process_time() - began_s
        assert read == image
        assert took_s < 5

    run(main())
