"""How an audit reads: a bounded number of requests at a time, each tried a few times, and counted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from bmq.errors import BmqError, StoreError, StoreUnavailable
from bmq.ports import ObjectMeta, ObjectStore, Rng
from bmq.storage.durable import Backoff
from bmq.storage.numbered import number_of

TRIES_MAX: Final = 4
UNREADABLE_IN_A_ROW_MAX: Final = 16
"""So many objects in a row that the store does not give: then it is the store."""
CHUNK_BYTES: Final = 4 << 20
"""What is read of a large object at a time."""

T = TypeVar("T")


class StoreLost(BmqError):
    """The store answers no more: what was found so far is not the whole truth, and the audit ends."""


@dataclass(slots=True)
class Progress:
    """Where an audit is. `total_bytes` is 0 until the listing is complete."""

    stage: str = ""
    listed: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    told: Callable[["Progress"], None] = field(default=lambda _: None)

    def tell(self) -> None:
        """Lets whoever shows it know."""
        self.told(self)


class Reader:
    """Reads one store, and lists it, for one audit or one copy; what fails is tried a few times."""

    def __init__(self, store: ObjectStore, *, rng: Rng, at_once: int, progress: Progress) -> None:
        self._store = store
        self._rng = rng
        self._places = asyncio.Semaphore(at_once)
        self._unreadable = 0
        self.at_once = at_once
        self.progress = progress
        self.read_bytes = 0

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Raises ObjectMissing, StoreUnavailable (this object cannot be had), StoreLost."""
        async with self._places:
            backoff = Backoff(self._rng)
            for tries in range(1, TRIES_MAX + 1):
                try:
                    data = await self._store.get(key, start=start, length=length)
                except StoreUnavailable as error:
                    if tries == TRIES_MAX:
                        self._failed(error)
                        raise
                else:
                    break
                await backoff.wait()
        self._unreadable = 0
        self.read_bytes += len(data)
        self.progress.done_bytes += len(data)
        self.progress.tell()
        return data

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """Every object below the prefix, ascending; goes on where a page failed. Raises StoreLost."""
        after = ""
        tries = 0
        backoff = Backoff(self._rng)
        while True:
            try:
                async for meta in self._store.list(prefix, after=after):
                    after = meta.key
                    tries = 0
                    yield meta
            except StoreUnavailable as error:
                tries += 1
                if tries == TRIES_MAX:
                    raise StoreLost(f"the store does not list its objects: {error}") from error
            except StoreError as error:
                raise StoreLost(str(error)) from error
            else:
                return
            await backoff.wait()

    async def numbers(self, prefix: str) -> dict[int, int]:
        """Sizes in bytes of the objects whose key is the prefix and a number, by number, ascending."""
        return {
            number: meta.size_bytes
            async for meta in self.list(prefix)
            if (number := number_of(prefix, meta.key)) is not None
        }

    async def in_thread(self, examine: Callable[[], T]) -> T:
        """Checksums take milliseconds a chunk: beside the loop."""
        return await asyncio.get_running_loop().run_in_executor(None, examine)

    def _failed(self, error: StoreUnavailable) -> None:
        self._unreadable += 1
        if self._unreadable >= UNREADABLE_IN_A_ROW_MAX:
            raise StoreLost(f"the store gives nothing any more: {error}") from error
