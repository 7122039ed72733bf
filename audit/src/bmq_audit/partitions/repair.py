"""What is to be done about a partition of which something is lost: which segments that nothing names may stand in, and
what has to be given up.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from bmq.errors import ObjectMissing
from bmq.fairness.grouping import in_groups
from bmq.metadata.image import Image, stream_of
from bmq.storage.durable import together
from bmq.storage.keys import manifest_prefix, parse_numbered_key, segment_prefix
from bmq.storage.manifest import Manifest
from bmq.storage.numbered import numbered_key
from bmq.storage.segment import SegmentEntry
from bmq.values import StreamId, TopicPartition
from bmq_audit.findings import Kind, ManifestRepair
from bmq_audit.held import CutOff, Span, cut_off, holes, joined
from bmq_audit.manifest_repair import Named, RepairedManifest, UnnamedRun, repaired_manifest
from bmq_audit.partitions.state import PartitionState
from bmq_audit.reading import Reader
from bmq_audit.segments.segment import SegmentAudit
from bmq_audit.segments.shared_spares import unnamed_runs, unreadable_run, writer_lives

NAMED_ANEW: Final = "a new version that names the segments that are there"
UNSEEN: Final = (
    "whether a version of the manifest that cannot be read named segments, or a deletion, that no "
    "older version and nothing else tells of"
)
BEGAN: Final = "where the log began: it begins at the first offset that is left, {}"


class PartitionRepair:
    """Says what is to be done about any partition of one store where something is lost. Tells gaps besides, because
    what fills them decides whether they are any.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        image: Image,
        segments: SegmentAudit,
        stream_end: Callable[[StreamId], int],
        blocked: AbstractSet[StreamId],
    ) -> None:
        """`stream_end`: one above the newest number of a stream when the WAL was read. `blocked`: streams that nobody
        can read to their end.
        """
        self._reader = reader
        self._image = image
        self._segments = segments
        self._stream_end = stream_end
        self._blocked = blocked

    async def run(self, state: PartitionState) -> RepairedManifest | None:
        """What is to be done where something is lost or missing; None where all is well."""
        manifest, held = state.manifest, state.held
        missing = holes(held, manifest.next_offset)
        unnamed = _beyond_the_end(state, self._image)
        lonely = cut_off(held, manifest.next_offset)
        if (missing or unnamed or lonely) and await self._is_written(state.listing.tp):
            missing, unnamed, lonely = [], {}, {}
        vanished = held.manifest_version > state.audited.newest_number
        hidden = state.audited.hidden or vanished
        if not (state.lost or None in state.pages or state.torn or missing or unnamed or hidden or lonely):
            return None
        runs = await self._unnamed_runs(state)
        began = ""
        if not state.audited.number and (begins := _lowest(runs, state)) is not None:
            began = BEGAN.format(begins)
            state.audited = replace(state.audited, manifest=Manifest.beginning_at(begins))
            manifest = state.manifest
            missing = holes(held, manifest.next_offset) if missing else []
        # A hole right behind the segments can be passed by moving the manifest's end; one further up has records in the
        # WAL below it.
        right_behind = bool(missing) and missing[0].base == manifest.next_offset
        skips = right_behind and len(missing) == 1 and not lonely and self._is_readable(state.listing.tp)
        repaired = repaired_manifest(
            Named(manifest=manifest, pages=tuple(state.pages)),
            lost=state.lost,
            spares=[run.spare for run in runs if run.spare is not None],
            forward_to=missing[0].end
            if right_behind
            else (None if (hidden or unnamed) and not missing else manifest.next_offset),
            snapshot=state.snapshot,
            producers_usable=state.producers_usable,
            skip_to=missing[0].end if skips else None,
            jump=skips or not any(span.end > manifest.next_offset for span in held.spans),
        )
        if repaired.given_up:
            for key, why in {run.key: run.unreadable for run in runs if run.unreadable}.items():
                state.report.fault(Kind.UNREADABLE, key, f"{why}. It may hold what is missing", topic=state.topic)
        self._tell(state, missing, unnamed, repaired, lonely=lonely, vanished=vanished, skips=skips)
        if began and not hidden and not unnamed:
            state.report.fault(
                Kind.LOST,
                manifest_prefix(state.listing.tp),
                "no version of the partition's manifest is there, and its log begins at offset "
                f"{manifest.next_offset} or below: somebody else deleted them, and the partition does not open",
                topic=state.topic,
                repair=NAMED_ANEW,
            )
        if state.lost or None in state.pages or state.torn or hidden or skips or repaired.adopted or began:
            self._plan(
                state,
                repaired,
                unknown="; and ".join(text for text in (UNSEEN if hidden or unnamed else "", began) if text),
            )
        return repaired

    def _tell(
        self,
        state: PartitionState,
        missing: Sequence[Span],
        unnamed: Mapping[str, int],
        repaired: RepairedManifest,
        *,
        lonely: Mapping[str, Sequence[CutOff]],
        vanished: bool,
        skips: bool,
    ) -> None:
        """The faults that only all of it together shows."""
        report, prefix = state.report, manifest_prefix(state.listing.tp)
        for wal, runs in lonely.items():
            spans = joined(run.span for run in runs)
            offsets = sum(span.end - span.base for span in spans)
            report.fault(
                Kind.LOST,
                wal,
                "a WAL object that is not there, and that its owner cannot have deleted, who deletes from below: "
                f"somebody else did. Until it is back nobody reads {offsets} offsets below it, from "
                f"{spans[0].base} to {spans[-1].end - 1}, which are nowhere else, and the partition does not open. "
                "Restore it from a backup",
                topic=state.topic,
                repair="the objects below it deleted: what it held and no segment has is lost with them",
            )
            for key in sorted({run.key for run in runs}):
                report.delete(
                    key,
                    loses=f"{state.topic} offsets {spans[0].base} to {spans[-1].end - 1}, and what {wal} held of it",
                )
        if vanished:
            report.fault(
                Kind.LOST,
                numbered_key(prefix, state.held.manifest_version),
                "the WAL or the metadata names this version of the manifest: it was there and is gone, with every "
                "later one; the partition does not open",
                topic=state.topic,
                repair=NAMED_ANEW,
            )
        key = numbered_key(prefix, state.audited.newest_number) if state.audited.newest_number else prefix
        end = state.manifest.next_offset
        ends = (
            f"the manifest ends at offset {end}"
            if state.audited.number
            else "the partition has no manifest that can be read"
        )
        beyond = [entry for entry in repaired.adopted if entry.base_offset >= end]
        if beyond:
            report.fault(
                Kind.GAP,
                key,
                f"{ends}, and offsets {beyond[0].base_offset} to {beyond[-1].last_offset} are in "
                f"segments that no version names, and not in the WAL: newer versions of the manifest are missing",
                topic=state.topic,
                repair=NAMED_ANEW,
            )
            end = beyond[-1].last_offset + 1
        for unread, base in unnamed.items():
            if base >= end:
                report.fault(
                    Kind.GAP,
                    unread,
                    f"it begins at offset {base}, the log ends at {end}, no version of the manifest names it, and "
                    "its offsets are not in the WAL: newer versions of the manifest are missing. Do not start "
                    "bmq, which would give these offsets again: restore the newest versions and what they name "
                    "from a backup",
                    topic=state.topic,
                )
        for span in missing:
            left = Span(max(span.base, end), span.end)
            if left.base < left.end:
                report.fault(
                    Kind.GAP,
                    key,
                    f"offsets {left.base} to {left.end - 1} are neither in segments nor in the WAL, which holds "
                    "what follows: the partition does not open. Restore the missing objects from a backup",
                    topic=state.topic,
                    repair="a gap in their place" if skips else "",
                )

    def _plan(self, state: PartitionState, repaired: RepairedManifest, *, unknown: str) -> None:
        audited = state.audited
        if state.report.has_unreadable:
            return  # a newer bmq may read it, or this one tomorrow: nothing is given up for that
        named = list(state.entries)
        meta = self._image.partition(state.listing.tp)
        leader_epoch = max(audited.newest_epoch, audited.epoch, meta.leader_epoch if meta is not None else 0)
        state.report.repairs.append(
            ManifestRepair(
                tp=state.listing.tp,
                topic=state.topic,
                leader_epoch=leader_epoch,
                base_number=max(audited.newest_number, state.held.manifest_version - 1),
                base_epoch=leader_epoch,
                base_nonce=audited.newest_nonce,
                manifest=repaired.manifest,
                entries=repaired.entries,
                gaps=repaired.gaps,
                gains=tuple(
                    f"offsets {entry.base_offset} to {entry.last_offset} from {entry.key}" for entry in repaired.adopted
                ),
                loses=tuple(_given_up(span, named) for span in repaired.given_up),
                unknown=unknown,
            )
        )

    def _is_readable(self, tp: TopicPartition) -> bool:
        """Whether an heir can read all streams that it has to."""
        meta = self._image.partition(tp)
        if meta is None:
            return False
        return self._blocked.isdisjoint(
            {StreamId(meta.node_id, meta.broker_epoch), *(stream_of(found) for found in meta.ranges)}
        )

    async def _is_written(self, tp: TopicPartition) -> bool:
        """Whether the partition's owner wrote to its WAL since that was read: then what is missing may be there."""
        meta = self._image.partition(tp)
        if meta is None or meta.node_id == -1:
            return False
        stream = StreamId(meta.node_id, meta.broker_epoch)
        numbers = await self._reader.numbers(stream.prefix)
        return max(numbers, default=-1) + 1 > self._stream_end(stream)

    async def _unnamed_runs(self, state: PartitionState) -> list[UnnamedRun]:
        """Runs of the partition that its manifest does not name: those in its own segments, and then those in shared
        ones.
        """
        keys = [(key, size_bytes) for key, size_bytes in state.listing.segments.items() if key not in state.named]
        runs: list[UnnamedRun] = []
        for group in in_groups(keys, self._reader.at_once):
            for found in await together(self._look(state.listing.tp, key, size_bytes) for key, size_bytes in group):
                runs += [run for run in found if run.tp == state.listing.tp]
        return [*runs, *_unnamed(state)]

    async def _look(self, tp: TopicPartition, key: str, size_bytes: int) -> list[UnnamedRun]:
        try:
            found = await self._segments.run(key, size_bytes)
        except ObjectMissing:
            return []
        return unnamed_runs(found) or unreadable_run(found, tp)


def _lowest(runs: Iterable[UnnamedRun], state: PartitionState) -> int | None:
    """Where a log begins of whose manifest nothing is left; None where no segment tells."""
    bases = [run.spare.entry.base_offset for run in runs if run.spare is not None]
    return min(bases + [span.base for span in state.held.spans]) if bases else None


def _unnamed(state: PartitionState) -> list[UnnamedRun]:
    """The partition's runs in shared segments that its manifest does not name."""
    named = {(entry.key, entry.position) for entry in state.entries}
    return [run for run in state.shared_runs if (run.key, run.position) not in named]


def _beyond_the_end(state: PartitionState, image: Image) -> dict[str, int]:
    """The first offsets of segments that nothing names, by key: those that are in no named segment and not in the WAL.

    Of a shared one only where its writer runs no more: a copy of a running store has some of which one partition's
    manifest is newer.
    """
    prefix = segment_prefix(state.listing.tp)
    parsed = {key: parse_numbered_key(prefix, key) for key in state.listing.segments if key not in state.named}
    bases = {key: int(found.offset) for key, found in parsed.items() if found is not None}
    bases.update((run.key, run.base_offset) for run in _unnamed(state) if not writer_lives(image, run.key))
    end = max(state.manifest.next_offset, state.manifest.log_start)
    return {
        key: base
        for key, base in sorted(bases.items(), key=lambda each: each[1])
        if base >= end and not any(span.base <= base < span.end for span in state.held.spans)
    }


def _given_up(span: Span, named: Iterable[SegmentEntry]) -> str:
    records = sum(
        entry.record_count for entry in named if span.base <= entry.base_offset and entry.last_offset < span.end
    )
    return f"offsets {span.base} to {span.end - 1}" + (f" ({records} records)" if records else "")
