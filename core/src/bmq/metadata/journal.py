"""The metadata log and its snapshots in the store: reading the image, taking a snapshot, deleting what snapshots cover.

Owns the keys `meta/log/` and `meta/snapshot/`. Who may append, and what, is the controller's business; the rules of the
log are FlatLog's.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import structlog

from bmq.errors import Conflict, Corrupt, ObjectMissing
from bmq.metadata.codec import (
    LOG_PREFIX,
    SNAPSHOT_PREFIX,
    decode_records,
    decode_snapshot,
    encode_snapshot,
    snapshot_key,
)
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.invariants import check_image, check_step
from bmq.metadata.records import AnyRecord
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import TroubleLog, create_once, when_available
from bmq.storage.flatlog import NO_PREDECESSOR, Entry, FlatLog, GapFound
from bmq.storage.numbered import number_of, numbered_key

SNAPSHOTS_KEPT: Final = 2
"""The newest and one before it, with the entries since: should the newest prove unreadable, the other still leads to
the same image."""
LOADS_MAX: Final = 10
FOLDED_BESIDE_BYTES: Final = 128 * 1024
"""An entry with more is folded in and checked in a thread, a few thousand changes and more: what a broker owned that is
gone is one entry, and who folds a hundred thousand in a turn of the loop is silent for seconds."""

T = TypeVar("T")
Seen = Callable[[Sequence[AnyRecord]], None]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """An image and the log entry that it ends with; None before the first entry. `entries` since the snapshot were read
    one by one.
    """

    image: Image
    entry: Entry | None
    entries: int = 0


class MetadataJournal:
    """The log and the snapshots of one cluster."""

    def __init__(self, store: ObjectStore, *, rng: Rng, seen: Seen | None = None) -> None:
        """`seen` is called with the records of each entry that is read, once it is known to count."""
        self._store = store
        self._rng = rng
        self.log = self._open_log()
        self._trouble = TroubleLog("metadata")
        self._seen = seen

    async def load(self) -> Position:
        """The newest image that the store can give. Waits out a store that is down.

        Raises FormatTooNew, Corrupt (also where entries are missing that no snapshot covers).
        """
        for _ in range(LOADS_MAX):
            start = await self._newest_snapshot()
            try:
                return await self.advance(start)
            except GapFound as gap:
                # The leader took a snapshot and deleted what it covers while this read.
                _log.info("metadata log was shortened while it was read, starting again", entry=gap.number)
                found: GapFound = gap
        raise Corrupt(f"metadata log: {found}, and no snapshot under {SNAPSHOT_PREFIX} covers it")

    async def advance(self, start: Position) -> Position:
        """`start` and every entry since. Raises GapFound where the log was shortened meanwhile: load again;
        FormatError.
        """
        image, last = start.image, start.entry
        size_bytes = 0
        async for entry in self.log.read_forward(last):
            image, last = await self._folded(image, entry), entry
            size_bytes += len(entry.payload)
        # Once for all of them: a check costs a look at every topic.
        await _beside(partial(check_step, start.image, image), size_bytes)
        return Position(image=image, entry=last, entries=start.entries + image.position - start.image.position)

    async def newest(self, start: Position) -> Position:
        """`start` and every entry since, or the newest image where the log was shortened meanwhile. Raises as
        `load`.
        """
        try:
            return await self.advance(start)
        except GapFound as gap:
            _log.info("metadata log was shortened, reading the newest snapshot", entry=gap.number)
            return await self.load()

    async def follow(self, start: Position, entry: Entry) -> Position | None:
        """`start` and the one entry that was found above it; None where it is not the next one. Raises FormatError."""
        if start.entry is None or entry.number != start.entry.number + 1 or entry.predecessor != start.entry.nonce:
            return None
        image = await self._folded(start.image, entry)
        await _beside(partial(check_step, start.image, image), len(entry.payload))
        return Position(image=image, entry=entry, entries=start.entries + 1)

    async def save_snapshot(self, position: Position) -> int:
        """Makes the snapshot of a committed position and returns its size in bytes. One that is there already is as
        good.

        Raises UnknownOutcome. Encodes in a thread: an image of 200,000 partitions takes some tens of ms.
        """
        assert position.entry is not None
        assert position.entry.number == position.image.position, (
            f"entry {position.entry.number} makes the image of {position.image.position}"
        )
        nonce = self._rng.nonce()
        entry_nonce = position.entry.nonce
        loop = asyncio.get_running_loop()
        parts = await loop.run_in_executor(
            None, lambda: encode_snapshot(position.image, entry_nonce=entry_nonce, nonce=nonce)
        )
        key = snapshot_key(position.image.position)
        try:
            await create_once(self._store, key, parts, nonce=nonce, rng=self._rng, trouble=self._trouble)
        except Conflict:
            # A snapshot is a function of the log up to its position: an earlier leader made the same one.
            _log.info("metadata snapshot exists already", key=key)
        return sum(len(part) for part in parts)

    async def prune(self) -> None:
        """Deletes older snapshots, and the entries that the oldest one kept covers. Only by the leader, after its claim
        holds.
        """
        positions = await self._snapshots()
        if len(positions) < SNAPSHOTS_KEPT:
            return
        kept = positions[-SNAPSHOTS_KEPT:]
        for position in positions[:-SNAPSHOTS_KEPT]:
            key = snapshot_key(position)
            await when_available(partial(self._store.delete, key), rng=self._rng, trouble=self._trouble)
        # A log of its own, because the leader goes on appending to the other one meanwhile.
        deleted = await self._open_log().delete_covered(kept[0] + 1)
        _log.info(
            "metadata log shortened",
            snapshots_deleted=len(positions) - len(kept),
            entries_deleted=deleted,
            covered_below=kept[0] + 1,
        )

    def _open_log(self) -> FlatLog:
        return FlatLog(self._store, LOG_PREFIX, rng=self._rng, what="metadata log")

    async def _snapshots(self) -> list[int]:
        async def listing() -> list[int]:
            listed = self._store.list(SNAPSHOT_PREFIX)
            return [n async for meta in listed if (n := number_of(SNAPSHOT_PREFIX, meta.key)) is not None]

        return await when_available(listing, rng=self._rng, trouble=self._trouble)

    async def _newest_snapshot(self) -> Position:
        """The newest one that can be read; the empty image where there is none."""
        for number in reversed(await self._snapshots()):
            key = snapshot_key(number)
            try:
                data = await when_available(partial(self._store.get, key), rng=self._rng, trouble=self._trouble)
                image, entry_nonce = decode_snapshot(data, what=key)
                if image.position != number:
                    raise Corrupt(f"{key} holds the snapshot of position {image.position}")
                check_image(image)
            except ObjectMissing:
                continue
            except Corrupt as error:
                _log.error("metadata snapshot cannot be read, trying the one before", key=key, error=str(error))
                continue
            entry = Entry(
                number=number,
                epoch=image.controller_epoch,
                nonce=entry_nonce,
                predecessor=NO_PREDECESSOR,
                claim=False,
                payload=b"",
            )
            return Position(image=image, entry=entry)
        return Position(image=Image(), entry=None)

    async def _folded(self, image: Image, entry: Entry) -> Image:
        records, after = await _beside(partial(_fold, image, entry), len(entry.payload))
        if self._seen is not None:
            self._seen(records)
        return after


def _fold(image: Image, entry: Entry) -> tuple[Sequence[AnyRecord], Image]:
    records = decode_records(entry.payload, what=f"metadata log entry {entry.number}")
    return records, apply(image, entry.number, records)


async def _beside(work: Callable[[], T], size_bytes: int) -> T:
    """In a thread where it takes long: the loop goes on."""
    if size_bytes <= FOLDED_BESIDE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def newest_position(store: ObjectStore, *, above: int) -> int:
    """The number of the newest entry of the metadata log, by a listing from behind the entry `above`; `above` where
    nothing is there.

    Raises StoreError.
    """
    newest = above
    async for meta in store.list(LOG_PREFIX, after=numbered_key(LOG_PREFIX, above)):
        newest = max(newest, number_of(LOG_PREFIX, meta.key) or 0)
    return newest
