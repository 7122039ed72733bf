"""Segments out of record batches. Takes milliseconds with many batches: run it in a thread."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import Buffer

from bmq.storage.segment import EncodedSegment, SegmentRun, encode_segment
from bmq.storage.segment_index import SegmentBatch, SegmentIndex
from bmq.values import LeaderEpoch, Nonce, Offset, TopicPartition
from bmq.wire.batches import BatchHeader, read_header, split
from bmq_broker.partitions.producers import Producers


@dataclass(frozen=True, slots=True, kw_only=True)
class Building:
    """What a new segment is called and whose it is."""

    nonce: Nonce
    cluster_id: str
    tp: TopicPartition
    leader_epoch: LeaderEpoch


def rolled_segment(
    building: Building, batches: Iterable[Buffer], earlier: Producers, live: Producers, *, now_ms: int
) -> tuple[EncodedSegment, Producers]:
    """A segment of batches out of the tail, and the producers as of its end: `earlier` with the batches replayed over
    it. It shares with `live` what is the same there, and only reads that.
    """
    entries, producers = _replayed(batches, earlier, live, now_ms=now_ms)
    return _encode(building, entries, producers.encode()), producers


class Rolled(NamedTuple):
    """What a shared segment gets of one partition; `earlier`: its producers before these batches; `live`: those after
    all.
    """

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    batches: Sequence[Buffer]
    earlier: Producers
    live: Producers


def shared_segment(
    nonce: Nonce, cluster_id: str, rolls: Sequence[Rolled], *, now_ms: int
) -> tuple[EncodedSegment, list[Producers]]:
    """A segment with a run of each of several partitions, and their producers as of the runs' ends."""
    runs = []
    after = []
    for tp, leader_epoch, batches, earlier, live in rolls:
        entries, producers = _replayed(batches, earlier, live, now_ms=now_ms)
        runs.append(SegmentRun(tp, leader_epoch, entries, (), producers.encode()))
        after.append(producers)
    return encode_segment(nonce, cluster_id, runs), after


def merged_segment(
    building: Building, segments: Iterable[tuple[SegmentIndex, bytes]], snapshot: bytes
) -> EncodedSegment:
    """A segment of the batches of several; `snapshot` is the newest one's. Raises Corrupt where one is not what was
    written.
    """
    entries: list[SegmentBatch] = []
    for index, data in segments:
        index.check_batches(data)  # the new segment's checksum must not vouch for what was damaged: the old ones go
        view = memoryview(data)
        entries.extend(_entry(view[header.position : header.end], header) for header in split(view))
    return _encode(building, entries, snapshot)


def _replayed(
    batches: Iterable[Buffer], earlier: Producers, live: Producers, *, now_ms: int
) -> tuple[list[SegmentBatch], Producers]:
    producers = earlier.copy()
    entries = []
    for data in batches:
        header = read_header(data)
        producers.replay(header, base_offset=header.base_offset, seen_ms=now_ms)
        entries.append(_entry(data, header))
    producers.share(live)
    return entries, producers


def _entry(data: Buffer, header: BatchHeader) -> SegmentBatch:
    return SegmentBatch(
        data,
        Offset(header.base_offset),
        Offset(header.last_offset),
        header.record_count,
        header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms,
        header.max_timestamp_ms,
    )


def _encode(building: Building, entries: list[SegmentBatch], snapshot: bytes) -> EncodedSegment:
    return encode_segment(
        building.nonce, building.cluster_id, [SegmentRun(building.tp, building.leader_epoch, entries, (), snapshot)]
    )
