"""The index section of a segment's run (bmqI): finds batches by offset and by time, and the aborted transactions that
end in the run.

Read by a ranged GET of its own, so it repeats whose it is. Owns the section's bytes (docs/formats/segment.md); never
opens a batch.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import Corrupt
from bmq.storage.binary import bytes_view, checked, encode_crc
from bmq.storage.envelope import ENVELOPE_SIZE_BYTES, decode_envelope, encode_envelope
from bmq.values import LeaderEpoch, Nonce, Offset, TopicId, TopicPartition

INDEX_MAGIC: Final = b"bmqI"
FORMAT_VERSION: Final = 1
BLOCK_SIZE_BYTES: Final = 32 * 1024
"""A block ends with the first batch that reaches this size.

32 KiB are 0.3 ms of a ranged GET whose first byte takes 5 to 50 ms, and at most some dozens of batch headers to walk
over; the index of a 64 MiB segment then has 2,048 blocks and 40 KiB, less than a thousandth of it, in memory once for
all readers.
"""

# topic id, partition, leader epoch, base offset, last offset, records, bytes of batches, CRC32C of the batches, blocks,
# aborted transactions
_HEADER: Final = struct.Struct(">16siiqqQIIII")
# base offset relative to the run's, position relative to the run's, largest timestamp of the block's batches
_BLOCK: Final = struct.Struct(">QIq")
# producer id, first offset, last offset (the marker's), last stable offset once it ended
_ABORTED: Final = struct.Struct(">qqqq")


class SegmentBatch(NamedTuple):
    """A whole v2 record batch, its base offset patched, with the fields of its header that the index needs.

    `base_timestamp_ms` is that of the first record; with LogAppendTime give the append time for both timestamps.
    """

    data: Buffer
    base_offset: Offset
    last_offset: Offset
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int


class AbortedTxn(NamedTuple):
    """A transaction of `producer_id` that wrote from `first_offset` on and whose abort marker is at `last_offset`.

    `last_stable_offset` is the partition's right after the marker.
    """

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class _Block(NamedTuple):
    relative_offset: int
    position: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndex:
    """A decoded index section. Positions are relative to the run's first batch (the entry's `position`)."""

    nonce: Nonce
    tp: TopicPartition
    leader_epoch: LeaderEpoch
    base_offset: Offset
    last_offset: Offset
    record_count: int
    length: int
    batches_crc: int
    blocks: Sequence[_Block]
    aborted: Sequence[AbortedTxn]

    def position_for_offset(self, offset: int) -> tuple[int, Offset]:
        """(position, base offset there) of a batch at or before the one that holds `offset`, at most a block away from
        it.

        Of an offset below the run: its first batch. Of one in a gap: walk on to the first batch that ends at or above
        it.
        """
        return self._start(self.blocks[self._block_of(offset)])

    def offsets_of_block(self, position: int) -> tuple[int, int]:
        """(the first offset of the block that the byte `position` is in, that of the next block or behind the run)."""
        at = self._block_at(position)
        end = (
            self.base_offset + self.blocks[at + 1].relative_offset
            if at + 1 < len(self.blocks)
            else self.last_offset + 1
        )
        return self.base_offset + self.blocks[at].relative_offset, end

    def block_end(self, position: int) -> int:
        """Where the block ends that the byte `position` is in: the bytes from a block's start to there are whole
        batches.
        """
        next_block = self._block_at(position) + 1
        return self.blocks[next_block].position if next_block < len(self.blocks) else self.length

    def position_for_time(self, timestamp_ms: int, *, from_position: int = 0) -> tuple[int, Offset] | None:
        """(position, base offset there) of the first block with a batch whose largest timestamp is at or above
        `timestamp_ms`; None: no such.

        Blocks that end at or before `from_position` are passed over: to heed a log start, give the position for that
        offset. Within the block the first batch that has such a largest timestamp and does not end below the log start
        is the one to open; where there is none, or the batch's header promised more than its records hold, ask again
        from the block's end.
        """
        for block in self.blocks[self._block_at(from_position) :]:
            if block.max_timestamp_ms >= timestamp_ms:
                return self._start(block)
        return None

    def max_timestamp(self, *, from_position: int = 0) -> tuple[int, int, Offset]:
        """(largest timestamp, position, base offset there) of the first block that has it, of those that end after
        `from_position`.
        """
        block = max(self.blocks[self._block_at(from_position) :], key=_max_timestamp_of)
        return (block.max_timestamp_ms, *self._start(block))

    def aborted_between(self, from_offset: int, below: int) -> tuple[AbortedTxn, ...]:
        """Those that wrote below `below` and ended at or above `from_offset`."""
        return tuple(txn for txn in self.aborted if txn.last_offset >= from_offset and txn.first_offset < below)

    def check_batches(self, batches: Buffer) -> None:
        """Raises Corrupt where these are not all the run's batches, unchanged."""
        view = bytes_view(batches)
        if len(view) != self.length or crc32c(view) != self.batches_crc:
            raise Corrupt(
                f"segment run of {self.tp} at {self.base_offset}: its {len(view)} bytes of batches are not the "
                f"{self.length} written"
            )

    def _block_of(self, offset: int) -> int:
        return max(0, bisect_right(self.blocks, offset - self.base_offset, key=_relative_offset_of) - 1)

    def _block_at(self, position: int) -> int:
        return max(0, bisect_right(self.blocks, position, key=_position_of) - 1)

    def _start(self, block: _Block) -> tuple[int, Offset]:
        return block.position, Offset(self.base_offset + block.relative_offset)


def encode_index(
    nonce: Nonce,
    tp: TopicPartition,
    leader_epoch: LeaderEpoch,
    batches: Sequence[SegmentBatch],
    aborted: Sequence[AbortedTxn],
) -> bytes:
    """The section, checksum included. At least one batch, less than 4 GiB in all; offsets ascend."""
    length = crc = 0
    for batch in batches:
        crc = crc32c(batch.data, crc)
        length += memoryview(batch.data).nbytes
    blocks = _blocks_of(batches)
    body = b"".join(
        (
            encode_envelope(magic=INDEX_MAGIC, version=FORMAT_VERSION, nonce=nonce),
            _HEADER.pack(
                tp.topic_id.bytes,
                tp.partition,
                leader_epoch,
                batches[0].base_offset,
                batches[-1].last_offset,
                sum(batch.record_count for batch in batches),
                length,
                crc,
                len(blocks),
                len(aborted),
            ),
            *(_BLOCK.pack(*block) for block in blocks),
            *(_ABORTED.pack(*txn) for txn in aborted),
        )
    )
    return body + encode_crc(crc32c(body))


def decode_index(section: Buffer) -> SegmentIndex:
    """A whole section, every byte checked. Raises Corrupt, FormatTooNew."""
    view = bytes_view(section)
    what = "segment index"
    _, nonce = decode_envelope(view, magic=INDEX_MAGIC, version_max=FORMAT_VERSION, what=what)
    body = checked(view, what=what)
    first = ENVELOPE_SIZE_BYTES + _HEADER.size
    if len(body) < first:
        raise Corrupt(f"{what}: {len(view)} bytes are too few for its header")
    topic_id, partition, leader_epoch, base, last, record_count, length, batches_crc, block_count, aborted_count = (
        _HEADER.unpack_from(body, ENVELOPE_SIZE_BYTES)
    )
    blocks_end = first + block_count * _BLOCK.size
    if len(body) != blocks_end + aborted_count * _ABORTED.size:
        raise Corrupt(
            f"{what}: {len(view)} bytes are not {block_count} blocks and {aborted_count} aborted transactions"
        )
    index = SegmentIndex(
        nonce=nonce,
        tp=TopicPartition(TopicId(UUID(bytes=topic_id)), partition),
        leader_epoch=leader_epoch,
        base_offset=base,
        last_offset=last,
        record_count=record_count,
        length=length,
        batches_crc=batches_crc,
        blocks=tuple(map(_Block._make, _BLOCK.iter_unpack(body[first:blocks_end]))),
        aborted=tuple(map(AbortedTxn._make, _ABORTED.iter_unpack(body[blocks_end:]))),
    )
    broken = _broken_invariant(index)
    if broken is not None:
        raise Corrupt(f"{what} of {index.tp} at {base}: {broken}")
    return index


def _blocks_of(batches: Sequence[SegmentBatch]) -> list[_Block]:
    blocks: list[_Block] = []
    run_offset = block_offset = batches[0].base_offset
    block_max = batches[0].max_timestamp_ms
    block_position = position = 0
    last_offset = run_offset - 1
    for data, base_offset, batch_last_offset, _, _, max_timestamp_ms in batches:
        assert last_offset < base_offset <= batch_last_offset
        if position - block_position >= BLOCK_SIZE_BYTES:
            blocks.append(_Block(block_offset - run_offset, block_position, block_max))
            block_position, block_offset, block_max = position, base_offset, max_timestamp_ms
        elif max_timestamp_ms > block_max:
            block_max = max_timestamp_ms
        position += memoryview(data).nbytes
        last_offset = batch_last_offset
    blocks.append(_Block(block_offset - run_offset, block_position, block_max))
    return blocks


def _broken_invariant(index: SegmentIndex) -> str | None:
    blocks = index.blocks
    if not 0 <= index.base_offset <= index.last_offset:
        return "the run ends before it starts"
    if not blocks or blocks[0][:2] != (0, 0):
        return "the first block is not the run's start"
    if any(a.relative_offset >= b.relative_offset or a.position >= b.position for a, b in pairwise(blocks)):
        return "blocks do not ascend"
    if blocks[-1].position >= index.length or blocks[-1].relative_offset > index.last_offset - index.base_offset:
        return "the last block is not in the run"
    if any(not txn.first_offset <= txn.last_offset for txn in index.aborted):
        return "a transaction ends before it starts"
    return None


def _relative_offset_of(block: _Block) -> int:
    return block.relative_offset


def _position_of(block: _Block) -> int:
    return block.position


def _max_timestamp_of(block: _Block) -> int:
    return block.max_timestamp_ms
