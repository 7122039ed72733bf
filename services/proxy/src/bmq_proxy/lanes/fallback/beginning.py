"""What the lane's clients get of the batch in which their turn begins: nothing of what lies before it, which the base
may have. Pure; it opens a batch, so it is called in a thread.
"""

from collections.abc import Sequence

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from bmq.wire.batches import BatchHeader, build_batch, counted_records, patched, split
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX
from bmq_proxy.fetch.answers import whole


def from_begin(
    parts: Sequence[Buffer], begin: int, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Sequence[Buffer]:
    """The same batches, of which one may span two parts, without what lies before `begin`. One that cannot be opened
    stays as it is: the base gets such a one whole or not at all.

    Raises BatchTooLarge where it decompresses to more than it may here, and not to more than any may.
    """
    batches = whole(parts)
    [header] = split(batches, count_max=1)
    if header.base_offset >= begin:
        return parts
    rest: list[Buffer] = [batches[header.end :]] if header.end < batches.nbytes else []
    if header.next_offset <= begin:
        return rest
    try:
        return [_cut(batches, header, begin, decompressed_bytes_max), *rest]
    except (CorruptBatch, BatchTooLarge, UnsupportedCompression) as error:
        if isinstance(error, BatchTooLarge) and decompressed_bytes_max < DECOMPRESSED_BYTES_MAX:
            raise
        return parts


def _cut(batch: Buffer, header: BatchHeader, begin: int, decompressed_bytes_max: int) -> Buffer:
    records = counted_records(batch, header, decompressed_bytes_max=decompressed_bytes_max)
    left = (record for record in records if record.offset >= begin)
    made = build_batch(
        left,
        base_offset=begin,
        leader_epoch=header.leader_epoch,
        codec=int(header.codec),
        first_offset=begin,
        next_offset=header.next_offset,
    )
    if not header.is_log_append_time:
        return made
    [known] = split(made)
    return patched(
        made,
        known,
        base_offset=begin,
        leader_epoch=header.leader_epoch,
        log_append_time_ms=header.max_timestamp_ms,
    )
