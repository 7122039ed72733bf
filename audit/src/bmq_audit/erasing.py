"""Deletes everything that a cluster has in a store, and nothing that is not bmq's.

What tells whose store it is goes last: an erasure that was ended half-way still knows what it may delete, and goes on
where it stopped.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from bmq.errors import FormatError, StoreError, StoreUnavailable
from bmq.metadata.codec import LOG_PREFIX, SNAPSHOT_PREFIX, decode_snapshot
from bmq.ports import ObjectMeta, ObjectStore, Rng
from bmq.storage.durable import Backoff, together
from bmq_audit.places import Place, PlaceKind, place_of
from bmq_audit.reading import TRIES_MAX, Reader, StoreLost

PASSES_MAX: Final = 3
"""How often it is looked whether something came meanwhile."""
_METADATA: Final = frozenset((PlaceKind.METADATA_ENTRY, PlaceKind.METADATA_SNAPSHOT))


@dataclass(slots=True)
class Amount:
    """Objects of bmq, and how many there are that are not."""

    objects: int = 0
    size_bytes: int = 0
    strangers: int = 0


async def amount_of(reader: Reader) -> Amount:
    """What an erasure would delete. Raises StoreLost."""
    found = Amount()
    async for meta in reader.list(""):
        if place_of(meta.key) is None:
            found.strangers += 1
        else:
            found.objects += 1
            found.size_bytes += meta.size_bytes
        reader.progress.listed += 1
        reader.progress.tell()
    return found


class Eraser:
    """Deletes what a cluster has in one store, on which nothing runs."""

    def __init__(
        self,
        store: ObjectStore,
        reader: Reader,
        *,
        rng: Rng,
        at_once: int,
        told: Callable[[Amount], None] = lambda _: None,
    ) -> None:
        """`told` is called after each deletion, with what was deleted so far."""
        self._store = store
        self._reader = reader
        self._rng = rng
        self._at_once = at_once
        self._told = told
        self.done = Amount()

    async def run(self) -> Amount:
        """What was deleted. Raises StoreLost: then it is to be run again."""
        await self._until_none(lambda _, place: place.kind not in _METADATA)
        last = await self._identifying()
        await self._until_none(lambda key, place: place.kind in _METADATA and key != last)
        await self._until_none(lambda _, place: True)
        return self.done

    async def _identifying(self) -> str | None:
        """The object from which the cluster's id can be read without any other: its newest readable snapshot, else the
        first entry of its log.
        """
        for number in sorted(await self._reader.numbers(SNAPSHOT_PREFIX), reverse=True):
            key = f"{SNAPSHOT_PREFIX}{number:020d}"
            try:
                decode_snapshot(await self._reader.get(key), what=key)
            except (FormatError, StoreError):
                continue
            return key
        entries = await self._reader.numbers(LOG_PREFIX)
        return f"{LOG_PREFIX}{min(entries):020d}" if entries else None

    async def _until_none(self, chosen: Callable[[str, Place], bool]) -> None:
        for _ in range(PASSES_MAX):
            before = self.done.objects
            await self._pass(chosen)
            if self.done.objects == before:
                return
        raise StoreLost("somebody writes to the store while it is erased: stop all processes of the cluster")

    async def _pass(self, chosen: Callable[[str, Place], bool]) -> None:
        """Deletes each object that is listed and chosen, some at a time."""
        listed = self._listed(chosen)
        turn = asyncio.Lock()

        async def work() -> None:
            while True:
                async with turn:
                    meta = await anext(listed, None)
                if meta is None:
                    return
                await self._delete(meta)

        await together(work() for _ in range(self._at_once))

    async def _listed(self, chosen: Callable[[str, Place], bool]) -> AsyncIterator[ObjectMeta]:
        async for meta in self._reader.list(""):
            place = place_of(meta.key)
            if place is not None and chosen(meta.key, place):
                yield meta

    async def _delete(self, meta: ObjectMeta) -> None:
        backoff = Backoff(self._rng)
        for tries in range(1, TRIES_MAX + 1):
            try:
                await self._store.delete(meta.key)
            except StoreUnavailable as error:
                if tries == TRIES_MAX:
                    raise StoreLost(f"the store does not delete its objects: {error}") from error
            else:
                break
            await backoff.wait()
        self.done.objects += 1
        self.done.size_bytes += meta.size_bytes
        self._told(self.done)
