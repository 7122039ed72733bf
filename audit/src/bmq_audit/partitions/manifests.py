"""Audits a partition's manifest log: every version that is there, which are missing, and which one is in force."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from bmq.errors import BmqError, Corrupt, FormatError, FormatTooNew, StoreUnavailable
from bmq.storage.envelope import nonce_of
from bmq.storage.flatlog import FIRST_NUMBER, NO_PREDECESSOR, Entry, decode_entry, decode_entry_header
from bmq.storage.keys import manifest_prefix
from bmq.storage.manifest import Manifest
from bmq.storage.manifest_format import decode_manifest
from bmq.storage.numbered import numbered_key
from bmq.values import Nonce, TopicPartition
from bmq_audit.findings import Kind, Report
from bmq_audit.reading import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedManifest:
    """The manifest in force: the newest version that can be read, or an empty one.

    `newest_number` is that of the newest version there is, readable or not, 0 without one; `newest_epoch` and
    `newest_nonce` are its own as far as they can be told. `hidden`: it cannot be read.
    """

    manifest: Manifest
    number: int
    epoch: int
    newest_number: int
    newest_epoch: int
    newest_nonce: Nonce
    hidden: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """What was read of one version. `header`: None where even that cannot be read."""

    number: int
    entry: Entry | None = None
    manifest: Manifest | None = None
    header: Entry | None = None
    nonce: Nonce = NO_PREDECESSOR
    error: BmqError | None = None


class ManifestAudit:
    """Audits the manifest log of any partition of one store."""

    def __init__(self, reader: Reader, *, versions_kept: int, quick: bool) -> None:
        """`versions_kept`: how many versions behind the newest an owner keeps, claims or not. `quick`: older versions
        are not read.
        """
        self._reader = reader
        self._versions_kept = versions_kept
        self._quick = quick

    async def run(
        self,
        tp: TopicPartition,
        sizes: Mapping[int, int],
        report: Report,
        *,
        topic: str,
        written: int,
        first_offset: int,
    ) -> AuditedManifest:
        """`sizes`: the versions that a listing showed; `written`: the number of one that is known to have been written;
        `first_offset`: where a partition without any begins.

        Raises ObjectMissing where one has gone since: list again; StoreLost.
        """
        prefix = manifest_prefix(tp)
        numbers = sorted(sizes)
        unread = list(numbers)
        broken: list[_Version] = []
        found: _Version | None = None
        while unread:
            version = await self._read(prefix, unread.pop())
            if version.error is None:
                found = version
                break
            broken.append(version)
        for version in broken:
            self._hidden(version, prefix, report, topic=topic)
        newest = broken[0] if broken else found
        self._missing(numbers, prefix, report, topic=topic, written=written)
        if not self._quick and found is not None:
            await self._older(unread, found, sizes, prefix, report, topic=topic)
        header = (newest.entry or newest.header) if newest is not None else None
        epoch = found.entry.epoch if found is not None and found.entry is not None else -1
        return AuditedManifest(
            manifest=found.manifest
            if found is not None and found.manifest is not None
            else Manifest.beginning_at(first_offset),
            number=found.number if found is not None else 0,
            epoch=epoch,
            newest_number=newest.number if newest is not None else 0,
            newest_epoch=header.epoch if header is not None else epoch,
            newest_nonce=newest.nonce if newest is not None else NO_PREDECESSOR,
            hidden=bool(broken),
        )

    async def _read(self, prefix: str, number: int) -> _Version:
        key = numbered_key(prefix, number)
        header = None
        data = b""
        try:
            data = await self._reader.get(key)
            header = decode_entry_header(data, what="manifest version")
            entry, manifest = await self._reader.in_thread(partial(_decode, data))
            if entry.number != number:
                raise Corrupt(f"it holds version {entry.number}")
        except (FormatError, StoreUnavailable) as error:
            return _Version(number=number, header=header, nonce=nonce_of(data) or NO_PREDECESSOR, error=error)
        return _Version(number=number, entry=entry, manifest=manifest, header=header, nonce=entry.nonce)

    def _hidden(self, version: _Version, prefix: str, report: Report, *, topic: str) -> None:
        report.fault(
            _kind_of(version.error),
            numbered_key(prefix, version.number),
            f"{version.error}. No newer version of the partition's manifest can be read: the partition does not open",
            topic=topic,
            repair="a new version from an older one and the segments that are there"
            if not isinstance(version.error, FormatTooNew)
            else "",
        )

    def _missing(self, numbers: list[int], prefix: str, report: Report, *, topic: str, written: int) -> None:
        if not numbers:
            return
        there = set(numbers)
        if FIRST_NUMBER not in there:
            report.fault(
                Kind.LOST,
                numbered_key(prefix, FIRST_NUMBER),
                "the manifest's first version, a claim, which is never deleted: somebody else deleted it. Nothing "
                "needs to read it",
                topic=topic,
            )
        for number in range(max(FIRST_NUMBER + 1, max(numbers[-1], written) - self._versions_kept), numbers[-1]):
            if number not in there:
                report.fault(
                    Kind.LOST,
                    numbered_key(prefix, number),
                    f"bmq keeps {self._versions_kept} manifest versions behind the newest: somebody else deleted "
                    "this one. Nothing needs it",
                    topic=topic,
                )

    async def _older(
        self, numbers: list[int], newer: _Version, sizes: Mapping[int, int], prefix: str, report: Report, *, topic: str
    ) -> None:
        """Those behind the newest: nobody reads them but who still holds their number. Far behind there may be claims
        that fell into the past.
        """
        recent = newer.number - self._versions_kept
        for number in reversed(numbers):
            version = await self._read(prefix, number)
            key = numbered_key(prefix, number)
            if version.error is not None:
                text = (
                    f"{version.error}. An old manifest version, which nothing needs; it stays because it may be a claim"
                )
                report.note(Kind.KEPT, key, text, topic=topic, size_bytes=sizes[number])
            elif (
                newer.entry is not None
                and version.entry is not None
                and number == newer.number - 1
                and number >= recent
            ):
                if newer.entry.predecessor not in (version.entry.nonce, NO_PREDECESSOR):
                    report.fault(
                        Kind.DISAGREES,
                        numbered_key(prefix, newer.number),
                        f"it was built from another version {number}",
                        topic=topic,
                    )
                if newer.entry.epoch < version.entry.epoch:
                    text = f"its leader epoch {newer.entry.epoch} is below the one before, {version.entry.epoch}"
                    report.fault(Kind.DISAGREES, numbered_key(prefix, newer.number), text, topic=topic)
            newer = version


def _decode(data: bytes) -> tuple[Entry, Manifest]:
    entry = decode_entry(data, what="manifest version")
    return entry, decode_manifest(entry.payload)


def _kind_of(error: BmqError | None) -> Kind:
    return Kind.UNREADABLE if isinstance(error, FormatTooNew | StoreUnavailable) else Kind.DAMAGED
