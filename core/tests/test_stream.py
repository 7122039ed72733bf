"""The stream's writer, sealer and reader: one rule a test, on a store whose replies are scripted."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest
from scripted_store import Faults, ScriptedStore, SeededRng, run

from bmq.errors import BmqError, Conflict, Fenced, NotReady, UnknownOutcome
from bmq.ports import ObjectMeta
from bmq.storage.durable import LatencyWindow
from bmq.storage.numbered import wal_key
from bmq.storage.stream import StreamBroken, StreamWriter, WalObjectMissing, drop_stream, first_number, read_stream, seal_stream
from bmq.storage.wal import Seal, WalObject, WalRun, decode_any, decode_head, encode_seal
from bmq.values import BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId, Nonce, Offset, StreamId, TopicId, TopicPartition

STREAM = StreamId(NodeId(7), BrokerEpoch(3))
TP = TopicPartition(TopicId(UUID(int=1)), 0)
CLUSTER = "some-cluster"


def runs(payload: bytes = b"a batch") -> list[WalRun]:
    return [WalRun(TP, LeaderEpoch(1), ManifestVersion(0), Offset(0), Offset(0), 0, [payload])]


def key(number: int) -> str:
    return wal_key(STREAM, number)


def put_seal(store: ScriptedStore, number: int) -> None:
    seal = Seal(cluster_id=CLUSTER, node_id=STREAM.node_id, broker_epoch=STREAM.broker_epoch, number=number, nonce=Nonce(b"sealer".ljust(16)))
    assert key(number) not in store.objects
    store.objects[key(number)] = b"".join(bytes(part) for part in encode_seal(seal))


class Gate:
    """Holds each create back until its number is let through."""

    def __init__(self, store: ScriptedStore) -> None:
        self.waiting: dict[str, asyncio.Event] = {}
        store.script = self._wait

    async def _wait(self, object_key: str) -> None:
        await self.waiting.setdefault(object_key, asyncio.Event()).wait()

    async def open(self, *numbers: int) -> None:
        for number in numbers:
            self.waiting.setdefault(key(number), asyncio.Event()).set()
        await asyncio.sleep(0.001)


class Broker:
    """A writer and what it was told."""

    def __init__(self, store: ScriptedStore, *, seed: int = 1, latency: LatencyWindow | None = None) -> None:
        self.durable: list[int] = []
        self.fenced: list[BmqError] = []
        self.created: list[tuple[int, float]] = []
        self.writer = StreamWriter(
            store,
            STREAM,
            cluster_id=CLUSTER,
            rng=SeededRng(seed),
            on_durable=self.durable.append,
            on_fenced=self.fenced.append,
            on_created=lambda size_bytes, seconds: self.created.append((size_bytes, seconds)),
            latency=latency,
        )

    def submit(self, count: int) -> None:
        for _ in range(count):
            self.writer.submit(runs())

    async def write(self, count: int) -> None:
        """One after the other."""
        for _ in range(count):
            self.submit(1)
            while self.writer.in_flight:
                await asyncio.sleep(0.001)


def playing(scene: Callable[[ScriptedStore, Broker], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a scene with a store and a broker, and closes the broker."""

    async def main() -> None:
        store = ScriptedStore(log=[])
        broker = Broker(store)
        await scene(store, broker)
        await broker.writer.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def test() -> None:
        run(main())

    test.__name__ = scene.__name__
    test.__doc__ = scene.__doc__
    return test


# --- the writer ---


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
    broker.submit(3)
    await asyncio.sleep(59)
    assert broker.durable == []
    await asyncio.sleep(15)
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
async def test_what_is_in_flight_below_a_conflict_does_not_complete_either(store: ScriptedStore, broker: Broker) -> None:
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


def test_a_callback_that_fails_ends_the_stream_and_is_heard() -> None:
    async def main() -> None:
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

    run(main())


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


# --- deletion ---


@playing
async def test_only_what_the_checkpoint_and_the_newest_object_cover_is_deleted(store: ScriptedStore, broker: Broker) -> None:
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


# --- the fence check ---


@playing
async def test_an_idle_writer_looks_up_the_next_number_once_for_all_who_ask(store: ScriptedStore, broker: Broker) -> None:
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
    while not store.done("head"):
        await asyncio.sleep(0.001)
    put_seal(store, 0)
    second = loop.create_task(broker.writer.verify_not_sealed())
    await first
    with pytest.raises(Fenced):
        await second


@playing
async def test_a_busy_writer_waits_for_a_create_that_was_sent_after_one_asked(store: ScriptedStore, broker: Broker) -> None:
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


@playing
async def test_an_own_create_that_the_look_up_finds_is_no_seal(store: ScriptedStore, broker: Broker) -> None:
    store.faults = Faults(delay_s=1.0)
    check = asyncio.get_running_loop().create_task(broker.writer.verify_not_sealed())
    await asyncio.sleep(0)
    head = store.head

    async def late(object_key: str) -> ObjectMeta:
        while object_key not in store.objects:
            await asyncio.sleep(0.01)
        return await head(object_key)

    store.head = late  # type: ignore[method-assign]
    await asyncio.sleep(0)
    broker.submit(1)
    await check
    assert broker.fenced == []
    assert broker.durable == [0]


# --- sealing ---


async def seal(store: ScriptedStore, *, seed: int = 5) -> int:
    return await seal_stream(store, STREAM, cluster_id=CLUSTER, rng=SeededRng(seed))


@playing
async def test_a_stream_that_was_never_written_to_is_sealed_at_zero(store: ScriptedStore, broker: Broker) -> None:
    assert await seal(store) == 0
    broker.submit(1)
    await asyncio.sleep(1)
    assert len(broker.fenced) == 1


@playing
async def test_the_seal_goes_into_the_gap_that_a_create_in_flight_left(store: ScriptedStore, broker: Broker) -> None:
    gate = Gate(store)
    broker.submit(6)
    await gate.open(0, 1, 2, 4, 5)
    store.script = None
    assert await seal(store) == 3
    assert await seal(store, seed=6) == 3
    await gate.open(3)
    assert broker.durable == [0, 1, 2]
    assert len(broker.fenced) == 1


@playing
async def test_a_deleted_number_is_not_where_the_seal_goes(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(10)
    broker.writer.checkpoint(9)
    await asyncio.sleep(1)
    assert sorted(store.objects) == [key(9)]
    assert await seal(store) == 10


@playing
async def test_a_seal_in_the_deleted_past_counts_for_nothing(store: ScriptedStore, broker: Broker) -> None:
    """The sealer sleeps between its listing and its create; meanwhile the owner goes on and deletes."""
    gate = Gate(store)
    task = asyncio.get_running_loop().create_task(seal(store))
    while key(0) not in gate.waiting:  # it found nothing and wants to seal 0
        await asyncio.sleep(0.001)
    held, gate.waiting[key(0)] = gate.waiting[key(0)], asyncio.Event()
    await gate.open(*range(12))
    await broker.write(10)
    broker.writer.checkpoint(9)
    await asyncio.sleep(1)
    assert sorted(store.objects) == [key(9)]
    store.script = None
    held.set()
    assert await task == 10
    assert isinstance(decode_head(store.objects[key(0)]), Seal)
    broker.submit(1)
    await asyncio.sleep(1)
    assert len(broker.fenced) == 1


@playing
async def test_a_number_that_was_data_in_the_listing_and_that_a_late_seal_took_since_is_not_the_end(store: ScriptedStore, broker: Broker) -> None:
    broker.submit(2)
    await asyncio.sleep(1)
    listing = store.list

    async def then_the_owner_goes_on(prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        async for meta in listing(prefix, after=after):
            yield meta
        store.list = listing  # type: ignore[method-assign]
        await broker.write(1)
        broker.writer.checkpoint(1)
        await asyncio.sleep(1)
        put_seal(store, 0)

    store.list = then_the_owner_goes_on  # type: ignore[method-assign]
    assert await seal(store) == 3
    assert broker.durable == [0, 1, 2]


@playing
async def test_a_seal_above_a_hole_is_not_adopted(store: ScriptedStore, broker: Broker) -> None:
    """A sealer that seals ahead of a fast writer may have won a higher number while a lower one is still open."""
    gate = Gate(store)
    await gate.open(0, 1)
    broker.submit(3)
    await gate.open()
    put_seal(store, 4)
    store.script = None
    assert await seal(store) == 2
    await gate.open(2)
    assert broker.durable == [0, 1]


@playing
async def test_a_fast_writer_is_sealed_too(store: ScriptedStore, broker: Broker) -> None:
    """Each of the sealer's requests takes as long as a hundred of the writer's creates."""

    async def slow(object_key: str) -> None:
        if (current := asyncio.current_task()) is not None and not current.get_name().startswith("create"):
            await asyncio.sleep(0.02)

    store.script = slow

    async def keep_writing() -> None:
        while not broker.fenced:
            if broker.writer.has_room:
                broker.submit(1)
            await asyncio.sleep(0.001)

    writing = asyncio.get_running_loop().create_task(keep_writing())
    await asyncio.sleep(0.1)
    number = await seal(store)
    await writing
    assert broker.durable == list(range(len(broker.durable)))
    assert len(broker.durable) <= number


@playing
async def test_two_sealers_and_a_third_later_agree(store: ScriptedStore, broker: Broker) -> None:
    store.faults = Faults(delay_s=0.1, lost_after=0.2, lost_before=0.1, not_applied=0.1, unavailable=0.1)
    broker.submit(8)
    await asyncio.sleep(0.1)
    numbers = await asyncio.gather(seal(store, seed=5), seal(store, seed=6))
    assert set(numbers) == {await seal(store, seed=7)}


@playing
async def test_the_owner_seals_its_own_stream_when_everything_is_durable(store: ScriptedStore, broker: Broker) -> None:
    gate = Gate(store)
    broker.submit(3)
    sealing = asyncio.get_running_loop().create_task(broker.writer.seal_own())
    await gate.open(1, 2, 3)
    assert not broker.writer.has_room
    assert not sealing.done()
    await gate.open(0)
    assert await sealing == 3
    assert broker.durable == [0, 1, 2]
    assert broker.fenced == []
    assert await seal(store) == 3
    with pytest.raises(Fenced):
        broker.submit(1)


@playing
async def test_a_fence_check_does_not_take_the_owners_own_seal_for_anothers(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(2)
    head = store.head

    async def late(object_key: str) -> ObjectMeta:
        while object_key not in store.objects:
            await asyncio.sleep(0.01)
        return await head(object_key)

    store.head = late  # type: ignore[method-assign]
    check = asyncio.get_running_loop().create_task(broker.writer.verify_not_sealed())
    await asyncio.sleep(0)

    async def slow(object_key: str) -> None:
        await asyncio.sleep(1)

    store.after = slow
    assert await broker.writer.seal_own() == 2
    with pytest.raises(Fenced, match="sealed by its owner"):
        await check
    assert broker.fenced == []


@playing
async def test_the_owner_that_was_sealed_meanwhile_does_not_stop_cleanly(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(2)
    put_seal(store, 2)
    with pytest.raises(Fenced):
        await broker.writer.seal_own()
    assert len(broker.fenced) == 1


# --- reading ---


async def read(store: ScriptedStore, start: int, end: int) -> list[int]:
    return [wal.header.number async for wal in read_stream(store, STREAM, start=start, end=end, rng=SeededRng(9))]


@playing
async def test_a_stream_is_read_in_order_with_four_objects_on_their_way(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(20)
    store.faults = Faults(delay_s=0.5, unavailable=0.3)
    on_their_way = most = 0
    get = store.get

    async def counting(object_key: str, *, start: int = 0, length: int | None = None) -> bytes:
        nonlocal on_their_way, most
        on_their_way += 1
        most = max(most, on_their_way)
        try:
            return await get(object_key, start=start, length=length)
        finally:
            on_their_way -= 1

    store.get = counting  # type: ignore[method-assign]
    assert await read(store, 0, 20) == list(range(20))
    assert most == 4
    assert await read(store, 7, 7) == []


@playing
async def test_a_missing_object_is_never_skipped(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(8)
    del store.objects[key(5)]
    seen = []
    with pytest.raises(WalObjectMissing) as caught:
        async for wal in read_stream(store, STREAM, start=2, end=8, rng=SeededRng(9)):
            seen.append(wal.header.number)
    assert caught.value.number == 5
    assert seen == [2, 3, 4]
    put_seal(store, 5)
    with pytest.raises(WalObjectMissing):
        await read(store, 2, 8)


@playing
async def test_a_reader_that_stops_early_leaves_no_task(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(8)
    reader = read_stream(store, STREAM, start=0, end=8, rng=SeededRng(9))
    assert (await anext(reader)).header.number == 0
    await reader.aclose()
    await broker.writer.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@playing
async def test_reading_begins_above_the_highest_deleted_number(store: ScriptedStore, broker: Broker) -> None:
    assert await first_number(store, STREAM, rng=SeededRng()) == 0
    await broker.write(10)
    assert await first_number(store, STREAM, rng=SeededRng()) == 0
    for number in (0, 1, 3):  # 2 was on its way to be deleted when the owner died
        del store.objects[key(number)]
    assert await first_number(store, STREAM, rng=SeededRng()) == 4
    put_seal(store, 3)  # in the deleted past
    assert await first_number(store, STREAM, rng=SeededRng()) == 4
    for number in (2, 4, 5, 6, 7, 8):
        del store.objects[key(number)]
    assert await first_number(store, STREAM, rng=SeededRng()) == 9


@playing
async def test_dropping_a_stream_leaves_its_seals(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(30)
    broker.writer.checkpoint(10)
    await asyncio.sleep(1)
    assert await seal(store) == 30
    assert await drop_stream(store, STREAM, rng=SeededRng()) == 20
    assert list(store.objects) == [key(30)]
    assert await drop_stream(store, STREAM, rng=SeededRng()) == 0


def test_an_object_in_the_wrong_place_is_corrupt() -> None:
    async def main() -> None:
        store = ScriptedStore()
        broker = Broker(store)
        await broker.write(3)
        store.objects[key(2)] = store.objects[key(1)]
        with pytest.raises(BmqError, match="holds object 1 of"):
            await read(store, 0, 3)
        with pytest.raises(BmqError, match="holds object 1 of"):
            await seal(store)
        await broker.writer.close()

    run(main())


def test_conflict_of_the_scripted_store_is_the_ports_own() -> None:
    async def main() -> None:
        store = ScriptedStore(objects={"a/b": b""})
        with pytest.raises(Conflict):
            await store.create("a/b", [b""])

    run(main())
