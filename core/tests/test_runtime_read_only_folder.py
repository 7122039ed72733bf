"""A data folder that is only read: nothing in it changes, whoever has it."""

import asyncio
from pathlib import Path

import pytest

from bmq.errors import NotApplied, ObjectMissing, StoreUnavailable
from bmq.runtime.folder_store import FolderStore
from bmq.runtime.read_only_folder import open_read_only


def filled(folder: Path) -> None:
    store = FolderStore.open(folder, fsync=False)
    asyncio.run(store.create("wal/0/1", [b"abc", b"def"]))
    store.close()


def test_objects_are_listed_and_read_and_the_folder_stays_as_it_is(tmp_path: Path) -> None:
    filled(tmp_path)
    half_written = tmp_path / ".tmp" / "half"
    half_written.write_bytes(b"x")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    async def look() -> None:
        store = open_read_only(tmp_path)
        assert [(meta.key, meta.size_bytes) async for meta in store.list("")] == [("wal/0/1", 6)]
        assert await store.get("wal/0/1", start=2, length=2) == b"cd"
        assert (await store.head("wal/0/1")).size_bytes == 6
        with pytest.raises(ObjectMissing):
            await store.get("wal/0/2")
        with pytest.raises(NotApplied, match="reading only"):
            await store.create("wal/0/2", [b"x"])
        with pytest.raises(StoreUnavailable, match="reading only"):
            await store.delete("wal/0/1")
        store.close()

    asyncio.run(look())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_folder_that_another_process_has_for_itself_is_read_all_the_same(tmp_path: Path) -> None:
    filled(tmp_path)
    owner = FolderStore.open(tmp_path, fsync=False)
    try:
        reader = open_read_only(tmp_path)
        assert asyncio.run(reader.get("wal/0/1")) == b"abcdef"
        reader.close()
    finally:
        owner.close()
