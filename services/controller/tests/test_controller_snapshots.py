"""Snapshots of the metadata, and readers of the store."""

import asyncio

from leading_controller import loaded, start

from bmq.metadata.codec import LOG_PREFIX, SNAPSHOT_PREFIX
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.follower import MetadataFollower
from bmq.roles.controller import NewTopic
from bmq_controller.settings import ControllerSettings
from bmq_sim.clock import SimRng
from bmq_sim.loop import run
from bmq_sim.store import SimStore


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
