"""Reading what is no longer in the owner's memory: manifests, indexes, blocks, and whole batches out of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proxy_in_memory import CountingRng, MemoryStore, Running, fetch_request, running_proxy
from tests.waiting import until_async

from bmq.errors import Corrupt, ObjectMissing, StoreUnavailable
from bmq.fairness.greedy_window import WINDOW_FIRST_BYTES
from bmq.storage.flatlog import FlatLog, Overtaken
from bmq.storage.keys import manifest_page_key, manifest_prefix, segment_key
from bmq.storage.manifest import Manifest, page_ref
from bmq.storage.manifest_format import encode_manifest, encode_page
from bmq.storage.segment import SegmentEntry, SegmentRun, encode_segment
from bmq.storage.segment_index import SegmentBatch
from bmq.values import LeaderEpoch, ManifestVersion, Nonce, Offset, TopicId, TopicPartition
from bmq.wire.batch_headers import CRC_START, HEADER_SIZE_BYTES, read_header, split
from bmq.wire.error_codes import ErrorCode
from bmq.wire.records import Record, build_batch
from bmq_proxy.fetch.blocks import BLOCK_SIZE_BYTES, BlockCache, BlockKey, Pool
from bmq_proxy.fetch.manifests import ManifestCache
from bmq_proxy.fetch.segments import SegmentReader, _Window
from bmq_sim.loop import on_virtual_time

TP = TopicPartition(TopicId(UUID(int=1 << 64)), 0)
_rng = CountingRng()


def some_batch(base_offset: int, *, records: int = 1, size_bytes: int = 100, left: int | None = None) -> SegmentBatch:
    """`left`: so many records were left when it was parted, the last ones."""
    left = records if left is None else min(left, records)
    data = build_batch(
        [Record(number, 1_000, None, bytes(size_bytes)) for number in range(records - left, records)],
        base_offset=base_offset,
        first_offset=0,
        next_offset=records,
    )
    return SegmentBatch(data, Offset(base_offset), Offset(base_offset + records - 1), left, 1_000, 1_000)


async def put_segment(store: MemoryStore, batches: list[SegmentBatch]) -> SegmentEntry:
    encoded = encode_segment(_rng.nonce(), "test-cluster", [SegmentRun(TP, LeaderEpoch(3), batches)])
    key = segment_key(TP, LeaderEpoch(3), batches[0].base_offset, _rng.nonce())
    key += f"-{len(store.objects)}"
    await store.create(key, encoded.parts)
    return encoded.entries_at(key)[0]


async def put_manifest(store: MemoryStore, entries: list[SegmentEntry], *, pages: tuple[Any, ...] = ()) -> int:
    end = entries[-1].last_offset + 1
    manifest = Manifest(entries=tuple(entries), pages=pages, next_offset=end, last_stable_offset=end)
    log = FlatLog(store, manifest_prefix(TP), rng=_rng, what="manifest")
    newest = await log.newest()
    return (
        await log.claim(newest, epoch=(newest.epoch if newest else 0) + 1, payload=encode_manifest(manifest))
    ).number


def reader_over(store: MemoryStore, *, read_ahead_blocks: int = 0) -> SegmentReader:
    cache = BlockCache(store, tail_bytes=64 << 20, catch_up_bytes=64 << 20)
    return SegmentReader(store, cache, index_cache_bytes=1 << 20, read_ahead_blocks=read_ahead_blocks)


def run(test: Callable[[MemoryStore], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(MemoryStore()), 30))


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([50, 5_000, 40_000, 400_000]), st.none() | st.integers(0, 4)),
        min_size=1,
        max_size=30,
    ),
    offset_part=st.floats(0, 1),
    max_bytes=st.sampled_from([1, 100, 40_000, 300_000, 1_500_000, 50_000_000]),
    at_least_one=st.booleans(),
    has_room=st.booleans(),
)
def test_a_read_gives_whole_batches_from_the_one_that_holds_the_offset(
    sizes: list[tuple[int, int, int | None]], offset_part: float, max_bytes: int, at_least_one: bool, has_room: bool
) -> None:
    async def test(store: MemoryStore) -> None:
        batches: list[SegmentBatch] = []
        for records, size_bytes, left in sizes:
            base_offset = batches[-1].last_offset + 1 if batches else 100
            batches.append(some_batch(base_offset, records=records, size_bytes=size_bytes, left=left))
        entry = await put_segment(store, batches)
        offset = entry.base_offset + int(offset_part * (entry.last_offset - entry.base_offset))
        asked: list[int] = []

        async def larger(size_bytes: int) -> bool:
            asked.append(size_bytes)
            return has_room

        found = await reader_over(store).read(
            TP, entry, offset, max_bytes=max_bytes, at_least_one=at_least_one, pool=Pool.TAIL, larger=larger
        )
        data = b"".join(found.parts)
        assert len(data) == found.size_bytes
        wanted = [bytes(memoryview(batch.data)) for batch in batches if batch.last_offset >= offset]
        headers = split(data)
        assert data == b"".join(wanted[: len(headers)])
        assert found.complete == (len(headers) == len(wanted))
        assert len(data) <= max_bytes or (at_least_one and len(headers) == 1)
        assert asked == ([len(wanted[0]) - max_bytes] if at_least_one and len(wanted[0]) > max_bytes else [])
        assert headers or not at_least_one or not (has_room or not asked)
        if not headers:
            assert len(wanted[0]) > max_bytes

    run(test)


@pytest.mark.parametrize(("max_bytes", "at_least_one"), [(300, False), (1, True), (2_000, False), (300_000, False)])
def test_few_records_keep_no_large_block_in_memory(max_bytes: int, at_least_one: bool) -> None:
    async def test(store: MemoryStore) -> None:
        entry = await put_segment(
            store, [some_batch(0), some_batch(1, size_bytes=250_000), some_batch(2), some_batch(3, size_bytes=900_000)]
        )
        found = await reader_over(store).read(
            TP, entry, 0, max_bytes=max_bytes, at_least_one=at_least_one, pool=Pool.CATCH_UP
        )
        assert found.size_bytes
        assert sum(len(part.obj) for part in found.parts) <= 2 * found.size_bytes  # type: ignore[arg-type]

    run(test)


def damaged(store: MemoryStore, entry: SegmentEntry, position: int, bit: int) -> None:
    data = bytearray(store.objects[entry.key])
    data[position] ^= bit
    store.objects[entry.key] = bytes(data)


async def read_to_the_end(
    reader: SegmentReader, entry: SegmentEntry, offset: int, *, max_bytes: int = 50 << 20
) -> list[int]:
    """The base offsets of batches that a consumer gets, until an error or the run's end."""
    got: list[int] = []
    while offset <= entry.last_offset:
        try:
            found = await reader.read(TP, entry, offset, max_bytes=max_bytes, at_least_one=True, pool=Pool.CATCH_UP)
        except Corrupt:
            break
        headers = split(b"".join(found.parts))
        got += [header.base_offset for header in headers]
        offset = headers[-1].next_offset
    return got


@pytest.mark.parametrize("max_bytes", [1, 20_000, 300_000, 50 << 20])
@pytest.mark.parametrize("first_read", [0, 150])
@pytest.mark.parametrize("byte", range(CRC_START - 4))
def test_no_flipped_bit_before_a_batchs_crc_lets_a_consumer_pass_over_records(
    byte: int, first_read: int, max_bytes: int
) -> None:
    async def test(store: MemoryStore) -> None:
        size_bytes = 10_000
        whole = [some_batch(n, size_bytes=size_bytes) for n in range(200)]
        for bit in (1, 4, 128):
            entry = await put_segment(store, whole)
            length = entry.length // 200
            damaged(store, entry, entry.position + 151 * length + byte, bit)
            got = await read_to_the_end(reader_over(store), entry, first_read, max_bytes=max_bytes)
            assert got == list(range(first_read, first_read + len(got)))
            assert got[-1:] <= [150], "and what is damaged is not given"
            assert first_read == 150 or len(got) > 140, "what is before it is"

    run(test)


def test_headers_are_looked_at_once_while_their_bytes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(store: MemoryStore) -> None:
        entry = await put_segment(store, [some_batch(n, size_bytes=10_000) for n in range(250)])
        reader = reader_over(store)
        walked: list[int] = []
        walk = _Window.walk

        def counted(window: _Window, at: int, *others: Any, **named: Any) -> int:
            walked.append(at)
            return walk(window, at, *others, **named)

        monkeypatch.setattr(_Window, "walk", counted)
        for _ in range(3):
            assert await read_to_the_end(reader, entry, 0) == list(range(250))
        assert len(walked) == len(set(walked)) == -(-250 // 4)
        await reader._cache.close()
        reader._cache = BlockCache(store, tail_bytes=64 << 20, catch_up_bytes=64 << 20)
        damaged(store, entry, entry.position + 7, 4)
        assert await read_to_the_end(reader, entry, 0) == [], "got again, looked at again"

    run(test)


def test_a_run_with_gaps_between_its_batches_is_read() -> None:
    async def test(store: MemoryStore) -> None:
        entry = await put_segment(store, [some_batch(3 * n, size_bytes=10_000) for n in range(50)])
        for max_bytes in (1, 40_000, 50 << 20):
            assert await read_to_the_end(reader_over(store), entry, 1, max_bytes=max_bytes) == [
                3 * n for n in range(1, 50)
            ]

    run(test)


def test_readers_at_one_time_get_each_block_once() -> None:
    async def test(store: MemoryStore) -> None:
        entry = await put_segment(store, [some_batch(n, size_bytes=200_000) for n in range(12)])
        reader = reader_over(store)
        found = await asyncio.gather(
            *(reader.read(TP, entry, 0, max_bytes=50 << 20, at_least_one=True, pool=Pool.CATCH_UP) for _ in range(20))
        )
        assert {one.size_bytes for one in found} == {entry.length}
        assert len(store.gets) == 1 + (entry.position + entry.length - 1) // BLOCK_SIZE_BYTES + 1
        assert len(store.gets) == len(set(store.gets))

    run(test)


def test_a_sequential_reader_finds_its_next_blocks_there_already() -> None:
    async def test(store: MemoryStore) -> None:
        entry = await put_segment(store, [some_batch(n, size_bytes=100_000) for n in range(60)])
        reader = reader_over(store, read_ahead_blocks=2)
        offset = 0
        for _ in range(2):
            found = await reader.read(TP, entry, offset, max_bytes=1_000_000, at_least_one=True, pool=Pool.CATCH_UP)
            offset += len(split(b"".join(found.parts)))
        await until_async(
            lambda: not any(task.get_name().startswith("get block") for task in asyncio.all_tasks()),
            "no block to be got",
            every_s=0,
        )
        before = len(store.gets)
        await reader.read(TP, entry, offset, max_bytes=1_000_000, at_least_one=True, pool=Pool.CATCH_UP)
        waited_for = [get for get in store.gets[before:] if get[1] <= entry.position + offset * 100_100]
        assert waited_for == []
        await reader.close()

    run(test)


async def blocks_got(store: MemoryStore, cache: BlockCache, numbers: Iterable[int], pool: Pool) -> list[int]:
    """Which of these blocks of "big" were not in memory."""
    got = []
    for number in numbers:
        store.gets.clear()
        await cache.get(BlockKey("big", number), pool)
        got += [number] * len(store.gets)
    return got


@pytest.mark.parametrize(("alone", "other"), [(Pool.TAIL, Pool.CATCH_UP), (Pool.CATCH_UP, Pool.TAIL)])
def test_readers_of_one_kind_may_use_what_the_others_do_not(alone: Pool, other: Pool) -> None:
    async def test(store: MemoryStore) -> None:
        store.objects["big"] = bytes(10 * BLOCK_SIZE_BYTES)
        cache = BlockCache(store, tail_bytes=3 * BLOCK_SIZE_BYTES, catch_up_bytes=2 * BLOCK_SIZE_BYTES)
        await blocks_got(store, cache, range(10), alone)
        assert await blocks_got(store, cache, (9, 8, 7, 6, 5), other) == []
        assert await blocks_got(store, cache, (4,), alone) == [4]

    run(test)


def test_what_was_borrowed_is_given_back_and_no_more() -> None:
    async def test(store: MemoryStore) -> None:
        store.objects["big"] = bytes(30 * BLOCK_SIZE_BYTES)
        cache = BlockCache(store, tail_bytes=3 * BLOCK_SIZE_BYTES, catch_up_bytes=2 * BLOCK_SIZE_BYTES)
        await blocks_got(store, cache, range(10), Pool.CATCH_UP)
        await blocks_got(store, cache, (20, 21, 22), Pool.TAIL)
        await blocks_got(store, cache, range(10), Pool.CATCH_UP)
        assert await blocks_got(store, cache, (20, 21, 22), Pool.TAIL) == []
        await blocks_got(store, cache, range(23, 30), Pool.TAIL)
        assert await blocks_got(store, cache, (9, 8), Pool.CATCH_UP) == []

    run(test)


def test_a_reader_that_goes_away_takes_nothing_from_the_others() -> None:
    async def test(store: MemoryStore) -> None:
        store.objects["big"] = b"x"
        store.gate = asyncio.Event()
        cache = BlockCache(store, tail_bytes=1 << 20, catch_up_bytes=1 << 20)
        first = asyncio.create_task(cache.get(BlockKey("big", 0), Pool.TAIL))
        second = asyncio.create_task(cache.get(BlockKey("big", 0), Pool.TAIL))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        store.gate.set()
        assert await second == b"x"
        assert len(store.gets) == 1

    run(test)


def test_another_runs_index_is_refused() -> None:
    async def test(store: MemoryStore) -> None:
        entry = await put_segment(store, [some_batch(0)])
        other = await put_segment(store, [some_batch(50)])
        store.objects[entry.key] = store.objects[other.key]
        with pytest.raises(Corrupt):
            await reader_over(store).read(TP, entry, 0, max_bytes=100, at_least_one=True, pool=Pool.TAIL)

    run(test)


def test_a_manifest_is_got_by_its_number_and_once() -> None:
    async def test(store: MemoryStore) -> None:
        entries = [await put_segment(store, [some_batch(n)]) for n in range(3)]
        first = await put_manifest(store, entries[:2])
        second = await put_manifest(store, entries)
        manifests = ManifestCache(store, _rng, entries_max=100)
        store.gets.clear()
        found = await asyncio.gather(*(manifests.get(TP, ManifestVersion(second)) for _ in range(5)))
        assert {len(manifest.entries) for manifest in found} == {3}
        assert len((await manifests.get(TP, ManifestVersion(first))).entries) == 3, "a later one is as good"
        assert [(key, length) for key, _, length in store.gets if length is None] == [
            (f"{manifest_prefix(TP)}{second:020d}", None)
        ]
        # it is a claim: a listing and the header of the one below it tell whether it counts
        assert len(store.gets) == 2
        run_from = await manifests.run_from(TP, found[0], 1)
        assert run_from is not None
        assert (run_from.at, run_from.newest) == (1, True)
        assert await manifests.run_from(TP, found[0], 3) is None
        with pytest.raises(ObjectMissing):
            await manifests.get(TP, ManifestVersion(99))

    run(test)


def test_old_entries_are_found_on_their_page() -> None:
    async def test(store: MemoryStore) -> None:
        entries = [await put_segment(store, [some_batch(n)]) for n in range(4)]
        nonce = Nonce(bytes(16))
        key = manifest_page_key(TP, nonce)
        await store.create(key, encode_page(nonce, TP, entries[:2]))
        version = await put_manifest(store, entries[2:], pages=(page_ref(key, entries[:2]),))
        manifests = ManifestCache(store, _rng, entries_max=2)
        manifest = await manifests.get(TP, ManifestVersion(version))
        for offset, newest in ((1, False), (2, True), (0, False)):
            found = await manifests.run_from(TP, manifest, offset)
            assert found is not None
            assert (found.entries[found.at].base_offset, found.newest) == (offset, newest)

    run(test)


def fetching(test: Callable[[Running, Any], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            topic = proxy.metadata.add_topic("orders", 1)
            assert topic.topic_id == TP.topic_id
            await asyncio.wait_for(test(proxy, await proxy.connect()), 20)

    asyncio.run(main())


async def rolled(proxy: Running, segments: list[list[SegmentBatch]]) -> list[SegmentEntry]:
    """The owner's log starts behind these segments."""
    entries = [await put_segment(proxy.store, batches) for batches in segments]
    log = proxy.owner.log(TP)
    log.manifest_version = await put_manifest(proxy.store, entries)
    log.tail_start = log.end = entries[-1].last_offset + 1
    return entries


def offsets_of(partition: Any) -> list[int]:
    return [header.base_offset for header in split(partition.records)]


def test_a_fetch_below_the_tail_runs_through_consecutive_segments() -> None:
    async def test(proxy: Running, client: Any) -> None:
        await rolled(proxy, [[some_batch(0), some_batch(1)], [some_batch(2)], [some_batch(3), some_batch(4)]])
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 1))).responses
        assert offsets_of(topic.partitions[0]) == [1, 2, 3, 4]
        assert topic.partitions[0].high_watermark == 5

    fetching(test)


@pytest.mark.parametrize("how", ["damaged", "of a newer version", "missing", "not to be had"])
def test_what_cannot_be_read_of_a_segment_keeps_nobody_from_the_records_of_those_before_it(how: str) -> None:
    async def test(proxy: Running, client: Any) -> None:
        entries = await rolled(
            proxy, [[some_batch(0)], [some_batch(1)], [some_batch(2), some_batch(3)], [some_batch(4)]]
        )
        objects, key = proxy.store.objects, entries[2].key
        data = bytearray(objects[key])
        if how == "damaged":
            data[entries[2].position] ^= 1
        elif how == "of a newer version":
            data[entries[2].index_position + 5] += 1
        objects[key] = bytes(data)
        if how == "missing":
            del objects[key]
        elif how == "not to be had":
            refuse(proxy.store, key)
        for offset, there in ((0, [0, 1]), (1, [1]), (2, []), (4, [4])):
            [topic] = (await client.ask(1, 12, fetch_request("orders", 0, offset))).responses
            assert offsets_of(topic.partitions[0]) == there, offset
            assert bool(topic.partitions[0].error_code) == (offset == 2)

    fetching(test)


def test_a_segment_that_the_store_does_not_answer_for_keeps_nobody_from_the_records_of_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmq_proxy.fetch.reader.STORAGE_WAIT_S", 0.3)

    async def test(proxy: Running, client: Any) -> None:
        entries = await rolled(
            proxy, [[some_batch(0)], [some_batch(1)], [some_batch(2), some_batch(3)], [some_batch(4)]]
        )
        hang(proxy.store, entries[2].key)
        for offset, there in ((0, [0, 1]), (1, [1]), (2, []), (4, [4])):
            [topic] = (await client.ask(1, 12, fetch_request("orders", 0, offset))).responses
            assert offsets_of(topic.partitions[0]) == there, offset
            assert bool(topic.partitions[0].error_code) == (offset == 2)

    fetching(test)


def hang(store: MemoryStore, key: str) -> None:
    """It answers for the others."""
    get = store.get

    async def hanging(wanted: str, *, start: int = 0, length: int | None = None) -> bytes:
        if wanted == key:
            await asyncio.Event().wait()
        return await get(wanted, start=start, length=length)

    store.get = hanging  # type: ignore[method-assign]


def refuse(store: MemoryStore, key: str) -> None:
    """It answers for the others."""
    get = store.get

    async def refused(wanted: str, *, start: int = 0, length: int | None = None) -> bytes:
        if wanted == key:
            raise StoreUnavailable("503")
        return await get(wanted, start=start, length=length)

    store.get = refused  # type: ignore[method-assign]


def test_a_batch_above_every_limit_comes_whole_and_alone() -> None:
    async def test(proxy: Running, client: Any) -> None:
        await rolled(proxy, [[some_batch(0, size_bytes=3_000_000), some_batch(1)]])
        [topic] = (
            await client.ask(1, 12, fetch_request("orders", 0, 0, max_bytes=1_000, partition_max_bytes=1_000))
        ).responses
        assert offsets_of(topic.partitions[0]) == [0]

    fetching(test)


def test_a_segment_that_was_merged_meanwhile_is_found_in_the_newer_manifest() -> None:
    async def test(proxy: Running, client: Any) -> None:
        old = await rolled(proxy, [[some_batch(0)], [some_batch(1)]])
        await client.ask(1, 12, fetch_request("orders", 0, 1))
        merged = await put_segment(proxy.store, [some_batch(0), some_batch(1)])
        newer = await put_manifest(proxy.store, [merged])
        for entry in old:
            await proxy.store.delete(entry.key)
        await proxy.role.proxy.reader.close()
        asked = proxy.owner.reads

        read_tail = proxy.owner.read_tail

        async def moves_on(requests: Any, **options: Any) -> Any:
            answers = await read_tail(requests, **options)
            proxy.owner.log(TP).manifest_version = newer
            return answers

        proxy.owner.read_tail = moves_on  # type: ignore[method-assign]
        proxy.role.proxy.reader._segments = reader_over(proxy.store)
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 0))).responses
        assert offsets_of(topic.partitions[0]) == [0, 1]
        assert proxy.owner.reads == asked + 2

    fetching(test)


def test_a_segment_that_an_earlier_owner_merged_late_is_found_though_the_owner_names_the_version_before() -> None:
    async def test(proxy: Running, client: Any) -> None:
        old = await rolled(proxy, [[some_batch(0)], [some_batch(1)]])
        merged = await put_segment(proxy.store, [some_batch(0), some_batch(1)])
        last = await put_segment(proxy.store, [some_batch(0), some_batch(1)])
        await put_manifest(proxy.store, [merged])
        for entry in old:
            await proxy.store.delete(entry.key)
        for offset in (0, 1):
            [topic] = (await client.ask(1, 12, fetch_request("orders", 0, offset))).responses
            assert offsets_of(topic.partitions[0])[-1] == 1
        await put_manifest(proxy.store, [last])
        await proxy.store.delete(merged.key)
        proxy.role.proxy.reader._segments = reader_over(proxy.store)  # with nothing in its caches
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 0))).responses
        assert offsets_of(topic.partitions[0]) == [0, 1]

    fetching(test)


def test_segments_that_stay_missing_are_a_retriable_error_and_never_a_skip() -> None:
    async def test(proxy: Running, client: Any) -> None:
        [entry, _] = await rolled(proxy, [[some_batch(0)], [some_batch(1)]])
        await proxy.store.delete(entry.key)
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 0))).responses
        assert topic.partitions[0].error_code == ErrorCode.not_leader_or_follower
        assert not topic.partitions[0].records

    fetching(test)


def test_out_of_range_is_said_by_the_owner_alone() -> None:
    async def test(proxy: Running, client: Any) -> None:
        await rolled(proxy, [[some_batch(0)]])
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 9))).responses
        assert topic.partitions[0].error_code == ErrorCode.offset_out_of_range

    fetching(test)


def test_memory_of_a_response_is_given_back_when_it_is_sent() -> None:
    async def test(proxy: Running, client: Any) -> None:
        await rolled(proxy, [[some_batch(n, size_bytes=100_000) for n in range(20)]])
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 0))).responses
        assert read_header(topic.partitions[0].records).base_offset == 0
        assert proxy.role.proxy.reader.memory.held_bytes == 0

    fetching(test)


def test_a_newer_manifest_than_the_answers_never_shows_records_above_the_high_watermark() -> None:
    async def test(proxy: Running, client: Any) -> None:
        entries = await rolled(proxy, [[some_batch(0)]])
        more = await put_segment(proxy.store, [some_batch(1), some_batch(2)])
        newer = await put_manifest(proxy.store, [*entries, more])
        await proxy.role.proxy.reader._manifests.get(TP, ManifestVersion(newer))
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 0))).responses
        assert offsets_of(topic.partitions[0]) == [0, 1, 2]
        assert topic.partitions[0].high_watermark == 3

    fetching(test)


def test_a_claim_that_took_the_named_versions_number_since_it_was_deleted_is_not_believed() -> None:
    """The owner named version 2, went on and deleted it; then a replaced owner that had slept made its claim there."""

    async def test(store: MemoryStore) -> None:
        log = FlatLog(store, manifest_prefix(TP), rng=_rng, what="manifest")
        base = await log.claim(None, epoch=1, payload=encode_manifest(Manifest(next_offset=1)))
        entry = base
        for end in (2, 3, 4):
            entry = await log.append(entry, epoch=1, payload=encode_manifest(Manifest(next_offset=end)))
        await log.delete_covered(entry.number)
        asleep = FlatLog(store, manifest_prefix(TP), rng=_rng, what="manifest")
        with pytest.raises(Overtaken):
            await asleep.claim(base, epoch=2, payload=encode_manifest(Manifest(next_offset=1)))
        assert (await log.read(2)).claim
        manifests = ManifestCache(store, _rng, entries_max=100)
        assert (await manifests.get(TP, ManifestVersion(2))).next_offset == 4
        # a claim of the owner's own, and no more the newest
        assert (await manifests.get(TP, ManifestVersion(1))).next_offset == 4
        await manifests.close()

    run(test)


def test_what_was_deleted_meanwhile_is_out_of_range_and_not_skipped() -> None:
    async def test(proxy: Running, client: Any) -> None:
        entries = await rolled(proxy, [[some_batch(0)], [some_batch(1)]])
        manifest = Manifest(entries=(entries[1],), log_start=1, next_offset=2, last_stable_offset=2)
        log = FlatLog(proxy.store, manifest_prefix(TP), rng=_rng, what="manifest")
        newest = await log.newest()
        assert newest is not None
        entry = await log.claim(newest, epoch=newest.epoch + 1, payload=encode_manifest(manifest))
        await proxy.role.proxy.reader._manifests.get(TP, ManifestVersion(entry.number))
        read_tail = proxy.owner.read_tail

        async def deletes_after_the_first_answer(requests: Any, **options: Any) -> Any:
            answers = await read_tail(requests, **options)
            proxy.owner.log(TP).log_start = 1
            return answers

        proxy.owner.read_tail = deletes_after_the_first_answer  # type: ignore[method-assign]
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 0))).responses
        assert (topic.partitions[0].error_code, topic.partitions[0].records) == (ErrorCode.offset_out_of_range, b"")

    fetching(test)


def test_while_somebody_modest_writes_only_few_readers_far_behind_read_at_one_time() -> None:
    async def test(proxy: Running, client: Any) -> None:
        segments = [[some_batch(10 * n + i, size_bytes=100_000) for i in range(10)] for n in range(40)]
        entries = await rolled(proxy, segments)
        proxy.metadata.add_topic("modest", 1)
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 399))).responses  # the manifest is known now
        assert offsets_of(topic.partitions[0]) == [399]
        proxy.store.gets.clear()
        proxy.owner.hold = True
        client.send_produce("modest", {0: some_batch(0).data})
        await until_async(lambda: proxy.owner.held, "an append at the owner")
        readers = [await proxy.connect() for _ in range(40)]
        turns = proxy.role.proxy.reader._turns
        window = turns.window
        proxy.store.gate = asyncio.Event()
        for n, reader in enumerate(readers):
            reader.send(1, 12, fetch_request("orders", 0, 10 * n))
        await until_async(
            lambda: len(turns._waiting) + len({key for key, _, _ in proxy.store.gets}),
            "every reader to wait, or to get",
            holds=lambda count: count >= len(readers),
        )
        begun = {key for key, _, _ in proxy.store.gets}
        assert begun <= {entry.key for entry in entries}
        assert 1 <= len(begun) <= WINDOW_FIRST_BYTES // entries[0].length + 1
        assert window.held_bytes <= WINDOW_FIRST_BYTES
        readers[20].writer.transport.abort()
        proxy.store.gate.set()
        for n, reader in enumerate(readers):
            if n != 20:
                _, answer = await asyncio.wait_for(reader.receive(), 10)
                assert offsets_of(answer.responses[0].partitions[0]) == list(range(10 * n, 10 * n + 10))
        assert window.held_bytes == 0
        assert proxy.role.proxy.reader.memory.held_bytes == 0

    fetching(test)


def test_readers_whose_turn_does_not_come_are_answered_without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmq_proxy.fetch.reader.ROOM_WAIT_S", 0.05)

    async def test(proxy: Running, client: Any) -> None:
        await rolled(proxy, [[some_batch(n, size_bytes=100_000) for n in range(10)]])
        proxy.metadata.add_topic("modest", 1)
        proxy.owner.hold = True
        client.send_produce("modest", {0: some_batch(0).data})
        await until_async(lambda: proxy.owner.held, "an append at the owner")
        turns = proxy.role.proxy.reader._turns
        held = turns.begin(WINDOW_FIRST_BYTES)
        assert held is not None
        reader = await proxy.connect()
        [topic] = (await reader.ask(1, 12, fetch_request("orders", 0, 0))).responses
        assert (topic.partitions[0].error_code, topic.partitions[0].records) == (0, b"")
        held.over()
        [topic] = (await reader.ask(1, 12, fetch_request("orders", 0, 0))).responses
        assert offsets_of(topic.partitions[0]) == list(range(10))

    fetching(test)


@on_virtual_time
async def test_a_block_that_nobody_reads_goes_after_a_while_and_one_that_is_read_stays() -> None:
    store = MemoryStore()
    store.objects["big"] = bytes(2 * BLOCK_SIZE_BYTES)
    cache = BlockCache(store, tail_bytes=3 * BLOCK_SIZE_BYTES, catch_up_bytes=2 * BLOCK_SIZE_BYTES, idle_ms=200)
    read, left = BlockKey("big", 0), BlockKey("big", 1)
    await cache.get(left, Pool.CATCH_UP)
    for _ in range(9):
        await cache.get(read, Pool.TAIL)
        await asyncio.sleep(0.1)
    assert left not in cache._pools[Pool.CATCH_UP].blocks
    assert not cache._pools[Pool.CATCH_UP].held_bytes
    assert read in cache._pools[Pool.TAIL].blocks
    assert len(store.gets) == 2, "each was got once"
    await asyncio.sleep(0.8)
    assert not any(pool.blocks or pool.held_bytes for pool in cache._pools.values())
    assert cache._sweeper is None, "and nothing is awaited any more"
    assert len(await cache.get(left, Pool.TAIL)) == BLOCK_SIZE_BYTES
    await cache.close()


def test_a_last_batch_that_says_it_ends_earlier_than_it_does_is_not_passed_over() -> None:
    """In a run with gaps, where the batches before do not tell where the next begins."""

    async def test(proxy: Running, client: Any) -> None:
        [entry, _] = await rolled(proxy, [[some_batch(0), some_batch(5, records=10)], [some_batch(15)]])
        data = bytearray(proxy.store.objects[entry.key])
        delta_at = entry.position + memoryview(some_batch(0).data).nbytes + 23
        assert int.from_bytes(data[delta_at : delta_at + 4], "big") == 9
        data[delta_at + 3] = 1
        proxy.store.objects[entry.key] = bytes(data)
        for offset in (8, 12, 14):
            [topic] = (await client.ask(1, 12, fetch_request("orders", 0, offset))).responses
            assert (topic.partitions[0].error_code, offsets_of(topic.partitions[0])) == (
                ErrorCode.kafka_storage_error,
                [],
            ), offset

    fetching(test)


@pytest.mark.parametrize("before", range(1, HEADER_SIZE_BYTES + 1, 6))
def test_a_header_that_lies_in_two_blocks_is_read_and_looked_at_as_any_other(before: int) -> None:
    async def test(store: MemoryStore) -> None:
        first = some_batch(0, size_bytes=900_000)
        position = (await put_segment(store, [first])).position
        missing = BLOCK_SIZE_BYTES - before - position - memoryview(first.data).nbytes
        first = some_batch(0, size_bytes=900_000 + missing)
        entry = await put_segment(store, [first, some_batch(1), some_batch(2)])
        second = entry.position + memoryview(first.data).nbytes
        assert second == BLOCK_SIZE_BYTES - before
        for max_bytes in (1, 50 << 20):
            assert await read_to_the_end(reader_over(store), entry, 0, max_bytes=max_bytes) == [0, 1, 2]
            assert await read_to_the_end(reader_over(store), entry, 1, max_bytes=max_bytes) == [1, 2]
        for byte in (7, 11, 16):  # of base offset, length and magic
            damaged(store, entry, second + byte, 4)
            assert await read_to_the_end(reader_over(store), entry, 0) in ([], [0])
            assert await read_to_the_end(reader_over(store), entry, 1) == []
            damaged(store, entry, second + byte, 4)

    run(test)


@pytest.mark.parametrize("left", [0, 1, 40, 100, BLOCK_SIZE_BYTES - 1, BLOCK_SIZE_BYTES, BLOCK_SIZE_BYTES + 70])
def test_a_segment_that_was_cut_short_since_its_index_was_read_is_damaged_and_gives_no_part_of_a_batch(
    left: int,
) -> None:
    async def test(store: MemoryStore) -> None:
        entry = await put_segment(store, [some_batch(n, size_bytes=300_000) for n in range(6)])
        reader = reader_over(store)
        assert await read_to_the_end(reader, entry, 0) == list(range(6))
        await reader._cache.close()
        reader._cache = BlockCache(store, tail_bytes=64 << 20, catch_up_bytes=64 << 20)
        store.objects[entry.key] = store.objects[entry.key][: entry.position + left]
        for max_bytes in (1, 400_000, 50 << 20):
            got = await read_to_the_end(reader, entry, 0, max_bytes=max_bytes)
            assert got == list(range(len(got)))
            assert len(got) * 300_000 <= left
            assert await read_to_the_end(reader, entry, 5, max_bytes=max_bytes) == []

    run(test)
