"""Objects on their way from the store that is copied to the copy: so many bytes at a time, each tried again.

An object that the target has already is not copied again; another one of its key ends the copy.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from bmq.errors import Conflict, FormatError, ObjectMissing, StoreError
from bmq.fairness.grouping import in_groups
from bmq.ports import ObjectMeta, ObjectStore, Rng
from bmq.storage.durable import Backoff, together
from bmq.storage.flatlog import decode_entry
from bmq.storage.manifest import Manifest
from bmq.storage.manifest_format import decode_manifest
from bmq_audit.reading import TRIES_MAX, Reader
from bmq_backup.copied import Copied, NotCopied

T = TypeVar("T")

MEMORY_BYTES: Final = 256 << 20
"""How many bytes of objects may be on their way at a time; an object larger than this goes alone."""


class Transfer:
    """Objects on their way into one copy. `there`: what is in the copy so far."""

    def __init__(self, source: Reader, target: ObjectStore, *, rng: Rng, told: Callable[[Copied], None]) -> None:
        """`source.at_once` objects are on their way at a time."""
        self.source = source
        self.there = Reader(target, rng=rng, at_once=source.at_once, progress=source.progress)
        self.rng = rng
        self.done = Copied(told=told)
        self._target = target
        self._memory = _Memory(MEMORY_BYTES)

    async def listed(self, prefix: str) -> list[ObjectMeta]:
        """What the source has below it."""
        return [meta async for meta in self.source.list(prefix)]

    async def copy_all(self, objects: Sequence[ObjectMeta], prefix: str) -> set[str]:
        """Copies what the target does not have. Returns the keys that are there now: some may have gone from the
        source.
        """
        there = {meta.key: meta.size_bytes async for meta in self.there.list(prefix)} if objects else {}
        copied = {meta.key for meta in objects if there.get(meta.key) == meta.size_bytes}
        missing = [meta for meta in objects if meta.key not in copied]
        for group in in_groups(missing, self.source.at_once):
            for meta, found in zip(group, await together(self._copy(meta) for meta in group), strict=True):
                if found:
                    copied.add(meta.key)
        return copied

    async def missing(self, named: Collection[str], prefix: str) -> set[str]:
        """Copies what is named, and returns what the source did not have."""
        if not named:
            return set()
        listed = [meta for meta in await self.listed(prefix) if meta.key in named]
        return set(named) - await self.copy_all(listed, prefix)

    async def read(self, key: str, decode: Callable[[bytes], T]) -> T:
        """A copied object. Raises NotCopied where it is not what bmq wrote."""
        try:
            return decode(await self.there.get(key))
        except FormatError as error:
            raise NotCopied(
                f"{key}: {error}: the source is damaged: bmq store check says where; repair it first"
            ) from error

    async def manifest_there(self, key: str) -> Manifest | None:
        """In the source; None where it is gone again. Raises NotCopied where it is not what bmq wrote."""
        try:
            return decode_manifest(decode_entry(await self.source.get(key), what=key).payload)
        except ObjectMissing:
            return None
        except FormatError as error:
            raise NotCopied(
                f"{key}: {error}: the source is damaged: bmq store check says where; repair it first"
            ) from error

    async def put(self, key: str, data: bytes) -> None:
        """Creates an object of the target. Raises NotCopied where another one is there, StoreError."""
        backoff = Backoff(self.rng)
        for tries in range(1, TRIES_MAX + 1):
            try:
                await self._target.create(key, [data])
                break
            except Conflict:
                if await self.there.get(key) != data:
                    raise NotCopied(
                        f"{key} is in the target already, and is another object: name an empty folder, bucket or prefix"
                    ) from None
                self.done.there_already += 1
                return
            except StoreError:
                if tries == TRIES_MAX:
                    raise
            await backoff.wait()
        self.done.objects += 1
        self.done.size_bytes += len(data)
        self.done.told(self.done)

    async def delete(self, key: str) -> None:
        """Deletes an object of the target. Raises StoreError where the last of TRIES_MAX tries fails."""
        backoff = Backoff(self.rng)
        for tries in range(1, TRIES_MAX + 1):
            try:
                await self._target.delete(key)
                return
            except StoreError:
                if tries == TRIES_MAX:
                    raise
            await backoff.wait()

    async def _copy(self, meta: ObjectMeta) -> bool:
        """Whether it was still there."""
        async with self._memory.of(meta.size_bytes):
            try:
                data = await self.source.get(meta.key)
            except ObjectMissing:
                return False
            await self.put(meta.key, data)
        return True


class _Memory:
    """So many bytes at a time; one that is larger than all of them goes alone."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._held_bytes = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def of(self, size_bytes: int) -> AsyncIterator[None]:
        taken = min(size_bytes, self._size_bytes)
        async with self._freed:
            await self._freed.wait_for(lambda: self._held_bytes + taken <= self._size_bytes)
            self._held_bytes += taken
        try:
            yield
        finally:
            async with self._freed:
                self._held_bytes -= taken
                self._freed.notify_all()
