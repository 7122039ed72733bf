"""What lands in a stream or a topic after it was collected goes, too, and nothing goes because it is not known."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from leading_controller import registration, start, write_wal

from bmq.errors import ControllerUnavailable
from bmq.metadata.codec import LOG_PREFIX
from bmq.metadata.image import Image
from bmq.roles.controller import NewTopic
from bmq.storage.keys import topic_prefix
from bmq.storage.numbered import numbered_key, wal_key
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicId
from bmq_controller.collector import Collector
from bmq_controller.settings import ControllerSettings
from bmq_sim.clock import SimRng
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

SETTINGS = ControllerSettings(stray_interval_s=100.0, collect_interval_s=1.0, collect_delay_s=1.0)
NO_ANSWERS = StoreFaults(unknown_applied_probability=1.0, timeout_s=1e6)
LATE = b"a data object is longer than a seal" + bytes(200)


@on_virtual_time
async def test_a_wal_object_that_lands_in_a_collected_stream_goes_and_the_seal_stays() -> None:
    store = SimStore()
    role = await start(store, settings=SETTINGS)
    first = StreamId(NodeId(1), await role.controller.register(registration(boot=1)))
    await write_wal(store.for_node("broker"), first, 3, cluster_id=role.metadata.image.cluster_id)
    second = StreamId(NodeId(1), await role.controller.register(registration(boot=2)))
    await asyncio.sleep(10)
    assert first not in role.metadata.image.sealed
    assert first not in role.metadata.image.dropped
    (seal,) = store.keys(first.prefix)
    store.apply_create("sleeper", wal_key(first, 7), LATE)
    store.apply_create("living", wal_key(second, 0), LATE)
    await asyncio.sleep(150)
    assert store.keys("wal/") == [seal, wal_key(second, 0)]
    await role.stop()


@on_virtual_time
async def test_a_stream_of_an_incarnation_that_the_image_does_not_know_yet_is_left_alone() -> None:
    store = SimStore()
    role = await start(store, settings=SETTINGS)
    epoch = await role.controller.register(registration(boot=1))
    newer = StreamId(NodeId(1), BrokerEpoch(epoch + 1))
    stranger = StreamId(NodeId(77), BrokerEpoch(1))
    for stream in (newer, stranger):
        store.apply_create("another controller's", wal_key(stream, 0), LATE)
    await asyncio.sleep(250)
    assert store.keys("wal/") == [wal_key(newer, 0), wal_key(stranger, 0)]
    await role.stop()


@on_virtual_time
async def test_an_object_that_lands_in_a_collected_topic_goes_and_those_of_living_topics_stay() -> None:
    store = SimStore()
    role = await start(store, settings=SETTINGS)
    made = await role.controller.create_topics(
        [NewTopic(name="dead", partitions=1), NewTopic(name="living", partitions=1)]
    )
    dead, living = (result.topic_id for result in made)
    assert dead is not None
    assert living is not None
    await role.controller.delete_topics([dead])
    await asyncio.sleep(20)
    assert dead not in role.metadata.image.deleted
    late = [f"{topic_prefix(dead)}0000000000/segment/{number}" for number in range(5)]
    for key in (*late, f"{topic_prefix(living)}0000000000/segment/1"):
        store.apply_create("sleeper", key, LATE)
    await asyncio.sleep(150)
    assert store.keys("topics/") == [f"{topic_prefix(living)}0000000000/segment/1"]
    await role.stop()


@on_virtual_time
async def test_a_deposed_controller_collects_no_topic_that_its_successor_made() -> None:
    store = SimStore()
    old = await start(store, seed=1, settings=ControllerSettings(stray_interval_s=100.0, leading_check_s=1e6))
    new = await start(store, seed=2, settings=SETTINGS)
    (made,) = await new.controller.create_topics([NewTopic(name="orders", partitions=1)])
    assert made.topic_id is not None
    key = f"{topic_prefix(made.topic_id)}0000000000/segment/1"
    store.apply_create("owner", key, LATE)
    strange = f"{topic_prefix(TopicId(UUID(int=5)))}0000000000/segment/1"
    store.apply_create("nobody", strange, LATE)
    await asyncio.sleep(99)
    await new.stop()
    await asyncio.sleep(150)
    assert store.keys("topics/") == sorted([key, strange])
    await old.stop()


@on_virtual_time
async def test_a_deposed_controller_whose_last_entry_landed_unheard_and_was_pruned_collects_no_living_topic() -> None:
    store = SimStore()
    old = await start(store, seed=1, settings=ControllerSettings(stray_interval_s=100.0, leading_check_s=1e6))
    last = old.leader.image.position + 1
    store.trouble("n1", NO_ANSWERS, 1e9)
    unheard = asyncio.ensure_future(old.controller.create_topics([NewTopic(name="unheard", partitions=1)]))
    await asyncio.sleep(1)
    new = await start(store, seed=2, settings=ControllerSettings(snapshot_entries=2))
    (made,) = await new.controller.create_topics([NewTopic(name="orders", partitions=1)])
    assert made.topic_id is not None
    key = f"{topic_prefix(made.topic_id)}0000000000/segment/1"
    store.apply_create("owner", key, LATE)
    for number in range(10):
        await new.controller.create_topics([NewTopic(name=f"more-{number}", partitions=1)])
        await asyncio.sleep(1)
    assert numbered_key(LOG_PREFIX, last) in store.deleted
    await asyncio.sleep(150)
    assert store.keys("topics/") == [key]
    await asyncio.gather(unheard, return_exceptions=True)
    await new.stop()
    await old.stop()


@on_virtual_time
async def test_a_leader_that_is_writing_when_it_looks_for_strays_looks_on_once_the_entry_is_durable() -> None:
    store = SimStore()
    role = await start(store, settings=SETTINGS)
    strange = f"{topic_prefix(TopicId(UUID(int=5)))}0000000000/segment/1"
    store.apply_create("nobody", strange, LATE)
    await asyncio.sleep(95)
    store.trouble("n1", StoreFaults(not_applied_probability=1.0), 15)
    writing = asyncio.ensure_future(role.controller.create_topics([NewTopic(name="orders", partitions=1)]))
    await asyncio.sleep(10)
    assert not writing.done()
    assert store.keys("topics/") == [strange]
    await asyncio.sleep(40)
    assert store.keys("topics/") == []
    await writing
    await role.stop()


@on_virtual_time
async def test_files_of_somebody_else_between_the_objects_stay_and_hide_none_of_them() -> None:
    store = SimStore()
    role = await start(store, settings=SETTINGS)
    first = StreamId(NodeId(1), await role.controller.register(registration(boot=1)))
    await write_wal(store.for_node("broker"), first, 1, cluster_id=role.metadata.image.cluster_id)
    await role.controller.register(registration(boot=2))
    (made,) = await role.controller.create_topics([NewTopic(name="dead", partitions=1)])
    assert made.topic_id is not None
    await role.controller.delete_topics([made.topic_id])
    await asyncio.sleep(20)
    strangers = [
        "topics/!",
        "topics/00000000-not-an-id/0000000000/segment/1",
        f"topics/{str(made.topic_id).upper()}X/1",
        "topics/~",
        f"wal/{1:010d}/!",
        f"{first.prefix}README and as long as a data object",
        f"wal/{1:010d}/~",
    ]
    late = [wal_key(first, 7), f"{topic_prefix(made.topic_id)}0000000000/segment/1"]
    kept = set(store.keys("wal/"))
    for key in (*strangers, *late):
        store.apply_create("anybody", key, LATE)
    await asyncio.sleep(150)
    assert set(store.keys("topics/")) | set(store.keys("wal/")) == kept | set(strangers)
    await role.stop()


@on_virtual_time
async def test_what_cannot_be_collected_now_is_tried_again_and_holds_up_nothing_else() -> None:
    store = SimStore()
    streams = {StreamId(NodeId(1), BrokerEpoch(number)): 0 for number in (1, 2)}
    topics = {TopicId(UUID(int=number)): f"t{number}" for number in (1, 2)}
    for stream in streams:
        store.apply_create("broker", wal_key(stream, 0), LATE)
    for topic_id in topics:
        store.apply_create("broker", f"{topic_prefix(topic_id)}0000000000/segment/1", LATE)
    living = f"{topic_prefix(TopicId(UUID(int=3)))}0000000000/segment/1"
    store.apply_create("broker", living, LATE)
    image = Image(dropped=dict(streams), deleted=dict(topics))
    asked: list[object] = []

    async def collected(some: Sequence[StreamId], others: Sequence[TopicId]) -> None:
        nonlocal image
        (one,) = (*some, *others)
        asked.append(one)
        if asked.count(one) == 1 and one in (StreamId(NodeId(1), BrokerEpoch(1)), TopicId(UUID(int=1))):
            raise ControllerUnavailable("its outcome is not known")
        image = Image(
            dropped={stream: at for stream, at in image.dropped.items() if stream != one},
            deleted={topic_id: name for topic_id, name in image.deleted.items() if topic_id != one},
        )

    collector = Collector(
        store.for_node("leader"), rng=SimRng(3), image=lambda: image, collected=collected, delay_s=0.0, interval_s=1.0
    )
    await collector.collect()
    assert len(asked) == 4
    assert (list(image.dropped), list(image.deleted)) == ([StreamId(NodeId(1), BrokerEpoch(1))], [TopicId(UUID(int=1))])
    assert store.keys() == [living]
    await collector.collect()
    assert (list(image.dropped), list(image.deleted), len(asked)) == ([], [], 6)
    await collector.collect()
    assert len(asked) == 6
