"""Whatever is damaged in a WAL object, what is told to be whole is as it was written, and what is told to be damaged
is.
"""

from random import Random
from uuid import UUID

import pytest

from bmq.storage.wal import (
    WAL_ENTRY_SIZE_BYTES,
    WAL_HEADER_SIZE_BYTES,
    WalEntry,
    WalHeader,
    WalRun,
    decode_wal,
    encode_wal,
)
from bmq.values import BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId, Nonce, Offset, TopicId, TopicPartition
from bmq.wire.batch_headers import CRC_START
from bmq.wire.batches import patched, split
from bmq.wire.records import Record, build_batch
from bmq_broker.ownership.salvaging import salvage

HEADER = WalHeader(
    cluster_id="c", node_id=NodeId(1), broker_epoch=BrokerEpoch(2), number=7, nonce=Nonce(b"n" * 16), durable_below=6
)
ONE, TWO, THREE = (TopicPartition(TopicId(UUID(int=number)), 0) for number in (1, 2, 3))


def batch(base_offset: int, *values: bytes, leader_epoch: int = 3) -> bytes:
    data = build_batch([Record(0, 1_000, None, value) for value in values])
    return bytes(patched(data, split(data)[0], base_offset=base_offset, leader_epoch=leader_epoch))


def run(tp: TopicPartition, base_offset: int, *batches: bytes) -> WalRun:
    last = split(b"".join(batches))[-1].next_offset - 1
    return WalRun(tp, LeaderEpoch(3), ManifestVersion(0), Offset(base_offset), Offset(last), 1_000, batches)


RUNS = (
    # the first of them was carried forward from an earlier owner's object
    run(ONE, 5, batch(5, b"a", b"b", leader_epoch=1), batch(7, b"c")),
    run(TWO, 0, batch(0, b"second" * 300)),
    run(THREE, 9, batch(9, b"third")),
)
DATA = b"".join(bytes(part) for part in encode_wal(HEADER, RUNS))
WAL = decode_wal(DATA)


def place_of(tp: TopicPartition) -> WalEntry:
    return next(entry for entry in WAL.entries if entry.tp == tp)


def check(data: bytes) -> bool:
    """Whether anything could be told; it has to be right then."""
    found = salvage(data)
    if found is None:
        return False
    for entry in WAL.entries:
        is_whole = (
            data[entry.position : entry.position + entry.length] == DATA[entry.position : entry.position + entry.length]
        )
        assert (entry in found.wal.entries, entry in found.damaged) == (is_whole, not is_whole)
    assert len(found.wal.entries) + len(found.damaged) == len(WAL.entries)
    assert all(found.wal.run(entry) == WAL.run(entry) for entry in found.wal.entries)
    return True


def flipped(*bits: int) -> bytes:
    data = bytearray(DATA)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def test_an_object_that_is_whole_is_told_to_be() -> None:
    assert check(DATA)


def test_a_bit_anywhere_is_told_of_its_run_or_leaves_all_in_doubt() -> None:
    told = {byte for byte in range(len(DATA)) if any(check(flipped(8 * byte + bit)) for bit in range(8))}
    for entry in WAL.entries:
        for header in split(WAL.run(entry)):
            first = entry.position + header.position
            assert told.issuperset(range(first + CRC_START, first + header.size_bytes)), (
                "what the checksum of a batch covers"
            )
            assert told.issuperset(range(first, first + 8)), "its base offset, which the directory gives"
    directory_end = WAL_HEADER_SIZE_BYTES + len(RUNS) * WAL_ENTRY_SIZE_BYTES
    assert told.isdisjoint(range(directory_end)), "an entry that was changed may name another partition"
    assert told.isdisjoint(range(len(DATA) - 4, len(DATA)))


@pytest.mark.parametrize("seed", range(20))
def test_damage_of_any_kind_is_told_rightly_or_not_at_all(seed: int) -> None:
    rng = Random(seed)
    for _ in range(50):
        first = rng.randrange(len(DATA))
        last = min(len(DATA), first + rng.choice((1, 4, 60, 600)))
        noise = bytes(last - first) if rng.random() < 0.5 else rng.randbytes(last - first)
        check(DATA[:first] + noise + DATA[last:])
        check(DATA[: rng.randrange(len(DATA))])
        check(flipped(*(rng.randrange(8 * len(DATA)) for _ in range(3))))


def test_several_damaged_runs_are_all_told() -> None:
    ends = [8 * (place_of(tp).position + place_of(tp).length - 1) for tp in (ONE, THREE)]
    found = salvage(flipped(*ends))
    assert found is not None
    assert [entry.tp for entry in found.damaged] == [ONE, THREE]
    assert [entry.tp for entry in found.wal.entries] == [TWO]
