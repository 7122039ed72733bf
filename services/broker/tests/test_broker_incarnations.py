"""One broker after another in the same process: whatever an incarnation was doing when it was replaced, the next one
begins.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from held_store import HeldStore
from moving_brokers import Brokers

from bmq.errors import BmqError, Fenced, NotReady
from bmq.roles.controller import Registration
from bmq.values import NodeId
from bmq_broker.incarnations import Incarnations
from bmq_broker.main import BrokerRole
from bmq_broker.ownership.handover import SIGN_OFF_S
from bmq_sim.clock import SimRng
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

SLOW = StoreFaults(latency_s_min=0.005, latency_s_max=0.02)


class Following(Incarnations):
    """Of node 1; keeps what it made, and why it was lost."""

    def __init__(self, brokers: Brokers, template: BrokerRole) -> None:
        self.made: list[BrokerRole] = []
        self.lost: list[BmqError] = []
        self.fails: Exception | None = None
        """Where another one is to be made."""

        def make(on_fenced: Callable[[BmqError], None]) -> BrokerRole:
            if self.fails is not None:
                raise self.fails
            role = BrokerRole(
                store=template._store,
                control=template._control,
                metadata=template._metadata,
                registration=template._registration,  # the same boot: it is the same process
                rng=template._rng,
                clock_guard=template._clock_guard,
                settings=template._settings,
                group_settings=template._group_settings,
                cluster_configs={},
                on_fenced=on_fenced,
            )
            self.made.append(role)
            return role

        super().__init__(make, rng=brokers.rng, on_lost=self.lost.append)


async def following(brokers: Brokers) -> Following:
    incarnations = Following(brokers, await brokers.make(1))
    await incarnations.start()
    brokers.roles[1] = incarnations.role
    return incarnations


@on_virtual_time
async def test_an_incarnation_that_was_replaced_is_followed_by_the_next() -> None:
    brokers = Brokers(SimStore(faults=SLOW))
    incarnations = await following(brokers)
    made = incarnations.made
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    for number in range(3):
        brokers.roles[1] = incarnations.role
        assert (await brokers.append_wherever(tp, b"%d" % number)).base_offset == number
        await brokers.controller.fence(1)
        await asyncio.sleep(0)
        with pytest.raises(BmqError):
            await brokers.append(tp, b"lost", node=1)
        await asyncio.sleep(10)
    assert [role.epoch for role in made] == [1, 2, 3, 4]
    assert incarnations.role is made[-1]
    for role in made[:-1]:
        assert role._tasks == []
        assert role._ownership.partitions == {}
        with pytest.raises(NotReady):
            await role.owner.offset_for_time(tp, -1)
    brokers.roles[1] = incarnations.role
    assert [value for _, value in await brokers.read_all(tp)] == [b"0", b"1", b"2"]
    await another_process_takes_the_node_id(brokers)
    await asyncio.sleep(10)
    assert len(incarnations.lost) == 1
    await incarnations.stop()
    del brokers.roles[1]
    await brokers.stop()


async def another_process_takes_the_node_id(brokers: Brokers) -> None:
    registration = Registration(
        node_id=NodeId(1), boot=brokers.rng.uuid(), roles=("broker",), host="elsewhere", port=9092
    )
    await brokers.controller.register(registration)


@on_virtual_time
async def test_a_broker_that_is_fenced_while_upkeep_opens_a_partition_starts_again() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    incarnations = await following(brokers)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.roll(tp)
    for _ in range(2):
        await brokers.controller.fence(1)
        await asyncio.sleep(10)
    assert incarnations.role.epoch == 3
    assert tp not in incarnations.role._ownership.partitions  # its manifest covers all: nobody opens it but upkeep
    store.held.add("/manifest/")
    await asyncio.sleep(incarnations.role._settings.retention_interval_ms / 1000)
    assert tp in incarnations.role._ownership._opening
    await brokers.controller.fence(1)
    await asyncio.sleep(10)
    store.let_go("/manifest/")
    assert incarnations.role.epoch == 4
    brokers.roles[1] = incarnations.role
    assert await brokers.read_all(tp) == [(0, b"a")]
    await incarnations.kill()
    await brokers.stop()


@on_virtual_time
@pytest.mark.parametrize("turns", range(4))
async def test_who_is_cancelled_while_what_it_waits_for_is_given_up_ends_as_cancelled(turns: int) -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.roll(tp)
    await brokers.moved(tp, to=2)
    store.held.add("/manifest/")
    ownership = brokers.roles[2]._ownership
    waiting = asyncio.ensure_future(ownership.open(tp))
    await asyncio.sleep(0.1)
    brokers.roles[2]._ended.fence(Fenced("replaced"))
    ownership.end()
    for _ in range(turns):
        await asyncio.sleep(0)
    expected = asyncio.CancelledError if waiting.cancel() else Fenced
    with pytest.raises(expected):
        await waiting
    await brokers.stop()


@on_virtual_time
@pytest.mark.parametrize("first", [True, False], ids=["its-first", "its-next"])
async def test_a_broker_that_is_stopped_while_it_starts_leaves_no_registration_behind(first: bool) -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(2)
    incarnations = await following(brokers)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    held = "node-1:wal/0000000001/00000000000000000001/"
    store.held.add(held)  # what the next one has to read, and not its own seal
    if first:
        await incarnations.kill()
        role = await brokers.make(1)
        starting = asyncio.ensure_future(role.start())
        await asyncio.sleep(10)
        assert not starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    else:
        await brokers.controller.register(incarnations.role._registration)  # so that its partitions stay with it
        await asyncio.sleep(10)
        await incarnations.stop()
        assert len(incarnations.made) == 2
    assert 1 not in brokers.controller.image.nodes
    assert brokers.owner(tp) == 2
    store.let_go(held)
    assert await brokers.read_all(tp) == [(0, b"a")]
    assert (await brokers.append(tp, b"b")).base_offset == 1
    del brokers.roles[1]
    await brokers.stop()


@on_virtual_time
async def test_a_broker_that_is_stopped_while_it_starts_does_not_wait_for_a_store_that_is_down() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.roles.pop(1).kill()
    store.held.add("node-1:wal/")
    role = await brokers.make(1)
    starting = asyncio.ensure_future(role.start())
    await asyncio.sleep(10)
    starting.cancel()
    await asyncio.wait([starting], timeout=SIGN_OFF_S + 1)
    assert starting.cancelled()
    await brokers.stop()


@on_virtual_time
async def test_a_process_whose_broker_is_not_followed_by_another_says_so() -> None:
    told: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context.get("exception")))
    brokers = Brokers()
    incarnations = await following(brokers)
    incarnations.fails = RuntimeError("a bug")
    await brokers.controller.fence(1)
    await asyncio.sleep(10)
    assert told == [incarnations.fails]
    assert [str(error) for error in incarnations.lost] == [
        "the broker of epoch 1 is not followed by another: RuntimeError('a bug')"
    ]
    await incarnations.stop()
    await brokers.stop()


@pytest.mark.parametrize("when", ["while it starts", "while it serves"])
def test_a_broker_that_begins_no_more_is_lost_at_its_first_fence_whenever_that_is(when: str) -> None:
    class Replaced:
        """A role whose fence is heard in its start, or later."""

        def __init__(self, on_fenced: Callable[[BmqError], None]) -> None:
            self.on_fenced = on_fenced

        async def start(self) -> None:
            if when == "while it starts":
                self.on_fenced(Fenced("taken"))
                assert lost == ["taken"], "before the start has failed with what follows from it"
                raise NotReady("what earlier owners left was not read")

        async def kill(self) -> None:
            pass

    lost: list[str] = []

    async def main() -> None:
        incarnations = Incarnations(
            Replaced,  # type: ignore[arg-type]
            rng=SimRng(random.Random(1)),
            begins_again=False,
            on_lost=lambda error: lost.append(str(error)),
        )
        if when == "while it starts":
            with pytest.raises(NotReady):
                await incarnations.start()
        else:
            await incarnations.start()
            role: Any = incarnations.role
            role.on_fenced(Fenced("taken"))
            role.on_fenced(Fenced("again"))
            await incarnations.kill()
        assert lost == ["taken"]

    asyncio.run(main())
