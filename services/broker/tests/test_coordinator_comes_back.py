"""A coordinator that leaves while it loads and comes back: what those hear who ask, and which of two loadings is the
coordinator's.
"""

import asyncio

from held_store import HeldStore
from moving_brokers import Brokers
from test_broker_beaten import commit, fetched

from bmq.errors import NotOwner
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.owner import Caller
from bmq.storage.keys import segment_prefix
from bmq.values import TopicPartition
from bmq.wire.message import Message
from bmq_sim.loop import on_virtual_time


async def asked(brokers: Brokers, node: int) -> int:
    listed = Message(states_filter=(), types_filter=())
    try:
        reply = await brokers.roles[node].owner.group_call(0, 16, listed, Caller(client_id="c", client_host="h"))
    except NotOwner:
        return -1
    return int(reply["error_code"])


async def loading(store: HeldStore) -> tuple[Brokers, TopicPartition, TopicPartition, str]:
    """Node 1 waits for a segment of the coordinator's log; the opening of its partition did not need that one."""
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (orders,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    (tp,) = brokers.controller.create_topic(CONSUMER_OFFSETS, partitions=1, owner=1)
    for offset in (4, 5):
        await commit(brokers, 1, orders, offset=offset)
        await brokers.roll(tp)
    await brokers.moved(tp, to=2)
    assert await asked(brokers, 2) == 0
    held = "node-1:" + store.keys(segment_prefix(tp))[0]
    store.held.add(held)
    await brokers.moved(tp, to=1)
    await asyncio.sleep(0.1)
    assert tp in brokers.roles[1]._coordinators._loading
    return brokers, orders, tp, held


@on_virtual_time
async def test_who_asks_a_coordinator_that_left_and_came_back_while_it_loaded_waits_until_it_has_loaded() -> None:
    store = HeldStore()
    brokers, orders, tp, held = await loading(store)
    await brokers.moved(tp, to=2)
    await brokers.moved(tp, to=1)
    waiting = [asyncio.ensure_future(asked(brokers, 1)) for _ in range(3)]
    await asyncio.sleep(1)
    assert not any(one.done() for one in waiting)
    store.let_go(held)
    assert await asyncio.gather(*waiting) == [0, 0, 0]
    assert await fetched(brokers, 1, orders) == 5
    await brokers.stop()


@on_virtual_time
async def test_a_loading_that_its_partition_left_ends_and_its_successors_is_the_coordinators() -> None:
    store = HeldStore()
    brokers, orders, tp, held = await loading(store)
    coordinators = brokers.roles[1]._coordinators
    stale = coordinators._loading[tp]
    await brokers.moved(tp, to=2)
    await brokers.moved(tp, to=1)
    asking = asyncio.ensure_future(asked(brokers, 1))
    await asyncio.sleep(0.1)
    assert stale.task.done()
    assert coordinators._loading[tp] is not stale
    store.let_go(held)
    assert await asking == 0
    assert coordinators._loading == {}
    assert await fetched(brokers, 1, orders) == 5
    await brokers.stop()


@on_virtual_time
async def test_all_who_waited_for_a_loading_that_failed_wait_for_the_next() -> None:
    store = HeldStore()
    brokers, orders, tp, held = await loading(store)
    first, key = brokers.roles[1]._coordinators._loading[tp], held.removeprefix("node-1:")
    lost = store.objects.pop(key)
    waiting = [asyncio.ensure_future(asked(brokers, 1)) for _ in range(3)]
    await asyncio.sleep(0.1)
    store.let_go(held)
    await asyncio.sleep(0)
    store.held.add(held)  # for the next one
    await first.task
    store.objects[key] = lost
    await asyncio.sleep(0.1)
    assert not any(one.done() for one in waiting)
    store.let_go(held)
    assert await asyncio.gather(*waiting) == [0, 0, 0]
    assert await fetched(brokers, 1, orders) == 5
    await brokers.stop()
