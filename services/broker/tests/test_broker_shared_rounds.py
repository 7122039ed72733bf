"""Rounds over shared segments: they are bounded and go on where they stopped, one segment that cannot be judged holds
up no other, pages count.
"""

import asyncio
from dataclasses import replace

import pytest
from broker_under_test import Cluster
from held_store import HeldStore
from moving_brokers import Brokers
from structlog.testing import capture_logs
from test_broker_shared_segments import LONG_S, append_and_roll, cluster_about_to_roll, roll_together, settings

from bmq.ports import ObjectMeta
from bmq.storage.keys import SHARED_PREFIX, manifest_page_prefix
from bmq.storage.segment import DirectoryEntry
from bmq.values import Offset, TopicPartition
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore

NEVER_MS = 10**9


async def cluster_with_rounds_by_hand(store: SimStore, *, shared: int) -> tuple[Cluster, list[TopicPartition]]:
    """So many shared segments, each of two partitions; they are looked at when the test says so."""
    cluster = Cluster(store, settings=replace(settings(), shared_look_ms=NEVER_MS))
    await cluster.start()
    tps = await cluster.topic("orders", partitions=2)
    for _ in range(shared):
        for tp in tps:
            await cluster.append(tp, b"a")
        await roll_together(cluster.broker, tps)
    await asyncio.sleep(LONG_S)  # the only round by itself is over
    assert len(store.keys(SHARED_PREFIX)) == shared
    return cluster, tps


async def let_all_go(cluster: Cluster, tps: list[TopicPartition]) -> None:
    """None of the partitions needs any of them any more."""
    for tp in tps:
        await cluster.append(tp, b"last")
        await cluster.roll(tp)
        status = await cluster.broker.owner.status([tp])
        await cluster.broker.owner.delete_records(tp, Offset(status[0].high_watermark - 1))


def given_up(cluster: Cluster, keys: list[str]) -> list[str]:
    return [key for key in keys if cluster.broker._upkeep._garbage.holds(key)]


@pytest.mark.parametrize("at_once", [1, 2, 7])
@on_virtual_time
async def test_a_round_reads_so_many_directories_at_most_and_the_next_goes_on_behind_them(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmq_broker.segments.shared_garbage.DIRECTORIES_PER_SWEEP_MAX", at_once)
    store = SimStore()
    cluster, tps = await cluster_with_rounds_by_hand(store, shared=7)
    keys = store.keys(SHARED_PREFIX)
    rounds = cluster.broker._upkeep._shared
    for _ in range(8):  # all are named: what was looked at is remembered, and costs no directory
        await rounds.sweep()
        assert given_up(cluster, keys) == []
    await let_all_go(cluster, tps)
    done: list[str] = []
    for _ in range(-(-7 // at_once) + 1):
        await rounds.sweep()
        more = given_up(cluster, keys)
        assert len(more) - len(done) <= at_once
        assert set(done) <= set(more)
        done = more
    assert done == keys
    await asyncio.sleep(LONG_S)
    assert store.keys(SHARED_PREFIX) == []
    assert [await cluster.read_all(tp) for tp in tps] == [[(7, b"last")]] * 2
    await cluster.stop()


@on_virtual_time
async def test_segments_of_which_it_is_not_remembered_who_names_them_stay_as_long_as_they_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmq_broker.segments.shared_garbage.WATCHED_MAX", 2)
    store = SimStore()
    cluster, tps = await cluster_with_rounds_by_hand(store, shared=5)
    keys = store.keys(SHARED_PREFIX)
    rounds = cluster.broker._upkeep._shared
    for _ in range(3):
        await rounds.sweep()
        assert len(rounds._watched) == 2
        assert given_up(cluster, keys) == []
    assert [await cluster.read_all(tp) for tp in tps] == [[(n, b"a") for n in range(5)]] * 2
    await let_all_go(cluster, tps)
    await rounds.sweep()
    assert given_up(cluster, keys) == keys
    assert not rounds._watched
    await cluster.stop()


@on_virtual_time
async def test_rounds_come_to_every_segment_however_many_before_it_have_to_be_read_anew_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmq_broker.segments.shared_garbage.DIRECTORIES_PER_SWEEP_MAX", 1)
    monkeypatch.setattr("bmq_broker.segments.shared_garbage.WATCHED_MAX", 1)
    store = SimStore()
    cluster, _ = await cluster_with_rounds_by_hand(store, shared=0)
    written: dict[str, list[TopicPartition]] = {}
    for name in "abcde":
        tps = await cluster.topic(name, partitions=2)
        for tp in tps:
            await cluster.append(tp, b"a")
        await roll_together(cluster.broker, tps)
        [key] = set(store.keys(SHARED_PREFIX)) - set(written)
        written[key] = tps
    keys = store.keys(SHARED_PREFIX)
    await let_all_go(cluster, written[keys[-1]])
    for _ in range(2 * len(keys)):
        await cluster.broker._upkeep._shared.sweep()
    assert given_up(cluster, keys) == keys[-1:]
    await cluster.stop()


@pytest.mark.parametrize("how", ["is damaged", "is gone"])
@on_virtual_time
async def test_a_segment_that_cannot_be_read_stays_and_holds_up_no_other(how: str) -> None:
    store = SimStore()
    cluster, tps = await cluster_with_rounds_by_hand(store, shared=3)
    keys = store.keys(SHARED_PREFIX)
    await let_all_go(cluster, tps)
    data = bytes(store.objects[keys[0]].data)
    rounds = cluster.broker._upkeep._shared
    rounds._watched.clear()
    if how == "is damaged":
        store.apply_delete("a bad disk", keys[0])
        store.apply_create("a bad disk", keys[0], bytes(len(data)))
    else:
        directory = rounds._directory

        async def gone_since_it_was_listed(meta: ObjectMeta) -> tuple[DirectoryEntry, ...] | None:
            if meta.key == keys[0]:
                store.apply_delete("somebody else", keys[0])
            return await directory(meta)

        rounds._directory = gone_since_it_was_listed  # type: ignore[method-assign]
    await rounds.sweep()
    assert given_up(cluster, keys) == keys[1:]
    await asyncio.sleep(LONG_S)
    assert store.keys(SHARED_PREFIX) == ([keys[0]] if how == "is damaged" else [])
    if how == "is damaged":
        store.apply_delete("an operator", keys[0])
        store.apply_create("an operator", keys[0], data)
        await rounds.sweep()
        assert given_up(cluster, keys) == [keys[0]]
    await cluster.stop()


@pytest.mark.parametrize("waits_for", ["its own create", "the versions that name it"])
@on_virtual_time
async def test_a_segment_that_stands_while_the_roll_that_wrote_it_is_not_over_stays(waits_for: str) -> None:
    store = HeldStore()
    cluster, tps = await cluster_about_to_roll(store)
    if waits_for == "its own create":
        store.unknown.add(SHARED_PREFIX)
    else:
        store.held.add("/manifest/")
    partitions = [await cluster.broker._ownership.open(tp) for tp in tps]
    cluster.broker._roller.start_together(partitions, "test")
    await asyncio.sleep(0.1)
    store.land()
    [key] = store.keys(SHARED_PREFIX)
    rounds = cluster.broker._upkeep._shared
    assert key in rounds._writing
    for _ in range(3):
        await rounds.sweep()
        assert not cluster.broker._upkeep._garbage.holds(key)
    store.unknown.clear()
    store.let_go("/manifest/")
    await asyncio.sleep(LONG_S)
    assert [await cluster.read_all(tp) for tp in tps] == [[(0, b"a"), (1, b"b")]] * 2
    assert key in store.keys(SHARED_PREFIX)
    assert key not in rounds._writing
    await cluster.stop()


async def named_on_pages(brokers: Brokers, tps: list[TopicPartition], *, moved: bool) -> None:
    """One shared segment, which later ones have put on pages of the partitions' manifests; `moved`: by another
    owner.
    """
    for tp in tps:
        await brokers.append(tp, b"a")
    await roll_together(brokers.roles[1], tps)
    if moved:
        await brokers.moved(*tps, to=2)
    for value in (b"b", b"c", b"d", b"e"):
        await append_and_roll(brokers, tps, value)


@pytest.mark.parametrize("moved", [False, True])
@on_virtual_time
async def test_a_segment_that_only_a_page_of_a_manifest_names_stays_until_the_page_is_passed(moved: bool) -> None:
    """`moved`: the partition is another broker's by then, and what it names is read from the store."""
    store = SimStore()
    brokers = Brokers(store, settings=replace(settings(), manifest_entries_max=2))
    await brokers.start(1, 2)
    tps = brokers.controller.create_topic("orders", partitions=2, owner=1)
    await named_on_pages(brokers, tps, moved=moved)
    assert all(store.keys(manifest_page_prefix(tp)) for tp in tps)
    for tp in tps:
        assert not [key for key in await named_by_itself(brokers, tp) if key.startswith(SHARED_PREFIX)]
    await asyncio.sleep(LONG_S)
    assert len(store.keys(SHARED_PREFIX)) == 1
    assert [await brokers.read_all(tp) for tp in tps] == [[(n, bytes([97 + n])) for n in range(5)]] * 2
    for tp in tps:
        await brokers.roles[2 if moved else 1].owner.delete_records(tp, Offset(1))
    await asyncio.sleep(LONG_S)
    assert store.keys(SHARED_PREFIX) == []
    assert [await brokers.read_all(tp) for tp in tps] == [[(n, bytes([97 + n])) for n in range(1, 5)]] * 2
    await brokers.stop()


async def named_by_itself(brokers: Brokers, tp: TopicPartition) -> list[str]:
    """Keys of segments that stand in the newest manifest, and on none of its pages."""
    partition = await brokers.roles[brokers.owner(tp)]._ownership.open(tp)
    return [entry.key for entry in partition.manifest.entries]


@pytest.mark.parametrize("moved", [False, True])
@on_virtual_time
async def test_a_segment_that_a_lost_page_may_name_stays_until_the_page_is_there_again(moved: bool) -> None:
    store = SimStore()
    brokers = Brokers(store, settings=replace(settings(), manifest_entries_max=2, shared_look_ms=NEVER_MS))
    await brokers.start(1, 2)
    tps = brokers.controller.create_topic("orders", partitions=2, owner=1)
    await named_on_pages(brokers, tps, moved=moved)
    [key] = store.keys(SHARED_PREFIX)
    lost = {page: bytes(store.objects[page].data) for tp in tps for page in store.keys(manifest_page_prefix(tp))}
    for page in lost:
        store.apply_delete("a bad disk", page)
    rounds, garbage = brokers.roles[1]._upkeep._shared, brokers.roles[1]._upkeep._garbage
    with capture_logs() as lines:
        for _ in range(4):
            await rounds.sweep()
            assert not garbage.holds(key)
    told = [line["error"] for line in lines if line.get("key") == key]
    assert any(page in error for error in told for page in lost), "what is missing"
    for page, data in lost.items():
        store.apply_create("a backup", page, data)
    await rounds.sweep()
    assert not garbage.holds(key)
    for tp in tps:
        await brokers.roles[2 if moved else 1].owner.delete_records(tp, Offset(1))
    rounds._watched.clear()
    await rounds.sweep()
    assert garbage.holds(key)
    await brokers.stop()
