"""Objects as records of a ring: what was created is there through kills and cuts of the power, and nothing else is."""

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_disk import DiskState, PowerCut, SimFolder, cut

from bmq.errors import Conflict, ObjectMissing, UnknownOutcome
from bmq.runtime.ring import ring as ring_module
from bmq.runtime.ring import scan as scan_module
from bmq.runtime.ring.blocks import Blocks
from bmq.runtime.ring.files import DiskFolder
from bmq.runtime.ring.format import (
    BLOCK_BYTES,
    ENTRY_BYTES,
    LIFE_AT,
    FileHead,
    Head,
    Life,
    UnreadableRing,
    blocks_of,
    decode_file,
    decode_head,
    decode_life,
    decode_mark,
    encode_file,
    encode_head,
    encode_life,
    encode_mark,
    has_all,
    head_bytes,
    mark_at,
)
from bmq.runtime.ring.ring import Ring

FILE_BYTES = (6 * BLOCK_BYTES, 10 * BLOCK_BYTES)
"""Five blocks for records, then nine."""
RING_ID = b"0123456789abcdef"
BOOT_ID = b"fedcba9876543210"


def opened(disk: DiskState, *, interrupted: Callable[[], bool] = lambda: False) -> Ring:
    return Ring(
        SimFolder(disk, interrupted=interrupted),
        now_ms=lambda: 1,
        boot_id=disk.boots.to_bytes(16, "big"),
        file_bytes=FILE_BYTES,
    )


def made(ring: Ring, key: str, data: bytes) -> bool:
    with ring.entering(key):
        return ring.create(key, [data[:10], data[10:]])


def whole(ring: Ring, key: str) -> bytes | None:
    return ring.read(key, start=0, length=None)


class Processes:
    """A ring through its processes, and what may be in it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.disk = DiskState()
        self.kept: dict[str, bytes] = {}
        """What was created, and is not deleted."""
        self.gone: dict[str, bytes] = {}
        """What was deleted, or whose creation did not return: it may be there after a cut."""
        self.back: set[str] = set()
        """What a cut brought back."""
        self.count = 0
        self.beside: list[bool] = []
        """At the next write: whether the power is cut in each that is under way at once, the innermost last."""
        self.ring = opened(self.disk, interrupted=self._interrupted)

    def _interrupted(self) -> bool:
        """Before a write reaches the disk, others may have begun later and come back."""
        is_cut = self.beside.pop() if self.beside else False
        if self.beside:
            self.create()
        return is_cut

    def cut_in_a_create(self, beside: int) -> None:
        """While so many others that began later came back."""
        self.beside = [False] * beside + [True]
        try:
            self.create()
        except PowerCut:
            self.cut()
        self.beside = []

    def create(self) -> None:
        self.count += 1
        key, data = f"wal/{self.count}", self.random.randbytes(self.random.choice((1, 700, 4_000, 5_000, 9_000)))
        self.gone[key] = data
        if made(self.ring, key, data):
            self.kept[key] = self.gone.pop(key)

    def delete(self) -> None:
        if self.kept:
            key = self.random.choice(sorted(self.kept))
            assert self.ring.delete(key)
            self.gone[key] = self.kept.pop(key)

    def end(self) -> None:
        """The process alone: deletions stay."""
        self.ring = opened(self.disk, interrupted=self._interrupted)
        assert set(self.ring.names()) <= self.kept.keys() | self.back
        self.check()

    def cut(self) -> None:
        cut(self.disk, self.random)
        self.ring = opened(self.disk, interrupted=self._interrupted)
        self.back |= set(self.ring.names()) - self.kept.keys()
        self.check()

    def check(self) -> None:
        for key, data in self.kept.items():
            assert whole(self.ring, key) == data, key
        for key in list(self.ring.names()):
            assert whole(self.ring, key) == {**self.gone, **self.kept}[key], key


STEPS = ("create", "create", "create", "delete", "delete", "end", "cut", "cut in 1", "cut in 2", "cut in 3")


def live(steps: list[str], seed: int) -> None:
    life = Processes(Random(seed))
    for step in steps:
        match step:
            case "create":
                life.create()
            case "delete":
                life.delete()
            case "end":
                life.end()
            case "cut":
                life.cut()
            case _:
                life.cut_in_a_create(beside=int(step[-1]) - 1)
        life.check()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=60), st.integers(0, 2**32))
def test_what_was_created_is_there_whatever_ends_and_nothing_else_is(steps: list[str], seed: int) -> None:
    live(steps, seed)


def lives() -> None:
    for seed in range(400):
        random = Random(seed)
        live(random.choices(STEPS, k=60), seed)


def test_a_scan_that_passes_over_the_blocks_of_the_dead_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def passing_over(file: scan_module.Readable, table: bytes) -> "list[scan_module.Found]":
        found, behind = [], 0
        for one in real(file, table):
            if one.block >= behind:
                found.append(one)
                behind = one.block + blocks_of(one.head.key, one.head.size_bytes)
        return found

    real = scan_module.scan
    monkeypatch.setattr(scan_module, "scan", passing_over)
    with pytest.raises(AssertionError):
        lives()


def test_records_that_are_believed_without_their_checksum_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Head, "is_of", lambda *_: True)
    with pytest.raises(AssertionError):
        lives()


def test_blocks_that_are_given_out_while_they_live_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Blocks, "reserve", lambda *_: None)  # as if nothing that was found were living
    with pytest.raises(AssertionError):
        lives()


def test_marks_of_the_dead_that_are_forgotten_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "_mark", lambda *_: None)
    with pytest.raises(AssertionError):
        lives()


def test_records_that_younger_ones_lie_in_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "apart", lambda records: records)
    with pytest.raises(AssertionError):
        live_through_a_cut(tail=b"b")


def test_generations_that_are_given_twice_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "newest_mark", lambda *_, **__: 0)
    with pytest.raises(AssertionError):
        live_after_marks_without_records()


def test_lives_go_well() -> None:
    lives()


def live_after_marks_without_records() -> None:
    """Three records are deleted, and the power is cut in one that goes over all of them: of it the last two blocks are
    there. Their marks are of higher generations than any record.
    """
    disk = DiskState()
    ring = opened(disk)
    for number in range(3):
        assert made(ring, f"wal/{number}", b"x")
    for number in range(3):
        assert ring.delete(f"wal/{number}")
    ((_, records, said),) = disk.files
    said.sync(0, len(said.now))
    before = bytes(records.now[: 2 * BLOCK_BYTES])
    records.write(2 * BLOCK_BYTES, bytes(3 * BLOCK_BYTES))
    records.write(0, before)
    records.sync(0, len(records.now))
    ring = opened(disk)
    kept = {f"wal/after{number}": b"acknowledged" * (1 if number else 500) for number in range(4)}
    for key, data in kept.items():
        assert made(ring, key, data)
    ring = opened(disk)
    assert {key: whole(ring, key) for key in kept} == kept


def live_through_a_cut(*, tail: bytes) -> None:
    """A record is deleted. Another one that takes its first block has not reached the disk yet, and a third one that
    takes its last block is acknowledged, as the power is cut: the first is whole again, but for a block of which it had
    as many bytes as a record begins with.
    """
    disk = DiskState()
    ring = opened(disk)
    assert made(ring, "wal/1", b"o" * (BLOCK_BYTES - head_bytes("wal/1")) + tail)
    assert ring.delete("wal/1")
    assert ring._take(1) is not None  # the second's
    assert made(ring, "wal/3", b"acknowledged")
    ((_, records, said),) = disk.files
    records.cut(Nothing())
    said.cut(Nothing())
    disk.boots += 1
    assert whole(opened(disk), "wal/3") == b"acknowledged"


class Nothing(Random):
    """Of what was not durable nothing is there."""

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize("tail", [b"b", b"bm", b"bmqR", b"bmqR\x01\x00", b"x"])
def test_a_record_is_not_hidden_by_one_that_was_there_before(tail: bytes) -> None:
    live_through_a_cut(tail=tail)


def test_a_mark_that_outlives_its_record_says_nothing_of_later_ones() -> None:
    live_after_marks_without_records()


def test_a_write_that_failed_says_nothing_of_later_ones() -> None:
    disk = DiskState()
    ring = opened(disk)
    assert made(ring, "wal/1", b"a")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    ring._files[0].file.write = fails  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcome):
        made(ring, "wal/2", b"b")
    ring = opened(disk)
    assert made(ring, "wal/3", b"c")
    assert sorted(opened(disk).names()) == ["wal/1", "wal/3"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=60))
def test_blocks_are_given_out_once_and_come_together_again(steps: list[tuple[bool, int]]) -> None:
    blocks = Blocks(1, 20)
    held: list[tuple[int, int]] = []
    for takes, count in steps:
        if takes:
            if (first := blocks.take(count)) is not None:
                held.append((first, count))
            else:
                free = sorted(set(range(1, 20)) - {one for at, size in held for one in range(at, at + size)})
                assert not any(all(at + more in free for more in range(count)) for at in free)
        elif held:
            blocks.give(*held.pop(count % len(held)))
        taken = [one for at, size in held for one in range(at, at + size)]
        assert len(taken) == len(set(taken))
        assert blocks.free == 19 - len(taken)
        assert all(1 <= one < 20 for one in taken)
    for one in held:
        blocks.give(*one)
    assert blocks.take(19) == 1


def test_heads_and_marks_come_back_and_damaged_ones_do_not() -> None:
    head = Head("wal/0000000001/7", 300, 9, 1_700_000_000_000, 5)
    data = encode_head(head, ring_id=RING_ID)
    assert decode_head(data + b"more", ring_id=RING_ID) == head
    assert decode_head(data, ring_id=b"fedcba9876543210") is None  # a stranger's bytes that look like one
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        assert decode_head(damaged, ring_id=RING_ID) is None, at
        assert decode_head(data[:at], ring_id=RING_ID) is None
    mark = encode_mark(3, 9, ring_id=RING_ID)
    marks = (bytes(mark_at(3)) + mark).ljust(5 * ENTRY_BYTES, b"\0")
    assert [decode_mark(marks, block, ring_id=RING_ID) for block in range(5)] == [0, 0, 0, 9, 0]
    for at in range(12):
        damaged = bytearray(marks)
        damaged[mark_at(3) + at] ^= 1
        assert decode_mark(damaged, 3, ring_id=RING_ID) == 0
    file = encode_file(FileHead(RING_ID, 1 << 20))
    assert decode_file(file) == FileHead(RING_ID, 1 << 20)
    for bad in (file[:20], b"x" + file[1:], bytes(BLOCK_BYTES)):
        with pytest.raises(UnreadableRing):
            decode_file(bad)


def test_what_looks_like_a_record_within_an_object_is_none() -> None:
    disk = DiskState()
    ring = opened(disk)
    within = encode_head(Head("wal/2", 3, 99, 1, 0), ring_id=RING_ID).ljust(BLOCK_BYTES, b"x")
    assert made(ring, "wal/1", within * 3)
    assert ring.delete("wal/1")
    assert opened(disk).names() == []


def test_a_second_create_of_a_key_is_refused_also_while_the_first_is_being_written() -> None:
    disk = DiskState()
    ring = opened(disk)
    writes, goes_on = threading.Event(), threading.Event()

    def interrupted() -> bool:
        writes.set()
        assert goes_on.wait(30)
        return False

    ring = opened(disk, interrupted=interrupted)
    outcomes: list[str] = []

    def create(data: bytes) -> None:
        try:
            outcomes.append("made" if made(ring, "wal/1", data) else "no room")
        except Conflict:
            outcomes.append("conflict")

    threads = [threading.Thread(target=create, args=(data,)) for data in (b"a", b"b")]
    threads[0].start()
    assert writes.wait(30)
    threads[1].start()
    goes_on.set()
    for thread in threads:
        thread.join(30)
    assert outcomes == ["made", "conflict"]
    assert whole(ring, "wal/1") == b"a"


def test_a_write_that_fails_is_of_an_unknown_outcome_and_the_next_objects_go_elsewhere() -> None:
    disk = DiskState()
    ring = opened(disk)
    assert made(ring, "wal/1", b"a")

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    used = ring._files[0]
    used.file.write = fails  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcome, match="create wal/2: Input/output error"):
        made(ring, "wal/2", b"b")
    assert not made(ring, "wal/3", b"c")
    assert whole(ring, "wal/2") is None
    assert whole(ring, "wal/1") == b"a"
    ring.close()
    assert opened(disk).names() == ["wal/1"]


def test_who_reads_what_is_deleted_meanwhile_is_told() -> None:
    ring = opened(DiskState())
    assert made(ring, "wal/1", b"a" * 5_000)
    used = ring._files[0]
    real = used.file.read

    def read(at: int, size_bytes: int) -> bytes:
        used.file.read = real  # type: ignore[method-assign]
        assert ring.delete("wal/1")
        assert made(ring, "wal/2", b"b" * 5_000)
        return real(at, size_bytes)

    used.file.read = read  # type: ignore[method-assign]
    with pytest.raises(ObjectMissing):
        ring.read("wal/1", start=0, length=None)
    assert ring.read("wal/2", start=4_998, length=10) == b"bb"
    assert ring.read("wal/2", start=6_000, length=10) == b""


def test_a_ring_grows_and_is_full_in_the_end_and_goes_when_it_is_empty(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path, nonce=lambda: RING_ID)
    ring = Ring(folder, now_ms=lambda: 1, boot_id=BOOT_ID, file_bytes=FILE_BYTES)
    keys = [f"wal/{number}" for number in range(20)]
    took = [made(ring, key, key.encode() * 100) for key in keys]
    assert took == [True] * 14 + [False] * 6
    assert sorted(path.name for path in (tmp_path / ".ring").iterdir()) == [
        "00000001.ring",
        "00000001.table",
        "00000002.ring",
        "00000002.table",
    ]
    ring.close()
    again = Ring(folder, now_ms=lambda: 1, boot_id=BOOT_ID, file_bytes=FILE_BYTES)
    assert sorted(again.names()) == sorted(keys[:14])
    assert whole(again, "wal/13") == b"wal/13" * 100
    for key in keys[:14]:
        assert again.delete(key)
    again.close()
    assert not list((tmp_path / ".ring").glob("*.ring"))


def test_threads_create_read_and_delete_at_once(tmp_path: Path) -> None:
    ring = Ring(
        DiskFolder(tmp_path, nonce=lambda: RING_ID), now_ms=lambda: 1, boot_id=BOOT_ID, file_bytes=(64 * BLOCK_BYTES,)
    )
    troubles: list[object] = []
    left: list[dict[str, bytes]] = [{} for _ in range(6)]

    def work(number: int) -> None:
        random, own = Random(number), left[number]
        for count in range(60):
            key, data = f"wal/{number}/{count}", random.randbytes(random.choice((10, 4_000, 9_000)))
            if made(ring, key, data):
                own[key] = data
            for key in list(own):
                if whole(ring, key) != own[key]:
                    troubles.append(key)
            while len(own) > 3:
                key = random.choice(sorted(own))
                del own[key]
                if not ring.delete(key):
                    troubles.append(("delete", key))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not troubles
    ring.close()
    again = Ring(DiskFolder(tmp_path, nonce=lambda: RING_ID), now_ms=lambda: 1, boot_id=BOOT_ID)
    kept = {key: data for own in left for key, data in own.items()}
    assert {key: whole(again, key) for key in list(again.names())} == kept


def test_a_life_comes_back_and_a_damaged_one_does_not() -> None:
    for is_over in (True, False):
        table = bytes(LIFE_AT) + encode_life(Life(BOOT_ID, is_over))
        assert decode_life(table) == Life(BOOT_ID, is_over)
        assert has_all(table, boot_id=BOOT_ID)
        assert has_all(table, boot_id=RING_ID) is is_over
        assert decode_life(table[:-1]) is None
        assert not has_all(table[:-1] + bytes([table[-1] ^ 1]), boot_id=BOOT_ID)


@pytest.mark.parametrize("where", ["head", "object"])
@pytest.mark.parametrize("how", ["killed", "ended", "power cut"])
def test_a_damaged_record_keeps_its_name_where_no_power_cut_may_have_torn_it(where: str, how: str) -> None:
    disk = DiskState()
    ring = opened(disk)
    for number in range(3):
        assert made(ring, f"wal/{number}", b"acknowledged")
    if how == "ended":
        ring.close()
    if how == "power cut":
        disk.boots += 1
    ((_, records, _),) = disk.files
    at = 2 * BLOCK_BYTES + (5 if where == "head" else head_bytes("wal/1") + 3)
    records.now[at] ^= 1
    ring = opened(disk)
    assert sorted(ring.names()) == [f"wal/{number}" for number in range(3) if number != 1 or how != "power cut"]
    if how != "power cut":
        expected = bytearray(b"acknowledged")
        expected[3] ^= where == "object"
        assert whole(ring, "wal/1") == bytes(expected)  # and whoever reads it has a checksum
        assert ring.delete("wal/1")
    assert sorted(opened(disk).names()) == ["wal/0", "wal/2"]
