"""Files of deleted WAL objects are written anew, and no name ever shows bytes that were not written under it."""

import errno
import os
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from bmq.errors import Conflict, NotApplied, ObjectMissing
from bmq.runtime import direct_write, folder_files, spare_files
from bmq.runtime.folder_files import FolderFiles
from bmq.runtime.shared_folder_files import SharedFolderFiles
from bmq.runtime.spare_files import SpareFiles

KIB = 1 << 10
STREAM = "wal/1/1"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderFiles:
    if not direct_write.works_in(str(tmp_path)):
        monkeypatch.setattr(os, "O_DIRECT", 0)  # what is shown here holds through the page cache too
    opened = FolderFiles(tmp_path, fsync=True, ring=False)
    opened.create(f"{STREAM}/first", [b"x"])  # a folder goes with its last object, and with it what has left it
    return opened


def given_out(files: FolderFiles, size_bytes: int) -> str | None:
    """The name of the file that a create of so many bytes would get."""
    found = files._spares.open(size_bytes)
    if found is None:
        return None
    os.close(found[0])
    return found[1]


def inode(files: FolderFiles, key: str) -> int:
    return os.stat(files._prefix + key).st_ino


def some(size_bytes: int, seed: int = 0) -> bytes:
    return Random(seed).randbytes(size_bytes)


def whole(files: FolderFiles, key: str) -> bytes:
    return files.read(key, start=0, length=None)


def test_a_deleted_file_is_written_anew_once_its_deletion_is_durable(files: FolderFiles) -> None:
    files.create(f"{STREAM}/1", [some(300 * KIB, 1)])
    first = inode(files, f"{STREAM}/1")
    files.delete(f"{STREAM}/1")
    with pytest.raises(ObjectMissing):
        whole(files, f"{STREAM}/1")
    # another folder is made durable: after a power cut the file may have its name back
    files.create("wal/2/1/1", [some(400 * KIB, 2)])
    assert inode(files, "wal/2/1/1") != first
    files.create(f"{STREAM}/2", [some(400 * KIB, 3)])
    assert inode(files, f"{STREAM}/2") != first  # made durable only with this one
    files.create(f"{STREAM}/3", [some(400 * KIB, 4)])
    assert inode(files, f"{STREAM}/3") == first
    assert whole(files, f"{STREAM}/2") == some(400 * KIB, 3)
    assert whole(files, f"{STREAM}/3") == some(400 * KIB, 4)
    assert os.stat(files._prefix + f"{STREAM}/3").st_nlink == 1
    assert files._spares.held_bytes == 0


def test_a_folder_whose_sync_fails_gives_no_file_out(files: FolderFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.create(f"{STREAM}/1", [some(300 * KIB)])
    files.delete(f"{STREAM}/1")
    files.create("wal/2/1/1", [b"x"])
    real = folder_files.sync_file

    def fails_for_folders(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(folder_files, "sync_file", fails_for_folders)
    with pytest.raises(Exception, match="its disk fails"):
        files.create(f"{STREAM}/2", [b"x"])
    assert given_out(files, 300 * KIB) is None
    monkeypatch.setattr(folder_files, "sync_file", real)
    files.create(f"{STREAM}/3", [b"x"])
    assert given_out(files, 300 * KIB) is not None


def test_what_left_a_folder_while_it_was_made_durable_waits_for_the_next_time(files: FolderFiles) -> None:
    spares = files._spares
    for number in (1, 2):
        files.create(f"{STREAM}/{number}", [some(300 * KIB)])
    folder = files._prefix + STREAM
    files.delete(f"{STREAM}/1")
    left = spares.left(folder)
    files.delete(f"{STREAM}/2")
    spares.settled(folder, left)
    spares.settled(folder, left)  # two may have made it durable
    assert given_out(files, 300 * KIB) == left[0].path
    assert given_out(files, 300 * KIB) is None


@pytest.mark.parametrize(
    "size_bytes", [64 * KIB, 64 * KIB + 1, 300 * KIB - 4096, 300 * KIB - 1, 300 * KIB, 300 * KIB + 1, 2048 * KIB + 5]
)
def test_a_file_only_grows_and_holds_what_was_written_last(files: FolderFiles, size_bytes: int) -> None:
    files.create(f"{STREAM}/1", [some(300 * KIB - 7, 1)])
    first = inode(files, f"{STREAM}/1")
    files.delete(f"{STREAM}/1")
    files.create(f"{STREAM}/2", [b"x"])
    files.create(f"{STREAM}/3", [some(size_bytes, 2)])
    assert whole(files, f"{STREAM}/3") == some(size_bytes, 2)
    assert files.head(f"{STREAM}/3").size_bytes == size_bytes
    assert (inode(files, f"{STREAM}/3") == first) == (size_bytes > 300 * KIB - 4096)


def test_of_several_the_one_that_grows_least_is_taken(files: FolderFiles) -> None:
    inodes = {}
    for number, size_kib in enumerate((100, 400, 200)):
        files.create(f"{STREAM}/{number}", [some(size_kib * KIB)])
        inodes[size_kib] = inode(files, f"{STREAM}/{number}")
    for number in range(3):
        files.delete(f"{STREAM}/{number}")
    files.create(f"{STREAM}/4", [b"x"])
    files.create(f"{STREAM}/5", [some(300 * KIB)])
    assert inode(files, f"{STREAM}/5") == inodes[200]


def test_who_reads_while_an_object_is_deleted_never_gets_other_bytes(
    files: FolderFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare_files, "_is_anothers_too", lambda fd: False)  # a file system without leases
    files.create(f"{STREAM}/1", [some(300 * KIB, 1)])
    real = folder_files.read_range

    def is_overtaken(fd: int, *, start: int, length: int | None) -> bytes:
        monkeypatch.setattr(folder_files, "read_range", real)
        files.delete(f"{STREAM}/1")
        files.create(f"{STREAM}/2", [b"x"])
        files.create(f"{STREAM}/3", [some(300 * KIB, 2)])
        data = real(fd, start=start, length=length)
        assert data == some(300 * KIB, 2)[: len(data)]
        return data

    monkeypatch.setattr(folder_files, "read_range", is_overtaken)
    with pytest.raises(ObjectMissing):
        files.read(f"{STREAM}/1", start=0, length=100)


def test_readers_beside_writers_and_deletes_get_an_object_whole_or_not_at_all(files: FolderFiles) -> None:
    count = 300
    stopping = False
    failures: list[str] = []
    read = 0

    def reads() -> None:
        nonlocal read
        chance = Random(7)
        while not stopping:
            number = chance.randrange(count)
            try:
                data = whole(files, f"{STREAM}/{number}")
            except ObjectMissing:
                continue
            read += 1
            if data != bytes([number % 251]) * len(data):
                failures.append(f"{number} holds {data[:4]!r}")

    readers = [Thread(target=reads) for _ in range(2)]
    for reader in readers:
        reader.start()
    chance = Random(1)
    for number in range(count):
        files.create(f"{STREAM}/{number}", [bytes([number % 251]) * chance.randrange(64 * KIB, 128 * KIB)])
        if number >= 5:
            files.delete(f"{STREAM}/{number - 5}")
    stopping = True
    for reader in readers:
        reader.join()
    assert failures == []
    assert read > 0
    assert len({inode(files, f"{STREAM}/{number}") for number in range(count - 5, count)}) == 5


def test_only_so_many_bytes_are_kept_and_only_of_large_files_of_the_wal(files: FolderFiles, tmp_path: Path) -> None:
    spares = files._spares = SpareFiles(files._staging, bytes_max=200 * KIB)
    for number in range(3):
        files.create(f"{STREAM}/{number}", [some(90 * KIB)])
    files.create(f"{STREAM}/3", [some(10 * KIB)])
    files.create("segment/1", [some(90 * KIB)])
    files.delete(f"{STREAM}/3")
    files.delete("segment/1")
    assert spares.held_bytes == 0
    for number in range(3):
        files.delete(f"{STREAM}/{number}")
        files.delete(f"{STREAM}/{number}")
    assert spares.held_bytes == 2 * 92 * KIB  # whole blocks
    assert len(os.listdir(tmp_path / ".tmp")) == 2
    files.delete(f"{STREAM}/first")
    assert spares.held_bytes == 0
    assert os.listdir(tmp_path / ".tmp") == []


def test_files_that_nobody_wants_make_room_for_others(files: FolderFiles, tmp_path: Path) -> None:
    spares = files._spares = SpareFiles(files._staging, bytes_max=1000 * KIB)
    for number in range(3):
        files.create(f"{STREAM}/large-{number}", [some(300 * KIB)])
    for number in range(3):
        files.delete(f"{STREAM}/large-{number}")
    for number in range(30):
        files.create(f"{STREAM}/{number}", [some(100 * KIB)])
        if number >= 3:
            files.delete(f"{STREAM}/{number - 3}")
    assert spares.held_bytes <= 1000 * KIB
    last = inode(files, f"{STREAM}/27")
    files.delete(f"{STREAM}/27")
    files.create(f"{STREAM}/30", [b"x"])
    seen = set()
    for number in range(31, 41):
        files.create(f"{STREAM}/{number}", [some(100 * KIB)])
        seen.add(inode(files, f"{STREAM}/{number}"))
    assert last in seen
    assert sum(os.stat(path).st_size > 100 * KIB for path in (tmp_path / ".tmp").iterdir()) < 3


def test_a_full_disk_gets_their_space_back(files: FolderFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        files.create(f"{STREAM}/{number}", [some(300 * KIB)])
    files.delete(f"{STREAM}/0")
    files.create(f"{STREAM}/3", [b"x"])
    files.delete(f"{STREAM}/1")
    assert len(os.listdir(tmp_path / ".tmp")) == 2

    def is_full(fd: int, parts: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(direct_write, "write_direct", is_full)
    with pytest.raises(NotApplied, match="free space"):
        files.create(f"{STREAM}/4", [some(100 * KIB)])
    assert os.listdir(tmp_path / ".tmp") == []
    assert files._spares.held_bytes == 0


def test_where_a_file_cannot_be_moved_it_is_deleted(
    files: FolderFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.create(f"{STREAM}/1", [some(300 * KIB)])

    def is_full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", is_full)
    files.delete(f"{STREAM}/1")
    files.delete(f"{STREAM}/1")
    assert not (tmp_path / STREAM / "1").exists()
    assert files._spares.held_bytes == 0


def test_a_copy_by_hard_links_does_not_change(files: FolderFiles, tmp_path: Path) -> None:
    files.create(f"{STREAM}/1", [some(300 * KIB, 1)])
    os.link(tmp_path / STREAM / "1", tmp_path / "copy")
    files.delete(f"{STREAM}/1")
    for number in (2, 3):
        files.create(f"{STREAM}/{number}", [some(300 * KIB, number)])
    assert (tmp_path / "copy").read_bytes() == some(300 * KIB, 1)


def test_a_copy_by_hard_links_that_was_made_while_the_object_was_deleted_does_not_change(
    files: FolderFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.create(f"{STREAM}/1", [some(300 * KIB, 1)])
    real = os.rename

    def is_linked_before(source: str, target: str) -> None:
        os.link(source, tmp_path / "copy")
        real(source, target)

    monkeypatch.setattr(os, "rename", is_linked_before)
    files.delete(f"{STREAM}/1")
    for number in (2, 3):
        files.create(f"{STREAM}/{number}", [some(300 * KIB, number)])
    assert (tmp_path / "copy").read_bytes() == some(300 * KIB, 1)
    assert whole(files, f"{STREAM}/3") == some(300 * KIB, 3)


def test_a_file_that_somebody_copies_is_not_written_under_his_hands(files: FolderFiles, tmp_path: Path) -> None:
    files.create(f"{STREAM}/1", [some(300 * KIB, 1)])
    first = inode(files, f"{STREAM}/1")
    with (tmp_path / STREAM / "1").open("rb", buffering=0) as copied:
        begun = copied.read(100 * KIB)
        files.delete(f"{STREAM}/1")
        for number in (2, 3):
            files.create(f"{STREAM}/{number}", [some(300 * KIB, number)])
        assert begun + copied.read() == some(300 * KIB, 1)
    assert inode(files, f"{STREAM}/3") != first
    assert files._spares.held_bytes == 0


def test_a_file_that_cannot_be_opened_costs_no_create(files: FolderFiles, tmp_path: Path) -> None:
    for number in range(3):
        files.create(f"{STREAM}/{number}", [some(300 * KIB)])
    for number in range(2):
        files.delete(f"{STREAM}/{number}")
    files.create(f"{STREAM}/3", [b"x"])
    gone, blocked = sorted((tmp_path / ".tmp").iterdir())
    gone.unlink()
    blocked.unlink()
    blocked.mkdir()
    for number in (4, 5):
        files.create(f"{STREAM}/{number}", [some(300 * KIB, number)])
        assert whole(files, f"{STREAM}/{number}") == some(300 * KIB, number)
    assert files._spares.held_bytes == 0


def test_a_conflict_leaves_no_file_behind(files: FolderFiles, tmp_path: Path) -> None:
    for number in range(2):
        files.create(f"{STREAM}/{number}", [some(300 * KIB, number)])
    files.delete(f"{STREAM}/0")
    files.create(f"{STREAM}/2", [b"x"])
    with pytest.raises(Conflict):
        files.create(f"{STREAM}/1", [some(300 * KIB, 5)])
    assert whole(files, f"{STREAM}/1") == some(300 * KIB, 1)
    assert os.listdir(tmp_path / ".tmp") == []


def test_the_next_start_clears_what_a_killed_process_kept(files: FolderFiles, tmp_path: Path) -> None:
    for number in range(2):
        files.create(f"{STREAM}/{number}", [some(300 * KIB, number)])
    files.delete(f"{STREAM}/0")
    # killed between giving an object its name and taking the spare one away
    os.link(tmp_path / STREAM / "1", tmp_path / ".tmp" / "spare-9")
    again = FolderFiles(tmp_path, fsync=True, ring=False)
    assert os.listdir(tmp_path / ".tmp") == []
    assert whole(again, f"{STREAM}/1") == some(300 * KIB, 1)


def test_without_fsync_no_file_is_written_anew(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path, fsync=False)
    for number in (1, 2):
        files.create(f"{STREAM}/{number}", [some(300 * KIB)])
    files.delete(f"{STREAM}/1")
    assert os.listdir(tmp_path / ".tmp") == []


def test_files_of_a_stream_that_is_another_process_s_are_deleted(files: FolderFiles, tmp_path: Path) -> None:
    path = tmp_path / "wal/2/1/1"
    path.parent.mkdir(parents=True)
    path.write_bytes(some(300 * KIB))
    files.delete("wal/2/1/1")
    assert os.listdir(tmp_path / ".tmp") == []


def test_processes_that_share_a_folder_write_their_own_files_anew_and_clear_what_the_dead_kept(tmp_path: Path) -> None:
    one, two = (SharedFolderFiles(tmp_path, fsync=True) for _ in range(2))
    one.create(f"{STREAM}/1", [some(300 * KIB, 1)])
    first = inode(one, f"{STREAM}/1")
    one.delete(f"{STREAM}/1")
    one.create(f"{STREAM}/2", [some(300 * KIB, 2)])
    two.create("wal/2/1/1", [some(300 * KIB, 3)])
    one.create(f"{STREAM}/3", [some(300 * KIB, 4)])
    assert inode(two, f"{STREAM}/3") == first
    assert whole(two, f"{STREAM}/3") == some(300 * KIB, 4)
    one.delete(f"{STREAM}/2")
    os.close(one._staging_lock)  # as the end of its process does
    three = SharedFolderFiles(tmp_path, fsync=True)
    assert {str(path) for path in (tmp_path / ".tmp").iterdir()} == {two._staging, three._staging}
    two.close()
    three.close()
    assert os.listdir(tmp_path / ".tmp") == []
