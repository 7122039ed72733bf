"""A lane's batches as they go on to the base: under the producer id of the turn, each message with the lane's name.
Pure; it opens batches, so it is called in a thread.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from bmq.fairness.giving_way import GivingWay
from bmq.fairness.opening import ORDINARY_BYTES_MAX
from bmq.values import LANE_TURN_IDS
from bmq.wire.batches import BatchHeader, of_producer, split
from bmq.wire.labelling import NULLS, Labelled, batch_of, labelled, one_header
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX
from bmq.wire.records import bounds, section_of
from bmq_proxy.proofs import ORDINARY_HEADERS_MAX

LANE_HEADER: Final = "bmq-lane"
PIECE_BYTES: Final = 1 << 20
PIECE_RECORDS: Final = 10_000
_SEQUENCES: Final = 1 << 31
_NAME: Final = LANE_HEADER.encode()


class Piece(NamedTuple):
    """A batch for the base, and where in the lane it ends."""

    batch: bytes | bytearray
    next_offset: int


class Rewritten(NamedTuple):
    """What one step made: pieces, and where in the log and in the lane the next one begins."""

    pieces: list[Piece]
    position: int
    next_offset: int


class Allowance:
    """What may be opened in one step, in bytes and headers together. One batch may always have as much as any."""

    def __init__(self, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
        self.is_whole = bytes_max >= DECOMPRESSED_BYTES_MAX
        """Nothing may be larger than what it allows."""
        self.bytes_left = bytes_max
        self.headers_left = bytes_max if bytes_max > ORDINARY_BYTES_MAX else ORDINARY_HEADERS_MAX

    def take(self, *, size_bytes: int = 0, headers: int = 0) -> None:
        """So much was opened."""
        self.bytes_left -= size_bytes
        self.headers_left -= headers


def rewritten(
    batches: Buffer,
    *,
    decompressed_bytes_max: int,
    from_offset: int,
    begin: int,
    producer_id: int,
    lane: str,
    nested: Collection[bytes] = (),
) -> Rewritten:
    """The pieces of whole batches between which nothing is missing, one after the other, as far as they decompress to
    that much together. The arguments are those of `pieces`.

    Raises BatchTooLarge where the first of them alone has more, and is not larger than any batch may be.
    """
    allowance = Allowance(decompressed_bytes_max)
    found: list[Piece] = []
    position = 0
    for header in split(batches):
        try:
            found += list(
                pieces(
                    batches,
                    header,
                    from_offset=from_offset,
                    begin=begin,
                    producer_id=producer_id,
                    lane=lane,
                    nested=nested,
                    allowance=allowance,
                )
            )
        except BatchTooLarge:
            if not position:
                raise
            break  # for the next step
        allowance.is_whole = False
        position, from_offset = header.end, header.next_offset
    return Rewritten(found, position, from_offset)


def pieces(
    batch: Buffer,
    header: BatchHeader,
    *,
    from_offset: int,
    begin: int,
    producer_id: int,
    lane: str,
    nested: Collection[bytes] = (),
    allowance: Allowance | None = None,
) -> Iterator[Piece]:
    """What of the batch lies at `from_offset` and above, in pieces of about `PIECE_BYTES` before compression. `begin`
    is where the turn began; `nested` are the names of lanes that are nested in this one: what came from them keeps
    theirs, which the batch's producer id tells.

    The base takes messages by their number, so they are counted, and the gaps of a batch that is a part go on, too. A
    batch that cannot be opened goes on as it is, without the lane's name. Where only a part of one is to go on, each
    message of that is one without key and value: nobody can tell which of its bytes are whose.

    Raises BatchTooLarge where it has more than what is left of a step's allowance, perhaps behind some pieces.
    """
    allowed = Allowance() if allowance is None else allowance
    if header.producer_id < LANE_TURN_IDS:
        nested = ()  # a client wrote it, whatever it says
    try:
        for some, is_last in _parts(_labelled(batch, header, lane, nested, allowed), from_offset):
            next_offset = header.next_offset if is_last else some[-1].offset + 1
            yield _piece(some, from_offset, next_offset, begin=begin, producer_id=producer_id, codec=int(header.codec))
            from_offset = next_offset
        if from_offset < header.next_offset:  # in the gap at its end
            yield _piece([], from_offset, header.next_offset, begin=begin, producer_id=producer_id, codec=0)
    except (CorruptBatch, BatchTooLarge, UnsupportedCompression) as error:
        if isinstance(error, BatchTooLarge) and not allowed.is_whole:
            raise
        if from_offset >= header.next_offset:
            return
        if from_offset <= header.base_offset:
            sequence = (header.base_offset - begin) % _SEQUENCES
            yield Piece(of_producer(batch, header, producer_id=producer_id, base_sequence=sequence), header.next_offset)
            return
        own = one_header(_NAME, lane.encode())
        nothing = Labelled(0, header.max_timestamp_ms, NULLS, 1, own, len(NULLS) + len(own))
        left = [nothing._replace(offset=offset) for offset in range(from_offset, header.next_offset)]
        yield _piece(left, from_offset, header.next_offset, begin=begin, producer_id=producer_id, codec=0)


def _labelled(
    batch: Buffer, header: BatchHeader, lane: str, nested: Collection[bytes], allowed: Allowance
) -> Iterator[Labelled]:
    """The batch's records, counted: one with as many as it has offsets was perhaps taken without a look at what each
    says of its own place. One with fewer has the gaps that its records say.
    """
    section = section_of(batch, header, allowed.bytes_left)
    allowed.take(size_bytes=len(section))
    is_dense = header.record_count == header.last_offset_delta + 1
    giving_way = GivingWay()

    def label(said: Sequence[bytes | None]) -> bytes:
        return _of_lane(said, lane, nested)

    for number, (start, end) in enumerate(bounds(section, header)):
        giving_way.step()
        record = labelled(
            section, start, end, header, name=_NAME, label=label, headers_max=max(0, allowed.headers_left)
        )
        allowed.take(headers=record.header_count - 1)
        yield record._replace(offset=header.base_offset + number) if is_dense else record


def _parts(records: Iterator[Labelled], from_offset: int) -> Iterator[tuple[list[Labelled], bool]]:
    """Those from an offset on, some at a time, and whether these are the last ones."""
    some: list[Labelled] = []
    size_bytes = 0
    for record in records:
        if record.offset < from_offset:
            continue
        if size_bytes >= PIECE_BYTES or len(some) >= PIECE_RECORDS:
            yield some, False
            some, size_bytes = [], 0
        some.append(record)
        size_bytes += record.size_bytes
    if some:
        yield some, True


def _piece(
    records: list[Labelled], offset: int, next_offset: int, *, begin: int, producer_id: int, codec: int
) -> Piece:
    batch = batch_of(
        records,
        codec=codec,
        producer=(producer_id, 0, (offset - begin) % _SEQUENCES),
        first_offset=offset,
        next_offset=next_offset,
    )
    return Piece(batch, next_offset)


def _of_lane(said: Sequence[bytes | None], lane: str, nested: Collection[bytes]) -> bytes:
    """The lane's name, in place of another that a record came with but that of a nested one."""
    own = lane.encode()
    if not nested:
        return own
    return next((value for value in reversed(said) if value is not None and value in nested), own)
