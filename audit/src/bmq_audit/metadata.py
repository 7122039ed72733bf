"""Audits the metadata log and its snapshots, and gives the image that they lead to."""

from dataclasses import dataclass
from functools import partial

from bmq.errors import BmqError, Corrupt, FormatError, FormatTooNew, ObjectMissing, StoreUnavailable
from bmq.metadata.codec import LOG_PREFIX, SNAPSHOT_PREFIX, decode_records, decode_snapshot, snapshot_key
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.invariants import check_image, check_step
from bmq.storage.flatlog import FIRST_NUMBER, NO_PREDECESSOR, Entry, decode_entry
from bmq.storage.numbered import numbered_key
from bmq.values import Nonce
from bmq_audit.findings import Kind, Report
from bmq_audit.reading import Reader

ATTEMPTS_MAX = 5
_START_AGAIN = "restore the object from a backup"


class NoMetadata(BmqError):
    """There is no metadata log: this is no store of bmq."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The image, as far as it can be told. `whole`: nothing that it rests on is missing or damaged."""

    image: Image
    nonce: Nonce
    whole: bool

    @property
    def position(self) -> int:
        """The number of the entry that it ends with."""
        return self.image.position


class _Vanished(Exception):
    """An object that was listed is gone: a leader took a snapshot meanwhile. From the beginning."""


async def audit_metadata(reader: Reader, report: Report) -> Metadata:
    """Reads every entry and every snapshot. Raises NoMetadata, StoreLost."""
    for _ in range(ATTEMPTS_MAX):
        found = Report()
        audit = _MetadataAudit(reader, found)
        try:
            metadata = await audit.run()
        except _Vanished:
            continue
        report.take(found)
        return metadata
    raise NoMetadata(f"the metadata log was shortened {ATTEMPTS_MAX} times while it was read: try again")


class _MetadataAudit:
    """One pass."""

    def __init__(self, reader: Reader, report: Report) -> None:
        self._reader = reader
        self._report = report
        self._entries: dict[int, int] = {}

    async def run(self) -> Metadata:
        snapshots = await self._reader.numbers(SNAPSHOT_PREFIX)
        self._entries = await self._reader.numbers(LOG_PREFIX)
        if not snapshots and not self._entries:
            raise NoMetadata(
                "there is no metadata log here: this is no store of bmq, or its URL (bucket, prefix, folder) is "
                "another one"
            )
        found = {number: await self._snapshot(number) for number in snapshots}
        readable = {number: base for number, base in found.items() if base is not None}
        base = Metadata(image=Image(), nonce=NO_PREDECESSOR, whole=True)
        newest = max(readable, default=0)
        first = min(readable, default=0)
        for number in sorted(readable):
            base = (
                await self._joined(base, readable.pop(number), covered=number < newest)
                if number != first
                else readable.pop(number)
            )
        await self._covered(first)
        base = await self._fold(base, max(self._entries, default=base.position), covered_below=0)
        self._unreadable_snapshots(found, whole=base.whole)
        self._first_claim()
        return base

    async def _snapshot(self, number: int) -> Metadata | None:
        """None where it cannot be read."""
        key = snapshot_key(number)
        try:
            data = await self._get(key)
            image, nonce = await self._reader.in_thread(partial(decode_snapshot, data, what=key))
            if image.position != number:
                raise Corrupt(f"it is the snapshot of position {image.position}")
            check_image(image)
        except (FormatError, StoreUnavailable):
            return None
        return Metadata(image=image, nonce=nonce, whole=True)

    async def _joined(self, base: Metadata, snapshot: Metadata, *, covered: bool) -> Metadata:
        """The newer of two snapshots, once the entries between them were seen to lead from one to the other."""
        folded = await self._fold(base, snapshot.position, covered_below=snapshot.position + 1)
        key = snapshot_key(snapshot.position)
        if (
            folded.position == snapshot.position
            and folded.whole
            and (folded.image != snapshot.image or folded.nonce != snapshot.nonce)
        ):
            self._report.fault(
                Kind.DISAGREES,
                key,
                f"it is not what the snapshot of entry {base.position} and the entries since lead to: one of them "
                "was tampered with" + ("" if covered else f"; nodes start from this one. {_START_AGAIN}"),
            )
        return snapshot

    async def _fold(self, base: Metadata, upto: int, *, covered_below: int) -> Metadata:
        """`base` and the entries up to `upto`, as far as they follow each other. Faults below `covered_below` keep
        nobody from starting.
        """
        image, nonce = base.image, base.nonce
        for number in range(base.position + 1, upto + 1):
            found = await self._entry(number, covered=number < covered_below)
            problem: str | None = None
            if found is not None and found.predecessor != nonce:
                problem = "it does not follow the entry before it: its predecessor is another one"
            elif found is not None and found.epoch < image.controller_epoch:
                problem = f"its controller epoch {found.epoch} is below {image.controller_epoch}"
            if found is not None and problem is None:
                try:
                    image = apply(image, number, decode_records(found.payload, what=f"metadata log entry {number}"))
                    nonce = found.nonce
                    continue
                except FormatError as error:
                    problem = str(error)
            if problem is not None:
                self._report.fault(
                    Kind.DISAGREES,
                    numbered_key(LOG_PREFIX, number),
                    f"{problem}. {self._consequence(number < covered_below)}",
                )
            return Metadata(image=image, nonce=nonce, whole=False)
        try:
            check_step(base.image, image)
        except FormatError as error:
            self._report.fault(
                Kind.DISAGREES,
                numbered_key(LOG_PREFIX, image.position),
                f"{error}. {self._consequence(covered_below > 0)}",
            )
            return Metadata(image=image, nonce=nonce, whole=False)
        return Metadata(image=image, nonce=nonce, whole=base.whole)

    async def _entry(self, number: int, *, covered: bool) -> Entry | None:
        """None, and a fault, where it cannot be had."""
        key = numbered_key(LOG_PREFIX, number)
        if number not in self._entries:
            self._report.fault(
                Kind.LOST, key, f"entry {number} of the metadata log is not there. {self._consequence(covered)}"
            )
            return None
        try:
            found = decode_entry(await self._get(key), what="entry")
            if found.number != number:
                raise Corrupt(f"it holds entry {found.number}")
        except StoreUnavailable as error:
            self._report.fault(Kind.UNREADABLE, key, f"{error}. {self._consequence(covered)}")
            return None
        except FormatError as error:
            kind = Kind.UNREADABLE if isinstance(error, FormatTooNew) else Kind.DAMAGED
            self._report.fault(kind, key, f"{error}. {self._consequence(covered)}")
            return None
        return found

    async def _covered(self, first: int) -> None:
        """What lies at and below the oldest snapshot: claims, which stay, and what the leader is about to delete."""
        due = due_bytes = 0
        for number, size_bytes in self._entries.items():
            if number > first:
                break
            key = numbered_key(LOG_PREFIX, number)
            try:
                entry = decode_entry(await self._get(key), what="entry")
            except (FormatError, StoreUnavailable) as error:
                self._report.note(
                    Kind.KEPT,
                    key,
                    f"{error}. A snapshot covers it; it stays because it may be a claim",
                    size_bytes=size_bytes,
                )
                continue
            if entry.number != number:
                self._report.fault(Kind.DAMAGED, key, f"it holds entry {entry.number}. A snapshot covers it")
            elif not entry.claim and number < first:
                due += 1
                due_bytes += size_bytes
        if due:
            self._report.note(
                Kind.DUE,
                LOG_PREFIX,
                "entries that a snapshot covers: the leader deletes them",
                objects=due,
                size_bytes=due_bytes,
            )

    def _unreadable_snapshots(self, found: dict[int, Metadata | None], *, whole: bool) -> None:
        """Whether the image is whole without it decides what is to be said of a snapshot that cannot be read."""
        for number, snapshot in found.items():
            if snapshot is not None:
                continue
            if whole:
                self._report.fault(
                    Kind.DAMAGED,
                    snapshot_key(number),
                    "a snapshot of the metadata that cannot be read: nodes start from what else there is, which is "
                    "whole",
                    repair="deleted",
                )
                self._report.delete(snapshot_key(number))
            else:
                self._report.fault(
                    Kind.DAMAGED,
                    snapshot_key(number),
                    f"a snapshot of the metadata that cannot be read, and nothing else leads there. {_START_AGAIN}",
                )

    def _first_claim(self) -> None:
        if FIRST_NUMBER not in self._entries:
            key = numbered_key(LOG_PREFIX, FIRST_NUMBER)
            self._report.fault(
                Kind.LOST,
                key,
                "the log's first entry, a claim, which is never deleted: somebody else deleted it. Nothing needs "
                f"to read it, but a controller that slept since then could write there unnoticed. {_START_AGAIN}",
            )

    def _consequence(self, covered: bool) -> str:
        if covered:
            return "A newer snapshot covers it, so nodes start; should that be lost, the metadata is lost with it"
        return f"What follows rests on it, so nodes do not start: {_START_AGAIN}"

    async def _get(self, key: str) -> bytes:
        self._report.checked.objects += 1
        try:
            return await self._reader.get(key)
        except ObjectMissing:
            raise _Vanished from None
