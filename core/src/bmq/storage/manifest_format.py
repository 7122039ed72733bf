"""The bytes of a manifest (the payload of a flat-log entry) and of a manifest page (an object, bmqP):
docs/formats/manifest.md.

Both are msgpack arrays whose fields have an order and no names. Nothing is added to them without a new format version:
an older bmq that read on and wrote the next version would drop what it does not know.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

import msgspec
from typing_extensions import Buffer

from bmq.errors import Corrupt, FormatTooNew
from bmq.storage.binary import checked, crc_of, encode_crc
from bmq.storage.envelope import ENVELOPE_SIZE_BYTES, decode_envelope, encode_envelope
from bmq.storage.manifest import ENTRIES_MAX, Manifest, PageRef, broken_invariant, page_ref
from bmq.storage.segment import SegmentEntry
from bmq.values import Nonce, TopicId, TopicPartition

PAGE_MAGIC: Final = b"bmqP"
MANIFEST_VERSION: Final = 1
PAGE_VERSION: Final = 1


class _PageBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    topic_id: bytes
    partition: int
    entries: tuple[SegmentEntry, ...]


_ENCODER: Final = msgspec.msgpack.Encoder()
_VERSIONED: Final = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])
_MANIFEST: Final = msgspec.msgpack.Decoder(Manifest)
_PAGE: Final = msgspec.msgpack.Decoder(_PageBody)


def encode_manifest(manifest: Manifest) -> bytes:
    """A flat-log payload."""
    payload = _ENCODER.encode((MANIFEST_VERSION, manifest))
    return payload + encode_crc(crc_of([payload]))


def decode_manifest(payload: Buffer) -> Manifest:
    """Raises Corrupt (also where an invariant of Manifest does not hold), FormatTooNew."""
    what = "manifest"
    body = checked(payload, what=what)
    try:
        version, raw = _VERSIONED.decode(body)
        if version > MANIFEST_VERSION:
            raise FormatTooNew(
                f"{what}: format version {version}; this bmq reads up to version {MANIFEST_VERSION}: upgrade it"
            )
        if version < 1:
            raise Corrupt(f"{what}: format version {version}")
        manifest = _MANIFEST.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{what}: {error}") from error
    broken = broken_invariant(manifest)
    if broken is not None:
        raise Corrupt(f"{what}: it does not hold that {broken}")
    return manifest


def encode_page(nonce: Nonce, tp: TopicPartition, entries: Sequence[SegmentEntry]) -> list[Buffer]:
    """A page object of 1 to ENTRIES_MAX entries of a partition, for keys.manifest_page_key."""
    assert 0 < len(entries) <= ENTRIES_MAX
    envelope = encode_envelope(magic=PAGE_MAGIC, version=PAGE_VERSION, nonce=nonce)
    body = _ENCODER.encode(_PageBody(tp.topic_id.bytes, tp.partition, tuple(entries)))
    return [envelope, body, encode_crc(crc_of([envelope, body]))]


def decode_page(data: Buffer) -> tuple[TopicPartition, tuple[SegmentEntry, ...]]:
    """Whose it is, and its entries. Raises Corrupt, FormatTooNew."""
    what = "manifest page"
    decode_envelope(data, magic=PAGE_MAGIC, version_max=PAGE_VERSION, what=what)
    body = checked(data, what=what)
    try:
        page = _PAGE.decode(body[ENVELOPE_SIZE_BYTES:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{what}: {error}") from error
    entries = page.entries
    if len(page.topic_id) != 16 or page.partition < 0 or not 0 < len(entries) <= ENTRIES_MAX:
        raise Corrupt(f"{what}: {len(entries)} entries of partition {page.partition}")
    if any(a.last_offset >= b.base_offset for a, b in pairwise(entries)):
        raise Corrupt(f"{what}: segments do not ascend")
    return TopicPartition(TopicId(UUID(bytes=page.topic_id)), page.partition), entries


def check_page(ref: PageRef, tp: TopicPartition, data: Buffer) -> tuple[SegmentEntry, ...]:
    """The entries of the page that a manifest of `tp` names. Raises Corrupt where it is another one, FormatTooNew."""
    found, entries = decode_page(data)
    if found != tp or page_ref(ref.key, entries) != ref:
        raise Corrupt(f"manifest page {ref.key}: not the page that the manifest of {tp} names")
    return entries
