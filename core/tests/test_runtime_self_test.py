"""At start-up a store proves itself, or the node refuses to run and says what to do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from minio import Minio
from prometheus_client import REGISTRY
from runtime_minio import PASSWORD, USER, MinioServer, free_port, running_minio
from typing_extensions import Buffer

from bmq.errors import ConfigurationError, Conflict, NotApplied, ObjectMissing, StoreUnusable
from bmq.ports import ObjectMeta, ObjectStore
from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.metered_store import MeteredStore
from bmq.runtime.open_store import open_store
from bmq.runtime.self_test import prove_store
from bmq.runtime.store_url import parse_store_url
from bmq.runtime.system import SystemClock, SystemRng
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.loop import run
from bmq_sim.store import SimStore


class Wrapped:
    """A store to break one promise of."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        await self.inner.create(key, parts)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await self.inner.get(key, start=start, length=length)

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        return self.inner.list(prefix, after=after)

    async def delete(self, key: str) -> None:
        await self.inner.delete(key)

    async def head(self, key: str) -> ObjectMeta:
        return await self.inner.head(key)


class Overwrites(Wrapped):
    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        await self.inner.delete(key)
        await self.inner.create(key, parts)


class ChecksBeforeItWrites(Wrapped):
    """Conditional only where nobody races: what a gateway over a plain file system does."""

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        try:
            await self.inner.head(key)
        except ObjectMissing:
            await asyncio.sleep(1)
            with contextlib.suppress(Conflict):  # who comes later writes over it, and is told that all went well
                await self.inner.create(key, parts)
        else:
            raise Conflict(key)


class ServesStaleListings(Wrapped):
    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        skipped = False
        async for meta in self.inner.list(prefix, after=after):
            if skipped:
                yield meta
            skipped = True


class IgnoresRanges(Wrapped):
    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await self.inner.get(key)


class Refuses(Wrapped):
    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        raise NotApplied(f"create {key}: HTTP 403 AccessDenied")


def test_a_good_store_passes_and_tells_its_skew_and_keeps_nothing() -> None:
    async def main() -> None:
        store = SimStore()
        assert await prove_store(store.for_node("n"), SimClock(), SimRng(1)) == 0
        assert abs(await prove_store(store.for_node("n"), SimClock(skew_ms=-100_000), SimRng(2)) - 100_000) < 3000
        assert store.keys() == []

    run(main())


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Overwrites, "lets a second create of one key succeed"),
        (ChecksBeforeItWrites, "concurrent creates of one key succeed"),
        (ServesStaleListings, "listing lacks what was just written"),
        (IgnoresRanges, "does not serve ranges"),
        (Refuses, "HTTP 403 AccessDenied: check its address, its bucket and the keys' permissions"),
    ],
)
def test_a_store_that_breaks_a_promise_is_refused_in_one_line(broken: type[Wrapped], said: str) -> None:
    async def main() -> None:
        store = SimStore()
        with pytest.raises(StoreUnusable, match=said) as raised:
            await prove_store(broken(store.for_node("n")), SimClock(), SimRng(1))
        assert "\n" not in str(raised.value)
        assert store.keys() == []

    run(main())


def test_a_full_folder_is_not_said_to_have_a_bucket_and_keys() -> None:
    told = (
        "create selftest/1: data folder /srv/bmq: No space left on device: free space on its disk, or move it "
        "to a larger one"
    )

    class Full(Wrapped):
        async def create(self, key: str, parts: Sequence[Buffer]) -> None:
            raise NotApplied(told)

    async def main() -> None:
        with pytest.raises(StoreUnusable) as refused:
            await prove_store(Full(SimStore().for_node("n")), SimClock(), SimRng(1))
        assert str(refused.value) == f"self-test of the object store failed: {told}"

    run(main())


def test_what_an_earlier_self_test_left_is_cleared_after_an_hour() -> None:
    async def main() -> None:
        store = SimStore()
        rng = SimRng(2)
        old, of_a_node_starting_now = (f"selftest/{rng.uuid()}" for _ in range(2))
        await store.for_node("n").create(old, [b""])
        await asyncio.sleep(3700)
        await store.for_node("n").create(of_a_node_starting_now, [b""])
        await prove_store(store.for_node("n"), SimClock(), SimRng(1))
        assert store.keys() == [of_a_node_starting_now]

    run(main())


def test_a_start_leaves_another_cluster_below_its_scratch_prefix_alone() -> None:
    async def main() -> None:
        store = SimStore()
        anothers = [
            "selftest/meta/log/00000000000000000000",
            "selftest/selftest/7f6f6bd2-3c37-4a3c-8b35-0d7a0f6a1c11",
            "selftest/notes.txt",
        ]
        for key in anothers:
            await store.for_node("n").create(key, [b"keep me"])
        await asyncio.sleep(3700)
        await prove_store(store.for_node("n"), SimClock(), SimRng(1))
        assert store.keys() == sorted(anothers)

    run(main())


def test_a_folder_passes_the_self_test(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/data")
    assert asyncio.run(prove_store(store, SystemClock(), SystemRng())) == 0
    store.close()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [".lock", ".tmp"]


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with running_minio(tmp_path_factory.mktemp("minio"), MINIO_SITE_REGION="eu-test-1") as server:
        yield server


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)


@pytest.mark.usefixtures("keys")
def test_a_bucket_is_made_once_and_passes_the_self_test(minio: MinioServer) -> None:
    url = f"s3://made-here/some/prefix?endpoint={minio.endpoint}&region=eu-test-1"
    assert [ensure_bucket(parse_store_url(url)) for _ in range(2)] == [True, False]
    assert Minio(
        minio.endpoint.removeprefix("http://"), USER, PASSWORD, secure=False, region="eu-test-1"
    ).bucket_exists("made-here")
    store = open_store(url)

    async def main() -> None:
        assert await prove_store(store, SystemClock(), SystemRng()) == 0
        assert [meta async for meta in store.list("")] == []

    asyncio.run(main())


@pytest.mark.usefixtures("keys")
def test_a_bucket_that_is_not_there_fails_the_self_test(minio: MinioServer) -> None:
    store = open_store(f"s3://never-made?endpoint={minio.endpoint}&region=eu-test-1")
    with pytest.raises(StoreUnusable, match="NoSuchBucket"):
        asyncio.run(prove_store(store, SystemClock(), SystemRng()))


@pytest.mark.usefixtures("keys")
def test_each_way_not_to_reach_a_bucket_names_its_remedy(minio: MinioServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(query: str, bucket: str = "other") -> str:
        with pytest.raises(StoreUnusable) as raised:
            ensure_bucket(parse_store_url(f"s3://{bucket}?{query}"))
        assert "\n" not in str(raised.value)
        return str(raised.value)

    port = minio.endpoint.rpartition(":")[2]
    assert "wrong region 'us-east-1'" in said(f"endpoint={minio.endpoint}")
    assert "does not speak TLS: write http://" in said(f"endpoint=https://127.0.0.1:{port}&region=eu-test-1")
    assert "no such host" in said("endpoint=http://no-such-host.invalid:9000")
    assert "is not reached" in said(f"endpoint=http://127.0.0.1:{free_port()}")
    assert "check the bucket's name" in said(f"endpoint={minio.endpoint}&region=eu-test-1", bucket="X")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "SignatureDoesNotMatch: the server refuses the keys: check AWS_ACCESS_KEY_ID" in said(
        f"endpoint={minio.endpoint}&region=eu-test-1"
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    assert "InvalidAccessKeyId: the server refuses the keys" in said(f"endpoint={minio.endpoint}&region=eu-test-1")


def test_without_keys_the_two_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(ConfigurationError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        ensure_bucket(parse_store_url("s3://bucket?endpoint=http://127.0.0.1:1"))


def test_operations_errors_and_bytes_are_counted_by_verb() -> None:
    def value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, labels) or 0.0

    async def main() -> None:
        store = MeteredStore(SimStore().for_node("n"))
        before = {
            verb: value("bmq_store_operations_total", verb=verb) for verb in ("create", "get", "list", "delete", "head")
        }
        written, read = value("bmq_store_bytes_total", verb="create"), value("bmq_store_bytes_total", verb="get")
        conflicts, listed = (
            value("bmq_store_errors_total", verb="create", error="Conflict"),
            value("bmq_store_listed_keys_total"),
        )
        for number in range(5):
            await store.create(f"a/{number}", [b"abc", memoryview(b"de")])
        with pytest.raises(Conflict):
            await store.create("a/1", [b"xx"])
        assert await store.get("a/1", start=1, length=2) == b"bc"
        assert [meta.key async for meta in store.list("a/")] == [f"a/{number}" for number in range(5)]
        assert [meta.key async for meta in store.list("b/")] == []
        assert (await store.head("a/1")).size_bytes == 5
        await store.delete("a/1")
        with pytest.raises(ObjectMissing):
            await store.get("a/1")
        after = {verb: value("bmq_store_operations_total", verb=verb) for verb in before}
        assert {verb: after[verb] - before[verb] for verb in before} == {
            "create": 6,
            "get": 2,
            "list": 2,
            "delete": 1,
            "head": 1,
        }
        assert value("bmq_store_bytes_total", verb="create") - written == 25
        assert value("bmq_store_bytes_total", verb="get") - read == 2
        assert value("bmq_store_errors_total", verb="create", error="Conflict") - conflicts == 1
        assert value("bmq_store_errors_total", verb="get", error="ObjectMissing") >= 1
        assert value("bmq_store_listed_keys_total") - listed == 5
        assert value("bmq_store_seconds_count", verb="create") >= 6

    run(main())
