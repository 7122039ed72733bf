"""One suite for every store: the five verbs mean the same on memory, on a folder, on servers of every protocol, and in
the simulator.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from compat_emulator import EMULATORS, Emulator, running_emulator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minio import Minio
from runtime_minio import PASSWORD, USER, MinioServer, running_minio

import bmq_sim.loop
from bmq.errors import Conflict, ObjectMissing
from bmq.ports import ObjectStore
from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.open_store import open_store
from bmq.runtime.store_url import parse_store_url
from bmq_sim.store import NodeStore, SimStore

_prefixes = count()


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with running_minio(tmp_path_factory.mktemp("minio")) as server:
        Minio(server.endpoint.removeprefix("http://"), USER, PASSWORD, secure=False).make_bucket("contract")
        yield server


@pytest.fixture(scope="session")
def emulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Emulator]]:
    """Starts each once, when it is asked for."""
    running: dict[str, Emulator] = {}
    with ExitStack() as stack:

        def named(name: str) -> Emulator:
            if name not in running:
                running[name] = stack.enter_context(running_emulator(name, tmp_path_factory.mktemp(name)))
            return running[name]

        yield named


@pytest.fixture(
    params=["memory", "folder", "folder-ring", "folder-nosync", "folder-shared", "minio", *EMULATORS, "simulated"]
)
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    match request.param:
        case "simulated":
            yield SimStore().for_node("n")
            return
        case "memory":
            url = "memory://"
        case "folder":
            url = f"file://{tmp_path}/store"
        case "folder-ring":
            url = f"file://{tmp_path}/store?ring=true"
        case "folder-shared":
            url = f"file://{tmp_path}/store?shared=true"
        case "folder-nosync":
            url = f"file://{tmp_path}/store?fsync=false"
        case "minio":
            server = request.getfixturevalue("minio")
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
            url = f"s3://contract/test-{next(_prefixes)}?endpoint={server.endpoint}"
        case name:
            emulator = request.getfixturevalue("emulators")(name)
            for variable, value in emulator.environment.items():
                monkeypatch.setenv(variable, value)
            url = emulator.store_url(f"test-{next(_prefixes)}")
            ensure_bucket(parse_store_url(url))
    store = open_store(url)
    yield store
    store.close()


def run(opened: ObjectStore, steps: Callable[[ObjectStore], Awaitable[None]]) -> None:
    async def main() -> None:
        await steps(opened)

    if isinstance(opened, NodeStore):
        bmq_sim.loop.run(main())
    else:
        asyncio.run(main())


async def keys(store: ObjectStore, prefix: str, *, after: str = "") -> list[str]:
    return [meta.key async for meta in store.list(prefix, after=after)]


def test_an_object_is_its_parts_joined(opened: ObjectStore) -> None:
    async def steps(store: ObjectStore) -> None:
        await store.create("wal/1/1", [b"one", bytearray(b"two"), memoryview(b"-three-")[1:-1], b""])
        assert await store.get("wal/1/1") == b"onetwothree"

    run(opened, steps)


def test_an_object_may_be_empty_or_made_of_thousands_of_parts(opened: ObjectStore) -> None:
    async def steps(store: ObjectStore) -> None:
        await store.create("none", [])
        await store.create("empty", [b""])
        assert [await store.get("none"), await store.get("empty")] == [b"", b""]
        assert await store.get("none", start=0, length=10) == b""
        parts = [b"%d," % number for number in range(5000)]
        await store.create("many", parts)
        assert await store.get("many") == b"".join(parts)

    run(opened, steps)


def test_a_second_create_is_a_conflict_and_changes_nothing(opened: ObjectStore) -> None:
    async def steps(store: ObjectStore) -> None:
        await store.create("a/b", [b"first"])
        with pytest.raises(Conflict):
            await store.create("a/b", [b"second"])
        assert await store.get("a/b") == b"first"

    run(opened, steps)


def test_of_sixteen_writers_racing_for_a_key_exactly_one_wins(opened: ObjectStore) -> None:
    async def attempt(store: ObjectStore, key: str, writer: int) -> int | None:
        try:
            await store.create(key, [b"%d" % writer * 1000])
        except Conflict:
            return None
        return writer

    async def steps(store: ObjectStore) -> None:
        for race in range(10):
            key = f"race/{race}/seal"
            results = await asyncio.gather(*(attempt(store, key, writer) for writer in range(16)))
            winners = [writer for writer in results if writer is not None]
            assert len(winners) == 1
            assert await store.get(key) == b"%d" % winners[0] * 1000

    run(opened, steps)


def test_a_range_ends_where_the_object_ends(opened: ObjectStore) -> None:
    async def steps(store: ObjectStore) -> None:
        await store.create("k", [b"0123456789"])
        assert await store.get("k", start=3, length=4) == b"3456"
        assert await store.get("k", start=3) == b"3456789"
        assert await store.get("k", start=8, length=100) == b"89"
        assert await store.get("k", length=0) == b""
        assert await store.get("k", start=10) == b""
        assert await store.get("k", start=10, length=1) == b""
        assert await store.get("k", start=500, length=7) == b""

    run(opened, steps)


def test_a_missing_key_is_told_by_get_and_head_and_is_success_for_delete(opened: ObjectStore) -> None:
    async def steps(store: ObjectStore) -> None:
        await store.create("there/x", [b"x"])
        for key in ("nothing", "there/y", "there/x-1", "no/folder/either"):
            for length in (None, 0, 5):
                with pytest.raises(ObjectMissing):
                    await store.get(key, length=length)
            with pytest.raises(ObjectMissing):
                await store.get(key, start=5)
            with pytest.raises(ObjectMissing):
                await store.head(key)
            await store.delete(key)

    run(opened, steps)


def test_a_deleted_key_is_gone_and_may_be_made_again(opened: ObjectStore) -> None:
    async def steps(store: ObjectStore) -> None:
        for content in (b"first", b"second"):
            await store.create("deep/er/key", [content])
            assert await store.get("deep/er/key") == content
            await store.delete("deep/er/key")
            with pytest.raises(ObjectMissing):
                await store.get("deep/er/key")
            assert await keys(store, "") == []

    run(opened, steps)


def test_head_and_list_tell_size_and_time(opened: ObjectStore) -> None:
    async def steps(store: ObjectStore) -> None:
        await store.create("a/1", [b"x" * 1234])
        (listed,) = [meta async for meta in store.list("a/")]
        head = await store.head("a/1")
        assert (head.key, head.size_bytes) == (listed.key, listed.size_bytes) == ("a/1", 1234)
        assert abs(head.modified_ms - listed.modified_ms) < 1000  # HTTP's Last-Modified has whole seconds

    run(opened, steps)


def test_a_listing_is_ascending_by_code_point_over_the_whole_key(opened: ObjectStore) -> None:
    # A folder sorts as if its name ended with the slash: above `-` and `.`, below digits and letters.
    made = [
        "a-b",
        "a.b",
        "a/b",
        "a/b-c/d",
        "a/b.x",
        "a/c/d",
        "a0",
        "a=",
        "aA",
        "a_",
        "a~",
        "b/0009",
        "b/0010",
        "b/01/2",
        "b/1",
    ]

    async def steps(store: ObjectStore) -> None:
        for key in reversed(made):
            await store.create(key, [b""])
        assert sorted(made) == made
        assert await keys(store, "") == made
        for after in [*made, "", "a", "a/", "a/b-", "a/zzz", "b", "b/00", "c", "0"]:
            assert await keys(store, "", after=after) == [key for key in made if key > after]
        for prefix in ("a", "a/", "a/b", "a/b-c/", "a/b-c/d", "b/0", "b/00", "b/1", "c", "c/"):
            assert await keys(store, prefix) == [key for key in made if key.startswith(prefix)]
        assert await keys(store, "b/0", after="b/0009") == ["b/0010", "b/01/2"]
        assert await keys(store, "a/", after="b/1") == []
        assert await keys(store, "b/", after="a/b") == ["b/0009", "b/0010", "b/01/2", "b/1"]

    run(opened, steps)


def test_a_listing_pages_through_thousands_of_keys(opened: ObjectStore) -> None:
    made = [f"wal/{number // 500:04d}/{number:06d}" for number in range(2300)]

    async def steps(store: ObjectStore) -> None:
        for start in range(0, len(made), 100):
            await asyncio.gather(*(store.create(key, [b""]) for key in made[start : start + 100]))
        assert await keys(store, "wal/") == made
        assert await keys(store, "wal/", after=made[1100]) == made[1101:]
        seen = 0
        async for _ in store.list("wal/"):  # a reader may stop early
            seen += 1
            if seen == 1001:
                break

    run(opened, steps)


def test_a_listing_shows_what_is_there_all_the_time_and_nothing_that_never_was(opened: ObjectStore) -> None:
    """No more is asked of a store (docs/stores.md, "What a listing is"), however others come and go beside it."""
    staying = [f"row/{number:04d}-stays" for number in range(0, 1200, 8)]

    async def come_and_go(store: ObjectStore, some: range) -> None:
        for number in some:
            await store.create(f"row/{number:04d}-goes", [b"x" * 10])
            if number >= some.start + 4:
                await store.delete(f"row/{number - 4:04d}-goes")

    async def steps(store: ObjectStore) -> None:
        await asyncio.gather(*(store.create(key, [b"x" * 10]) for key in staying))
        movers = [asyncio.create_task(come_and_go(store, range(start, start + 60))) for start in (0, 400, 800)]
        moving = asyncio.gather(*movers)
        listings = 0
        while not moving.done() or not listings:
            listed = [meta async for meta in store.list("row/")]
            listings += 1
            told = [meta.key for meta in listed]
            assert told == sorted(set(told))
            assert [key for key in told if key.endswith("stays")] == staying
            assert {meta.size_bytes for meta in listed} == {10}
            await asyncio.sleep(0.001)
        await moving

    run(opened, steps)


def test_a_listing_never_passes_over_a_row_that_grows_above_and_is_deleted_below(
    opened: ObjectStore, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["opened"] in {"minio", *EMULATORS}:
        return  # these need not: who relies on a listing looks twice where it matters

    async def steps(store: ObjectStore) -> None:
        newest = 0
        await store.create(f"row/{newest:06d}", [b"x"])

        async def move() -> None:
            nonlocal newest
            for number in range(1, 300):
                await store.create(f"row/{number:06d}", [b"x"])
                newest = number
                await store.delete(f"row/{number - 1:06d}")

        moving = asyncio.create_task(move())
        while not moving.done():
            at_least = f"row/{newest:06d}"
            assert max([meta.key async for meta in store.list("row/")], default="") >= at_least
            await asyncio.sleep(0.0001)
        await moving

    run(opened, steps)


def test_large_objects_come_back_whole_and_in_ranges(opened: ObjectStore) -> None:
    block = os.urandom(1 << 20)

    async def steps(store: ObjectStore) -> None:
        await store.create("large", [block] * 8)
        assert await store.get("large") == block * 8
        assert await store.get("large", start=(3 << 20) + 5, length=1 << 20) == block[5:] + block[:5]
        assert (await store.head("large")).size_bytes == 8 << 20

    run(opened, steps)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "a//b",
        "/a",
        "a/",
        "..",
        "a/../b",
        ".tmp/x",
        "a/.b",
        "a b",
        "ä",
        "a\0b",
        "a\\b",
        "a" * 300,
        "a/" * 600 + "b",
    ],
)
def test_a_key_that_not_every_store_can_hold_is_refused(opened: ObjectStore, key: str) -> None:
    if isinstance(opened, NodeStore):
        return  # the simulator takes any key; every key that bmq makes goes through a real store as well

    async def steps(store: ObjectStore) -> None:
        with pytest.raises(ValueError, match="not an object key"):
            await store.create(key, [b""])
        with pytest.raises(ValueError, match="not an object key"):
            await store.get(key)

    run(opened, steps)


_segment = st.text("ab.-0_", min_size=1, max_size=3).filter(lambda text: not text.startswith("."))
_key = st.lists(_segment, min_size=1, max_size=3).map("/".join)


@pytest.mark.parametrize("kind", ["memory", "folder"])
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=st.sets(_key, max_size=12), prefix=st.sampled_from(["", "a", "a/", "b/a", "0/"]), after=_key)
def test_listing_and_deleting_agree_with_a_sorted_list_of_keys(
    kind: str, tmp_path: Path, made: set[str], prefix: str, after: str
) -> None:
    folders = {key[:end] for key in made for end, char in enumerate(key) if char == "/"}
    expected = sorted(made - folders)
    store = open_store("memory://" if kind == "memory" else f"file://{tmp_path}/store?fsync=false")

    async def main() -> None:
        for key in expected:
            await store.create(key, [key.encode()])
        assert await keys(store, prefix, after=after) == [
            key for key in expected if key.startswith(prefix) and key > after
        ]
        for key in expected:
            assert await store.get(key) == key.encode()
            await store.delete(key)
        assert await keys(store, "") == []

    asyncio.run(main())
    store.close()
    if kind == "folder":
        assert sorted(path.name for path in (tmp_path / "store").iterdir()) == [".lock", ".tmp"]
