"""The first offset at or after a time, as Kafka's ListOffsets gives it, from segments alone: one index and some blocks
of one run.
"""

from collections.abc import Sequence

from bmq.errors import BmqError
from bmq.storage.segment import SegmentEntry
from bmq.storage.segment_index import decode_index
from bmq.values import TopicPartition
from bmq.wire.batches import first_at_or_after, split
from bmq_spark.source.failures import SegmentBroken
from bmq_spark.source.logs import LogPart
from bmq_spark.source.opening import OpenedStore


async def offset_at(store: OpenedStore, tp: TopicPartition, log: LogPart, timestamp_ms: int) -> int | None:
    """None where no record in a segment is as new. `log` has all entries whose largest timestamp is. Raises
    SegmentBroken, ObjectMissing.
    """
    for entry in _candidates(log.entries, log.log_start, timestamp_ms):
        try:
            found = await _offset_in(store, entry, timestamp_ms, max(log.log_start, entry.base_offset))
        except BmqError as error:
            raise SegmentBroken(f"partition {tp}, object {entry.key}: {error}: `bmq store check` says more") from error
        if found is not None:
            return found
    return None


def _candidates(entries: Sequence[SegmentEntry], log_start: int, timestamp_ms: int) -> list[SegmentEntry]:
    return [entry for entry in entries if entry.last_offset >= log_start and entry.max_timestamp_ms >= timestamp_ms]


async def _offset_in(store: OpenedStore, entry: SegmentEntry, timestamp_ms: int, from_offset: int) -> int | None:
    index = decode_index(await store.objects.get(entry.key, start=entry.index_position, length=entry.index_length))
    position = index.position_for_offset(from_offset)[0]
    while (found := index.position_for_time(timestamp_ms, from_position=position)) is not None:
        start = found[0]
        position = index.block_end(start)
        block = await store.objects.get(entry.key, start=entry.position + start, length=position - start)
        for header in split(block):
            if header.is_control:
                continue
            record = first_at_or_after(block, header, timestamp_ms, from_offset=from_offset)
            if record is not None:
                return record[0]
        if position >= entry.length:
            return None
    return None
