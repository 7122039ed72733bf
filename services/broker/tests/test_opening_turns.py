"""Which partitions are opened first, where many are to be."""

import asyncio
from functools import partial
from uuid import UUID

import pytest
from broker_under_test import Cluster
from held_store import HeldStore
from moving_brokers import Brokers
from tests.waiting import until_async

from bmq.errors import NotReady
from bmq.internal.limits import PRODUCE_CONNECTION_BYTES_MAX
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.owner import Caller, TailRequest
from bmq.values import Offset, TopicId, TopicPartition
from bmq.wire.apis import ApiKey
from bmq.wire.batches import Record, build_batch
from bmq.wire.message import Message
from bmq_broker.ownership.opening_turns import ITSELF, WANTING_MAX, OpeningTurns, Wanted, reading, writing
from bmq_broker.ownership.waiting import Waiting
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time

OPEN_S = 1.0


class SlowStore(HeldStore):
    """Each get and each listing takes a while."""

    takes_s = 0.0

    async def pass_gate(self, node: str, key: str) -> None:
        await asyncio.sleep(self.takes_s)
        await super().pass_gate(node, key)

    async def pass_listing(self) -> None:
        await asyncio.sleep(self.takes_s)
        await super().pass_listing()


class Opened:
    """Openings that take a second each, two at a time, in the order in which they end."""

    def __init__(self) -> None:
        self.turns = OpeningTurns(2)
        self.over: list[str] = []

    def open(self, name: str, wanted: Wanted) -> "asyncio.Task[None]":
        async def opening() -> None:
            async with self.turns.holding(wanted):
                await asyncio.sleep(OPEN_S)
            self.over.append(name)

        return asyncio.ensure_future(opening())


@on_virtual_time
async def test_who_wants_one_partition_waits_for_none_of_the_hundreds_that_another_wants() -> None:
    opened = Opened()
    tasks = [opened.open(f"greedy {n}", Wanted(reading(("10.0.0.1", n % 7)))) for n in range(200)]
    await asyncio.sleep(0.1)
    others = (reading(("10.0.0.2", 0)), writing(("10.0.0.1", 0)), ITSELF)
    for party in others:
        tasks.append(opened.open(str(party[0]), Wanted(party)))
    await asyncio.gather(*tasks)
    assert max(opened.over.index(str(party[0])) for party in others) < 8


@on_virtual_time
async def test_a_partition_that_waits_among_hundreds_of_another_is_opened_for_the_one_who_wants_only_that() -> None:
    opened = Opened()
    wanted = [Wanted(reading(("10.0.0.1", 0))) for _ in range(200)]
    tasks = [opened.open(str(n), one) for n, one in enumerate(wanted)]
    await asyncio.sleep(0.1)
    opened.turns.want(wanted[150], writing(("10.0.0.2", 0)))
    await asyncio.gather(*tasks)
    assert opened.over.index("150") < 8
    assert opened.turns._places.is_idle


@on_virtual_time
async def test_openings_that_are_given_up_leave_their_places_to_others() -> None:
    opened = Opened()
    wanted = [Wanted(reading(("10.0.0.1", 0))) for _ in range(20)]
    tasks = [opened.open(str(n), one) for n, one in enumerate(wanted)]
    await asyncio.sleep(0.1)
    for number, one in enumerate(wanted):
        for address in range(2 * WANTING_MAX):
            opened.turns.want(one, reading((f"10.0.1.{address}", number)))
    assert all(len(one.parties) == WANTING_MAX for one in wanted)
    for task in tasks[1:]:
        task.cancel()
    await asyncio.sleep(OPEN_S)
    assert opened.over == ["0"]
    await asyncio.gather(*tasks, return_exceptions=True)
    assert opened.turns._places.is_idle


@on_virtual_time
async def test_an_opening_that_is_given_up_in_the_moment_of_its_turn_leaves_the_place() -> None:
    opened = Opened()
    wanted = [Wanted(reading(("10.0.0.1", 0))) for _ in range(3)]
    tasks = [opened.open(str(n), one) for n, one in enumerate(wanted)]
    await asyncio.sleep(0.1)
    turn = wanted[2].turn
    assert turn is not None
    turn.add_done_callback(lambda _: tasks[2].cancel())
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (sorted(opened.over), tasks[2].cancelled(), turn.cancelled()) == (["0", "1"], True, False)
    assert opened.turns._places.is_idle


@on_virtual_time
async def test_a_record_of_a_new_topic_is_taken_while_another_address_has_thousands_of_partitions_opened() -> None:
    store = SlowStore()
    cluster = Cluster(store)
    await cluster.start()
    many = await cluster.topic("many", partitions=2_000)
    [one] = await cluster.topic("one")
    store.takes_s = 0.03
    wanted = [TailRequest(tp=tp, offset=Offset(0), max_bytes=100) for tp in [*many, one]]
    owner = cluster.broker.owner
    reading_all = asyncio.ensure_future(
        owner.read_tail(wanted, min_bytes=1, max_bytes=1_000, max_wait_ms=500, party=("10.0.0.1", 1))
    )
    await asyncio.sleep(0.2)
    began_s = asyncio.get_running_loop().time()
    batch = build_batch([Record(offset=0, timestamp_ms=1_000, key=None, value=b"a", headers=())])
    await owner.append(one, batch, produce_version=9, party=("10.0.0.2", 1))
    assert asyncio.get_running_loop().time() - began_s < 0.5
    store.takes_s = 0.0
    await reading_all
    await cluster.stop()


def one_batch(value: bytes = b"a") -> bytes:
    return build_batch([Record(offset=0, timestamp_ms=1_000, key=None, value=value, headers=())])


def test_batches_of_one_address_that_wait_for_openings_leave_room_to_others_and_to_a_proxys_connection() -> None:
    waiting = Waiting(bytes_max=BrokerSettings().pending_bytes_max)

    def wait(partition: int, address: str) -> bool:
        try:
            waiting.add(TopicPartition(TopicId(UUID(int=1)), partition), 32_000, lambda _: None, address=address)
        except NotReady:
            return False
        return True

    taken = sum(wait(partition, "10.0.0.1") for partition in range(3_000))
    assert 200 < taken < 300
    assert wait(0, "10.0.0.2")
    for address in range(3, 10):
        for partition in range(1_000):
            wait(partition, f"10.0.0.{address}")
    assert waiting.size_bytes < PRODUCE_CONNECTION_BYTES_MAX
    waiting.end(NotReady("stopping"))
    assert waiting.size_bytes == 0
    assert wait(0, "10.0.0.1")


@on_virtual_time
async def test_a_partition_is_opened_for_a_batch_that_has_no_room_to_wait_for_it() -> None:
    cluster = Cluster(settings=BrokerSettings(pending_bytes_max=1_000))
    await cluster.start()
    [one] = await cluster.topic("one")
    large = one_batch(bytes(2_000))
    append = partial(cluster.broker.owner.append, one, large, produce_version=9, party=("10.0.0.1", 1))
    with pytest.raises(NotReady, match="wait for partitions that are being opened"):
        await append()
    await asyncio.sleep(1)
    assert (await append()).base_offset == 0
    await cluster.stop()


@on_virtual_time
async def test_a_coordinator_waits_for_none_of_the_partitions_that_an_earlier_owner_left() -> None:
    store = SlowStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    many = brokers.controller.create_topic("many", partitions=1_000, owner=1)
    (offsets,) = brokers.controller.create_topic(CONSUMER_OFFSETS, partitions=1, owner=1)
    await asyncio.gather(*(brokers.append(tp, b"a") for tp in (*many, offsets)))
    store.takes_s = 0.2
    await brokers.moved(*many, offsets, to=2)
    heir = brokers.roles[2]
    await until_async(lambda: len(heir._ownership.partitions) > 0, "the first to be open", 600)
    group = Message(group_id="g", member_id=None, member_epoch=-1, topics=None)
    request = Message(groups=[group], require_stable=False)
    await heir.owner.group_call(0, ApiKey.OFFSET_FETCH, request, Caller(client_id="c", client_host="10.0.0.2"))
    opened = len(heir._ownership.partitions)
    await brokers.stop()
    assert opened < 200
