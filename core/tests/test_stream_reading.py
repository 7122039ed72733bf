"""Reading a stream to its end, and dropping it: nothing is skipped, nothing is left running."""

import asyncio

import pytest
from scripted_store import Faults, ScriptedStore, SeededRng, run
from stream_under_test import STREAM, TP, Broker, key, playing, put_seal, runs, seal
from structlog.testing import capture_logs

from bmq.errors import BmqError, Conflict
from bmq.storage.stream import WalObjectMissing, drop_stream, kept_of, read_stream
from bmq.values import TopicPartition
from bmq_sim.loop import on_virtual_time


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
    assert (await kept_of(store, STREAM, rng=SeededRng())).first == 0
    await broker.write(10)
    assert (await kept_of(store, STREAM, rng=SeededRng())).first == 0
    for number in (0, 1, 3):  # 2 was on its way to be deleted when the owner died
        del store.objects[key(number)]
    assert (await kept_of(store, STREAM, rng=SeededRng())).first == 4
    put_seal(store, 3)  # in the deleted past
    assert (await kept_of(store, STREAM, rng=SeededRng())).first == 4
    for number in (2, 4, 5, 6, 7, 8):
        del store.objects[key(number)]
    assert (await kept_of(store, STREAM, rng=SeededRng())).first == 9


@playing
async def test_dropping_a_stream_leaves_its_seals(store: ScriptedStore, broker: Broker) -> None:
    await broker.write(30)
    broker.writer.checkpoint(10)
    await asyncio.sleep(1)
    assert await seal(store) == 30
    assert await drop_stream(store, STREAM, rng=SeededRng()) == 20
    assert list(store.objects) == [key(30)]
    assert await drop_stream(store, STREAM, rng=SeededRng()) == 0


@on_virtual_time
async def test_an_object_in_the_wrong_place_is_corrupt() -> None:
    store = ScriptedStore()
    broker = Broker(store)
    await broker.write(3)
    store.objects[key(2)] = store.objects[key(1)]
    with pytest.raises(BmqError, match="holds object 1 of"):
        await read(store, 0, 3)
    with pytest.raises(BmqError, match="holds object 1 of"):
        await seal(store)
    await broker.writer.close()


@on_virtual_time
async def test_conflict_of_the_scripted_store_is_the_ports_own() -> None:
    store = ScriptedStore(objects={"a/b": b""})
    with pytest.raises(Conflict):
        await store.create("a/b", [b""])


def test_of_an_object_that_is_lost_below_all_others_nothing_in_the_store_tells() -> None:
    """Two histories, one store: in one the first object held acknowledged records of a partition that wrote nothing
    since and was never rolled.
    """

    async def history(*, of_the_quiet_one: bool) -> dict[str, bytes]:
        store = ScriptedStore()
        broker = Broker(store)
        [run_] = runs()
        broker.writer.submit([run_._replace(tp=TopicPartition(TP.topic_id, 7))] if of_the_quiet_one else [run_])
        await asyncio.sleep(1)
        await broker.write(3)
        if not of_the_quiet_one:
            broker.writer.checkpoint(1)  # rolled, and deleted by its owner
            await asyncio.sleep(1)
        store.objects.pop(key(0), None)  # lost
        await broker.writer.close()
        return store.objects

    assert run(history(of_the_quiet_one=True)) == run(history(of_the_quiet_one=False))


@playing
async def test_an_object_that_is_missing_above_others_is_told(store: ScriptedStore, broker: Broker) -> None:
    """The owner would have deleted those first."""
    await broker.write(12)
    end = await seal(store)
    with capture_logs() as told:
        assert (await kept_of(store, STREAM, rng=SeededRng())).first == 0
    assert told == []
    del store.objects[key(8)]
    with capture_logs() as told:
        assert (await kept_of(store, STREAM, rng=SeededRng())).first == 9
    [line] = told
    assert (line["log_level"], line["number"], end) == ("error", 8, 12)
