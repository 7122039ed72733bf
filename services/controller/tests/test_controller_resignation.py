"""A leader that is stopped says so, and nobody waits for its silence: neither its standbys nor the nodes that follow
it.
"""

import asyncio
from random import Random

import pytest
from controllers_in_memory import Controllers, SimBroker
from tests.waiting import until_async

from bmq.errors import ControllerUnavailable
from bmq.metadata.codec import LOG_PREFIX, decode_records
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.follower import MetadataFollower
from bmq.metadata.records import LeaderAlive
from bmq.roles.controller import NewTopic
from bmq.storage.flatlog import decode_entry
from bmq_controller.settings import ControllerSettings
from bmq_sim.clock import SimRng
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.store import SimStore, StoreFaults

SETTINGS = ControllerSettings()
FAST = StoreFaults(latency_s_min=0.005, latency_s_max=0.05)


def farewells(store: SimStore) -> list[LeaderAlive]:
    """The last words of leaders that the log has."""
    entries = [
        decode_records(decode_entry(store.objects[key].data, what=key).payload, what=key)
        for key in store.keys(LOG_PREFIX)
    ]
    return [record for entry in entries for record in entry if isinstance(record, LeaderAlive) and record.resigns]


@pytest.mark.parametrize("polling", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_standby_leads_at_once_when_the_leader_is_stopped(seed: int, polling: bool) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore(rng=Random(seed), faults=FAST)
        controllers = Controllers(loop, store, polling=polling)
        for node_id in (1, 2, 3):
            controllers.start(node_id)
        first = await controllers.until_led()
        brokers = [SimBroker(controllers, node_id) for node_id in (11, 12)]
        await asyncio.sleep(5 + Random(seed).random())
        stopped_s = loop.time()
        await controllers.stop(first)
        second = await controllers.until_led(by_other_than=first)
        assert loop.time() - stopped_s <= (0.2 if polling else SETTINGS.standby_look_s + 0.2)
        [farewell] = farewells(store)
        assert set(farewell.heard) >= {first}
        await asyncio.sleep(20)
        assert controllers.leading() == [second], "the other standby follows it"
        assert (await controllers.image()).controller_epoch == 2
        assert [broker.fenced for broker in brokers] == [0, 0]

    run(main(), loop=loop)


def test_what_was_under_way_is_committed_before_the_last_word_and_nothing_after_it() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore(rng=Random(1), faults=StoreFaults(latency_s_min=0.05, latency_s_max=0.05))
        controllers = Controllers(loop, store)
        for node_id in (1, 2):
            controllers.start(node_id)
        first = await controllers.until_led()
        await asyncio.sleep(5)
        controller = controllers.roles[first].controller
        under_way = [
            asyncio.ensure_future(controller.create_topics([NewTopic(name=f"t{number}")])) for number in range(3)
        ]
        await asyncio.sleep(0.01)
        stopping = asyncio.ensure_future(controllers.stop(first))
        await asyncio.sleep(0.01)
        with pytest.raises(ControllerUnavailable):
            await controller.create_topics([NewTopic(name="late")])
        assert [result.error for done in under_way for result in await done] == [None] * 3
        await stopping
        await controllers.until_led(by_other_than=first)
        image = await controllers.image()
        assert set(image.topic_ids) == {"t0", "t1", "t2"}

    run(main(), loop=loop)


def test_a_lone_leader_has_nobody_to_hand_over_to() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore(rng=Random(1), faults=FAST)
        controllers = Controllers(loop, store)
        controllers.start(1)
        await controllers.until_led()
        await asyncio.sleep(5)
        position = (await controllers.image()).position
        await controllers.stop(1)
        assert (await controllers.image()).position == position

    run(main(), loop=loop)


def test_a_standby_that_comes_to_a_log_which_ends_with_a_last_word_leads_at_once_and_to_an_older_one_it_waits() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore(rng=Random(1), faults=FAST)
        controllers = Controllers(loop, store)
        for node_id in (1, 2):
            controllers.start(node_id)
        first = await controllers.until_led()
        await asyncio.sleep(5)
        other = 3 - first
        controllers.kill(other)
        await controllers.stop(first)
        began_s = loop.time()
        controllers.start(3)
        assert await controllers.until_led() == 3
        assert loop.time() - began_s < 0.5

        await asyncio.sleep(3)
        controllers.kill(3)
        began_s = loop.time()
        controllers.start(4)
        assert await controllers.until_led() == 4
        assert round(loop.time() - began_s, 3) >= SETTINGS.takeover_s, (
            "the last word of an earlier leader says nothing of node 3"
        )

    run(main(), loop=loop)


def test_a_store_that_is_down_holds_up_a_stop_for_a_limited_time_and_the_standby_takes_over_later() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore(rng=Random(1), faults=FAST)
        controllers = Controllers(loop, store)
        for node_id in (1, 2):
            controllers.start(node_id)
        first = await controllers.until_led()
        await asyncio.sleep(5)
        store.outage(30)
        began_s = loop.time()
        await controllers.stop(first)
        assert loop.time() - began_s <= SETTINGS.stop_timeout_s + 0.1
        await asyncio.sleep(30)
        assert await controllers.until_led(by_other_than=first) == 3 - first

    run(main(), loop=loop)


def test_a_node_that_follows_looks_for_the_next_leader_as_soon_as_the_old_one_answers_no_more() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        store = SimStore(rng=Random(1), faults=FAST)
        controllers = Controllers(loop, store)
        for node_id in (1, 2):
            controllers.start(node_id)
        first = await controllers.until_led()
        await asyncio.sleep(5)
        feed = MetadataFeed()
        follower = MetadataFollower(
            store.for_node("f"),
            rng=SimRng(7),
            feed=feed,
            poll=lambda after, wait_ms: controllers.ask(lambda controller: controller.metadata_poll(after, wait_ms)),
        )
        following = asyncio.ensure_future(follower.run())
        await asyncio.sleep(3)
        requests = store.requests["head"]
        stopped_s = loop.time()
        await controllers.stop(first)
        await until_async(lambda: feed.image.controller_id != first, "another leader", 5, every_s=0.01)
        assert loop.time() - stopped_s <= 0.5, "and not only at the next look, a second later"
        await asyncio.sleep(2)
        assert store.requests["head"] - requests < 20
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    run(main(), loop=loop)
