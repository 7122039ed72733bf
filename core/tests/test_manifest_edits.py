"""Edits of a manifest against an obvious list of what a partition holds, and the edits that are refused."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.storage import leader_epochs, manifest_format
from bmq.storage.leader_epochs import EpochStart
from bmq.storage.manifest import ENTRIES_MAX, InvalidEdit, Manifest, PageRef, page_ref, part_at
from bmq.storage.segment import SegmentEntry


def entry(
    base: int, last: int, *, key: str = "", timestamp_ms: int = 0, aborted: int = -1, length: int | None = None
) -> SegmentEntry:
    count = last - base + 1
    return SegmentEntry(
        key=key or f"{base}-{last}",
        position=0,
        length=count * 10 if length is None else length,
        leader_epoch=1,
        base_offset=base,
        last_offset=last,
        record_count=count,
        min_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        index_position=9,
        index_length=9,
        snapshot_position=18,
        snapshot_length=4,
        aborted_first_offset=aborted,
    )


def manifest_of(*entries: SegmentEntry, kind: str = "dense") -> Manifest:
    found = Manifest(kind=kind, log_start=entries[0].base_offset, next_offset=entries[0].base_offset)
    for each in entries:
        found = found.add_segment(each, last_stable_offset=each.last_offset + 1)
    return found


class Twin:
    """A manifest and its pages beside a plain list of entries; each step is done to both."""

    def __init__(self, kind: str) -> None:
        self.manifest = Manifest(kind=kind)
        self.pages: dict[str, tuple[SegmentEntry, ...]] = {}
        self.entries: list[SegmentEntry] = []
        self.log_start = 0
        self.next_offset = 0
        self.steps = 0

    def step(self, rng: random.Random) -> None:
        self.steps += 1
        action = rng.choice(["add", "add", "add", "log start", "merge", "page", "trim", "skip"])
        if action == "add":
            self._add(rng)
        elif action == "log start":
            self.log_start = max(self.log_start, rng.randint(0, self.next_offset + 3))
            self.manifest = self.manifest.raise_log_start(self.log_start)
        elif action == "merge" and len(self.manifest.entries) > 1:
            self._merge(rng)
        elif action == "page" and self.manifest.entries:
            moved = self.manifest.entries[: rng.randint(1, len(self.manifest.entries))]
            ref = page_ref(f"page-{self.steps}", moved)
            self.pages[ref.key] = moved
            self.manifest = self.manifest.move_to_page(ref)
        elif action == "trim" and (cut := self.manifest.cut_page()) is not None:
            kept = self.manifest.kept_of_page(self.pages[cut.key])
            ref = page_ref(f"page-{self.steps}", kept)
            self.pages[ref.key] = kept
            self.manifest = self.manifest.replace_page(self.pages[cut.key], ref)
        elif action == "skip" and self.log_start > self.next_offset:
            self.next_offset = rng.randint(self.next_offset, self.log_start)
            self.manifest = self.manifest.skip_to(self.next_offset)
        self.entries = [each for each in self.entries if each.last_offset >= self.log_start]

    def _add(self, rng: random.Random) -> None:
        gap = rng.choice([0, 0, 2]) if self.manifest.kind == "mirrored" else 0
        base = self.next_offset + gap
        last = base + rng.randint(0, 4)
        added = entry(
            base, last, timestamp_ms=rng.randint(-1, 30), aborted=rng.choice([-1, max(0, base - rng.randint(0, 9))])
        )
        self.entries.append(added)
        self.next_offset = last + 1
        self.manifest = self.manifest.add_segment(added, last_stable_offset=self.next_offset)

    def _merge(self, rng: random.Random) -> None:
        named = self.manifest.entries
        start = rng.randrange(len(named) - 1)
        old = named[start : rng.randint(start + 2, len(named))]
        merged = msgspec.structs.replace(
            entry(old[0].base_offset, old[-1].last_offset, length=sum(each.length for each in old)),
            record_count=sum(each.record_count for each in old),
            max_timestamp_ms=max(each.max_timestamp_ms for each in old),
        )
        at = self.entries.index(old[0])
        self.entries[at : at + len(old)] = [merged]
        self.manifest = self.manifest.replace(old, merged)

    def load(self, parts: list[SegmentEntry | PageRef]) -> list[SegmentEntry]:
        """The entries behind these parts."""
        found: list[SegmentEntry] = []
        for part in parts:
            found.extend(self.pages[part.key] if isinstance(part, PageRef) else [part])
        return found


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(["dense", "mirrored"]), st.randoms(use_true_random=False))
def test_a_manifest_answers_like_a_plain_list_of_its_entries(kind: str, rng: random.Random) -> None:
    twin = Twin(kind)
    for _ in range(25):
        twin.step(rng)
        found = twin.manifest
        assert (found.log_start, found.next_offset) == (twin.log_start, twin.next_offset)
        assert manifest_format.decode_manifest(manifest_format.encode_manifest(found)) == found
        assert [each for each in twin.load(list(found.parts)) if each.last_offset >= twin.log_start] == twin.entries
        offset = rng.randint(0, twin.next_offset + 2)
        part = found.entry_for_offset(max(offset, twin.log_start))
        if isinstance(part, PageRef):
            part = part_at(twin.pages[part.key], max(offset, twin.log_start))
        assert part == next((each for each in twin.entries if each.last_offset >= max(offset, twin.log_start)), None)
        timestamp_ms = rng.randint(-1, 31)
        by_time = [
            each
            for each in twin.load(list(found.entries_for_time(timestamp_ms)))
            if each.max_timestamp_ms >= timestamp_ms
        ]
        assert [each for each in by_time if each.last_offset >= twin.log_start] == [
            each for each in twin.entries if each.max_timestamp_ms >= timestamp_ms
        ]
        wanted = [
            each for each in twin.entries if each.last_offset >= offset and 0 <= each.aborted_first_offset < offset + 3
        ]
        loaded = twin.load(list(found.entries_with_aborted(offset, offset + 3)))
        assert [each for each in wanted if each not in loaded] == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(-1, 20)), min_size=1, max_size=8),
    st.integers(0, 21),
    st.integers(0, 300),
)
def test_retention_keeps_what_is_young_and_fits(
    shapes: list[tuple[int, int]], before_ms: int, size_bytes_max: int
) -> None:
    entries = []
    base = 0
    for count, timestamp_ms in shapes:
        entries.append(entry(base, base + count - 1, timestamp_ms=timestamp_ms))
        base += count
    found = manifest_of(*entries)
    log_start, page = found.retained_from(before_ms=before_ms, size_bytes_max=size_bytes_max)
    assert page is None
    kept = found.raise_log_start(log_start)
    gone = entries[: len(entries) - len(kept.entries)]
    rest = [each.length for each in entries]
    for each in gone:
        old_enough = 0 <= each.max_timestamp_ms < before_ms
        assert old_enough or sum(rest[1:]) >= size_bytes_max
        rest.pop(0)
    if kept.entries:
        assert not 0 <= kept.entries[0].max_timestamp_ms < before_ms
        assert kept.size_bytes - kept.entries[0].length < size_bytes_max


def test_retention_names_the_page_that_it_ends_in() -> None:
    entries = [entry(each, each, timestamp_ms=each) for each in range(6)]
    found = manifest_of(*entries)
    found = found.move_to_page(page_ref("one", entries[:2])).move_to_page(page_ref("two", entries[2:4]))
    assert found.retained_from(before_ms=3) == (2, found.pages[1])
    assert found.retained_from(before_ms=4) == (4, None)
    assert found.retained_from(size_bytes_max=35) == (2, found.pages[1])
    assert found.retained_from() == (0, found.pages[0])


def test_a_page_that_the_log_start_cuts_is_rewritten_and_one_below_it_goes() -> None:
    entries = [entry(each, each) for each in range(5)]
    found = manifest_of(*entries).move_to_page(page_ref("one", entries[:2])).move_to_page(page_ref("two", entries[2:4]))
    assert found.cut_page() is None
    found = found.raise_log_start(3)
    assert [page.key for page in found.pages] == ["two"]
    assert found.cut_page() == page_ref("two", entries[2:4])
    kept = found.kept_of_page(entries[2:4])
    assert kept == (entries[3],)
    with pytest.raises(InvalidEdit, match="rewritten"):
        found.replace_page(entries[:2], page_ref("three", kept))
    with pytest.raises(InvalidEdit, match="not below the log start"):
        found.replace_page(entries[2:4], page_ref("three", entries[2:4]))
    found = found.replace_page(entries[2:4], page_ref("three", kept))
    assert found.cut_page() is None
    assert (found.keys(), found.segment_count, found.size_bytes) == (frozenset({"three", "4-4"}), 2, 20)


def test_the_oldest_entries_overflow_into_a_page() -> None:
    entries = [entry(each, each) for each in range(ENTRIES_MAX + 1)]
    found = Manifest(entries=tuple(entries[:-1]), next_offset=ENTRIES_MAX)
    assert found.overflow() == ()
    found = found.add_segment(entries[-1], last_stable_offset=ENTRIES_MAX + 1)
    moved = found.overflow()
    assert moved == tuple(entries[: ENTRIES_MAX // 2])
    with pytest.raises(InvalidEdit, match="a page holds the oldest entries"):
        found.move_to_page(page_ref("page", entries[1 : ENTRIES_MAX // 2 + 1]))
    found = found.move_to_page(page_ref("page", moved))
    assert found.overflow() == ()
    assert found.entry_for_offset(ENTRIES_MAX // 2 - 1) == found.pages[0]
    assert found.entry_for_offset(ENTRIES_MAX // 2) == entries[ENTRIES_MAX // 2]


def test_edits_that_would_lose_or_double_records_are_refused() -> None:
    found = manifest_of(entry(0, 4), entry(5, 9))
    with pytest.raises(InvalidEdit, match="segments ascend"):
        found.add_segment(entry(9, 12), last_stable_offset=13)
    with pytest.raises(InvalidEdit, match="dense offsets have no gap"):
        found.add_segment(entry(11, 12), last_stable_offset=13)
    with pytest.raises(InvalidEdit, match="never goes back"):
        found.add_segment(entry(10, 12), last_stable_offset=9)
    with pytest.raises(InvalidEdit, match="between 0 and the end"):
        found.add_segment(entry(10, 12), last_stable_offset=14)
    with pytest.raises(InvalidEdit, match="consecutive entries"):
        found.replace([entry(0, 4), entry(5, 8)], entry(0, 9))
    with pytest.raises(InvalidEdit, match="a merge holds what it replaces"):
        found.replace(found.entries, entry(0, 8))
    with pytest.raises(InvalidEdit, match="replaces something"):
        found.replace([], entry(0, 8))
    with pytest.raises(InvalidEdit, match="only deleted records are skipped"):
        found.skip_to(11)
    with pytest.raises(InvalidEdit, match="leader epochs never go back"):
        found.note_leader_epoch(5, 10).note_leader_epoch(4, 12)
    with pytest.raises(InvalidEdit, match="coordinator snapshots never go back"):
        found.name_coordinator_snapshot("a", 5).name_coordinator_snapshot("b", 4)
    with pytest.raises(InvalidEdit, match="coordinator snapshots never go back"):
        found.name_coordinator_snapshot("a", 5).name_coordinator_snapshot("b", 3, log_end=4)
    assert found.name_coordinator_snapshot("a", 5).name_coordinator_snapshot(
        "b", 4, log_end=4
    ).coordinator_snapshot == ("b", 4)


def test_a_segment_that_was_deleted_while_it_was_rolled_is_not_named() -> None:
    found = manifest_of(entry(0, 4)).raise_log_start(8)
    assert (found.entries, found.next_offset) == ((), 5)
    rolled = found.add_segment(entry(5, 6), last_stable_offset=7)
    assert (rolled.entries, rolled.next_offset) == ((), 7)
    cut = rolled.add_segment(entry(7, 9), last_stable_offset=10)
    assert (len(cut.entries), cut.next_offset, cut.log_start) == (1, 10, 8)
    skipped = found.skip_to(8).add_segment(entry(8, 9), last_stable_offset=10)
    assert skipped.next_offset == 10
    with pytest.raises(InvalidEdit, match="no gap"):
        found.add_segment(entry(9, 9), last_stable_offset=10)


HISTORIES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=6)


@settings(max_examples=200, deadline=None)
@given(HISTORIES, st.integers(0, 25), st.integers(0, 25))
def test_epoch_ends_agree_with_the_epoch_of_each_record(
    shapes: list[tuple[int, int]], asked: int, log_start: int
) -> None:
    """The slow twin: the epoch of every record. An epoch ends where the first record of a higher one is."""
    history: leader_epochs.EpochHistory = ()
    epoch = 0
    epoch_of: list[int] = []
    for raise_by, count in shapes:
        epoch += raise_by
        history = leader_epochs.with_epoch(history, epoch, len(epoch_of))
        assert leader_epochs.with_epoch(history, epoch, len(epoch_of) + 1) == history
        epoch_of += [epoch] * count
    log_start = min(log_start, len(epoch_of))
    history = leader_epochs.cut_below(history, log_start)
    assert leader_epochs.ascends(history)
    kept = sorted(set(epoch_of[log_start:])) or ([epoch] if epoch_of else [])
    assert [each.epoch for each in history] == kept
    if not kept or asked > kept[-1]:
        wanted = (-1, -1)
    else:
        end = next((at for at in range(log_start, len(epoch_of)) if epoch_of[at] > asked), len(epoch_of))
        wanted = (max((each for each in kept if each <= asked), default=asked), end)
    assert leader_epochs.epoch_end(history, asked, log_end=len(epoch_of)) == wanted


def test_an_epoch_that_wrote_nothing_leaves_the_history() -> None:
    found = Manifest().note_leader_epoch(1, 0).note_leader_epoch(3, 0).note_leader_epoch(4, 0)
    assert found.leader_epochs == (EpochStart(4, 0),)
    assert found.epoch_end(4) == (4, 0)
    assert found.epoch_end(4, log_end=7) == (4, 7)
    assert found.epoch_end(3) == (3, 0)
    assert found.epoch_end(5) == (-1, -1)


def test_the_newest_producer_snapshot_outlives_the_segments() -> None:
    found = manifest_of(entry(0, 4), entry(5, 9))
    assert found.newest_producer_snapshot() == ("5-9", 18, 4)
    emptied = found.raise_log_start(12)
    assert emptied.newest_producer_snapshot() == ("5-9", 18, 4)
    assert emptied.keys() == {"5-9"}
    rolled = emptied.add_segment(entry(10, 11), last_stable_offset=12)
    assert rolled.entries == ()
    assert rolled.keys() == {"10-11"}
    again = rolled.add_segment(entry(12, 13), last_stable_offset=14)
    assert again.producer_snapshot is None
    assert again.keys() == {"12-13"}
    assert Manifest().newest_producer_snapshot() is None
