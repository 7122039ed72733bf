import asyncio
from random import Random

import pytest

from bmq.errors import Conflict, NotApplied, ObjectMissing, StoreError, StoreUnavailable, UnknownOutcome
from bmq.ports import ObjectStore
from bmq_sim.clock import EPOCH_MS, SimClock, SimRng
from bmq_sim.loop import VirtualLoop, on_virtual_time, run
from bmq_sim.process import SimProcess
from bmq_sim.store import ListingKind, SimStore, StoreFaults


@on_virtual_time
async def test_a_key_is_created_once_and_read_back_in_ranges() -> None:
    store: ObjectStore = SimStore().for_node("a")
    await store.create("k/1", [b"hello", memoryview(b" world")])
    with pytest.raises(Conflict):
        await store.create("k/1", [b"other"])
    assert await store.get("k/1") == b"hello world"
    assert await store.get("k/1", start=6) == b"world"
    assert await store.get("k/1", start=6, length=100) == b"world"
    assert await store.get("k/1", start=0, length=5) == b"hello"
    await store.delete("k/1")
    await store.delete("k/1")
    with pytest.raises(ObjectMissing):
        await store.get("k/1")
    with pytest.raises(ObjectMissing):
        await store.head("k/1")


@on_virtual_time
async def test_a_listing_pages_through_a_prefix_in_order() -> None:
    sim = SimStore()
    store = sim.for_node("a")
    for key in ["b/9", "a/1", "a/5", "a/2", "a/4", "a/3", "c", "a"]:
        await store.create(key, [b"x"])
    assert [meta.key async for meta in store.list("a/")] == ["a/1", "a/2", "a/3", "a/4", "a/5"]
    assert sim.requests["list"] == 2
    assert [meta.key async for meta in store.list("a/", after="a/3")] == ["a/4", "a/5"]
    assert [meta.key async for meta in store.list("a/", after="a/2x")] == ["a/3", "a/4", "a/5"]
    assert [meta.key async for meta in store.list("")] == ["a", "a/1", "a/2", "a/3", "a/4", "a/5", "b/9", "c"]
    assert [meta.key async for meta in store.list("a")] == ["a", "a/1", "a/2", "a/3", "a/4", "a/5"]


async def listed(kind: ListingKind, *, page_keys: int = 3) -> list[tuple[str, int]]:
    """What a listing shows beside which things come and go once its first object was told."""
    sim = SimStore(faults=StoreFaults(latency_s_min=1.0, latency_s_max=1.0), page_keys=page_keys)
    sim.listing = kind
    for key in ("a/1", "a/2", "a/3/x", "a/4", "a/6", "b/1"):
        sim.apply_create("b", key, b"long")
    seen = []
    async for meta in sim.for_node("a").list("a/"):
        if not seen:
            sim.apply_create("b", "a/0", b"below what was told")
            for key in ("a/2", "a/4"):
                sim.apply_delete("b", key)
            sim.apply_create("b", "a/2", b"another")
            sim.apply_create("b", "a/5", b"")
        seen.append((meta.key, meta.size_bytes))
    return seen


@on_virtual_time
async def test_a_folder_is_listed_by_names_of_one_moment_and_by_sizes_of_another_and_anew_where_one_is_gone() -> None:
    assert await listed(ListingKind.FOLDERS) == [("a/1", 4), ("a/2", 4), ("a/3/x", 4), ("a/5", 0), ("a/6", 4)]
    assert await listed(ListingKind.FOLDERS, page_keys=1) == [
        ("a/1", 4),
        ("a/2", 7),
        ("a/3/x", 4),
        ("a/5", 0),
        ("a/6", 4),
    ]


@on_virtual_time
async def test_where_names_come_first_what_is_gone_is_left_out_and_what_came_since_is_not_told() -> None:
    assert await listed(ListingKind.NAMES, page_keys=1) == [("a/1", 4), ("a/2", 7), ("a/3/x", 4), ("a/6", 4)]


@on_virtual_time
@pytest.mark.parametrize("kind", ListingKind)
async def test_a_listing_of_any_kind_begins_after_a_key_and_goes_through_folders_in_order(kind: ListingKind) -> None:
    sim = SimStore()
    sim.listing = kind
    store = sim.for_node("a")
    keys = ["a-b", "a/1", "a/3/x", "a/3/y", "a/4", "a0", "b/9"]
    for key in keys:
        await store.create(key, [b"x"])
    for prefix in ("", "a", "a/", "a/3", "b/", "c/"):
        for after in ("", "a/", "a/2", "a/3", "a/3/x", "a/4", "b/9"):
            found = [meta.key async for meta in store.list(prefix, after=after)]
            assert found == [key for key in keys if key.startswith(prefix) and key > after], (prefix, after)


def test_modification_times_are_the_stores_own() -> None:
    async def main() -> tuple[int, int]:
        store = SimStore(clock_offset_ms=5_000).for_node("a")
        await asyncio.sleep(1.5)
        await store.create("k", [b""])
        return (await store.head("k")).modified_ms, SimClock(skew_ms=-1).now_ms()

    modified_ms, now_ms = run(main())
    assert now_ms == EPOCH_MS + 1_001_500 - 1
    assert modified_ms == now_ms + 1 + 5_000


def outcome_of(faults: StoreFaults) -> tuple[type[Exception], bool, bool]:
    """How a create ends, whether the object is there then, and whether it is in the end."""

    async def main() -> tuple[type[Exception], bool, bool]:
        sim = SimStore(faults=faults)
        try:
            await sim.for_node("a").create("k", [b"x"])
        except StoreError as error:
            at_once = bool(sim.keys())
            await asyncio.sleep(1000)
            return type(error), at_once, bool(sim.keys())
        raise AssertionError("it succeeded")

    return run(main())


def test_every_planned_outcome_of_a_create_does_what_its_name_says() -> None:
    assert outcome_of(StoreFaults(not_applied_probability=1)) == (NotApplied, False, False)
    assert outcome_of(StoreFaults(unknown_not_applied_probability=1)) == (UnknownOutcome, False, False)
    assert outcome_of(StoreFaults(unknown_applied_probability=1)) == (UnknownOutcome, True, True)
    assert outcome_of(StoreFaults(unknown_late_probability=1)) == (UnknownOutcome, False, True)


@on_virtual_time
async def test_reads_and_deletes_fail_by_plan() -> None:
    store = SimStore(faults=StoreFaults(unavailable_probability=1)).for_node("a")
    for request in (store.get("k"), store.head("k"), store.delete("k"), anext(store.list("k"))):
        with pytest.raises(StoreUnavailable):
            await request


@on_virtual_time
async def test_an_outage_ends_and_a_cut_off_node_is_alone() -> None:
    sim = SimStore()
    a, b = sim.for_node("a"), sim.for_node("b")
    sim.outage(60)
    for number in range(5):
        with pytest.raises((NotApplied, UnknownOutcome)):
            await a.create(f"k{number}", [b"x"])
    await asyncio.sleep(60)
    assert sim.keys() == []
    await a.create("k", [b"x"])
    sim.cut_off("a", 10)
    with pytest.raises(StoreUnavailable):
        await a.get("k")
    assert await b.get("k") == b"x"


def test_a_create_of_a_killed_node_may_land_in_time_late_or_never() -> None:
    async def landed(seed: int) -> str:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        sim = SimStore(rng=Random(seed), faults=StoreFaults(latency_s_min=1, latency_s_max=1))
        process = SimProcess("a", host="a")
        process.start(sim.for_node("a").create("k", [b"x"]))
        await asyncio.sleep(0.5)
        loop.kill(process)
        await asyncio.sleep(0.6)
        if sim.keys():
            return "in time"
        await asyncio.sleep(100)
        return "late" if sim.keys() else "never"

    assert {run(landed(seed)) for seed in range(20)} == {"in time", "late", "never"}


def test_a_seed_gives_one_digest() -> None:
    faults = StoreFaults(
        latency_s_max=0.1, slow_probability=0.1, slow_s_max=3, not_applied_probability=0.1, unknown_late_probability=0.1
    )

    async def main(seed: int) -> str:
        sim = SimStore(rng=Random(seed), faults=faults)

        async def write(node: str) -> None:
            for number in range(20):
                try:
                    await sim.for_node(node).create(f"{number}", [node.encode()])
                except StoreError:
                    await asyncio.sleep(0.01)

        await asyncio.gather(write("a"), write("b"))
        return sim.digest()

    assert run(main(1)) == run(main(1))
    assert run(main(1)) != run(main(2))


def test_ids_and_nonces_follow_from_the_seed() -> None:
    one, other = SimRng(7), SimRng(7)
    assert (one.uuid(), one.nonce(), one.random()) == (other.uuid(), other.nonce(), other.random())
    assert one.uuid().version == 4
    assert len(one.nonce()) == 16
