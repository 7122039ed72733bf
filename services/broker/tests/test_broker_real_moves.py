"""Moves as the real controller makes them: what both sides say to each other fits together."""

from broker_under_test import records_of
from moving_brokers import Brokers
from tests.waiting import until_async

from bmq.clocks.clock_guard import ClockGuard
from bmq.roles.controller import NewTopic, Registration
from bmq.values import NodeId, TopicPartition
from bmq.wire.batches import Record, build_batch
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.main import BrokerRole
from bmq_controller.machine.limits import Limits
from bmq_controller.main import ControllerRole, start_controller
from bmq_controller.settings import ControllerSettings
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

MOVES = 6


async def started(brokers: Brokers, controller: ControllerRole, node: int) -> BrokerRole:
    store = brokers.store.for_node(f"node-{node}")
    guard = ClockGuard(store, brokers.clock, brokers.rng, node_id=NodeId(node))
    await guard.check()
    role = BrokerRole(
        store=store,
        control=controller.controller,
        metadata=controller.metadata,
        registration=Registration(
            node_id=NodeId(node), boot=brokers.rng.uuid(), roles=("broker",), host="localhost", port=9092
        ),
        rng=brokers.rng,
        clock_guard=guard,
        settings=brokers.settings,
        group_settings=GroupSettings(),
        cluster_configs={},
        on_fenced=lambda error: brokers.fenced.append((node, error)),
    )
    await role.start()
    return role


@on_virtual_time
async def test_a_partition_goes_back_and_forth_is_drained_and_survives_a_silent_owner() -> None:
    brokers = Brokers(SimStore(faults=StoreFaults(latency_s_min=0.001, latency_s_max=0.01)))
    controller = await start_controller(
        brokers.store.for_node("controller"),
        node_id=NodeId(0),
        clock=brokers.clock,
        rng=brokers.rng,
        settings=ControllerSettings(limits=Limits(moves_burst=MOVES)),
    )
    roles = {node: await started(brokers, controller, node) for node in (1, 2)}
    (made,) = await controller.controller.create_topics([NewTopic(name="orders", partitions=1)])
    assert made.topic_id is not None
    tp = TopicPartition(made.topic_id, 0)

    def owner() -> int:
        meta = controller.metadata.image.partition(tp)
        assert meta is not None
        return int(meta.node_id)

    async def append(value: bytes) -> int:
        record = Record(offset=0, timestamp_ms=brokers.clock.now_ms(), key=None, value=value, headers=())
        return int((await roles[owner()].owner.append(tp, build_batch([record]), produce_version=9)).base_offset)

    async def until_owned_by(node: int) -> None:
        await until_async(owner, f"{node} to own it", holds=lambda found: found == node, every_s=0.01)

    for number in range(MOVES):
        assert await append(b"%d" % number) == number
        to = 3 - owner()
        await controller.controller.move(tp, NodeId(to))
        await until_owned_by(to)
    drained = owner()
    await roles[drained].stop()
    assert owner() == 3 - drained
    assert await append(b"6") == 6
    roles[drained] = await started(brokers, controller, drained)
    silent = roles[owner()]
    await silent._end_beating()
    await until_owned_by(drained)  # its lease has run out
    assert [node for node, _ in brokers.fenced] == [3 - drained]
    assert await append(b"7") == 7
    assert [value for _, value in await records_of(roles[owner()], tp)] == [b"%d" % number for number in range(8)]
    for role in roles.values():
        await role.kill()
    await controller.stop()
    await brokers.controller.close()
