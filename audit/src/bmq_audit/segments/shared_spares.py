"""Runs of shared segments that belong to partitions of which something is missing: what a repair may name anew besides
their own segments.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from bmq.errors import FormatError, FormatTooNew, ObjectMissing, StoreUnavailable
from bmq.metadata.image import Image
from bmq.storage.durable import together
from bmq.storage.keys import SHARED_PREFIX
from bmq.values import TopicPartition
from bmq_audit.cost.attribution import directory_of
from bmq_audit.findings import Kind
from bmq_audit.manifest_repair import Spare, UnnamedRun
from bmq_audit.places import PlaceKind, place_of
from bmq_audit.reading import Reader
from bmq_audit.segments.segment import AuditedSegment, SegmentAudit

NOWHERE: Final = -1
"""The position and the offset of a run that cannot be read."""


async def runs_of(
    reader: Reader, segments: SegmentAudit, tps: Collection[TopicPartition]
) -> Mapping[TopicPartition, Sequence[UnnamedRun]]:
    """Every run of these partitions below `shared/`, named or not: one GET for each object, and those that have any are
    read. Raises StoreLost.
    """
    found: dict[TopicPartition, list[UnnamedRun]] = defaultdict(list)
    group: list[tuple[str, int]] = []

    async def look(key: str, size_bytes: int) -> None:
        try:
            directory = await directory_of(reader, key, size_bytes)
            if not any(entry.tp in tps for entry in directory):
                return
            audited = await segments.run(key, size_bytes)
        except (FormatTooNew, StoreUnavailable) as error:  # it may hold something of any partition
            for tp in tps:
                found[tp].append(UnnamedRun(tp, key, NOWHERE, NOWHERE, None, str(error)))
            return
        except (ObjectMissing, FormatError):  # what is damaged is told where all of them are looked at
            return
        runs = [run for run in unnamed_runs(audited) if run.tp in tps]
        for tp in {entry.tp for entry in directory} & set(tps):
            found[tp] += [run for run in runs if run.tp == tp] or unreadable_run(audited, tp)

    async for meta in reader.list(SHARED_PREFIX):
        place = place_of(meta.key)
        if place is None or place.kind is not PlaceKind.SHARED_SEGMENT:
            continue
        group.append((meta.key, meta.size_bytes))
        if len(group) >= reader.at_once:
            await together(look(key, size_bytes) for key, size_bytes in group)
            group = []
    await together(look(key, size_bytes) for key, size_bytes in group)
    return found


def writer_lives(image: Image, key: str) -> bool:
    """Whether the image names who wrote a shared segment as a node that runs."""
    place = place_of(key)
    stream = place.stream if place is not None else None
    node = image.nodes.get(stream.node_id) if stream is not None else None
    return node is not None and stream is not None and node.broker_epoch == stream.broker_epoch


def unnamed_runs(found: AuditedSegment) -> list[UnnamedRun]:
    """Every run of an object, each with how it may be named if it is whole."""
    sound = not any(problem.run is None for problem in found.problems)
    spoilt = {problem.run for problem in found.problems}
    unreadable = _unreadable(found)
    return [
        UnnamedRun(
            run.tp,
            found.key,
            run.position,
            run.base_offset,
            Spare(run.entry, run.epochs)
            if sound and run.usable and run.entry is not None and run.position not in spoilt
            else None,
            unreadable,
        )
        for run in found.runs
    ]


def unreadable_run(found: AuditedSegment, tp: TopicPartition) -> list[UnnamedRun]:
    """What stands for the runs of an object of which it cannot even be told which it has; empty where it is damaged."""
    why = _unreadable(found)
    return [UnnamedRun(tp, found.key, NOWHERE, NOWHERE, None, why)] if why else []


def _unreadable(found: AuditedSegment) -> str:
    return next((problem.text for problem in found.problems if problem.kind is Kind.UNREADABLE), "")
