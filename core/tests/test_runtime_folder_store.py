"""What a folder adds to the contract: one process at a time, nothing half-written, and a disk that fills up or goes
read-only.
"""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmq.errors import ConfigurationError, Conflict, NotApplied, ObjectMissing, StoreUnavailable
from bmq.runtime import folder_files, folder_names
from bmq.runtime.folder_store import FolderStore

KIB = 1 << 10
MIB = 1 << 20


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != ".lock")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FolderStore]:
    opened = FolderStore.open(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB where tests run as root; else a limit of 2 MiB on each file of this process."""
    root = tmp_path / "disk"
    root.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "none", root], check=False, capture_output=True
        ).returncode
        == 0
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, hard))
    yield root
    if mounted:
        subprocess.run(["umount", root], check=True)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_listing_looks_again_for_names_above_an_object_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = folder_files.FolderFiles(tmp_path, fsync=False)
    for number in range(3):
        files.create(f"wal/1/1/{number}", [b"x"])
    real = os.lstat

    def is_overtaken(path: str, **kwargs: int) -> os.stat_result:
        if str(path).endswith("/1"):
            monkeypatch.setattr(os, "lstat", real)
            files.create("wal/1/1/3", [b"x"])
            for number in range(3):
                files.delete(f"wal/1/1/{number}")
        return real(path, **kwargs)

    monkeypatch.setattr(os, "lstat", is_overtaken)
    assert [meta.key for meta in files.walk("", name_prefix="", after="")] == ["wal/1/1/0", "wal/1/1/3"]


def test_names_of_a_folder_are_all_of_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are: a call that others follow is thrown away, and a larger one is made from the beginning."""
    read_entries = folder_names._read_entries
    if read_entries is None:
        return  # a system that has no such call
    monkeypatch.setattr(folder_names, "ROOM_BYTES", 4 << 10)
    made = {f"{number:020d}" for number in range(500)}
    for name in made:
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    calls: list[tuple[int, int]] = []

    def counted(fd: int, room_bytes: int) -> bytes:
        data = read_entries(fd, room_bytes)
        calls.append((room_bytes, len(data)))
        return data

    monkeypatch.setattr(folder_names, "_read_entries", counted)
    found = folder_names.names_in(str(tmp_path))
    assert {name for name, is_folder in found if not is_folder} == made
    assert [name for name, is_folder in found if is_folder] == ["folder"]
    assert len(found) == len(made) + 1
    (room_bytes, length), (_, end) = calls[-2:]
    assert room_bytes > folder_names.ROOM_BYTES
    assert length > 0
    assert end == 0


def test_a_full_disk_is_not_applied_names_the_folder_and_leaves_nothing(small_disk: Path) -> None:
    root = small_disk / "data"
    store = FolderStore.open(root)

    async def main() -> None:
        await store.create("wal/1/1", [b"a" * MIB])
        with pytest.raises(NotApplied, match=rf"data folder {root}: .*: (free space|raise the file size limit)"):
            await store.create("wal/1/2", [b"b" * MIB] * 16)
        with pytest.raises(ObjectMissing):
            await store.get("wal/1/2")
        await store.create("wal/1/2", [b"c" * MIB])  # the space of the failed one is free again
        assert await store.get("wal/1/1") == b"a" * MIB

    asyncio.run(main())
    store.close()
    assert files_below(root) == ["wal/1/1", "wal/1/2"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a file system")
def test_a_read_only_disk_is_not_applied_for_creates_and_still_reads(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], check=True)
    try:
        store = FolderStore.open(disk / "data")

        asyncio.run(store.create("a/1", [b"x"]))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)

        async def main() -> None:
            with pytest.raises(NotApplied, match="read-only"):
                await store.create("a/2", [b"x"])
            with pytest.raises(StoreUnavailable, match="read-only"):
                await store.delete("a/1")
            assert await store.get("a/1") == b"x"

        asyncio.run(main())
        store.close()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_second_process_is_refused_with_the_number_of_the_first(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, tmp_path / "data"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"holds it\n"
    with pytest.raises(ConfigurationError, match=f"in use by process {holder.pid}: stop it, or choose another folder"):
        FolderStore.open(tmp_path / "data")
    holder.kill()
    holder.wait()
    FolderStore.open(tmp_path / "data").close()  # the lock went with its holder


_HOLD = """
import sys
from pathlib import Path
from bmq.runtime.folder_store import FolderStore
store = FolderStore.open(Path(sys.argv[1]))
print("holds it", flush=True)
sys.stdin.read()
"""


def test_a_store_that_is_closed_can_be_opened_again_in_the_same_process(tmp_path: Path) -> None:
    FolderStore.open(tmp_path).close()
    first = FolderStore.open(tmp_path)
    with pytest.raises(ConfigurationError, match=f"in use by process {os.getpid()}"):
        FolderStore.open(tmp_path)
    first.close()


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            ConfigurationError, match=rf"^data folder {root}: it, or what it is in, is a file: choose another folder$"
        ):
            FolderStore.open(root)


@pytest.mark.parametrize("unnamed", [True, False])
def test_killing_a_writer_in_the_middle_of_creates_leaves_only_whole_objects(tmp_path: Path, unnamed: bool) -> None:
    root = tmp_path / "data"
    for attempt in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITE, root, str(attempt), str(unnamed)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline().strip() for _ in range(6 + attempt)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.stdout.read().split()
        writer.wait()
        store = FolderStore.open(root)

        async def check(store: FolderStore = store, acknowledged: list[str] = acknowledged) -> None:
            found = {meta.key async for meta in store.list("wal/")}
            assert found.issuperset(acknowledged)
            for key in found:
                assert await store.get(key) == key.encode() * 5000

        asyncio.run(check())
        store.close()
        assert list((root / ".tmp").iterdir()) == []


_WRITE = """
import asyncio, sys
from pathlib import Path
from bmq.runtime import folder_files, folder_names
from bmq.runtime.folder_store import FolderStore
if sys.argv[3] == "False":
    folder_files.unnamed_files_work = lambda staging: False
store = FolderStore.open(Path(sys.argv[1]))
async def one(worker):
    for number in range(1000):
        key = f"wal/{sys.argv[2]}/{worker}/{number}"
        await store.create(key, [key.encode()] * 5000)
        print(key, flush=True)
async def main():
    await asyncio.gather(*(one(worker) for worker in range(4)))
asyncio.run(main())
"""


def test_what_a_killed_process_had_half_written_is_cleared_at_the_next_start(tmp_path: Path) -> None:
    FolderStore.open(tmp_path).close()
    (tmp_path / ".tmp" / "17").write_bytes(b"half")
    FolderStore.open(tmp_path).close()
    assert files_below(tmp_path) == []


def test_without_files_without_names_the_store_works_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_files, "unnamed_files_work", lambda staging: False)
    store = FolderStore.open(tmp_path)

    async def main() -> None:
        await asyncio.gather(*(store.create(f"a/{number}", [b"%d" % number]) for number in range(50)))
        with pytest.raises(Conflict):
            await store.create("a/1", [b"other"])
        assert [await store.get(f"a/{number}") for number in range(50)] == [b"%d" % number for number in range(50)]

    asyncio.run(main())
    store.close()
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_creates_and_deletes_in_one_folder_do_not_disturb_each_other(store: FolderStore, tmp_path: Path) -> None:
    async def turn(worker: int) -> None:
        for number in range(60):
            key = f"topics/t/{number % 3}/manifest/{worker}"
            await store.create(key, [b"x"])
            assert await store.get(key) == b"x"
            await store.delete(key)

    async def main() -> None:
        await asyncio.gather(*(turn(worker) for worker in range(12)))
        await store.create("topics/t/0/manifest/last", [b"x"])

    asyncio.run(main())
    assert files_below(tmp_path / "data") == ["topics/t/0/manifest/last"]
    assert not (tmp_path / "data" / "topics/t/1").exists()


def test_a_create_syncs_the_file_and_then_each_folder_on_the_way_once(tmp_path: Path) -> None:
    """strace would see the same; here the store's own calls are counted, because a test cannot cut the power."""
    store = FolderStore.open(tmp_path / "data", ring=False)
    synced: list[str] = []
    real = os.fsync

    def counted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(f"{tmp_path}/data"))
        real(fd)

    async def main() -> None:
        os.fsync = counted
        try:
            await store.create("wal/1/1", [b"x"])
            first, synced[:] = list(synced), []
            assert first[0].startswith("/.tmp/")
            assert first[1:] == ["/wal/1", "/wal", ""]
            await store.create("wal/1/2", [b"x"])
            second, synced[:] = list(synced), []
            assert second[1:] == ["/wal/1"]
            with pytest.raises(Conflict):
                await store.create("wal/1/2", [b"y"])
            assert synced[1:] == ["/wal/1"]  # who is told of a conflict may rely on what is there
        finally:
            os.fsync = real

    asyncio.run(main())
    store.close()


def test_a_folder_that_was_removed_and_made_again_is_synced_again(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def counted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(f"{tmp_path}/data"))
        real(fd)

    monkeypatch.setattr(os, "fsync", counted)

    async def main() -> None:
        await store.create("a/b/1", [b"x"])
        await store.create("a/c/1", [b"x"])
        await store.delete("a/b/1")
        synced.clear()
        await store.create("a/b/1", [b"x"])
        assert synced[1:] == ["/a/b", "/a"]

    asyncio.run(main())


def test_a_key_that_is_a_folder_is_missing_and_a_key_below_an_object_is_refused(store: FolderStore) -> None:
    async def main() -> None:
        await store.create("a/b", [b"x"])
        with pytest.raises(ObjectMissing):
            await store.get("a")
        with pytest.raises(ObjectMissing):
            await store.head("a")
        await store.delete("a")
        with pytest.raises(NotApplied):
            await store.create("a/b/c", [b"x"])
        assert await store.get("a/b") == b"x"

    asyncio.run(main())
