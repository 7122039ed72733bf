"""What lands in a stream or a topic after it was collected goes, too, and nothing goes because it is not known."""

import asyncio
from uuid import UUID

from leading_controller import registration, start, write_wal

from bmq.metadata.codec import LOG_PREFIX
from bmq.roles.controller import NewTopic
from bmq.storage.keys import topic_prefix
from bmq.storage.numbered import numbered_key, wal_key
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicId
from bmq_controller.settings import ControllerSettings
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
    made = await role.controller.create_topics([NewTopic(name="dead", partitions=1), NewTopic(name="living", partitions=1)])
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
