"""Operations of the leading controller over a store that is slow, fails and answers wrongly: one entry at a time, each
answered once.
"""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from leading_controller import NODE, loaded, registration, start

from bmq.errors import ControllerUnavailable, Corrupt, PolicyViolation, TopicExists
from bmq.metadata.codec import LOG_PREFIX
from bmq.metadata.image import Image
from bmq.metadata.records import AnyRecord, ProducerIdsAllocated, TopicDeleted
from bmq.roles.controller import ConfigChange, ConfigResource, Heartbeat, NewTopic, Reassignment
from bmq.values import BrokerEpoch, NodeId, TopicId, TopicPartition
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.lanes import LaneWanted
from bmq_controller.machine.limits import Limits
from bmq_controller.main import ControllerRole
from bmq_controller.operations import DECISION_WORK, FOLDING_WORK, OperationQueue
from bmq_controller.settings import ControllerSettings
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.store import SimStore, StoreFaults


def test_what_was_answered_is_there_after_a_restart() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        epoch = await role.controller.register(registration())
        [result] = await role.controller.create_topics(
            [NewTopic(name="t", partitions=3, configs={"retention.ms": "5"})]
        )
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


def test_an_entry_takes_no_more_operations_than_are_work_for_one_turn() -> None:
    """Thousands that wait would be a turn of seconds. How many topics there are makes no difference."""

    async def main() -> None:
        store = SimStore(faults=StoreFaults(latency_s_min=0.05, latency_s_max=0.05))
        role = await start(store, settings=ControllerSettings(work_per_entry=3 * FOLDING_WORK))
        before = len(store.keys(LOG_PREFIX))
        await asyncio.gather(*(role.controller.allocate_producer_ids(10) for _ in range(12)))
        assert len(store.keys(LOG_PREFIX)) == before + 4
        made = [NewTopic(name=f"t{number}", partitions=1) for number in range(2 * FOLDING_WORK)]
        assert all(result.error is None for result in await role.controller.create_topics(made))
        before = len(store.keys(LOG_PREFIX))
        await asyncio.gather(*(role.controller.allocate_producer_ids(10) for _ in range(12)))
        assert len(store.keys(LOG_PREFIX)) == before + 4
        nothing = [role.controller.delete_topics([TopicId(UUID(int=number))]) for number in range(40)]
        with patch.object(OperationQueue, "draft", autospec=True, side_effect=OperationQueue.draft) as drafts:
            await asyncio.gather(*nothing)
        assert drafts.call_count >= 40 * DECISION_WORK // (3 * FOLDING_WORK) > 2, "those that change nothing count, too"
        many = [Reassignment(tp=TopicPartition(TopicId(UUID(int=1)), index), to=NodeId(99)) for index in range(130)]
        topic = ConfigResource(kind="topic", name="t1")
        longer = [ConfigChange(name="leader.replication.throttled.replicas", operation="append", value="1:2")] * 2
        for ask in (
            lambda: role.controller.reassign(many),
            lambda: role.controller.alter_configs(topic, longer, validate_only=True),
            lambda: role.controller.create_topics(made[:13], validate_only=True),
        ):
            with patch.object(OperationQueue, "draft", autospec=True, side_effect=OperationQueue.draft) as drafts:
                await asyncio.gather(*(ask() for _ in range(5)), return_exceptions=True)
            assert drafts.call_count >= 5, "each names so much that it is an entry's work by itself"
        await role.stop()

    run(main())


def test_what_the_cluster_lives_by_goes_before_what_thousands_of_clients_ask_for() -> None:
    async def main() -> None:
        store = SimStore(faults=StoreFaults(latency_s_min=0.05, latency_s_max=0.05))
        role = await start(store, settings=ControllerSettings(work_per_entry=3 * FOLDING_WORK))
        clients = [asyncio.ensure_future(role.controller.allocate_producer_ids(10)) for _ in range(300)]
        await asyncio.sleep(0.01)
        began_s = asyncio.get_running_loop().time()
        await role.controller.register(registration(5))
        assert asyncio.get_running_loop().time() - began_s < 0.3
        assert sum(client.done() for client in clients) < 20
        given = [number for block in await asyncio.gather(*clients) for number in block]
        assert given == sorted(given), "clients' in their order"
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
        await control.alter_configs(
            ConfigResource(kind="broker", name=""), [ConfigChange(name="num.partitions", operation="set", value="4")]
        )
        [result] = await control.create_topics([NewTopic(name="u")])
        assert result.partitions == 4
        await role.stop()

    run(main())


def test_a_cluster_with_more_configurations_than_are_let_now_is_loaded_and_takes_no_more_of_them() -> None:
    async def main() -> None:
        store = SimStore()
        topic, cluster = ConfigResource(kind="topic", name="t"), ConfigResource(kind="broker", name="")
        key = "leader.replication.throttled.replicas"
        role = await start(store)
        await role.controller.create_topics([NewTopic(name="t", configs={key: "x" * 2_000})])
        await role.controller.create_lane(LaneWanted(name="dev", reads_base=("orders",), reads_base_bytes_per_s=4_096))
        await role.stop()

        role = await start(store, seed=2, settings=ControllerSettings(limits=Limits(config_bytes=1_000)))
        control = role.controller
        [refused, made] = await control.create_topics(
            [NewTopic(name="u", configs={"segment.ms": "7"}), NewTopic(name="v")]
        )
        assert isinstance(refused.error, PolicyViolation) and made.error is None
        for change in (
            lambda: control.alter_configs(topic, [ConfigChange(name="segment.ms", operation="set", value="7")]),
            lambda: control.replace_configs(cluster, {"num.partitions": "4"}),
            lambda: control.create_lane(LaneWanted(name="other", reads_base=("orders",), reads_base_bytes_per_s=4_096)),
            lambda: control.change_lane(
                LaneWanted(name="dev", reads_base=("orders", "more"), reads_base_bytes_per_s=4_096)
            ),
        ):
            with pytest.raises(PolicyViolation, match="config_bytes_max is 1000"):
                await change()
        await control.alter_configs(topic, [ConfigChange(name=key, operation="set", value="x")])
        await control.alter_configs(topic, [ConfigChange(name="segment.ms", operation="set", value="7")])
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


def test_a_decision_that_breaks_down_is_refused_alone_and_the_leader_stays() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        outcomes = await asyncio.gather(
            role.controller.allocate_producer_ids(1),
            role.leader.operate("broken", lambda image: Decision(1 // len(image.topics))),
            role.controller.allocate_producer_ids(1),
            return_exceptions=True,
        )
        assert [len(outcomes[0]), type(outcomes[1]), len(outcomes[2])] == [1, ControllerUnavailable, 1]  # type: ignore[arg-type]
        assert "bug in bmq: ZeroDivisionError" in str(outcomes[1])
        assert not role.deposed.done()
        assert (await loaded(store)).next_producer_id == 2
        await role.stop()

    run(main())


def test_what_follows_from_every_entry_breaking_down_ends_the_leader_and_all_who_wait_are_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No operation is to blame, so none can be left out."""

    def broken(image: Image) -> tuple[AnyRecord, ...]:
        raise ZeroDivisionError

    async def main() -> None:
        store = SimStore()
        role = await start(store)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        monkeypatch.setattr("bmq_controller.operations.consequences", broken)
        outcomes = await asyncio.gather(
            *(role.controller.allocate_producer_ids(1) for _ in range(3)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [ControllerUnavailable] * 3
        assert "a bug: ZeroDivisionError" in str(outcomes[0])
        assert loop.time() - began_s < 1
        assert (await role.deposed).startswith("this controller broke down"), (
            "it does not say that another has taken over"
        )
        assert (await loaded(store)).next_producer_id == 0
        await role.stop()

    run(main())


SLOW_S = 2.0
"""How long what is given to a thread takes in these tests."""


async def _with_partitions(settings: ControllerSettings) -> ControllerRole:
    """A leader with two brokers, the first of which owns six partitions."""
    role = await start(SimStore(), settings=settings)
    await role.controller.register(registration())
    await role.controller.create_topics([NewTopic(name="t", partitions=6)])
    await role.controller.register(registration(2, 2))
    assert role.metadata.image.owned_counts == {NODE: 6}
    return role


def _on_slow_threads(main: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    loop.executor_delay_s = lambda: SLOW_S
    run(main, loop=loop)


def test_while_it_is_decided_what_becomes_of_many_partitions_the_leader_hears_of_the_living() -> None:
    """A turn of the loop for a hundred thousand took seconds, in which heirs were taken for dead."""

    async def main() -> None:
        role = await _with_partitions(ControllerSettings(decided_beside_partitions=3))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        stopping = asyncio.ensure_future(role.controller.report_stopped(NODE, BrokerEpoch(1), 0))
        await asyncio.sleep(0)
        beat = Heartbeat(node_id=NodeId(2), broker_epoch=BrokerEpoch(1), boot=UUID(int=2))
        await role.controller.heartbeat(beat)
        assert loop.time() - began_s < 0.1
        given = await role.controller.allocate_producer_ids(1)
        assert stopping.done(), "in the order in which they came"
        assert loop.time() - began_s >= SLOW_S
        assert len(given) == 1
        assert role.metadata.image.owned_counts == {NodeId(2): 6}
        began_s = loop.time()
        await role.controller.cordon(NodeId(2), cordoned=True)
        assert loop.time() - began_s < 0.1, "what gives nothing away is decided at once"
        await role.stop()

    _on_slow_threads(main())


def test_a_drain_of_many_partitions_is_decided_about_in_a_thread_also_where_it_has_a_condition() -> None:
    async def main() -> None:
        role = await _with_partitions(ControllerSettings(decided_beside_partitions=3))
        began_s = asyncio.get_running_loop().time()
        looked_at: list[Image] = []
        await role.controller.when(looked_at.append).drain(NODE)
        assert asyncio.get_running_loop().time() - began_s >= SLOW_S
        assert len(looked_at) == 1
        assert set(role.metadata.image.moving.values()) == {NodeId(2)}
        assert len(role.metadata.image.moving) == 6
        await role.stop()

    _on_slow_threads(main())


def test_few_partitions_are_decided_about_at_once() -> None:
    async def main() -> None:
        role = await _with_partitions(ControllerSettings(decided_beside_partitions=6))
        began_s = asyncio.get_running_loop().time()
        await role.controller.report_stopped(NODE, BrokerEpoch(1), 0)
        assert asyncio.get_running_loop().time() - began_s < 0.1
        await role.stop()

    _on_slow_threads(main())


def test_who_waits_for_a_decision_in_a_thread_is_answered_where_the_leader_ends_meanwhile() -> None:
    async def main() -> None:
        role = await _with_partitions(ControllerSettings(decided_beside_partitions=3, stop_timeout_s=0.5))
        stopping = asyncio.ensure_future(role.controller.report_stopped(NODE, BrokerEpoch(1), 0))
        await asyncio.sleep(0.1)
        await role.stop()
        with pytest.raises(ControllerUnavailable):
            await stopping

    _on_slow_threads(main())


def test_what_breaks_down_in_a_thread_is_refused_alone() -> None:
    async def main() -> None:
        role = await _with_partitions(ControllerSettings(decided_beside_partitions=3))
        with (
            patch("bmq_controller.machine.nodes.report_stopped", side_effect=ZeroDivisionError),
            pytest.raises(ControllerUnavailable, match="a bug"),
        ):
            await role.controller.report_stopped(NODE, BrokerEpoch(1), 0)
        await role.controller.report_stopped(NODE, BrokerEpoch(1), 0)
        assert role.metadata.image.owned_counts == {NodeId(2): 6}
        await role.stop()

    _on_slow_threads(main())
