"""Audits the WAL: every object of every stream, where streams end, and what of them is still to be read."""

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from typing import Final

from bmq.errors import FormatError, ObjectMissing, StoreUnavailable
from bmq.fairness.grouping import in_groups
from bmq.metadata.image import Image, stream_of
from bmq.storage.durable import together
from bmq.storage.numbered import wal_key
from bmq.storage.wal import WAL_HEADER_SIZE_BYTES, decode_wal_header
from bmq.values import StreamId
from bmq_audit.findings import Kind, Report
from bmq_audit.held import HeldInWal
from bmq_audit.reading import Reader
from bmq_audit.unopenable import MEANS
from bmq_audit.wal.objects import ExaminedWal, examine_wal

HEADERS_MAX: Final = 16
PROMISES_MAX: Final = 5
MISSING_MAX: Final = 100
"""Told of one stream."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """A stream and what the image says of it."""

    stream: StreamId
    end: int | None
    """Its seal, where it is known."""
    lives: bool
    """A registered broker's own."""
    dropped: bool
    wanted: bool
    """Whether partitions name it, or it is a registered broker's."""


class WalAudit:
    """Audits the WAL of one store, stream by stream."""

    def __init__(self, reader: Reader, report: Report, image: Image) -> None:
        self._reader = reader
        self._report = report
        self._image = image
        self.held = HeldInWal(image)
        self.blocked: set[StreamId] = set()
        """Streams that nobody can read to their end."""
        self._read_below = _read_below(image)
        self.unknown: list[tuple[StreamId, int, int]] = []
        """Streams that the image does not know, with their data objects and bytes; the audit's end tells what they
        are."""

    async def run(self, streams: Mapping[StreamId, object]) -> None:
        """`streams`: those that a listing showed. Raises StoreLost."""
        named = {
            StreamId(node.node_id, node.broker_epoch) for node in self._image.nodes.values() if "broker" in node.roles
        }
        for stream in sorted({*streams, *self._image.sealed, *named}):
            await self._audit(self._known(stream))

    def _known(self, stream: StreamId) -> _Stream:
        image = self._image
        node = image.nodes.get(stream.node_id)
        lives = node is not None and node.broker_epoch == stream.broker_epoch
        return _Stream(
            stream=stream,
            end=image.sealed.get(stream, image.dropped.get(stream)),
            lives=lives,
            dropped=stream in image.dropped,
            wanted=lives or stream in image.range_counts,
        )

    async def _audit(self, known: _Stream) -> None:
        listed = await self._reader.numbers(known.stream.prefix)
        seals = {number for number, size_bytes in listed.items() if size_bytes < WAL_HEADER_SIZE_BYTES}
        data = {number: size_bytes for number, size_bytes in listed.items() if number not in seals}
        if known.dropped:
            self._report.note(
                Kind.DUE,
                known.stream.prefix,
                "no partition needs this stream: the controller deletes it",
                objects=len(data),
                size_bytes=sum(data.values()),
            )
        elif known.end is None and not known.lives and data:
            self.unknown.append((known.stream, len(data), sum(data.values())))
        bad = await self._read_seals(known, seals)
        if known.wanted or known.end is not None:
            bad |= await self._read_data(known, data)
        else:
            self._report.checked.objects += len(data)
        needed_below = self._read_below.get(known.stream, 0)
        self._tell(
            known,
            bad,
            torn=_torn_end(listed, bad, needed_below=needed_below)
            if known.lives and known.end is None
            else frozenset(),
        )

    async def _read_seals(self, known: _Stream, seals: set[int]) -> dict[int, ExaminedWal]:
        """Those that are none."""
        bad = {}
        for number in sorted(seals):
            found = await self._examine(known.stream, number)
            if found is not None and not found.seal and not found.problems:
                found = replace(found, problems=("it has the size of a seal and is none",))
            if found is not None and found.problems:
                bad[number] = found
        if known.end is not None and known.end not in seals:
            self._report.fault(
                Kind.LOST,
                wal_key(known.stream, known.end),
                "the seal that ends this stream, which is never deleted: somebody else deleted it. Its owner, "
                "should it still sleep somewhere, would not learn that it was replaced: make sure that it has "
                "ended, then restore the object from a backup",
            )
        return bad

    async def _read_data(self, known: _Stream, data: Mapping[int, int]) -> dict[int, ExaminedWal]:
        """Every data object, in order; those that are damaged. Those count that an heir would read: above the last
        missing one, below the end.
        """
        durable_below = await self._durable_below(known, data)
        first = _first(data.keys(), durable_below)
        # Where a stream that was never sealed is going to end: what lies above a free number was never acknowledged.
        end = (
            known.end
            if known.end is not None
            else next(number for number in count(durable_below) if number not in data)
        )
        before = 0
        bad: dict[int, ExaminedWal] = {}
        for numbers in in_groups(sorted(data), self._reader.at_once):
            for number, found in zip(
                numbers, await together(self._examine(known.stream, number) for number in numbers), strict=True
            ):
                counts = first <= number < end
                if found is None:
                    continue
                if found.problems:
                    bad[number] = found
                    if counts:
                        self.blocked.add(known.stream)
                    continue
                if found.durable_below < before:
                    self._report.fault(
                        Kind.DISAGREES,
                        wal_key(known.stream, number),
                        f"it says that all below {found.durable_below} is durable, an earlier object said {before}",
                    )
                before = max(before, found.durable_below)
                if counts:
                    self._tell_unopenable(known.stream, found)
                    self.held.take(known.stream, number, found.entries)
                elif number < first:
                    self.held.cut_off(known.stream, number, found.entries, missing=first - 1)
        if known.wanted:
            self._check_numbers(known, data.keys(), durable_below=durable_below)
        return bad

    def _tell_unopenable(self, stream: StreamId, found: ExaminedWal) -> None:
        for tp, why in found.unopenable:
            topic = self._image.topics.get(tp.topic_id)
            if topic is not None:
                label = f"{topic.name}-{tp.partition}"
                self._report.fault(
                    Kind.UNOPENABLE,
                    wal_key(stream, found.number),
                    f"{why}. It is {MEANS}",
                    topic=label,
                    size_bytes=found.size_bytes,
                )

    def _tell(self, known: _Stream, bad: Mapping[int, ExaminedWal], *, torn: frozenset[int]) -> None:
        """What is damaged. At the end of a stream that was never sealed it may go: nothing was written after it, so
        nobody waits for it.
        """
        for number, found in bad.items():
            key = wal_key(known.stream, number)
            for problem in found.problems:
                self._report.fault(
                    Kind.UNREADABLE if found.unreadable else Kind.DAMAGED,
                    key,
                    f"{problem}. Partitions with records in it that no segment has do not open: restore the object "
                    "from a backup",
                    size_bytes=found.size_bytes,
                    repair="deleted, as the stream's newest: what it held and no segment has is lost"
                    if number in torn
                    else "",
                )
            if number in torn:
                self._report.delete(key, size_bytes=found.size_bytes, loses=self._promise(found))

    def _promise(self, found: ExaminedWal) -> str:
        """What an object's directory says it held."""
        held = []
        for entry in found.entries:
            topic = self._image.topics.get(entry.tp.topic_id)
            if topic is not None:
                held.append(f"{topic.name}-{entry.tp.partition} offsets {entry.base_offset} to {entry.last_offset}")
        more = f" and {len(held) - PROMISES_MAX} more" if len(held) > PROMISES_MAX else ""
        return f"{', '.join(held[:PROMISES_MAX])}{more}" if held else "records that nobody can name"

    async def _durable_below(self, known: _Stream, data: Mapping[int, int]) -> int:
        """What the newest data object whose header can be read says."""
        for number in sorted(data, reverse=True)[:HEADERS_MAX]:
            try:
                return decode_wal_header(
                    await self._reader.get(wal_key(known.stream, number), length=WAL_HEADER_SIZE_BYTES)
                ).durable_below
            except (ObjectMissing, FormatError, StoreUnavailable):
                continue
        return 0

    def _check_numbers(self, known: _Stream, data: AbstractSet[int], *, durable_below: int) -> None:
        """Whether all is there that must be: what was not durable to the owner is not deleted, and the seal stands
        right behind it. A stream that goes on has at least what it had when a partition left it: a node with less could
        not register again.
        """
        end = known.end if known.end is not None else self._read_below.get(known.stream)
        for number in _missing(data, durable_below=durable_below, end=end):
            self.blocked.add(known.stream)
            self._report.fault(
                Kind.LOST,
                wal_key(known.stream, number),
                "a WAL object below the stream's end that its owner cannot have deleted: somebody else did. "
                "Partitions that need the stream do not open: restore the object from a backup",
            )

    async def _examine(self, stream: StreamId, number: int) -> ExaminedWal | None:
        """None where it is gone, which a living owner may do at any time."""
        key = wal_key(stream, number)
        report = self._report
        report.checked.objects += 1
        try:
            data = await self._reader.get(key)
        except ObjectMissing:
            return None
        except StoreUnavailable as error:
            return ExaminedWal(number=number, problems=(str(error),), unreadable=True)
        found = await self._reader.in_thread(
            partial(examine_wal, data, stream=stream, number=number, cluster_id=self._image.cluster_id)
        )
        report.checked.wal_objects += 1
        if not found.problems:
            report.checked.batches += found.batches
            report.checked.records += found.records
        return found


def _read_below(image: Image) -> dict[StreamId, int]:
    """By stream, below which number heirs have objects to read."""
    found: dict[StreamId, int] = {}
    for topic in image.topics.values():
        for meta in topic.partitions:
            for part in meta.ranges:
                stream = stream_of(part)
                found[stream] = max(found.get(stream, 0), part.end)
    return found


def _missing(data: AbstractSet[int], *, durable_below: int, end: int | None) -> Iterator[int]:
    """Numbers that have to be data and are not. Below `durable_below` all may have been deleted, and late copies may
    lie there.
    """
    if end is not None:
        start = durable_below if data else end - 1
        yield from islice((number for number in range(max(start, 0), end) if number not in data), MISSING_MAX)


def _first(data: AbstractSet[int], durable_below: int) -> int:
    """Where an heir begins to read: right above the highest number that is missing below `durable_below`
    (bmq.storage.stream_seal).
    """
    first = durable_below
    while first - 1 in data:
        first -= 1
    return first


def _torn_end(listed: Collection[int], bad: Mapping[int, ExaminedWal], *, needed_below: int) -> frozenset[int]:
    """The newest numbers, as long as they are damaged: what a machine leaves that crashed without fsync. None that
    heirs have to read: a stream that ended there would keep its node, and those heirs, from registering.
    """
    torn = set()
    for number in sorted(listed, reverse=True):
        if number not in bad or bad[number].unreadable or number < needed_below:
            break
        torn.add(number)
    return frozenset(torn)
