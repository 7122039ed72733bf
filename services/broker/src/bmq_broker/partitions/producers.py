"""Idempotent producers of one partition: which batches came last, so that a repeated one is recognised (KIP-98,
KIP-360).

Pure. `check` decides, `replay` changes; loading and running live are the same code.

A partition has them twice, as of its end and as of its last segment: what one producer comes to is immutable, and the
two share it where they say the same. A producer's batches are packed, 24 bytes each: as tuples they were 160.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from struct import Struct
from struct import error as StructError

import msgspec

from bmq.errors import Corrupt, FormatTooNew, InvalidProducerEpoch, OutOfOrderSequence
from bmq.values import LANE_TURN_IDS
from bmq.wire.batches import BatchHeader

REMEMBERED_BATCHES = 20
"""Five for each connection that a client may still have requests on while proxies come and go (docs/decisions/0020)."""
KEPT_BATCHES = 5
"""What is left of one that has been silent for SILENT_MS, or for longest where there are many: all that a client has in
flight on one connection, and what Kafka remembers."""
SILENT_MS = 10 * 60 * 1000
"""Twice what librdkafka takes until it gives up a record, and five times what Java's client does."""
SEQUENCES = 2**31
_FORMAT_VERSION = 2
"""1 where no batch has a time, which is what earlier versions of bmq read."""

Batch = tuple[int, ...]
"""(first sequence, last sequence, base offset), and with LogAppendTime when it was appended, in ms since 1970"""
_TIMED = 4
_PACKED = Struct("<iiqq")
"""A Batch in memory; -1 where it has no time."""
_UNTIMED = Struct("<iiq8x")
"""The same, of one without a time."""
_SIZE = _PACKED.size
_NEWEST_SIZE = (REMEMBERED_BATCHES - 1) * _SIZE
_KEPT_SIZE = KEPT_BATCHES * _SIZE
_LAST_SEQUENCE = Struct("<i")
_LAST_SEQUENCE_AT = _SIZE - 4  # from the end


class _Producer(msgspec.Struct, frozen=True, gc=False):
    epoch: int
    batches: bytes  # oldest first, at most REMEMBERED_BATCHES
    seen_ms: int

    @property
    def further(self) -> int:
        """The batches beyond KEPT_BATCHES."""
        return max(0, len(self.batches) - _KEPT_SIZE) // _SIZE

    def shortened(self) -> "_Producer":
        return _Producer(self.epoch, self.batches[-_KEPT_SIZE:], self.seen_ms)


class _Version(msgspec.Struct, array_like=True):
    """What every version begins with."""

    version: int


class _Stored(msgspec.Struct, array_like=True):
    version: int
    producers: list[tuple[int, int, int, tuple[Batch, ...]]]


def at_most(counts: Sequence[int], *, each: int, together: int) -> int:
    """How many each partition may remember, so that none has more than `each` and all have no more than `together`."""
    if sum(min(count, each) for count in counts) <= together:
        return each
    low, high = 0, each
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(count, middle) for count in counts) <= together:
            low = middle
        else:
            high = middle - 1
    return max(1, low)


class Producers:
    """The producers that a partition remembers, by producer id."""

    __slots__ = ("_producers", "further")

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self.further = 0
        """The batches beyond KEPT_BATCHES of each."""

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def check(self, header: BatchHeader, *, is_sparse: bool = False) -> int | None:
        """The base offset that the same batch got before, or None where it is to be appended. `is_sparse`: what lies
        between a batch and the next one of its producer may be elsewhere, and nothing comes behind a later one.

        Raises OutOfOrderSequence or InvalidProducerEpoch.
        """
        known = self._producers.get(header.producer_id)
        if known is None:
            if header.producer_id >= LANE_TURN_IDS and header.base_sequence != 0:
                raise OutOfOrderSequence(f"a lane's turn begins with sequence {header.base_sequence} instead of 0")
            return None  # forgotten, or new: any sequence may begin (as in Kafka since KIP-360)
        if header.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {header.producer_epoch}, the newest one is {known.epoch}"
            )
        first = header.base_sequence
        if header.producer_epoch > known.epoch:
            if first != 0 and not is_sparse:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {first} "
                    "instead of 0"
                )
            return None
        batches = known.batches
        expected = self.next_sequence(header.producer_id)
        if first == expected:
            return None
        last = header.last_sequence
        for batch in _each(batches):
            if batch[0] == first and batch[1] == last:
                return batch[2]
        if is_sparse and (first - expected) % SEQUENCES < SEQUENCES // 2:
            return None
        raise OutOfOrderSequence(f"producer {header.producer_id} sent sequence {first}, expected {expected}")

    def lacks_before(self, header: BatchHeader) -> bool:
        """Whether what precedes a batch is not there, and not what follows it."""
        known = self._producers.get(header.producer_id)
        if known is None or header.producer_epoch > known.epoch:
            return header.base_sequence > 0
        ahead = (header.base_sequence - self.next_sequence(header.producer_id)) % SEQUENCES
        return header.producer_epoch == known.epoch and 0 < ahead < SEQUENCES // 2

    def append_time_ms(self, producer_id: int, base_offset: int) -> int:
        """When a batch that is remembered was appended; -1: its time is its producer's, or is not known any more."""
        known = self._producers.get(producer_id)
        for _, _, offset, append_time_ms in () if known is None else _each(known.batches):
            if offset == base_offset:
                return append_time_ms
        return -1

    def replay(self, header: BatchHeader, *, base_offset: int, seen_ms: int) -> None:
        """The batch is part of the log at `base_offset`."""
        if header.producer_id < 0:
            return
        batch = _PACKED.pack(
            header.base_sequence,
            header.last_sequence,
            base_offset,
            header.max_timestamp_ms if header.is_log_append_time else -1,
        )
        known = self._producers.get(header.producer_id)
        if known is None:
            self._producers[header.producer_id] = _Producer(header.producer_epoch, batch, seen_ms)
            return
        earlier = known.batches
        if known.epoch != header.producer_epoch:
            self.further -= known.further
        else:
            if _KEPT_SIZE <= len(earlier) <= _NEWEST_SIZE:
                self.further += 1
            batch = earlier[-_NEWEST_SIZE:] + batch
        self._producers[header.producer_id] = _Producer(header.producer_epoch, batch, seen_ms)

    def share(self, live: "Producers") -> None:
        """Have those that `live` knows by the same batches be the same objects as there. `live` may be written to in
        another thread.
        """
        others = live._producers
        for key, producer in self._producers.items():
            other = others.get(key)
            if other is None or other is producer or other.epoch != producer.epoch:
                continue
            if other.batches == producer.batches:
                self._producers[key] = other

    def settled(self, *, forget_before_ms: int, shorten_before_ms: int) -> "Producers":
        """Without producers last seen before the one time, and with no more than KEPT_BATCHES of those last seen before
        the other: a new one, because a roll may be reading this one in its thread; itself where all stay as they are.
        Lanes' turns are kept: how far they got is known from here alone.
        """
        kept: dict[int, _Producer] = {}
        changed = False
        for key, producer in self._producers.items():
            if producer.seen_ms < forget_before_ms and key < LANE_TURN_IDS:
                changed = True
            elif producer.seen_ms < shorten_before_ms and len(producer.batches) > _KEPT_SIZE:
                kept[key] = producer.shortened()
                changed = True
            else:
                kept[key] = producer
        return _of(kept) if changed else self

    def newest(self, count: int, further: int) -> "Producers":
        """Without all but so many that were seen last, and without all but so many of their batches beyond
        KEPT_BATCHES of each: a new one, as `settled`; itself where there are no more.
        """
        if len(self._producers) <= count and self.further <= further:
            return self
        kept = {}
        turns = [item for item in self._producers.items() if item[0] >= LANE_TURN_IDS]
        others = (item for item in self._producers.items() if item[0] < LANE_TURN_IDS)
        for key, producer in (*turns, *nlargest(count, others, key=lambda item: item[1].seen_ms)):
            kept[key] = producer if producer.further <= further else producer.shortened()
            further = max(0, further - producer.further)
        return _of(kept)

    def without_turns(self, is_over: Callable[[int], bool]) -> "Producers":
        """Without those of lanes' turns that are over: a new one, as `settled`; itself where none is."""
        over = {key for key in self._producers if key >= LANE_TURN_IDS and is_over(key)}
        return _of({key: one for key, one in self._producers.items() if key not in over}) if over else self

    def next_sequence(self, producer_id: int) -> int:
        """What its next batch begins with; 0 of one that is not known."""
        known = self._producers.get(producer_id)
        if known is None:
            return 0
        last: int = _LAST_SEQUENCE.unpack_from(known.batches, len(known.batches) - _LAST_SEQUENCE_AT)[0]
        return (last + 1) % SEQUENCES

    def copy(self) -> "Producers":
        """An independent copy."""
        other = Producers()
        other._producers = self._producers.copy()
        other.further = self.further
        return other

    def encode(self) -> bytes:
        """For a segment's producer snapshot (docs/formats/segment.md)."""
        timed = any(_is_timed(producer.batches) for producer in self._producers.values())
        rows = [(key, p.epoch, p.seen_ms, _unpacked(p.batches)) for key, p in self._producers.items()]
        return msgspec.msgpack.encode(_Stored(_FORMAT_VERSION if timed else 1, rows))

    @classmethod
    def decode(cls, data: bytes) -> "Producers":
        """Raises Corrupt, FormatTooNew."""
        try:
            version = msgspec.msgpack.decode(data, type=_Version).version
            if version > _FORMAT_VERSION:
                raise FormatTooNew(
                    f"producer snapshot: format version {version}; this bmq reads up to version {_FORMAT_VERSION}: "
                    "upgrade it"
                )
            stored = msgspec.msgpack.decode(data, type=_Stored)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"producer snapshot: {error}") from error
        if stored.version < 1:
            raise Corrupt(f"producer snapshot: format version {stored.version}")
        if any(len(batch) not in (3, _TIMED) for _, _, _, batches in stored.producers for batch in batches):
            raise Corrupt("producer snapshot: a batch of neither 3 nor 4 numbers")
        try:
            return _of({key: _Producer(epoch, _packed(found), seen) for key, epoch, seen, found in stored.producers})
        except StructError as error:
            raise Corrupt(f"producer snapshot: {error}") from error


def _of(producers: dict[int, _Producer]) -> Producers:
    made = Producers()
    made._producers = producers
    made.further = sum(producer.further for producer in producers.values())
    return made


def _packed(batches: Sequence[Batch]) -> bytes:
    newest = batches[-REMEMBERED_BATCHES:]
    return b"".join([_PACKED.pack(*batch) if len(batch) == _TIMED else _PACKED.pack(*batch, -1) for batch in newest])


def _unpacked(batches: bytes) -> tuple[Batch, ...]:
    if not _is_timed(batches):
        return tuple(_UNTIMED.iter_unpack(batches))
    return tuple(batch if batch[3] != -1 else batch[:3] for batch in _each(batches))


def _each(batches: bytes) -> Iterator[tuple[int, int, int, int]]:
    return _PACKED.iter_unpack(batches)


def _is_timed(batches: bytes) -> bool:
    """Whether any of them has a time: the last byte of -1 is 255, which is that of no time."""
    lasts = batches[_SIZE - 1 :: _SIZE]
    return lasts.count(255) < len(lasts)
