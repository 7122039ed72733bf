"""A lane's batches as they go on to the base: under the producer id of the turn, each message with the lane's name.
Pure; it opens batches, so it is called in a thread.
"""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final, NamedTuple

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from bmq.values import LANE_TURN_IDS
from bmq.wire.batches import BatchHeader, Record, build_batch, counted_records, of_producer
from bmq.wire.limits import RECORD_HEADERS_MAX

LANE_HEADER: Final = "bmq-lane"
PIECE_BYTES: Final = 1 << 20
PIECE_RECORDS: Final = 10_000
_SEQUENCES: Final = 1 << 31


class Piece(NamedTuple):
    """A batch for the base, and where in the lane it ends."""

    batch: bytes | bytearray
    next_offset: int


def pieces(
    batch: Buffer,
    header: BatchHeader,
    *,
    from_offset: int,
    begin: int,
    producer_id: int,
    lane: str,
    nested: Collection[bytes] = (),
) -> Iterator[Piece]:
    """What of the batch lies at `from_offset` and above, in pieces of about `PIECE_BYTES` before compression. `begin`
    is where the turn began; `nested` are the names of lanes that are nested in this one: what came from them keeps
    theirs, which the batch's producer id tells.

    The base takes messages by their number, so they are counted, and the gaps of a batch that is a part go on, too. A
    batch that cannot be opened goes on as it is, without the lane's name. Where only a part of one is to go on, each
    message of that is one without key and value: nobody can tell which of its bytes are whose.
    """
    if header.producer_id < LANE_TURN_IDS:
        nested = ()  # a client wrote it, whatever it says
    try:
        for some, is_last in _parts(counted_records(batch, header), from_offset):
            next_offset = header.next_offset if is_last else some[-1].offset + 1
            yield _piece(
                [_of_lane(record, lane, nested) for record in some],
                from_offset,
                next_offset,
                begin=begin,
                producer_id=producer_id,
                codec=int(header.codec),
            )
            from_offset = next_offset
        if from_offset < header.next_offset:  # in the gap at its end
            yield _piece([], from_offset, header.next_offset, begin=begin, producer_id=producer_id, codec=0)
    except (CorruptBatch, BatchTooLarge, UnsupportedCompression):
        if from_offset >= header.next_offset:
            return
        if from_offset <= header.base_offset:
            sequence = (header.base_offset - begin) % _SEQUENCES
            yield Piece(of_producer(batch, header, producer_id=producer_id, base_sequence=sequence), header.next_offset)
            return
        nothing = _of_lane(Record(0, header.max_timestamp_ms, None, None), lane, ())
        left = [nothing._replace(offset=offset) for offset in range(from_offset, header.next_offset)]
        yield _piece(left, from_offset, header.next_offset, begin=begin, producer_id=producer_id, codec=0)


def _parts(records: Iterator[Record], from_offset: int) -> Iterator[tuple[list[Record], bool]]:
    """Those from an offset on, some at a time, and whether these are the last ones."""
    some: list[Record] = []
    size_bytes = 0
    for record in records:
        if record.offset < from_offset:
            continue
        if size_bytes >= PIECE_BYTES or len(some) >= PIECE_RECORDS:
            yield some, False
            some, size_bytes = [], 0
        some.append(record)
        size_bytes += len(record.key or b"") + len(record.value or b"")
    if some:
        yield some, True


def _piece(records: list[Record], offset: int, next_offset: int, *, begin: int, producer_id: int, codec: int) -> Piece:
    batch = build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=(offset - begin) % _SEQUENCES,
        first_offset=offset,
        next_offset=next_offset,
    )
    return Piece(batch, next_offset)


def _of_lane(record: Record, lane: str, nested: Collection[bytes]) -> Record:
    """With the lane's name, in place of another that it came with but that of a nested one, as far as a message may
    have another header.
    """
    others = [header for header in record.headers if header[0] != LANE_HEADER]
    came_from = (header[1] for header in reversed(record.headers) if header[0] == LANE_HEADER)
    name = next((value for value in came_from if value in nested), lane.encode()) if nested else lane.encode()
    return record._replace(headers=(*islice(others, RECORD_HEADERS_MAX - 1), (LANE_HEADER, name)))
