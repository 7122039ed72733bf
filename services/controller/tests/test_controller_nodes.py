"""Nodes that register, stop and leave something behind: streams, ranges, deleted topics' objects."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from leading_controller import NODE, registration, start, write_wal

from bmq.errors import Fenced, InvalidRequest, UnknownTopic
from bmq.metadata.records import Range
from bmq.roles.controller import Heartbeat, NewTopic
from bmq.storage.stream import seal_stream
from bmq.storage.wal import Seal, decode_any
from bmq.values import BrokerEpoch, StreamId, TopicPartition
from bmq_controller.settings import ControllerSettings
from bmq_sim.clock import SimRng
from bmq_sim.loop import run
from bmq_sim.store import SimStore, StoreFaults


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

        covered = tuple(
            (TopicPartition(t.topic_id, p), meta.ranges)
            for t in image.topics.values()
            for p, meta in enumerate(t.partitions)
        )
        beat = Heartbeat(node_id=NODE, broker_epoch=second, boot=UUID(int=2))
        await control.heartbeat(replace(beat, covered=covered[:1]))
        assert role.metadata.image.sealed == {stream: 3}
        await control.heartbeat(replace(beat, covered=covered))
        await control.heartbeat(replace(beat, covered=covered))
        assert role.metadata.image.sealed == {}
        await asyncio.sleep(ControllerSettings().collect_interval_s * 2)
        assert role.metadata.image.dropped == {}
        left = [decode_any(store.objects[key].data) for key in store.keys(stream.prefix)]
        assert [type(found) for found in left] == [Seal], "data goes, the seal stays"
        await role.stop()

    run(main())


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"node_id": 1 << 31}, "node id 2147483648: set a whole number from 0 to 2147483647"),
        ({"node_id": -1}, "node id -1: set a whole number"),
        ({"port": 1 << 31}, "port 2147483648: set a number from 0 to 65535"),
        ({"internal_port": -1}, "internal port -1: set a number"),
        ({"host": "h" * 256}, "host has 256 characters: at most 255"),
        ({"internal_host": "h" * 256}, "internal host has 256 characters"),
        ({"rack": "r" * 1_001}, "rack has 1001 characters: at most 1000"),
        ({"listeners": {"public": ("h", 65_536)}}, "port 65536 of listener 'public': set a number"),
        ({"listeners": {"public": ("h" * 256, 1)}}, "host of listener 'public' has 256 characters"),
        ({"listeners": {"a b": ("h", 1)}}, "listener 'a b': use 1 to 63 letters"),
    ],
)
def test_a_node_that_no_client_could_be_told_of_is_refused_and_the_leader_goes_on(
    named: dict[str, Any], said: str
) -> None:
    async def main() -> None:
        role = await start(SimStore())
        with pytest.raises(InvalidRequest, match=said):
            await role.controller.register(replace(registration(node_id=2, boot=2), **named))
        await asyncio.sleep(60)  # a broker that was silent for so long would be fenced
        await role.controller.register(registration())
        assert set(role.metadata.image.nodes) == {NODE}
        await role.stop()

    run(main())


def test_listeners_that_no_client_could_be_told_of_are_refused_of_a_living_node_too() -> None:
    async def main() -> None:
        role = await start(SimStore())
        epoch = await role.controller.register(registration())
        beat = Heartbeat(node_id=NODE, broker_epoch=epoch, boot=UUID(int=1), listeners={"public": ("h", 1 << 31)})
        with pytest.raises(InvalidRequest, match="port 2147483648 of listener 'public'"):
            await role.controller.heartbeat(beat)
        await role.controller.heartbeat(replace(beat, listeners={"public": ("h", 1)}))
        assert role.metadata.image.nodes[NODE].listeners == {"public": ("h", 1)}
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
        assert all(meta.ranges == () for meta in next(iter(role.metadata.image.topics.values())).partitions)
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
