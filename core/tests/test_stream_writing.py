"""The writer of a stream: objects complete in order, deletion stays below what is covered, a seal is noticed."""

import asyncio
import gc
import weakref
from collections import Counter

import pytest
from scripted_store import Faults, ScriptedStore, run
from stream_under_test import TP, Broker, Gate, key, playing, put_seal, runs
from tests.waiting import until_async

from bmq.errors import Fenced, NotApplied, NotReady, UnknownOutcome
from bmq.ports import ObjectMeta
from bmq.storage.durable import LatencyWindow
from bmq.storage.stream import PASSED_AT_ONCE, StreamBroken
from bmq.storage.wal import WalObject, WalRun, decode_any
from bmq.values import LeaderEpoch, ManifestVersion, Offset
from bmq_sim.loop import on_virtual_time


@playing
async def test_objects_complete_in_order_whatever_order_the_store_takes(store: ScriptedStore, broker: Broker) -> None:
    gate = Gate(store)
    broker.submit(4)
    await gate.open(2, 1, 3)
    assert broker.durable == []
    assert broker.writer.durable_below == 0
    await gate.open(0)
    assert broker.durable == [0, 1, 2, 3]
    assert len(broker.created) == 4


@playing
async def test_each_header_says_what_was_durable_when_it_was_first_sent(store: ScriptedStore, broker: Broker) -> None:
    gate = Gate(store)
    broker.submit(3)
    await gate.open(0, 2)
    broker.submit(1)
    await gate.open(1)
    broker.submit(1)
    await gate.open(3, 4)
    belows = [decode_any(store.objects[key(n)]) for n in range(5)]
    assert [wal.header.durable_below for wal in belows if isinstance(wal, WalObject)] == [0, 0, 0, 1, 3]


@playing
async def test_there_is_room_for_eight_objects_that_are_not_completed(store: ScriptedStore, broker: Broker) -> None:
    gate = Gate(store)
    broker.submit(8)
    assert not broker.writer.has_room
    with pytest.raises(NotReady):
        broker.submit(1)
    await gate.open(1, 2, 3, 4, 5, 6, 7)
    assert not broker.writer.has_room
    await gate.open(0)
    assert broker.writer.has_room
    assert broker.writer.submit(runs()) == 8


@playing
async def test_a_store_that_is_down_for_a_minute_is_waited_out(store: ScriptedStore, broker: Broker) -> None:
    loop = asyncio.get_running_loop()
    up_s = loop.time() + 60

    async def down(object_key: str) -> None:
        if loop.time() < up_s:
            await asyncio.sleep(5)
            raise UnknownOutcome(object_key)

    store.script = down
    assert broker.writer.failing is None
    broker.submit(3)
    await asyncio.sleep(59)
    assert broker.durable == []
    failing_s, error = broker.writer.failing or (0, None)
    assert 50 < failing_s < 59
    assert isinstance(error, UnknownOutcome)
    await asyncio.sleep(15)
    assert broker.writer.failing is None
    assert broker.durable == [0, 1, 2]
    assert broker.fenced == []


@playing
async def test_nothing_completes_after_the_first_conflict(store: ScriptedStore, broker: Broker) -> None:
    gate = Gate(store)
    await gate.open(0, 1)
    put_seal(store, 2)
    broker.submit(5)
    await gate.open()
    await gate.open(4, 3)
    assert broker.durable == [0, 1]
    await gate.open(2)
    assert broker.durable == [0, 1]
    assert [type(error) for error in broker.fenced] == [Fenced]
    assert not broker.writer.has_room
    with pytest.raises(Fenced):
        broker.submit(1)
    with pytest.raises(Fenced):
        await broker.writer.verify_not_sealed()
    with pytest.raises(Fenced):
        await broker.writer.seal_own()


@playing
async def test_what_is_in_flight_below_a_conflict_does_not_complete_either(
    store: ScriptedStore, broker: Broker
) -> None:
    gate = Gate(store)
    put_seal(store, 3)
    broker.submit(4)
    await gate.open(3)
    await gate.open(0, 1, 2)
    await asyncio.sleep(60)
    assert broker.durable == []
    assert len(broker.fenced) == 1


def test_buffers_are_dropped_once_they_are_durable() -> None:
    class Batch(bytearray):
        pass

    async def main() -> None:
        store = ScriptedStore()
        gate = Gate(store)
        broker = Broker(store, latency=LatencyWindow())
        batches = [Batch(b"batch %d" % n) for n in range(3)]
        alive = [weakref.ref(batch) for batch in batches]
        for batch in batches:
            broker.writer.submit([WalRun(TP, LeaderEpoch(1), ManifestVersion(0), Offset(0), Offset(0), 0, [batch])])
        del batch, batches
        await gate.open(0, 2)
        gc.collect()
        assert [batch() is None for batch in alive] == [True, False, True]
        await gate.open(1)
        gc.collect()
        assert [batch() is None for batch in alive] == [True, True, True]
        await broker.writer.close()

    run(main())


@on_virtual_time
async def test_a_callback_that_fails_ends_the_stream_and_is_heard() -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context["exception"]))
    broker = Broker(ScriptedStore())

    def fail(number: int) -> None:
        raise ZeroDivisionError

    broker.writer._on_durable = fail
    broker.submit(1)
    await asyncio.sleep(1)
    assert [type(error) for error in heard] == [ZeroDivisionError]
    assert [type(error) for error in broker.fenced] == [StreamBroken]
    await broker.writer.close()


@playing
async def test_a_closed_writer_takes_nothing_and_completes_nothing(store: ScriptedStore, broker: Broker) -> None:
    gate = Gate(store)
    broker.submit(2)
    checking = asyncio.get_running_loop().create_task(broker.writer.verify_not_sealed())
    await asyncio.sleep(0)
    await broker.writer.close()
    await gate.open(0, 1)
    with pytest.raises(NotReady):
        await checking
    with pytest.raises(NotReady):
        broker.submit(1)
    assert broker.durable == []
    assert broker.fenced == []


@playing
async def test_only_what_the_checkpoint_and_the_newest_object_cover_is_deleted(
    store: ScriptedStore, broker: Broker
) -> None:
    gate = Gate(store)
    broker.submit(5)
    await gate.open(0, 1, 2, 3, 4)
    broker.writer.checkpoint(5)
    await asyncio.sleep(1)
    assert store.done("delete") == []  # all were sent when nothing was durable
    broker.submit(1)
    await asyncio.sleep(1)
    assert store.done("delete") == []  # number 5 says so, but it is not there yet
    await gate.open(5)
    await asyncio.sleep(1)
    assert store.done("delete") == [key(n) for n in range(5)]
    broker.writer.checkpoint(6)
    await asyncio.sleep(1)
    assert list(store.objects) == [key(5)]


@playing
async def test_the_checkpoint_holds_deletion_back(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(10)
    broker.writer.checkpoint(4)
    broker.writer.checkpoint(2)
    await asyncio.sleep(1)
    assert sorted(store.objects) == [key(n) for n in range(4, 10)]


@playing
async def test_nothing_is_deleted_from_the_first_conflict_on(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(10)
    put_seal(store, 10)
    broker.submit(1)
    await asyncio.sleep(1)
    assert len(broker.fenced) == 1
    broker.writer.checkpoint(8)
    await asyncio.sleep(60)
    assert store.done("delete") == []


@playing
async def test_deletion_survives_a_store_that_fails(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(20)
    store.faults = Faults(unavailable=0.7, delay_s=0.1)
    broker.writer.checkpoint(19)
    await asyncio.sleep(120)
    assert sorted(store.objects) == [key(19)]


@playing
async def test_an_idle_writer_looks_up_the_next_number_once_for_all_who_ask(
    store: ScriptedStore, broker: Broker
) -> None:
    await broker.write(3)
    await asyncio.gather(*(broker.writer.verify_not_sealed() for _ in range(50)))
    assert store.done("head") == [key(3)]


@playing
async def test_an_idle_writer_that_was_sealed_finds_out(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(3)
    put_seal(store, 3)
    with pytest.raises(Fenced):
        await broker.writer.verify_not_sealed()
    assert len(broker.fenced) == 1


@playing
async def test_a_look_up_that_was_sent_before_one_asked_does_not_count(store: ScriptedStore, broker: Broker) -> None:
    store.faults = Faults(delay_s=1.0)
    loop = asyncio.get_running_loop()
    first = loop.create_task(broker.writer.verify_not_sealed())
    await until_async(lambda: store.done("head"), "the look-up")
    put_seal(store, 0)
    second = loop.create_task(broker.writer.verify_not_sealed())
    await first
    with pytest.raises(Fenced):
        await second


@playing
async def test_a_busy_writer_waits_for_a_create_that_was_sent_after_one_asked(
    store: ScriptedStore, broker: Broker
) -> None:
    gate = Gate(store)
    broker.submit(2)
    check = asyncio.get_running_loop().create_task(broker.writer.verify_not_sealed())
    await gate.open()
    broker.submit(2)
    await gate.open(0, 1)
    assert not check.done()
    await gate.open(2)
    assert check.done() and check.exception() is None
    assert store.done("head") == []


@playing
async def test_a_busy_writer_that_falls_idle_looks_up_the_next_number(store: ScriptedStore, broker: Broker) -> None:
    gate = Gate(store)
    broker.submit(2)
    check = asyncio.get_running_loop().create_task(broker.writer.verify_not_sealed())
    await gate.open(0, 1)
    await check
    assert store.done("head") == [key(2)]


class Full:
    """Over a store that has no space, or not for these: everything can be read."""

    def __init__(self, store: ScriptedStore) -> None:
        self.numbers: set[int] | None = None
        """None: all."""
        store.script = self._refuse

    async def _refuse(self, object_key: str) -> None:
        if self.numbers is None or object_key in map(key, self.numbers):
            raise NotApplied(f"create {object_key}: no space left")


@playing
async def test_a_writer_whose_creates_are_refused_looks_up_all_numbers_where_a_seal_could_stand(
    store: ScriptedStore, broker: Broker
) -> None:
    await broker.write(2)
    Full(store)
    broker.submit(3)
    async with asyncio.timeout(10):
        await asyncio.gather(*(broker.writer.verify_not_sealed() for _ in range(5)))
    assert sorted(store.done("head")) == [key(number) for number in (2, 3, 4, 5)]
    assert broker.writer.in_flight == 3 and broker.fenced == []


@playing
async def test_what_is_in_the_store_above_a_refused_create_is_not_looked_up(
    store: ScriptedStore, broker: Broker
) -> None:
    full = Full(store)
    full.numbers = {0, 2}
    broker.submit(3)
    await asyncio.sleep(1)
    await broker.writer.verify_not_sealed()
    assert set(store.done("head")) == {key(0), key(2), key(3)}


@playing
async def test_a_writer_whose_creates_are_refused_is_not_told_that_it_was_not_sealed(
    _: ScriptedStore, __: Broker
) -> None:
    for sealed in (2, 3, 4, 5):
        store = ScriptedStore(log=[])
        broker = Broker(store)
        await broker.write(2)
        full = Full(store)
        broker.submit(3)
        await asyncio.sleep(1)
        put_seal(store, sealed)
        check = asyncio.get_running_loop().create_task(broker.writer.verify_not_sealed())
        await asyncio.sleep(100)
        assert not check.done()
        full.numbers = set()
        with pytest.raises(Fenced):
            await check
        assert broker.durable == list(range(len(broker.durable))) and len(broker.durable) <= sealed


@playing
async def test_an_own_create_that_the_look_up_finds_is_no_seal(store: ScriptedStore, broker: Broker) -> None:
    store.faults = Faults(delay_s=1.0)
    check = asyncio.get_running_loop().create_task(broker.writer.verify_not_sealed())
    await asyncio.sleep(0)
    head = store.head

    async def late(object_key: str) -> ObjectMeta:
        await until_async(lambda: object_key in store.objects, "the object", every_s=0.01)
        return await head(object_key)

    store.head = late  # type: ignore[method-assign]
    await asyncio.sleep(0)
    broker.submit(1)
    await check
    assert broker.fenced == []
    assert broker.durable == [0]


@playing
async def test_who_asks_after_an_own_create_that_overtook_the_look_up_is_answered_too(
    store: ScriptedStore, broker: Broker
) -> None:
    loop, head = asyncio.get_running_loop(), store.head
    sent, arrives = asyncio.Event(), asyncio.Event()

    async def late(object_key: str) -> ObjectMeta:
        sent.set()
        await arrives.wait()
        return await head(object_key)

    store.head = late  # type: ignore[method-assign]
    before = loop.create_task(broker.writer.verify_not_sealed())
    await sent.wait()
    await broker.write(1)
    await before
    since = loop.create_task(broker.writer.verify_not_sealed())
    await asyncio.sleep(0)
    arrives.set()
    async with asyncio.timeout(1):
        await since
    assert store.done("head") == [key(0), key(1)]
    put_seal(store, 1)
    with pytest.raises(Fenced):
        await broker.writer.verify_not_sealed()


@playing
async def test_who_asked_before_an_own_create_that_the_look_up_finds_hears_of_it_when_nothing_follows(
    store: ScriptedStore, broker: Broker
) -> None:
    """The create fails once, and succeeds while the look-up for it is under way: nothing else comes that could
    answer.
    """
    await broker.write(1)
    loop, head = asyncio.get_running_loop(), store.head

    async def late(object_key: str) -> ObjectMeta:
        await asyncio.sleep(1)
        return await head(object_key)

    store.head = late  # type: ignore[method-assign]
    full = Full(store)
    broker.submit(1)
    check = loop.create_task(broker.writer.verify_not_sealed())
    await asyncio.sleep(0.001)
    full.numbers = set()
    async with asyncio.timeout(60):
        await check
    assert broker.durable == [0, 1] and broker.fenced == []


@playing
async def test_those_who_wait_for_one_check_do_not_all_go_on_in_one_turn_of_the_loop(
    store: ScriptedStore, broker: Broker
) -> None:
    """Thousands of look-ups of clients wait for the same one: what they do next held everybody else up for seconds."""
    await broker.write(1)
    loop = asyncio.get_running_loop()
    turn, gone_on = 0, Counter[int]()

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        ticking[0] = loop.call_soon(next_turn)

    async def check() -> None:
        await broker.writer.verify_not_sealed()
        gone_on[turn] += 1

    ticking = [loop.call_soon(next_turn)]
    await asyncio.gather(*(check() for _ in range(10 * PASSED_AT_ONCE)))
    ticking[0].cancel()
    assert gone_on.total() == 10 * PASSED_AT_ONCE
    assert max(gone_on.values()) <= PASSED_AT_ONCE
