"""What a proxy keeps for readers of segments is bounded, is never wrong for having been let go, and ends with the
proxy.
"""

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proxy_in_memory import CountingRng, MemoryStore, Running, fetch_request
from test_proxy_segments import fetching, offsets_of, rolled, run, some_batch
from tests.waiting import until_async

from bmq.errors import ObjectMissing, StoreUnavailable
from bmq.storage.flatlog import FlatLog
from bmq.storage.keys import manifest_page_key, manifest_prefix, segment_key
from bmq.storage.manifest import Manifest, page_ref
from bmq.storage.manifest_format import encode_manifest, encode_page
from bmq.storage.segment import SegmentEntry, SegmentRun, encode_segment
from bmq.storage.segment_index import SegmentBatch
from bmq.values import LeaderEpoch, ManifestVersion, Offset, TopicId, TopicPartition
from bmq.wire.batch_headers import split
from bmq.wire.error_codes import ErrorCode
from bmq.wire.records import Record, build_batch, iterate_records
from bmq_proxy.fetch import manifests as manifest_cache
from bmq_proxy.fetch.blocks import BLOCK_SIZE_BYTES, BlockCache, Pool
from bmq_proxy.fetch.manifests import ManifestCache
from bmq_proxy.fetch.segments import OtherRun, SegmentReader, _cost_bytes
from bmq_proxy.metrics import OTHER_RUNS

TPS = [TopicPartition(TopicId(UUID(int=1 << 64)), partition) for partition in range(4)]
_rng = CountingRng()


async def put_segment(
    store: MemoryStore, tp: TopicPartition, offset: int, *, batches: int = 1, size_bytes: int = 100
) -> SegmentEntry:
    encoded = encode_segment(
        _rng.nonce(),
        "test-cluster",
        [SegmentRun(tp, LeaderEpoch(3), [some_batch(offset + n, size_bytes=size_bytes) for n in range(batches)])],
    )
    key = f"{segment_key(tp, LeaderEpoch(3), some_batch(offset).base_offset, _rng.nonce())}-{len(store.objects)}"
    await store.create(key, encoded.parts)
    return encoded.entries_at(key)[0]


async def put_manifest(
    store: MemoryStore, tp: TopicPartition, entries: list[SegmentEntry], *, paged: int
) -> ManifestVersion:
    """The first of the entries stand on pages of two."""
    pages = []
    for at in range(0, paged, 2):
        nonce = _rng.nonce()
        key = manifest_page_key(tp, nonce)
        await store.create(key, encode_page(nonce, tp, entries[at : at + 2]))
        pages.append(page_ref(key, entries[at : at + 2]))
    end = entries[-1].last_offset + 1
    manifest = Manifest(entries=tuple(entries[paged:]), pages=tuple(pages), next_offset=end, last_stable_offset=end)
    log = FlatLog(store, manifest_prefix(tp), rng=_rng, what="manifest")
    newest = await log.newest()
    claim = await log.claim(newest, epoch=(newest.epoch if newest else 0) + 1, payload=encode_manifest(manifest))
    return ManifestVersion(claim.number)


def held(cache: ManifestCache) -> int:
    """What it keeps, counted anew."""
    manifests = sum(len(kept.manifest.entries) + manifest_cache._OVERHEAD_ENTRIES for kept in cache._manifests.values())
    return manifests + sum(len(page) for page in cache._pages.values())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), entries_max=st.sampled_from([1, 4, 9, 20]))
def test_manifests_and_pages_that_go_for_others_are_got_again_and_no_more_is_kept_than_may_be(
    seed: int, entries_max: int
) -> None:
    async def test(store: MemoryStore) -> None:
        random_ = random.Random(seed)
        lengths = {tp: random_.randrange(5, 9) for tp in TPS}
        entries = {tp: [await put_segment(store, tp, n) for n in range(lengths[tp])] for tp in TPS}
        versions = {
            tp: [await put_manifest(store, tp, entries[tp][:upto], paged=4) for upto in range(5, lengths[tp] + 1)]
            for tp in TPS
        }
        cache = ManifestCache(store, _rng, entries_max=entries_max)

        async def look() -> None:
            tp = random_.choice(TPS)
            nth = random_.randrange(len(versions[tp]))
            if random_.random() < 0.2:
                await cache.look_above(tp, versions[tp][nth])
            manifest = await cache.get(tp, versions[tp][nth])
            assert manifest.next_offset >= 5 + nth, "that version or a later one"
            offset = random_.randrange(5 + nth)
            found = await cache.run_from(tp, manifest, offset)
            assert found is not None
            assert found.entries[found.at] == entries[tp][offset]
            assert found.newest == (offset >= 4)

        for _ in range(10):
            await asyncio.gather(*(look() for _ in range(random_.choice([1, 8]))))
            assert held(cache) == cache._held
            assert held(cache) <= entries_max or len(cache._manifests) + len(cache._pages) == 1, (
                "one alone may be larger"
            )
        await cache.close()

    run(test)


def test_a_version_that_came_while_a_later_one_was_kept_does_not_take_its_place() -> None:
    async def test(store: MemoryStore) -> None:
        entries = [await put_segment(store, TPS[0], n) for n in range(3)]
        first, second = [await put_manifest(store, TPS[0], entries[:upto], paged=0) for upto in (2, 3)]
        cache = ManifestCache(store, _rng, entries_max=100)
        store.gate = asyncio.Event()
        late = asyncio.ensure_future(cache.get(TPS[0], first))
        await asyncio.sleep(0)
        held_up, store.gate = store.gate, None
        assert (await cache.get(TPS[0], second)).next_offset == 3
        held_up.set()
        assert (await late).next_offset == 3
        assert (await cache.get(TPS[0], first)).next_offset == 3
        assert held(cache) == cache._held
        del store.objects[f"{manifest_prefix(TPS[0])}{second:020d}"]
        with pytest.raises(ObjectMissing):
            await ManifestCache(store, _rng, entries_max=100).get(TPS[0], second)

    run(test)


def test_what_is_loaded_when_a_proxy_stops_ends_and_so_do_those_who_wait_for_it() -> None:
    async def test(store: MemoryStore) -> None:
        entry = await put_segment(store, TPS[0], 0)
        version = await put_manifest(store, TPS[0], [entry], paged=0)
        cache = ManifestCache(store, _rng, entries_max=100)
        reader = reader_over(store)
        store.gate = asyncio.Event()
        before = asyncio.all_tasks()
        waiting = [asyncio.ensure_future(cache.get(TPS[0], version)) for _ in range(3)]
        waiting += [
            asyncio.ensure_future(reader.read(TPS[0], entry, 0, max_bytes=1, at_least_one=True, pool=Pool.TAIL))
            for _ in range(3)
        ]  # type: ignore[misc]
        await until_async(lambda: len(store.gets) >= 2, "two gets", every_s=0)
        await cache.close()
        await reader.close()
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in done] == [asyncio.CancelledError] * 6
        assert asyncio.all_tasks() == before
        store.gate = None
        assert (await cache.get(TPS[0], version)).next_offset == 1, "nothing of what ended is in the way"
        assert (
            await reader.read(TPS[0], entry, 0, max_bytes=1, at_least_one=True, pool=Pool.TAIL)
        ).size_bytes == entry.length

    run(test)


def reader_over(store: MemoryStore, *, index_cache_bytes: int = 1 << 20, read_ahead_blocks: int = 0) -> SegmentReader:
    cache = BlockCache(store, tail_bytes=64 << 20, catch_up_bytes=64 << 20)
    return SegmentReader(store, cache, index_cache_bytes=index_cache_bytes, read_ahead_blocks=read_ahead_blocks)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), kept=st.sampled_from([0, 1, 3]))
def test_indexes_that_go_for_others_are_got_again_and_no_more_is_kept_than_may_be(seed: int, kept: int) -> None:
    async def test(store: MemoryStore) -> None:
        random_ = random.Random(seed)
        entries = [await put_segment(store, TPS[0], 10 * n, batches=n + 1, size_bytes=20_000) for n in range(6)]
        gone = await put_segment(store, TPS[0], 100)
        del store.objects[gone.key]
        limit_bytes = kept * 700
        reader = reader_over(store, index_cache_bytes=limit_bytes)

        async def look() -> None:
            entry = random_.choice([*entries, gone])
            try:
                found = await reader.read(
                    TPS[0], entry, entry.base_offset, max_bytes=1 << 20, at_least_one=True, pool=Pool.CATCH_UP
                )
            except ObjectMissing:
                assert entry is gone
            else:
                assert [header.base_offset for header in split(b"".join(found.parts))] == list(
                    range(entry.base_offset, entry.last_offset + 1)
                )

        for _ in range(8):
            await asyncio.gather(*(look() for _ in range(random_.choice([1, 5]))))
            await asyncio.sleep(0)
            assert reader._index_bytes == sum(_cost_bytes(task.result()) for task in reader._indexes.values())
            assert reader._index_bytes <= limit_bytes or len(reader._indexes) == 1, "one alone may be larger"
        await reader.close()

    run(test)


def test_an_index_that_cannot_be_had_as_another_comes_fails_for_who_wants_it_alone() -> None:
    async def test(store: MemoryStore) -> None:
        failed: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        entries = [await put_segment(store, TPS[0], n) for n in range(4)]
        reader = reader_over(store, index_cache_bytes=0)
        del store.objects[entries[1].key]
        for order in ((0, 1, 0), (1, 0), (2, 1, 3, 2)):
            reads = [reader.read(TPS[0], entries[n], n, max_bytes=1, at_least_one=True, pool=Pool.TAIL) for n in order]
            for n, one in zip(order, await asyncio.gather(*reads, return_exceptions=True), strict=True):
                assert isinstance(one, ObjectMissing) == (n == 1), one
        assert failed == []
        await reader.close()

    run(test)


@pytest.mark.parametrize("readers_max", [1, 2, 3])
def test_of_more_readers_than_are_remembered_all_get_what_they_read(
    readers_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmq_proxy.fetch.segments.READERS_MAX", readers_max)

    async def test(store: MemoryStore) -> None:
        entries = [await put_segment(store, tp, 0, batches=40, size_bytes=BLOCK_SIZE_BYTES // 4) for tp in TPS[:3]]
        reader = reader_over(store, read_ahead_blocks=1)
        got = dict.fromkeys(range(3), 0)
        for _ in range(40):
            for number, (tp, entry) in enumerate(zip(TPS, entries, strict=False)):
                if got[number] == 40:
                    continue
                found = await reader.read(
                    tp, entry, got[number], max_bytes=BLOCK_SIZE_BYTES // 3, at_least_one=True, pool=Pool.CATCH_UP
                )
                headers = split(b"".join(found.parts))
                assert [header.base_offset for header in headers] == list(
                    range(got[number], got[number] + len(headers))
                )
                got[number] += len(headers)
                assert len(reader._expected) <= readers_max
        assert set(got.values()) == {40}
        await reader.close()

    run(test)


def fail_once(store: MemoryStore, key: str, how: str) -> asyncio.Event:
    """The next read of this object, and of it alone. Where it hangs it fails once the event is set, as a client of a
    store gives up some time.
    """
    get, left, given_up = store.get, [key], asyncio.Event()

    async def failing(wanted: str, *, start: int = 0, length: int | None = None) -> bytes:
        if wanted in left:
            left.remove(wanted)
            if how == "hangs":
                await given_up.wait()
            raise ObjectMissing(wanted) if how == "is missing" else StoreUnavailable("503")
        return await get(wanted, start=start, length=length)

    store.get = failing  # type: ignore[method-assign]
    return given_up


async def consumed(client: Any, *, upto: int, answered: asyncio.Event | None = None) -> list[list[int]]:
    """What each Fetch of a consumer brought that begins at 0; those that brought an error brought nothing."""
    got: list[list[int]] = []
    offset = 0
    while offset < upto:
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, offset))).responses
        offsets = offsets_of(topic.partitions[0])
        assert not (offsets and topic.partitions[0].error_code)
        got.append(offsets)
        assert len(got) < 10
        offset = offsets[-1] + 1 if offsets else offset
        if answered is not None:
            answered.set()
    return got


@pytest.mark.parametrize("how", ["fails", "hangs", "is missing"])
@pytest.mark.parametrize("nth", [0, 1, 2, 3])
def test_a_segment_that_cannot_be_read_once_costs_a_consumer_none_of_the_records(
    how: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmq_proxy.fetch.reader.STORAGE_WAIT_S", 0.3)
    monkeypatch.setattr("bmq_proxy.fetch.reader.MORE_WAIT_S", 0.2)

    async def test(proxy: Running, client: Any) -> None:
        entries = await rolled(
            proxy, [[some_batch(0)], [some_batch(1)], [some_batch(2), some_batch(3)], [some_batch(4)]]
        )
        given_up = fail_once(proxy.store, entries[nth].key, how)
        got = await consumed(client, upto=5, answered=given_up)
        first: list[int] = [[], [0], [0, 1], [0, 1, 2, 3]][nth]
        assert got[0][: len(first)] == first, "what is before it"
        assert [offset for offsets in got for offset in offsets] == [0, 1, 2, 3, 4]

    fetching(test)


@pytest.mark.parametrize("owner_knows", [True, False])
@pytest.mark.parametrize("deleted", [[1], [1, 2], [0, 1, 2, 3], [3]])
def test_segments_that_are_missing_behind_others_are_found_in_a_newer_manifest_by_the_next_fetch(
    deleted: list[int], owner_knows: bool
) -> None:
    async def test(proxy: Running, client: Any) -> None:
        entries = await rolled(
            proxy, [[some_batch(0)], [some_batch(1)], [some_batch(2), some_batch(3)], [some_batch(4)]]
        )
        assert await consumed(client, upto=5) == [[0, 1, 2, 3, 4]]
        tp = TPS[0]
        for nth in deleted:
            del proxy.store.objects[entries[nth].key]
        merged = await put_segment(
            proxy.store,
            tp,
            entries[deleted[0]].base_offset,
            batches=entries[deleted[-1]].last_offset - entries[deleted[0]].base_offset + 1,
        )
        left = [entry for nth, entry in enumerate(entries) if nth not in deleted]
        newer = await put_manifest(
            proxy.store, tp, sorted([*left, merged], key=lambda entry: entry.base_offset), paged=0
        )
        if owner_knows:
            proxy.owner.log(tp).manifest_version = newer
        got = await consumed(client, upto=5)
        assert [offset for offsets in got for offset in offsets] == [0, 1, 2, 3, 4], (
            "all of them, once and in order, out of what was kept or what is there"
        )

    fetching(test)


def test_a_fetch_whose_bytes_end_where_a_segment_ends_brings_no_more() -> None:
    async def test(proxy: Running, client: Any) -> None:
        [first, _] = await rolled(proxy, [[some_batch(0), some_batch(1)], [some_batch(2)]])
        [topic] = (await client.ask(1, 12, fetch_request("orders", 0, 0, partition_max_bytes=first.length))).responses
        assert offsets_of(topic.partitions[0]) == [0, 1]

    fetching(test)


async def fetched(client: Any, offset: int = 0) -> tuple[int, list[bytes]]:
    """(error, records' values) of partition 0."""
    [topic] = (await client.ask(1, 12, fetch_request("orders", 0, offset))).responses
    [partition] = topic.partitions
    data = partition.records or b""
    return partition.error_code, [
        record.value or b"" for header in split(data) for record in iterate_records(data, header)
    ]


async def with_another_partitions_run(
    proxy: Running, client: Any, *, nth: int
) -> tuple[list[SegmentEntry], SegmentEntry]:
    """Three segments of the partition, and one of another as long and of the same offsets as the nth of them."""
    entries = [await put_segment(proxy.store, TPS[0], n, size_bytes=100 + n) for n in range(3)]
    data = build_batch([Record(0, 1_000, None, b"x" * (100 + nth))], base_offset=nth)
    batch = SegmentBatch(data, Offset(nth), Offset(nth), 1, 1_000, 1_000)
    encoded = encode_segment(_rng.nonce(), "test-cluster", [SegmentRun(TPS[1], LeaderEpoch(3), [batch])])
    await proxy.store.create("other", encoded.parts)
    [other] = encoded.entries_at("other")
    assert [(one.position, one.length, one.index_position, one.index_length) for one in (other,)] == [
        (one.position, one.length, one.index_position, one.index_length) for one in entries[nth : nth + 1]
    ]
    log = proxy.owner.log(TPS[0])
    log.tail_start = log.end = 3
    return entries, other


@pytest.mark.parametrize("nth", [0, 1, 2])
def test_another_partitions_segment_in_the_place_of_one_is_an_error_and_never_records(nth: int) -> None:
    async def test(proxy: Running, client: Any) -> None:
        entries, other = await with_another_partitions_run(proxy, client, nth=nth)
        proxy.owner.log(TPS[0]).manifest_version = await put_manifest(proxy.store, TPS[0], entries, paged=0)
        right = proxy.store.objects[entries[nth].key]
        proxy.store.objects[entries[nth].key] = proxy.store.objects[other.key]
        before = OTHER_RUNS._value.get()
        if nth:
            assert await fetched(client) == (0, [bytes(100 + n) for n in range(nth)]), "what is before it"
        for _ in range(2):
            assert await fetched(client, nth) == (ErrorCode.kafka_storage_error, [])
        assert OTHER_RUNS._value.get() == before + 4, "each time with the manifest that was kept, and with the store's"
        proxy.store.objects[entries[nth].key] = right
        proxy.role.proxy.reader._segments._cache = BlockCache(proxy.store, tail_bytes=64 << 20, catch_up_bytes=64 << 20)
        assert await fetched(client, nth) == (0, [bytes(100 + n) for n in range(nth, 3)])

    fetching(test)


@pytest.mark.parametrize("nth", [0, 2])
def test_where_the_kept_manifest_names_another_partitions_segment_the_stores_is_read(nth: int) -> None:
    async def test(proxy: Running, client: Any) -> None:
        entries, other = await with_another_partitions_run(proxy, client, nth=nth)
        wrong = [*entries[:nth], other, *entries[nth + 1 :]]
        version = proxy.owner.log(TPS[0]).manifest_version = await put_manifest(proxy.store, TPS[0], wrong, paged=0)
        await fetched(client)  # the manifest is kept now
        key = f"{manifest_prefix(TPS[0])}{version:020d}"
        del proxy.store.objects[key]
        assert await put_manifest(proxy.store, TPS[0], entries, paged=0) == version
        assert await fetched(client, nth) == (0, [bytes(100 + n) for n in range(nth, 3)])
        assert await fetched(client) == (0, [bytes(100 + n) for n in range(3)])
        assert held(proxy.role.proxy.reader._manifests) == proxy.role.proxy.reader._manifests._held

    fetching(test)


def test_a_run_in_a_segment_of_many_partitions_is_read_for_its_own_alone() -> None:
    async def test(store: MemoryStore) -> None:
        runs = [SegmentRun(tp, LeaderEpoch(3), [some_batch(0)]) for tp in TPS]
        encoded = encode_segment(_rng.nonce(), "test-cluster", runs)
        await store.create("shared", encoded.parts)
        entries = encoded.entries_at("shared")
        reader = reader_over(store)
        for number, tp in enumerate(TPS):
            for asker in TPS:
                reading = reader.read(asker, entries[number], 0, max_bytes=1, at_least_one=True, pool=Pool.TAIL)
                if asker == tp:
                    assert (await reading).size_bytes == entries[number].length
                else:
                    with pytest.raises(OtherRun, match=f"is that of {tp} at 0, not of {asker} at 0"):
                        await reading
        assert reader._index_bytes == sum(_cost_bytes(task.result()) for task in reader._indexes.values())

    run(test)
