"""Sealing a stream: whoever seals, whenever, all agree on one end, and it lies above everything acknowledged."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from scripted_store import Faults, ScriptedStore
from stream_under_test import Broker, Gate, key, playing, put_seal, seal
from tests.waiting import until_async

from bmq.errors import Fenced
from bmq.ports import ObjectMeta
from bmq.storage.wal import Seal, decode_head


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
    await until_async(lambda: key(0) in gate.waiting, "the sealer, which found nothing, to want to seal 0")
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
async def test_a_number_that_was_data_in_the_listing_and_that_a_late_seal_took_since_is_not_the_end(
    store: ScriptedStore, broker: Broker
) -> None:
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
async def test_a_seal_that_took_a_deleted_number_between_a_listings_names_and_its_sizes_is_not_the_end(
    store: ScriptedStore, broker: Broker
) -> None:
    """Another sealer saw 0 alone and wants to seal 1; its create arrives while this one's listing has the names and not
    yet the sizes.
    """
    await broker.write(1)
    broker.submit(2)  # 1 and 2 say that what is below 1 was durable
    await asyncio.sleep(1)
    listing = store.list

    async def takes_its_time(prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        store.list = listing  # type: ignore[method-assign]
        names = sorted(name for name in store.objects if name > after)
        await broker.write(1)
        broker.writer.checkpoint(2)
        await asyncio.sleep(1)
        put_seal(store, 1)
        for name in names:
            if name in store.objects:
                yield ObjectMeta(key=name, size_bytes=len(store.objects[name]), modified_ms=0)

    store.list = takes_its_time  # type: ignore[method-assign]
    end = await seal(store)
    assert broker.durable == [0, 1, 2, 3]
    assert end == 4
    broker.submit(1)
    await asyncio.sleep(1)
    assert broker.durable == [0, 1, 2, 3]
    assert len(broker.fenced) == 1


@playing
async def test_a_listing_that_missed_the_newest_object_is_told_by_the_one_below_it(
    store: ScriptedStore, broker: Broker
) -> None:
    """The seal is known to be one; of the look after that all is deleted, and the listing shows the one that went
    last.
    """
    await broker.write(1)
    broker.submit(2)
    await asyncio.sleep(1)
    broker.writer.checkpoint(1)
    await asyncio.sleep(1)
    listing = store.list
    looks = 0

    async def looked(prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        nonlocal looks
        looks += 1
        # it has the names 1 and 2; then 3 is written, 2 is deleted before its size is told, and 1 only after its own
        # was
        if looks == 1:
            yield ObjectMeta(key=key(1), size_bytes=len(store.objects[key(1)]), modified_ms=0)
            await broker.write(2)
            broker.writer.checkpoint(4)
            await asyncio.sleep(1)
            put_seal(store, 2)
            return
        async for meta in listing(prefix, after=after):
            yield meta

    store.list = looked  # type: ignore[method-assign]
    assert await seal(store) == 5
    assert broker.durable == [0, 1, 2, 3, 4]


@playing
async def test_the_seal_is_found_by_one_listing_more_than_it_takes_to_make_it(
    store: ScriptedStore, broker: Broker
) -> None:
    await broker.write(5)
    listing = store.list
    looks = 0

    def counted(prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        nonlocal looks
        looks += 1
        return listing(prefix, after=after)

    store.list = counted  # type: ignore[method-assign]
    assert await seal(store) == 5
    assert looks == 2
    assert await seal(store, seed=6) == 5
    assert looks == 4  # who did not make it has to know it first


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
async def test_a_fence_check_does_not_take_the_owners_own_seal_for_anothers(
    store: ScriptedStore, broker: Broker
) -> None:
    await broker.write(2)
    head = store.head

    async def late(object_key: str) -> ObjectMeta:
        await until_async(lambda: object_key in store.objects, "the object", every_s=0.01)
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
