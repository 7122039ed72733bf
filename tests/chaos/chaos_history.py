"""What clients remember of a run, as rows of fixed size in files: the clients' processes write them, the checker reads
them.

Times are seconds of CLOCK_MONOTONIC, which all processes of a machine share (Python's time.monotonic, Java's
System.nanoTime on Linux). Writer.java in tests/compat/java-client writes `Sent` rows, too: change both.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ACKNOWLEDGED: Final = 0
NEVER_ANSWERED: Final = -1
ASSIGNED: Final = -2
"""The offset of a `Read` row that says: from here on this member reads from wherever it was told to."""
WRONG: Final = (1 << 32) - 1
"""The producer of a `Read` row whose value is none that a writer could have made."""

_VALUE: Final = struct.Struct("<IQ")
_PADDING_MAX: Final = 300


class Sent(NamedTuple):
    """A record that was sent: what became of it. `status` 0: acknowledged at `offset`; −1: never answered; else the
    client's error code.
    """

    sequence: int
    partition: int
    status: int
    offset: int
    sent_s: float
    answered_s: float


class Read(NamedTuple):
    """A record that was read."""

    partition: int
    producer: int
    offset: int
    sequence: int
    read_s: float


class Latest(NamedTuple):
    """An answer to "what is the end of this partition?"."""

    partition: int
    status: int
    offset: int
    asked_s: float
    answered_s: float


class Committed(NamedTuple):
    """A commit of a group's offset that was asked for. `status` 0: it was confirmed."""

    partition: int
    status: int
    offset: int
    asked_s: float
    answered_s: float


SENT: Final = struct.Struct("<QIiqdd")
READ: Final = struct.Struct("<IIqQd")
LATEST: Final = struct.Struct("<Iiqdd")
COMMITTED: Final = struct.Struct("<Iiqdd")


def value_of(producer: int, sequence: int) -> bytes:
    """What a record holds, 12 to 312 bytes: made again when it is compared."""
    return _VALUE.pack(producer, sequence) + bytes([sequence % 251]) * (sequence * 7919 % _PADDING_MAX)


def of_value(value: bytes | None) -> tuple[int, int]:
    """(producer, sequence); (WRONG, 0) where it is no value of a writer."""
    if value is None or len(value) < _VALUE.size:
        return WRONG, 0
    producer, sequence = _VALUE.unpack_from(value)
    return (producer, sequence) if value == value_of(producer, sequence) else (WRONG, 0)


def is_for_lane(sequence: int) -> bool:
    """Whether a record of the writer that names a lane by a header does: some in each batch, now and then none."""
    return sequence % 3 == 1 or sequence % 1_000 < 200


def read_sent(path: Path) -> Iterator[Sent]:
    yield from map(Sent._make, SENT.iter_unpack(_whole_rows(path, SENT)))


def read_reads(path: Path) -> Iterator[Read]:
    yield from map(Read._make, READ.iter_unpack(_whole_rows(path, READ)))


def read_latest(path: Path) -> Iterator[Latest]:
    yield from map(Latest._make, LATEST.iter_unpack(_whole_rows(path, LATEST)))


def read_committed(path: Path) -> Iterator[Committed]:
    yield from map(Committed._make, COMMITTED.iter_unpack(_whole_rows(path, COMMITTED)))


def _whole_rows(path: Path, row: struct.Struct) -> bytes:
    data = path.read_bytes()
    assert len(data) % row.size == 0, f"{path} ends within a row"
    return data
