"""Following the metadata log: by the leader's word, by the store's, and where the two do not agree."""

import asyncio
from collections.abc import Sequence

import pytest

from bmq.errors import ControllerUnavailable, NotReady
from bmq.metadata import journal
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.follower import MetadataFollower, Poll
from bmq.roles.controller import NewTopic
from bmq.values import NodeId
from bmq_controller.main import ControllerRole, start_controller
from bmq_controller.recent import ENTRIES_MAX
from bmq_controller.settings import ControllerSettings
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.store import SimStore


async def start(store: SimStore, seed: int = 1, settings: ControllerSettings | None = None) -> ControllerRole:
    return await start_controller(
        store.for_node(f"n{seed}"), node_id=NodeId(seed), clock=SimClock(), rng=SimRng(seed), settings=settings
    )


class Following:
    """A follower that runs."""

    def __init__(self, store: SimStore, poll: Poll | None = None, *, interval_s: float = 1.0) -> None:
        self.feed = MetadataFeed()
        self.follower = MetadataFollower(
            store.for_node("f"), rng=SimRng(7), feed=self.feed, poll=poll, interval_s=interval_s
        )
        self._task = asyncio.ensure_future(self.follower.run())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def until(following: Following, role: ControllerRole, *, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        await following.feed.wait_for(role.metadata.image.position)
    assert following.feed.image == role.metadata.image


def test_the_leaders_entries_come_at_once_and_cost_the_store_nothing() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        following = Following(store, role.controller.metadata_poll)
        await asyncio.sleep(0.5)
        before = store.requests["get"] + store.requests["list"] + store.requests["head"]
        for _ in range(30):
            await role.controller.allocate_producer_ids(1)
            await until(following, role, within_s=0.01)
            await asyncio.sleep(0.7)
        assert store.requests["get"] + store.requests["list"] + store.requests["head"] <= before + 10, (
            "the leader looks whether it still leads"
        )
        await following.stop()
        await role.stop()

    run(main())


def test_without_an_answer_of_the_leader_the_store_is_read() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)

        async def unavailable(after_position: int, wait_ms: int) -> Sequence[bytes]:
            raise ControllerUnavailable("nobody there")

        async def hangs(after_position: int, wait_ms: int) -> Sequence[bytes]:
            await asyncio.sleep(1000)
            return []

        async def lies(after_position: int, wait_ms: int) -> Sequence[bytes]:
            return [b"bmqL and nothing more"]

        async def empty(after_position: int, wait_ms: int) -> Sequence[bytes]:
            return []

        for poll in (None, unavailable, hangs, lies, empty):
            following = Following(store, poll)
            await asyncio.sleep(3)
            for _ in range(5):
                await role.controller.allocate_producer_ids(1)
                await until(following, role, within_s=3.1)
            await following.stop()
        await role.stop()

    run(main())


def test_a_leader_that_was_deposed_and_does_not_know_is_overruled_by_the_store() -> None:
    async def main() -> None:
        store = SimStore()
        old = await start(store, settings=ControllerSettings(leading_check_s=1000))
        following = Following(store, old.controller.metadata_poll)
        await asyncio.sleep(3)
        new = await start(store, 2)
        await new.controller.allocate_producer_ids(1)
        await until(following, new, within_s=3)
        await following.stop()
        await new.stop()
        await old.stop()

    run(main())


def test_who_is_too_far_behind_for_the_leader_reads_the_store_and_goes_on_with_the_leader() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store, settings=ControllerSettings(snapshot_entries=100))
        held_back = asyncio.Event()

        async def poll(after_position: int, wait_ms: int) -> Sequence[bytes]:
            await held_back.wait()
            return await role.controller.metadata_poll(after_position, wait_ms)

        following = Following(store, poll, interval_s=100.0)
        await asyncio.sleep(1)
        for _ in range(ENTRIES_MAX + 5):
            await role.controller.allocate_producer_ids(1)
        with pytest.raises(NotReady, match="read the store"):
            await role.controller.metadata_poll(1, 10)
        with pytest.raises(NotReady):
            await role.controller.metadata_poll(role.metadata.image.position + 5, 10)
        held_back.set()
        await until(following, role, within_s=300)
        await role.controller.allocate_producer_ids(1)
        await until(following, role, within_s=101)
        await following.stop()
        await role.stop()

    run(main())


def test_a_poll_waits_for_an_entry_and_ends_with_the_leader() -> None:
    async def main() -> None:
        role = await start(SimStore())
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await role.controller.metadata_poll(1, 500) == []
        assert loop.time() - began_s == pytest.approx(0.5)
        waiting = asyncio.ensure_future(role.controller.metadata_poll(1, 500))
        await asyncio.sleep(0.1)
        await role.controller.allocate_producer_ids(1)
        assert len(await waiting) == 1
        waiting = asyncio.ensure_future(role.controller.metadata_poll(2, 500))
        await asyncio.sleep(0.1)
        await role.stop()
        with pytest.raises(ControllerUnavailable):
            await waiting

    run(main())


def test_silence_is_what_the_store_said_and_an_outage_says_nothing() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        following = Following(store, interval_s=0.25)
        await asyncio.sleep(5)
        assert 4 < following.follower.silent_s <= 5
        await role.controller.allocate_producer_ids(1)
        await asyncio.sleep(1)
        assert following.follower.silent_s <= 1
        store.outage(20)
        await asyncio.sleep(21)
        assert following.follower.silent_s <= 1.5
        await following.stop()
        await role.stop()

    run(main())


def test_a_large_entry_is_folded_in_a_thread_and_the_store_is_not_asked_for_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "FOLDED_BESIDE_BYTES", 400)
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore()
        role = await start(store)
        following = Following(store, role.controller.metadata_poll, interval_s=0.2)
        await asyncio.sleep(0.5)
        loop.executor_delay_s = lambda: 3.0
        await role.controller.create_topics([NewTopic(name=f"topic-{number}", partitions=1) for number in range(20)])
        began_s = loop.time()
        before = store.requests["get"]
        await until(following, role, within_s=7)
        assert loop.time() - began_s >= 3.0
        assert store.requests["get"] == before
        began_s = loop.time()
        await role.controller.allocate_producer_ids(1)
        await until(following, role, within_s=1)
        await following.stop()
        await role.stop()

    run(main(), loop=loop)
