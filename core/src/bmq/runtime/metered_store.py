"""Counts and times what goes to the object store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import contextmanager
from typing import Final

from prometheus_client import Counter, Histogram
from typing_extensions import Buffer, Generator

from bmq.errors import StoreError
from bmq.ports import ObjectMeta, ObjectStore

VERBS: Final = ("create", "get", "list", "delete", "head")

OPERATIONS: Final = Counter("bmq_store_operations", "Operations on the object store, by verb.", ["verb"])
ERRORS: Final = Counter(
    "bmq_store_errors", "Operations on the object store that did not succeed, by verb and error.", ["verb", "error"]
)
BYTES: Final = Counter("bmq_store_bytes", "Bytes of objects written (create) and read (get).", ["verb"])
LISTED: Final = Counter("bmq_store_listed_keys", "Keys told by listings.")
CREATE_SIZE_BYTES: Final = Histogram(
    "bmq_store_create_size_bytes",
    "Sizes of objects created.",
    buckets=tuple(float(1 << power) for power in range(10, 28, 2)),
)
SECONDS: Final = Histogram(
    "bmq_store_seconds",
    "Time of operations on the object store, by verb; of a listing, until its first page.",
    ["verb"],
    buckets=(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)


class MeteredStore:
    """The same store, measured (`bmq_store_*`)."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self._operations = {verb: OPERATIONS.labels(verb) for verb in VERBS}
        self._seconds = {verb: SECONDS.labels(verb) for verb in VERBS}
        self._written = BYTES.labels("create")
        self._read = BYTES.labels("get")

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Makes the object in the inner store, and measures that: its time, its size, its error."""
        size_bytes = sum([memoryview(part).nbytes for part in parts])
        with self._measured("create"):
            await self._inner.create(key, parts)
        self._written.inc(size_bytes)
        CREATE_SIZE_BYTES.observe(size_bytes)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Reads from the inner store, and measures that: its time, its bytes, its error."""
        with self._measured("get"):
            data = await self._inner.get(key, start=start, length=length)
        self._read.inc(len(data))
        return data

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Lists the inner store, and measures that: the time until the first object, how many are told, its error."""
        entries = aiter(self._inner.list(prefix, after=after))
        count = 0
        try:
            with self._measured("list"):
                first = await anext(entries, None)
            if first is None:
                return
            count = 1
            yield first
            with self._errors_counted("list"):
                async for meta in entries:
                    count += 1
                    yield meta
        finally:
            LISTED.inc(count)

    async def delete(self, key: str) -> None:
        """Deletes in the inner store, and measures that: its time, its error."""
        with self._measured("delete"):
            await self._inner.delete(key)

    async def head(self, key: str) -> ObjectMeta:
        """Asks the inner store for the object's size and modification time, and measures that: its time, its error."""
        with self._measured("head"):
            return await self._inner.head(key)

    @contextmanager
    def _measured(self, verb: str) -> Generator[None]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        self._operations[verb].inc()
        try:
            with self._errors_counted(verb):
                yield
        finally:
            self._seconds[verb].observe(loop.time() - start)

    @contextmanager
    def _errors_counted(self, verb: str) -> Generator[None]:
        try:
            yield
        except StoreError as error:
            ERRORS.labels(verb, type(error).__name__).inc()
            raise
