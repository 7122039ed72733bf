"""Every stored format at once: each byte changed, each truncation, and what a writer with a bug could have
checksummed.
"""

import contextlib
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import FormatError
from bmq.storage import manifest_format, segment, segment_index, snapshot, wal
from bmq.storage.binary import CRC_SIZE_BYTES, crc_of, encode_crc
from bmq.storage.leader_epochs import EpochStart
from bmq.storage.manifest import CoordinatorSnapshotRef, Manifest, page_ref
from bmq.storage.segment_index import AbortedTxn, SegmentBatch
from bmq.values import BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId, Nonce, Offset, TopicId, TopicPartition

NONCE = Nonce(bytes(range(16)))
TP = TopicPartition(TopicId(UUID(int=7)), 3)
OTHER = TopicPartition(TopicId(UUID(int=8)), 0)


def joined(parts: list) -> bytes:
    return b"".join(bytes(part) for part in parts)


def wal_object() -> bytes:
    header = wal.WalHeader(
        cluster_id="cluster",
        node_id=NodeId(1),
        broker_epoch=BrokerEpoch(2),
        number=3,
        nonce=NONCE,
        durable_below=2,
        key_id=5,
    )
    runs = [
        wal.WalRun(TP, LeaderEpoch(1), ManifestVersion(4), Offset(10), Offset(12), 99, [b"first", b"second"]),
        wal.WalRun(OTHER, LeaderEpoch(2), ManifestVersion(0), Offset(0), Offset(0), -1, [b"third"]),
    ]
    return joined(wal.encode_wal(header, runs))


def segment_object() -> tuple[bytes, tuple[segment.SegmentEntry, ...]]:
    batches = [
        SegmentBatch(b"a" * 10, Offset(5), Offset(6), 2, 7, 8),
        SegmentBatch(b"b" * segment_index.BLOCK_SIZE_BYTES, Offset(7), Offset(7), 1, 3, 3),
        SegmentBatch(b"c" * 10, Offset(9), Offset(9), 1, 9, 9),
    ]
    aborted = [AbortedTxn(1, Offset(2), Offset(9), Offset(10))]
    runs = [
        segment.SegmentRun(TP, LeaderEpoch(1), batches, aborted, b"producers"),
        segment.SegmentRun(OTHER, LeaderEpoch(2), [SegmentBatch(b"d" * 10, Offset(0), Offset(0), 1, -1, -1)]),
    ]
    encoded = segment.encode_segment(NONCE, "cluster", runs)
    return joined(encoded.parts), encoded.entries_at("key")


SEGMENT, ENTRIES = segment_object()
FOOTER = segment.decode_footer(SEGMENT)
INDEX = SEGMENT[ENTRIES[0].index_position : ENTRIES[0].index_position + ENTRIES[0].index_length]
SMALL_SEGMENT = joined(
    segment.encode_segment(
        NONCE, "c", [segment.SegmentRun(TP, LeaderEpoch(1), [SegmentBatch(b"d", Offset(0), Offset(0), 1, 4, 4)])]
    ).parts
)
MANIFEST = Manifest(
    log_start=6,
    next_offset=10,
    last_stable_offset=9,
    kind="mirrored",
    leader_epochs=(EpochStart(1, 6),),
    coordinator_snapshot=CoordinatorSnapshotRef("snapshot", 4),
    pages=(page_ref("page", ENTRIES[:1]),),
)

SAMPLES: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "WAL object": (wal.decode_any, wal_object()),
    "WAL header": (wal.decode_head, wal_object()[: wal.WAL_HEADER_SIZE_BYTES]),
    "WAL seal": (
        wal.decode_any,
        joined(
            wal.encode_seal(
                wal.Seal(cluster_id="c", node_id=NodeId(1), broker_epoch=BrokerEpoch(2), number=3, nonce=NONCE)
            )
        ),
    ),
    "segment": (segment.decode_segment, SMALL_SEGMENT),
    "segment index": (segment_index.decode_index, INDEX),
    "segment footer": (segment.decode_footer, SEGMENT[-segment.SEGMENT_FOOTER_SIZE_BYTES :]),
    "segment directory": (
        lambda stored: segment.decode_directory(FOOTER, stored),
        SEGMENT[FOOTER.directory_position : -segment.SEGMENT_FOOTER_SIZE_BYTES],
    ),
    "manifest": (manifest_format.decode_manifest, manifest_format.encode_manifest(MANIFEST)),
    "manifest page": (manifest_format.decode_page, joined(manifest_format.encode_page(NONCE, TP, ENTRIES[:1]))),
    "coordinator snapshot": (
        snapshot.decode_snapshot,
        joined(
            snapshot.encode_snapshot(snapshot.CoordinatorSnapshot(nonce=NONCE, tp=TP, offset=Offset(9), state=b"state"))
        ),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_no_truncation_and_no_changed_byte_is_ever_read(name: str) -> None:
    decode, whole = SAMPLES[name]
    decode(whole)
    for length in range(len(whole)):
        with pytest.raises(FormatError):
            decode(whole[:length])
    for at in range(len(whole)):
        for change in (0x01, 0x80, 0xFF):
            with pytest.raises(FormatError):
                decode(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])


@pytest.mark.parametrize(
    "name",
    ["WAL object", "WAL seal", "segment index", "segment footer", "manifest", "manifest page", "coordinator snapshot"],
)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_nonsense_with_a_right_checksum_is_read_or_refused_by_type_and_nothing_else(
    name: str, data: st.DataObject
) -> None:
    decode, whole = SAMPLES[name]
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(24, len(changed) - CRC_SIZE_BYTES - 1)) if len(changed) > 24 + CRC_SIZE_BYTES else 0
        width = data.draw(st.sampled_from([1, 4, 8]))
        changed[at : at + width] = data.draw(
            st.sampled_from([bytes(width), b"\xff" * width, b"\x7f" * width, b"\x80" + bytes(width - 1)])
        )
    if data.draw(st.booleans()):
        del changed[data.draw(st.integers(24, len(changed))) :]
    if name == "WAL object" and len(changed) >= wal.WAL_HEADER_SIZE_BYTES:
        header_end = wal.WAL_HEADER_SIZE_BYTES - CRC_SIZE_BYTES
        changed[header_end : wal.WAL_HEADER_SIZE_BYTES] = encode_crc(crc_of([changed[:header_end]]))
    body = bytes(changed[:-CRC_SIZE_BYTES])
    with contextlib.suppress(FormatError):
        decode(body + encode_crc(crc_of([body])))


def test_the_bytes_of_a_segment_of_version_1_never_change() -> None:
    expected = [
        # envelope, key id, cluster id
        "626d7153 0001 0000 000102030405060708090a0b0c0d0e0f 00000000 01 63" + "00" * 63,
        "%(header)s 64",  # CRC32C, the batch
        "626d7149 0001 0000 000102030405060708090a0b0c0d0e0f",  # index: envelope
        "00000000000000000000000000000007 00000003 00000001",  # topic id, partition, leader epoch
        "0000000000000000 0000000000000000 0000000000000001",  # base offset, last offset, records
        "00000001 %(batches)s 00000001 00000000",  # length and CRC32C of the batches, blocks, aborted transactions
        "0000000000000000 00000000 0000000000000004 %(index)s",  # the block, CRC32C
        "00000000",  # an empty producer snapshot's CRC32C
        "00000000000000000000000000000007 00000003 00000001",  # directory: topic id, partition, leader epoch
        "0000000000000000 0000000000000000",  # base offset, last offset
        # position, lengths of batches, index and producer snapshot
        "0000000000000061 00000001 00000070 0000000000000004",
        # footer
        "626d7153 0001 0000 000102030405060708090a0b0c0d0e0f 00000000000000d6 00000001 %(directory)s %(footer)s",
    ]
    sums = {
        name: crc_of([SMALL_SEGMENT[start:end]]).to_bytes(4, "big").hex()
        for name, start, end in (
            ("header", 0, 93),
            ("batches", 97, 98),
            ("index", 98, 206),
            ("directory", 214, 278),
            ("footer", 278, 318),
        )
    }
    assert bytes.fromhex("".join(expected) % sums) == SMALL_SEGMENT


def test_the_bytes_of_a_coordinator_snapshot_of_version_1_never_change() -> None:
    whole = SAMPLES["coordinator snapshot"][1]
    head = (
        "626d7147 0001 0000 000102030405060708090a0b0c0d0e0f 00000000000000000000000000000007 00000003 "
        "0000000000000009 0000000000000005"
    )
    body = bytes.fromhex(head) + b"state"
    assert whole == body + crc_of([body]).to_bytes(4, "big")


def test_a_page_whose_segments_do_not_ascend_is_refused() -> None:
    with pytest.raises(FormatError, match="do not ascend"):
        manifest_format.decode_page(joined(manifest_format.encode_page(NONCE, TP, ENTRIES)))
