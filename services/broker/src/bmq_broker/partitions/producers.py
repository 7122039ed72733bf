"""Idempotent producers of one partition: which batches came last, so that a repeated one is recognised (KIP-98,
KIP-360).

Pure. `check` decides, `replay` changes; loading and running live are the same code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

import msgspec

from bmq.errors import Corrupt, FormatTooNew, InvalidProducerEpoch, OutOfOrderSequence
from bmq.wire.batches import BatchHeader

REMEMBERED_BATCHES = 20
"""Five for each connection that a client may still have requests on while proxies come and go (docs/decisions/0020)."""
_SEQUENCES = 2**31
_FORMAT_VERSION = 2
"""1 where no batch has a time, which is what earlier versions of bmq read."""

Batch = tuple[int, ...]
"""(first sequence, last sequence, base offset), and with LogAppendTime when it was appended, in ms since 1970"""
_TIMED = 4


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: tuple[Batch, ...]  # oldest first, at most REMEMBERED_BATCHES
    seen_ms: int


class _Version(msgspec.Struct, array_like=True):
    """What every version begins with."""

    version: int


class _Stored(msgspec.Struct, array_like=True):
    version: int
    producers: list[tuple[int, int, int, tuple[Batch, ...]]]


def last_sequence(base_sequence: int, record_count: int) -> int:
    """Sequences run from 0 to 2^31 - 1 and begin again."""
    return (base_sequence + record_count - 1) % _SEQUENCES


def at_most(counts: Sequence[int], *, each: int, together: int) -> int:
    """How many each partition may remember, so that none has more than `each` and all have no more than `together`."""
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

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> int | None:
        """The base offset that the same batch got before, or None where it is to be appended.

        Raises OutOfOrderSequence or InvalidProducerEpoch.
        """
        known = self._producers.get(header.producer_id)
        if known is None:
            return None  # forgotten, or new: any sequence may begin (as in Kafka since KIP-360)
        if header.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {header.producer_epoch}, the newest one is {known.epoch}"
            )
        first = header.base_sequence
        if header.producer_epoch > known.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {first} "
                    "instead of 0"
                )
            return None
        expected = (known.batches[-1][1] + 1) % _SEQUENCES
        if first == expected:
            return None
        last = last_sequence(first, header.record_count)
        for batch in known.batches:
            if batch[0] == first and batch[1] == last:
                return batch[2]
        raise OutOfOrderSequence(f"producer {header.producer_id} sent sequence {first}, expected {expected}")

    def append_time_ms(self, producer_id: int, base_offset: int) -> int:
        """When a batch that is remembered was appended; -1: its time is its producer's, or is not known any more."""
        known = self._producers.get(producer_id)
        for batch in () if known is None else known.batches:
            if batch[2] == base_offset and len(batch) == _TIMED:
                return batch[3]
        return -1

    def replay(self, header: BatchHeader, *, base_offset: int, seen_ms: int) -> None:
        """The batch is part of the log at `base_offset`."""
        if header.producer_id < 0:
            return
        batch: Batch = (header.base_sequence, last_sequence(header.base_sequence, header.record_count), base_offset)
        if header.is_log_append_time:
            batch = (*batch, header.max_timestamp_ms)
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            self._producers[header.producer_id] = _Producer(header.producer_epoch, (batch,), seen_ms)
        else:
            known.batches = (*known.batches[1 - REMEMBERED_BATCHES :], batch)
            known.seen_ms = seen_ms

    def unexpired(self, *, before_ms: int) -> "Producers":
        """Without producers last seen before that time: a new one, because a roll may be reading this one in its
        thread; itself where all stay.
        """
        if all(producer.seen_ms >= before_ms for producer in self._producers.values()):
            return self
        kept = self.copy()
        kept._producers = {key: producer for key, producer in kept._producers.items() if producer.seen_ms >= before_ms}
        return kept

    def newest(self, count: int) -> "Producers":
        """Without all but so many that were seen last: a new one, as `unexpired`; itself where there are no more."""
        if len(self._producers) <= count:
            return self
        kept = Producers()
        newest = nlargest(count, self._producers.items(), key=lambda item: item[1].seen_ms)
        kept._producers = {key: _Producer(p.epoch, p.batches, p.seen_ms) for key, p in newest}
        return kept

    def copy(self) -> "Producers":
        """An independent copy."""
        other = Producers()
        other._producers = {key: _Producer(p.epoch, p.batches, p.seen_ms) for key, p in self._producers.items()}
        return other

    def encode(self) -> bytes:
        """For a segment's producer snapshot (docs/formats/segment.md)."""
        rows = [(key, p.epoch, p.seen_ms, p.batches) for key, p in self._producers.items()]
        timed = any(len(batch) == _TIMED for producer in self._producers.values() for batch in producer.batches)
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
        producers = cls()
        for key, epoch, seen_ms, batches in stored.producers:
            producers._producers[key] = _Producer(epoch, tuple(batches), seen_ms)
        return producers
