"""A folder that several processes share: each object is made by one of them, none harms what another has under way, and
what is shown is durable.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from bmq.errors import ConfigurationError
from bmq.runtime import shared_folder_files
from bmq.runtime.folder_store import FolderStore
from bmq.runtime.shared_folder import SharedFolder

PROCESSES = 3
KEYS = 120


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FolderStore]:
    opened = FolderStore.open(tmp_path, shared=True)
    yield opened
    opened.close()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is fsynced, by path below the folder; a test cannot cut the power."""
    found: list[str] = []
    real = os.fsync

    def noted(fd: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(tmp_path)))
        real(fd)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def link_as_another_process(root: Path, key: str, data: bytes = b"x") -> None:
    """What a process leaves that is killed between its link and its fsync of the folder."""
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_of_processes_that_race_for_a_key_one_makes_the_object(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", _RACE, tmp_path, str(number)], stdout=subprocess.PIPE)
        for number in range(PROCESSES)
    ]
    won = [{line.decode() for line in racer.communicate(timeout=60)[0].split()} for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * PROCESSES
    assert sum(map(len, won)) == len(set().union(*won)) == KEYS
    store = FolderStore.open(tmp_path)

    async def check() -> None:
        for number, keys in enumerate(won):
            for key in keys:
                assert await store.get(key) == b"%d" % number * 5000

    asyncio.run(check())
    store.close()
    assert list((tmp_path / ".tmp").iterdir()) == []


_RACE = f"""
import asyncio, sys
from pathlib import Path
from bmq.errors import Conflict
from bmq.runtime.folder_store import FolderStore
store = FolderStore.open(Path(sys.argv[1]), shared=True)
async def one(number):
    key = f"race/{{number % 7}}/{{number}}"
    await store.create(f"mine/{{sys.argv[2]}}/{{number}}", [b"x"])
    await store.delete(f"mine/{{sys.argv[2]}}/{{number}}")
    try:
        await store.create(key, [sys.argv[2].encode()] * 5000)
    except Conflict:
        return
    print(key)
async def main():
    await asyncio.gather(*(one(number) for number in range({KEYS})))
asyncio.run(main())
store.close()
"""


def test_who_joins_leaves_alone_what_another_has_half_written(store: FolderStore, tmp_path: Path) -> None:
    [staging] = (tmp_path / ".tmp").iterdir()
    (staging / "1").write_bytes(b"half")
    FolderStore.open(tmp_path, shared=True).close()
    assert (staging / "1").read_bytes() == b"half"


def test_who_keeps_the_folder_next_clears_what_killed_processes_left(tmp_path: Path) -> None:
    (tmp_path / ".tmp" / "process-1").mkdir(parents=True)
    (tmp_path / ".tmp" / "process-1" / "1").write_bytes(b"half")
    (tmp_path / "wal" / "1" / "2").mkdir(parents=True)
    link_as_another_process(tmp_path, "wal/2/1")
    SharedFolder.open(tmp_path).close()
    assert list((tmp_path / ".tmp").iterdir()) == []
    assert [str(path.relative_to(tmp_path)) for path in sorted((tmp_path / "wal").rglob("*"))] == ["wal/2", "wal/2/1"]


def test_a_process_alone_clears_what_killed_processes_left(tmp_path: Path) -> None:
    (tmp_path / ".tmp" / "process-1").mkdir(parents=True)
    (tmp_path / ".tmp" / "process-1" / "1").write_bytes(b"half")
    FolderStore.open(tmp_path).close()
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_a_folder_that_a_delete_left_empty_stays_for_others_who_know_it_as_durable(
    store: FolderStore, tmp_path: Path, synced: list[str]
) -> None:
    other = FolderStore.open(tmp_path, shared=True)

    async def main() -> None:
        await store.create("a/b/1", [b"x"])
        await other.delete("a/b/1")
        synced.clear()
        await store.create("a/b/2", [b"x"])

    asyncio.run(main())
    other.close()
    assert synced[1:] == ["/a/b"]


def run(steps: Callable[[], Awaitable[object]]) -> None:
    async def main() -> None:
        await steps()

    asyncio.run(main())


@pytest.mark.parametrize("verb", ["get", "head"])
def test_what_another_process_linked_is_made_durable_before_it_is_shown(
    verb: str, store: FolderStore, tmp_path: Path, synced: list[str]
) -> None:
    link_as_another_process(tmp_path, "meta/log/1")
    run(lambda: getattr(store, verb)("meta/log/1"))
    assert synced == ["/meta/log", "/meta", ""]


def test_what_a_listing_shows_is_durable(store: FolderStore, tmp_path: Path, synced: list[str]) -> None:
    link_as_another_process(tmp_path, "wal/1/1")
    link_as_another_process(tmp_path, "wal/2/1")

    async def listed() -> list[str]:
        return [meta.key async for meta in store.list("wal/")]

    async def main() -> None:
        assert await listed() == ["wal/1/1", "wal/2/1"]

    run(main)
    assert set(synced) == {"/wal/1", "/wal/2", "/wal", ""}


def test_what_is_old_enough_is_shown_without_a_sync(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_folder_files, "_SLACK_NS", -3_600_000_000_000)
    link_as_another_process(tmp_path, "a/1")
    store = FolderStore.open(tmp_path, shared=True)  # which makes all that is there durable
    run(lambda: store.get("a/1"))
    store.close()
    assert synced == []


def test_without_fsync_nothing_is_synced(tmp_path: Path, synced: list[str]) -> None:
    store = FolderStore.open(tmp_path, shared=True, fsync=False)
    link_as_another_process(tmp_path, "a/1")
    run(lambda: store.get("a/1"))
    store.close()
    assert synced == []


def test_a_folder_that_is_kept_is_refused_to_others_and_open_to_those_who_share_it(tmp_path: Path) -> None:
    kept = SharedFolder.open(tmp_path)
    joined = FolderStore.open(tmp_path, shared=True)
    for attempt in (FolderStore.open, SharedFolder.open):
        with pytest.raises(
            ConfigurationError, match=f"in use by process {os.getpid()}: stop it, or choose another folder"
        ):
            attempt(tmp_path)
    joined.close()
    kept.close()
    FolderStore.open(tmp_path).close()


def test_a_process_that_has_the_folder_alone_refuses_those_who_would_share_it(tmp_path: Path) -> None:
    alone = FolderStore.open(tmp_path)
    with pytest.raises(
        ConfigurationError, match=f"in use by process {os.getpid()} alone: stop it, or choose another folder"
    ):
        FolderStore.open(tmp_path, shared=True)
    alone.close()
    FolderStore.open(tmp_path, shared=True).close()


def test_those_who_share_a_folder_refuse_one_who_wants_it_alone(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmq.runtime.folder_lock._USERS_WAIT_S", 0.0)
    with pytest.raises(
        ConfigurationError, match="in use by processes that share it: stop them, or choose another folder"
    ):
        FolderStore.open(tmp_path)
    FolderStore.open(tmp_path, shared=True).close()


def test_who_kept_the_folder_clears_what_is_left_unless_somebody_still_uses_it(tmp_path: Path) -> None:
    kept = SharedFolder.open(tmp_path)
    joined = FolderStore.open(tmp_path, shared=True)
    [staging] = (tmp_path / ".tmp").iterdir()
    kept.close()
    assert staging.exists()
    joined.close()
    kept = SharedFolder.open(tmp_path)
    (tmp_path / ".tmp" / "process-killed").mkdir()
    (tmp_path / "wal" / "1").mkdir(parents=True)
    kept.close()
    assert list((tmp_path / ".tmp").iterdir()) == []
    assert not (tmp_path / "wal").exists()
