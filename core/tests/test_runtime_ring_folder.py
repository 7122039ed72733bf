"""A folder some of whose objects are records of a ring: to everyone above they are objects as others."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bmq.errors import ConfigurationError, Conflict, NotApplied, ObjectMissing, StoreUnavailable
from bmq.runtime import folder_files
from bmq.runtime.folder_files import FolderFiles
from bmq.runtime.folder_store import FolderStore
from bmq.runtime.read_only_folder import ReadOnlyFiles, open_read_only
from bmq.runtime.ring import view
from bmq.runtime.ring.files import DiskFile, DiskFolder
from bmq.runtime.ring.format import BLOCK_BYTES
from bmq.runtime.ring.ring import RECORD_BYTES_MAX
from bmq.runtime.shared_folder import SharedFolder

KEY = "wal/0000000001/0000000001/{:020d}"
LARGE = bytes(RECORD_BYTES_MAX)


def files_of(folder: Path) -> list[str]:
    """Those of objects, and of the ring's records."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".tmp" not in path.parts and path.suffix != ".table" and path.name != ".lock"
    )


def listed(files: FolderFiles, folder: str = "", *, name_prefix: str = "", after: str = "") -> list[str]:
    return [meta.key for meta in files.walk(folder, name_prefix=name_prefix, after=after)]


def test_small_objects_of_the_wal_have_no_file_and_others_do(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    for number in range(3):
        files.create(KEY.format(number), [b"a", b"b" * number])
    files.create(KEY.format(3), [LARGE])
    files.create("meta/1", [b"m"])
    assert files_of(tmp_path) == [".ring/00000001.ring", "meta/1", KEY.format(3)]
    assert [files.read(KEY.format(number), start=0, length=None) for number in range(4)] == [b"a", b"ab", b"abb", LARGE]
    assert files.read(KEY.format(2), start=1, length=1) == b"b"
    assert files.head(KEY.format(2)).size_bytes == 3
    assert abs(files.head(KEY.format(2)).modified_ms - files.head("meta/1").modified_ms) < 60_000
    for number in (0, 3):
        with pytest.raises(Conflict):
            files.create(KEY.format(number), [b"c"])
        with pytest.raises(Conflict):
            files.create(KEY.format(number), [LARGE])
    files.delete(KEY.format(1))
    files.delete(KEY.format(1))
    for call in (files.head, lambda key: files.read(key, start=0, length=None)):
        with pytest.raises(ObjectMissing):
            call(KEY.format(1))
    assert listed(files) == ["meta/1", KEY.format(0), KEY.format(2), KEY.format(3)]
    files.close()


SIZES = st.sampled_from((1, 5_000, RECORD_BYTES_MAX))
NAMES = st.sampled_from(("wal/1/1", "wal/1/2", "wal/1/10", "wal/1-a", "wal/2/1", "wal/a", "wax", "wal-b/1", "meta/1"))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, SIZES, max_size=9), st.sampled_from(("", "wal/", "wal/1/")), NAMES)
def test_a_listing_has_all_in_the_order_of_keys(
    tmp_path_factory: pytest.TempPathFactory, objects: dict[str, int], folder: str, after: str
) -> None:
    files = FolderFiles(tmp_path_factory.mktemp("folder"), fsync=True, ring=True)
    for key, size_bytes in objects.items():
        files.create(key, [bytes(size_bytes)])
    found = [(meta.key, meta.size_bytes) for meta in files.walk(folder, name_prefix="", after=after)]
    assert found == [(key, objects[key]) for key in sorted(objects) if key.startswith(folder) and key > after]
    below = [meta.key for meta in files.walk("wal/", name_prefix="1", after="")]
    assert below == [key for key in sorted(objects) if key.startswith("wal/1")]
    files.close()


def test_folders_of_before_open_and_those_with_a_ring_open_without(tmp_path: Path) -> None:
    before = FolderFiles(tmp_path, fsync=True, ring=False)
    before.create(KEY.format(0), [b"0"])
    before.close()
    now = FolderFiles(tmp_path, fsync=True, ring=True)
    with pytest.raises(Conflict):
        now.create(KEY.format(0), [b"other"])
    now.create(KEY.format(1), [b"1"])
    now.create(KEY.format(2), [b"2"])
    now.delete(KEY.format(2))
    now.close()
    expected = {KEY.format(0): b"0", KEY.format(1): b"1"}
    for again in (FolderFiles(tmp_path, fsync=True, ring=True), FolderFiles(tmp_path, fsync=True, ring=False)):
        assert {key: again.read(key, start=0, length=None) for key in listed(again)} == expected
        again.close()
    assert files_of(tmp_path) == list(expected)
    assert not (tmp_path / ".ring").exists()


@pytest.mark.parametrize("how", ["shared", "without fsync"])
def test_who_shares_a_folder_or_syncs_nothing_gives_each_object_its_file(tmp_path: Path, how: str) -> None:
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    files.create(KEY.format(1), [b"1"])
    files.close()
    if how == "shared":
        kept = SharedFolder.open(tmp_path)
        stores = [FolderStore.open(tmp_path, shared=True) for _ in range(2)]
    else:
        stores = [FolderStore.open(tmp_path, fsync=False)]
    for store in stores:
        assert asyncio.run(store.get(KEY.format(1))) == b"1"
        store.close()
    if how == "shared":
        kept.close()
    assert files_of(tmp_path) == [KEY.format(1)]


def test_what_ends_while_each_object_gets_its_file_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    for number in range(3):
        files.create(KEY.format(number), [b"%d" % number])
    files.close()
    real = FolderFiles._create_file

    def fails(self: FolderFiles, key: str, parts: Sequence[bytes]) -> None:
        if key == KEY.format(1):
            raise NotApplied("no space left")
        real(self, key, parts)

    with monkeypatch.context() as patched:
        patched.setattr(FolderFiles, "_create_file", fails)
        with pytest.raises(ConfigurationError, match="no space left"):
            FolderStore.open(tmp_path, ring=False)
    both = FolderFiles(tmp_path, fsync=True, ring=True)
    assert listed(both) == [KEY.format(number) for number in range(3)]
    both.delete(KEY.format(0))
    assert listed(both) == [KEY.format(number) for number in (1, 2)]
    both.close()
    again = FolderFiles(tmp_path, fsync=True, ring=False)
    assert [again.read(key, start=0, length=None) for key in listed(again)] == [b"1", b"2"]
    again.close()


def test_who_only_looks_sees_what_there_is_beside_the_one_that_writes(tmp_path: Path) -> None:
    owner = FolderStore.open(tmp_path, ring=True)
    reader = open_read_only(tmp_path)

    async def keys() -> list[str]:
        return [meta.key async for meta in reader.list("wal/")]

    async def main() -> None:
        assert await keys() == []
        await owner.create(KEY.format(1), [b"a" * 5_000])
        assert await reader.get(KEY.format(1)) == b"a" * 5_000  # before it is listed
        await owner.create(KEY.format(2), [b"b"])
        assert await keys() == [KEY.format(1), KEY.format(2)]
        assert (await reader.head(KEY.format(2))).size_bytes == 1
        await owner.delete(KEY.format(1))
        await owner.create(KEY.format(3), [b"c" * 5_000])
        with pytest.raises(ObjectMissing):
            await reader.get(KEY.format(1))
        assert await reader.get(KEY.format(3), start=4_999, length=5) == b"c"
        assert await keys() == [KEY.format(2), KEY.format(3)]

    asyncio.run(main())
    reader.close()
    owner.close()


@pytest.mark.parametrize("sizes", [(10, 10), (10, RECORD_BYTES_MAX), (RECORD_BYTES_MAX, 5_000)])
def test_who_only_looks_sees_all_of_a_moment(tmp_path: Path, sizes: tuple[int, int]) -> None:
    """Of a row that grows above, and is deleted below once the next ones are there, some are there at each moment. What
    is missing between them was deleted meanwhile.
    """
    owner, reader = FolderFiles(tmp_path, fsync=True, ring=True), ReadOnlyFiles(tmp_path)
    ended = threading.Event()
    deleted = -1
    owner.create(KEY.format(0), [b"x"])

    def write() -> None:
        nonlocal deleted
        for number in range(1, 400):
            owner.create(KEY.format(number), [bytes(sizes[number % 2])])
            if number >= 3:
                deleted = number - 3
                owner.delete(KEY.format(deleted))
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    looks = 0
    try:
        while not ended.is_set():
            found = [int(key.rpartition("/")[2]) for key in listed(reader, "wal/0000000001/0000000001/")]
            assert found, looks
            assert max({*range(found[0], found[-1])} - {*found}, default=-1) <= deleted, (looks, found)
            looks += 1
    finally:
        thread.join(60)
    assert looks
    owner.close()
    assert listed(reader) == listed(FolderFiles(tmp_path, fsync=True))


def test_a_damaged_ring_is_not_passed_over(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    files.create(KEY.format(1), [b"1"])
    files.close()
    (path,) = tmp_path.glob(".ring/*.ring")
    whole = path.read_bytes()
    path.write_bytes(b"x" + whole[1:])
    with pytest.raises(ConfigurationError, match=r"00000001.ring: its head is damaged; .* restore it"):
        FolderStore.open(tmp_path, ring=True)
    path.write_bytes(whole[:8] + b"\x09" + whole[9:])
    with pytest.raises(ConfigurationError, match="its head is damaged"):
        FolderStore.open(tmp_path, ring=True)
    for size_bytes in (BLOCK_BYTES, 20_000):
        path.write_bytes(whole[:size_bytes])
        with pytest.raises(ConfigurationError, match=f"it has {size_bytes} bytes of 16777216: it was cut"):
            FolderStore.open(tmp_path, ring=True)
    path.write_bytes(whole)
    marks = path.with_suffix(".table")
    kept = marks.read_bytes()
    marks.unlink()
    with pytest.raises(ConfigurationError, match=r"00000001\.table: it has 0 bytes of 786432: it was cut"):
        FolderStore.open(tmp_path, ring=True)
    marks.write_bytes(kept)
    FolderStore.open(tmp_path, ring=True).close()


def test_a_ring_that_may_not_be_read_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    files.create(KEY.format(1), [b"1"])
    files.close()
    real = os.listdir

    def refused(path: str | Path = ".") -> list[str]:
        if str(path).endswith(".ring"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", refused)
    for ring in (True, False):
        with pytest.raises(ConfigurationError, match="Permission denied"):
            FolderStore.open(tmp_path, ring=ring)
    reader = open_read_only(tmp_path)
    for call in (reader.get, reader.head):
        with pytest.raises(StoreUnavailable, match="Permission denied"):
            asyncio.run(call(KEY.format(1)))
    reader.close()


def test_marks_have_their_room_on_the_disk_beforehand(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    files.create(KEY.format(1), [b"1"])
    records, marks = (os.stat(tmp_path / ".ring" / f"00000001.{name}") for name in ("ring", "table"))
    assert marks.st_size == records.st_size // BLOCK_BYTES * 192
    assert marks.st_blocks * 512 >= marks.st_size
    files.close()


@pytest.mark.parametrize("fsync", [True, False])
def test_what_was_durable_is_so_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    for number in range(3):
        files.create(KEY.format(number), [b"1"])
    files.close()
    synced: list[int] = []
    sync, link = os.fsync, os.link

    def linked(source: str, name: str, **more: Any) -> None:
        if name.isdecimal():
            assert synced, "it has its name before it is durable"
        link(source, name, **more)
        synced.clear()

    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), sync(fd))[1])
    monkeypatch.setattr(os, "link", linked)
    FolderFiles(tmp_path, fsync=fsync).close()
    assert files_of(tmp_path) == [KEY.format(number) for number in range(3)]


def test_of_a_record_and_a_file_the_later_one_counts(tmp_path: Path) -> None:
    def both(*, file_age_s: int) -> bytes:
        files = FolderFiles(tmp_path, fsync=True, ring=True)
        files.create(KEY.format(1), [b"record"])
        files.close()
        path = tmp_path / KEY.format(1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"file")
        os.utime(path, (time() - file_age_s, time() - file_age_s))
        again = FolderFiles(tmp_path, fsync=True, ring=True)
        found = again.read(KEY.format(1), start=0, length=None)
        again.delete(KEY.format(1))
        assert listed(again) == []
        again.close()
        return found

    assert both(file_age_s=3_600) == b"record"
    assert both(file_age_s=-3_600) == b"file"


@pytest.mark.parametrize("is_kept", [True, False])
def test_who_only_looks_reads_a_damaged_record_as_it_is(tmp_path: Path, is_kept: bool) -> None:
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    for number in range(3):
        files.create(KEY.format(number), [b"acknowledged"])
    (path,) = tmp_path.glob(".ring/*.ring")
    data = path.read_bytes()
    with path.open("r+b") as out:
        out.seek(data.rindex(b"acknowledged"))
        out.write(b"X")
    if not is_kept:
        files.close()
    reader = open_read_only(tmp_path)
    assert sorted(asyncio.run(reader.get(KEY.format(number))) for number in range(3)) == [
        b"Xcknowledged",
        b"acknowledged",
        b"acknowledged",
    ]
    reader.close()
    files.close()


def test_who_only_looks_is_told_something_however_often_names_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "LOOKS_OF_A_MOMENT", 2)
    monkeypatch.setattr(view, "LOOKS_MAX", 4)
    files, reader = FolderFiles(tmp_path, fsync=True, ring=True), ReadOnlyFiles(tmp_path)
    files.create(KEY.format(0), [b"x"])
    numbers = iter(range(1, 1_000))
    monkeypatch.setattr(folder_files, "_names_in", lambda _: files.create(KEY.format(next(numbers)), [b"x"]))
    assert KEY.format(0) in listed(reader, "wal/0000000001/0000000001/")
    files.close()


def test_who_only_looks_finds_what_got_a_file_since(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    files.create(KEY.format(1), [b"1"])
    reader = open_read_only(tmp_path)
    assert asyncio.run(reader.get(KEY.format(1))) == b"1"
    files.close()
    FolderFiles(tmp_path, fsync=True, ring=False).close()
    assert asyncio.run(reader.get(KEY.format(1))) == b"1"
    assert asyncio.run(reader.head(KEY.format(1))).size_bytes == 1
    reader.close()


def test_where_no_file_of_a_ring_can_be_made_each_object_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DiskFolder, "make", full)
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    for number in range(2):
        files.create(KEY.format(number), [b"1"])
    files.close()
    assert files_of(tmp_path) == [KEY.format(0), KEY.format(1)]


def test_a_file_system_that_does_not_take_such_writes_has_no_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(DiskFile, "write", refused)
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    files.create(KEY.format(1), [b"1"])
    files.close()
    assert files_of(tmp_path) == [KEY.format(1)]


def test_a_copy_by_links_does_not_change(tmp_path: Path) -> None:
    folder, copies = tmp_path / "folder", [tmp_path / "first", tmp_path / "second"]
    folder.mkdir()
    files = FolderFiles(folder, fsync=True, ring=True)
    for number in range(3):
        files.create(KEY.format(number), [b"%d" % number])
    files.close()
    shutil.copytree(folder, copies[0], copy_function=os.link)
    files = FolderFiles(folder, fsync=True, ring=True)
    files.delete(KEY.format(0))
    files.create(KEY.format(3), [b"3"])
    shutil.copytree(folder, copies[1], copy_function=os.link, ignore=shutil.ignore_patterns(".tmp", ".lock"))
    files.delete(KEY.format(1))
    files.create(KEY.format(4), [b"4"])
    found = {key: files.read(key, start=0, length=None) for key in listed(files)}
    assert found == {KEY.format(number): b"%d" % number for number in (2, 3, 4)}
    files.close()
    for place, numbers in ((copies[0], range(3)), (copies[1], (1, 2, 3))):
        copy = FolderFiles(place, fsync=True, ring=True)
        found = {key: copy.read(key, start=0, length=None) for key in listed(copy)}
        assert found == {KEY.format(number): b"%d" % number for number in numbers}
        copy.close()
    assert set(listed(FolderFiles(folder, fsync=True, ring=True))) - {KEY.format(1)} == {
        KEY.format(number) for number in (2, 3, 4)
    }


def test_a_listing_is_one_moment_of_files_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of which each number is there before the next one is begun, large and small, is listed without a hole."""
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    made = 0
    real = folder_files.names_in

    def names_in(path: str) -> list[folder_files.Name]:
        nonlocal made
        found = real(path)
        assert files._ring is not None and files._ring.gate.locked()
        return found

    files.create(KEY.format(0), [LARGE])
    monkeypatch.setattr(folder_files, "names_in", names_in)
    for _ in range(3):
        made += 1
        files.create(KEY.format(made), [LARGE if made % 2 else b"small"])
        assert listed(files, "wal/0000000001/0000000001/") == [KEY.format(number) for number in range(made + 1)]
    files.close()


_WRITER = """
import os, sys
from pathlib import Path
from bmq.runtime.folder_files import FolderFiles
files, number = FolderFiles(Path(sys.argv[1]), fsync=True, ring=True), int(sys.argv[2])
while True:
    key = "wal/0000000001/0000000001/%020d" % number
    files.create(key, [key.encode() * (number % 300)])
    os.write(1, b"%d\\n" % number)
    if number % 3:
        files.delete("wal/0000000001/0000000001/%020d" % (number - 2))
        os.write(1, b"-%d\\n" % (number - 2))
    number += 1
"""


def test_a_killed_process_leaves_what_it_had_created_and_not_deleted(tmp_path: Path) -> None:
    random, first, kept = Random(1), 2, set[int]()
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), str(first)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(random.randrange(20, 300)):
            said = int(process.stdout.readline())
            kept.symmetric_difference_update({abs(said)} if said > 0 or abs(said) in kept else set())
        process.send_signal(signal.SIGKILL)
        for line in process.stdout.read().splitlines(keepends=True):
            if line.endswith(b"\n"):
                said = int(line)
                kept.symmetric_difference_update({abs(said)} if said > 0 or abs(said) in kept else set())
        process.wait(30)
        files = FolderFiles(tmp_path, fsync=True, ring=True)
        found = {int(key.rpartition("/")[2]) for key in listed(files)}
        newest = max(kept)
        # the last create and the last deletion may have come without a word
        assert found - kept <= {newest + 1}
        assert kept - found <= {newest - 2, newest - 1}
        for number in found:
            key = KEY.format(number)
            assert files.read(key, start=0, length=None) == key.encode() * (number % 300)
        kept, first = found, max(found | {newest + 1}) + 1
        files.close()
    assert os.path.getsize(tmp_path / ".ring" / "00000001.ring") % BLOCK_BYTES == 0


def test_each_write_flushes_the_disks_own_cache(tmp_path: Path) -> None:
    """As fsync does: no more can be asked of a disk."""
    number = os.stat(tmp_path).st_dev
    disk = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not (disk / "queue").exists():
        disk = disk.resolve().parent  # a part of a disk
    try:
        cache, direct = ((disk / "queue" / name).read_text().strip() for name in ("write_cache", "fua"))
        flushes = int((disk / "stat").read_text().split()[15])
    except (OSError, IndexError):
        pytest.skip("the system does not tell how often the disk's cache is flushed")
    if cache != "write back" or direct != "0":
        pytest.skip("the disk has no cache, or is told with each write to pass it")
    files = FolderFiles(tmp_path, fsync=True, ring=True)
    files.create(KEY.format(0), [b"0"])  # makes the file
    for count in range(1, 51):
        files.create(KEY.format(count), [b"1"])
    assert int((disk / "stat").read_text().split()[15]) - flushes >= 50
    files.close()
