"""A cluster's store, opened for reading alone, in processes that have no event loop: one loop and one client for each
process and URL.

Owns how long an operation is tried before it counts as failed: bmq's own readers wait for a store that is down, a job
has to say so.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from typing_extensions import Buffer

from bmq.errors import NotApplied, StoreUnavailable, StoreUnusable
from bmq.ports import ObjectMeta, ObjectStore
from bmq.runtime.read_only_folder import open_read_only
from bmq.runtime.store_url import StoreKind, parse_store_url
from bmq.runtime.system import SystemRng
from bmq_spark.errors import ConfigurationError
from bmq_spark.source.failures import StoreLost

if TYPE_CHECKING:
    from bmq.storage.durable import Backoff

TRIES_MAX: Final = 5
"""Waits between them come to about one second; the client library tries each request twice more by itself."""

T = TypeVar("T")


class OpenedStore:
    """An ObjectStore that is only read, with the loop that its requests run on. Safe from any thread of one process."""

    def __init__(self, store: ObjectStore, url: str) -> None:
        self.url = url
        self.rng = SystemRng()
        self.objects: ObjectStore = _Patient(store, self.rng)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="bmq-store", daemon=True).start()

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """The result of an operation on the loop. Raises what it raises."""
        return self.start(operation).result()

    def start(self, operation: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begins it; the future may be waited for, or cancelled."""
        return asyncio.run_coroutine_threadsafe(operation, self._loop)


def opened(url: str) -> OpenedStore:
    """This process's reader of the store at `url`. Raises ConfigurationError (one line)."""
    key = (os.getpid(), url)  # a forked child has none of its parent's threads
    with _lock:
        if key not in _opened:
            _opened[key] = OpenedStore(_open(url), url.partition("?")[0])
        return _opened[key]


_opened: dict[tuple[int, str], OpenedStore] = {}
_lock = threading.Lock()
os.register_at_fork(after_in_child=_opened.clear)


def _open(url: str) -> ObjectStore:
    parsed = parse_store_url(url)
    if parsed.kind is StoreKind.MEMORY:
        raise ConfigurationError(f"option store={url}: nothing of it outlives its process: name a folder or a bucket")
    if parsed.folder is not None:
        if not parsed.folder.is_dir():
            raise ConfigurationError(
                f"option store={url}: there is no such folder: name the one that bmq keeps its data in, on every "
                "executor"
            )
        return open_read_only(parsed.folder)
    from bmq.runtime.obstore_store import ObstoreStore  # not needed for a folder

    return ObstoreStore.open(parsed)


class _Patient:
    """An ObjectStore that gives up: what is unavailable after some tries is StoreLost."""

    def __init__(self, store: ObjectStore, rng: SystemRng) -> None:
        self._store = store
        self._rng = rng

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        raise NotApplied(f"create {key}: the store was opened for reading only")

    async def delete(self, key: str) -> None:
        raise StoreUnavailable(f"delete {key}: the store was opened for reading only")

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The object's bytes from `start`, tried some times. Raises ObjectMissing; StoreLost instead of
        StoreUnavailable.
        """
        backoff: Backoff | None = None
        for tries in range(1, TRIES_MAX + 1):
            try:
                return await self._store.get(key, start=start, length=length)
            except StoreUnavailable as error:
                if tries == TRIES_MAX:
                    raise _lost(error) from error
            backoff = backoff or _backoff(self._rng)
            await backoff.wait()
        raise AssertionError("unreachable")

    async def head(self, key: str) -> ObjectMeta:
        """The object's metadata, asked for once. Raises ObjectMissing; StoreLost instead of StoreUnavailable."""
        try:
            return await self._store.head(key)
        except StoreUnavailable as error:
            raise _lost(error) from error

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Objects whose key starts with `prefix` and is greater than `after`, ascending; goes on where a page failed.
        Raises StoreLost while iterating.
        """
        backoff: Backoff | None = None
        tries = 0
        while True:
            try:
                async for meta in self._store.list(prefix, after=after):
                    after, tries = meta.key, 0
                    yield meta
            except (StoreUnavailable, StoreUnusable) as error:
                tries += 1
                if tries == TRIES_MAX or isinstance(error, StoreUnusable):
                    raise _lost(error) from error
            else:
                return
            backoff = backoff or _backoff(self._rng)
            await backoff.wait()


def _backoff(rng: SystemRng) -> "Backoff":
    from bmq.storage.durable import Backoff  # seldom needed, and costs an executor some time

    return Backoff(rng)


def _lost(error: Exception) -> StoreLost:
    return StoreLost(f"the store cannot be read: {error}: see docs/stores.md for what it needs")
