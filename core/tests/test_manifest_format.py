"""Manifests, manifest pages and coordinator snapshots as bytes: what is written is read back, and nothing else is ever
read.
"""

import struct
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import Corrupt, FormatError, FormatTooNew
from bmq.storage import manifest_format, snapshot
from bmq.storage.binary import crc_of, encode_crc
from bmq.storage.leader_epochs import EpochStart
from bmq.storage.manifest import CoordinatorSnapshotRef, Manifest, ProducerSnapshotRef, page_ref
from bmq.storage.segment import SegmentEntry
from bmq.values import Nonce, Offset, TopicId, TopicPartition

NONCE = Nonce(bytes(range(16)))
TP = TopicPartition(TopicId(UUID(int=7)), 3)
NUMBERS = st.integers(0, 2**40)


@st.composite
def entry_lists(draw: st.DrawFn, *, start: int = 0, max_size: int = 6) -> list[SegmentEntry]:
    """Entries of a dense log from `start` on."""
    entries = []
    for count in draw(st.lists(st.integers(1, 2**32), max_size=max_size)):
        entries.append(
            SegmentEntry(
                store_id=draw(st.integers(0, 3)),
                key=draw(st.text(max_size=12)),
                position=draw(NUMBERS),
                length=draw(st.integers(1, 2**32 - 1)),
                leader_epoch=draw(st.integers(0, 2**31 - 1)),
                base_offset=start,
                last_offset=start + count - 1,
                record_count=count,
                min_timestamp_ms=draw(st.integers(-1, 2**62)),
                max_timestamp_ms=draw(st.integers(-1, 2**62)),
                index_position=draw(NUMBERS),
                index_length=draw(NUMBERS),
                snapshot_position=draw(NUMBERS),
                snapshot_length=draw(NUMBERS),
                aborted_first_offset=draw(st.integers(-1, 2**62)),
            )
        )
        start += count
    return entries


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    start = draw(NUMBERS)
    paged = draw(entry_lists(start=start, max_size=3))
    named = draw(entry_lists(start=paged[-1].last_offset + 1 if paged else start))
    found = [*paged, *named]
    end = found[-1].last_offset + 1 if found else start
    return Manifest(
        kind=draw(st.sampled_from(["dense", "mirrored"])),
        log_start=draw(st.integers(start, found[0].last_offset)) if found else start,
        next_offset=end,
        last_stable_offset=draw(st.integers(0, end)),
        leader_epochs=tuple(
            EpochStart(epoch, epoch * 5) for epoch in sorted(draw(st.sets(st.integers(0, 2**31 - 1), max_size=4)))
        ),
        coordinator_snapshot=draw(st.none() | st.builds(CoordinatorSnapshotRef, st.text(max_size=9), NUMBERS)),
        pages=(page_ref("page", paged),) if paged else (),
        entries=tuple(named),
        producer_snapshot=None
        if named
        else draw(st.none() | st.builds(ProducerSnapshotRef, st.text(max_size=9), NUMBERS, NUMBERS)),
    )


SNAPSHOTS = st.builds(
    snapshot.CoordinatorSnapshot,
    nonce=st.binary(min_size=16, max_size=16).map(Nonce),
    tp=st.builds(TopicPartition, st.uuids().map(TopicId), st.integers(0, 2**31 - 1)),
    offset=st.integers(0, 2**63 - 1).map(Offset),
    state=st.binary(max_size=200),
)


@settings(max_examples=150, deadline=None)
@given(manifests())
def test_a_manifest_reads_back_as_it_was_written(written: Manifest) -> None:
    assert manifest_format.decode_manifest(manifest_format.encode_manifest(written)) == written


@settings(max_examples=100, deadline=None)
@given(entry_lists(max_size=9).filter(bool))
def test_a_page_reads_back_as_it_was_written(entries: list[SegmentEntry]) -> None:
    data = b"".join(manifest_format.encode_page(NONCE, TP, entries))
    assert manifest_format.decode_page(data) == (TP, tuple(entries))
    assert manifest_format.check_page(page_ref("key", entries), TP, data) == tuple(entries)


@settings(max_examples=100, deadline=None)
@given(SNAPSHOTS)
def test_a_coordinator_snapshot_reads_back_as_it_was_written(written: snapshot.CoordinatorSnapshot) -> None:
    assert snapshot.decode_snapshot(b"".join(snapshot.encode_snapshot(written))) == written


def all_formats(data: st.DataObject) -> tuple[tuple[object, bytes], ...]:
    entries = data.draw(entry_lists(max_size=2).filter(bool))
    return (
        (manifest_format.decode_manifest, manifest_format.encode_manifest(data.draw(manifests()))),
        (manifest_format.decode_page, b"".join(manifest_format.encode_page(NONCE, TP, entries))),
        (snapshot.decode_snapshot, b"".join(snapshot.encode_snapshot(data.draw(SNAPSHOTS)))),
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_is_truncated_longer_or_changed_is_refused(data: st.DataObject) -> None:
    for decode, whole in all_formats(data):
        changed = bytearray(whole)
        changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        truncated = whole[: data.draw(st.integers(0, len(whole) - 1))]
        for wrong in (bytes(changed), truncated, whole + data.draw(st.binary(min_size=1, max_size=9))):
            with pytest.raises(FormatError):
                decode(wrong)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_garbage_with_a_right_checksum_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        manifest_format.decode_manifest(body + encode_crc(crc_of([body])))
    page = manifest_format.encode_page(NONCE, TP, [ENTRY])[0]
    with pytest.raises(Corrupt):
        manifest_format.decode_page(b"".join((bytes(page), body, encode_crc(crc_of([page, body])))))


ENTRY = SegmentEntry(
    key="k",
    position=0,
    length=1,
    leader_epoch=0,
    base_offset=0,
    last_offset=0,
    record_count=1,
    min_timestamp_ms=0,
    max_timestamp_ms=0,
    index_position=1,
    index_length=1,
    snapshot_position=2,
    snapshot_length=4,
)


def test_newer_versions_are_refused_by_name() -> None:
    newer = msgspec.msgpack.encode((2, {"anything": True}))
    with pytest.raises(FormatTooNew, match=r"^manifest: format version 2; .* up to version 1"):
        manifest_format.decode_manifest(newer + encode_crc(crc_of([newer])))
    page = b"".join(manifest_format.encode_page(NONCE, TP, [ENTRY]))
    state = b"".join(
        snapshot.encode_snapshot(snapshot.CoordinatorSnapshot(nonce=NONCE, tp=TP, offset=Offset(1), state=b"s"))
    )
    for decode, whole, name in (
        (manifest_format.decode_page, page, "manifest page"),
        (snapshot.decode_snapshot, state, "coordinator snapshot"),
    ):
        with pytest.raises(FormatTooNew, match=f"^{name}: format version 2 .* up to version 1"):
            decode(whole[:4] + struct.pack(">H", 2) + whole[6:])


def test_a_manifest_whose_invariants_do_not_hold_is_refused_by_their_name() -> None:
    gap = (ENTRY, msgspec.structs.replace(ENTRY, base_offset=2, last_offset=2))
    for wrong, invariant in (
        (Manifest(entries=gap, next_offset=3), "dense offsets have no gap"),
        (Manifest(entries=gap[::-1], next_offset=3), "segments ascend"),
        (Manifest(entries=gap[:1], next_offset=2), "the end is right behind the newest segment"),
        (Manifest(entries=gap[:1], next_offset=1, log_start=1), "nothing named is wholly below the log start"),
        (Manifest(next_offset=1, last_stable_offset=2), "the last stable offset is between 0 and the end"),
        (Manifest(leader_epochs=(EpochStart(2, 0), EpochStart(2, 5))), "leader epochs ascend"),
    ):
        with pytest.raises(Corrupt, match=invariant):
            manifest_format.decode_manifest(manifest_format.encode_manifest(wrong))


def test_a_page_that_is_not_the_one_named_is_refused() -> None:
    data = b"".join(manifest_format.encode_page(NONCE, TP, [ENTRY]))
    with pytest.raises(Corrupt, match="not the page"):
        manifest_format.check_page(page_ref("key", [msgspec.structs.replace(ENTRY, length=9)]), TP, data)
    with pytest.raises(Corrupt, match="not the page"):
        manifest_format.check_page(page_ref("key", [ENTRY]), TopicPartition(TP.topic_id, 4), data)


def test_the_bytes_of_version_1_never_change() -> None:
    written = Manifest(
        log_start=1,
        next_offset=2,
        last_stable_offset=2,
        leader_epochs=(EpochStart(3, 0),),
        coordinator_snapshot=CoordinatorSnapshotRef("s", 1),
        entries=(msgspec.structs.replace(ENTRY, last_offset=1, record_count=2),),
    )
    body = msgspec.msgpack.encode(
        [1, ["dense", 1, 2, 2, [[3, 0]], ["s", 1], [], [[0, "k", 0, 1, 0, 0, 1, 2, 0, 0, 1, 1, 2, 4, -1]], None]],
    )
    assert manifest_format.encode_manifest(written) == body + encode_crc(crc_of([body]))
