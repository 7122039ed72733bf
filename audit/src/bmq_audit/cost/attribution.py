"""Whose bytes are in the objects that topics share: from the directories of WAL objects and of shared segments, without
reading what these hold.
"""

from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, Final

from bmq.errors import FormatError, ObjectMissing, StoreUnavailable
from bmq.storage.durable import together
from bmq.storage.keys import SHARED_PREFIX
from bmq.storage.segment import SEGMENT_FOOTER_SIZE_BYTES, DirectoryEntry, decode_directory, decode_footer
from bmq.storage.wal import WAL_HEADER_SIZE_BYTES, decode_wal_directory, directory_end
from bmq.values import TopicId
from bmq_audit.cost.bill import SharedBytes
from bmq_audit.places import PlaceKind, place_of
from bmq_audit.reading import Reader

FIRST_BYTES: Final = 16 << 10
"""How much of a WAL object is read first, in bytes: the directory of 250 runs."""
LAST_BYTES: Final = 64 << 10
"""How much of a shared segment's end is read first, in bytes: the directory of 1,000 runs."""


async def shared_bytes(reader: Reader) -> SharedBytes:
    """One GET for each object of the WAL and each shared segment. What cannot be read is nobody's. Raises StoreLost."""
    wal: dict[TopicId, int] = defaultdict(int)
    segments: dict[TopicId, int] = defaultdict(int)
    waiting: list[Coroutine[Any, Any, None]] = []
    for prefix in ("wal/", SHARED_PREFIX):
        async for meta in reader.list(prefix):
            place = place_of(meta.key)
            if place is not None and place.kind is PlaceKind.WAL and meta.size_bytes >= WAL_HEADER_SIZE_BYTES:
                waiting.append(_add_wal(reader, meta.key, wal))
            elif place is not None and place.kind is PlaceKind.SHARED_SEGMENT:
                waiting.append(_add_shared(reader, meta.key, meta.size_bytes, segments))
            if len(waiting) >= reader.at_once:
                due, waiting = waiting, []
                await together(due)
    await together(waiting)
    return SharedBytes(wal=wal, segments=segments)


async def _add_wal(reader: Reader, key: str, onto: dict[TopicId, int]) -> None:
    try:
        data = await reader.get(key, length=FIRST_BYTES)
        end = directory_end(data)
        if end > len(data):
            data += await reader.get(key, start=len(data), length=end - len(data))
        for entry in decode_wal_directory(data):
            onto[entry.tp.topic_id] += entry.length
    except (ObjectMissing, FormatError, StoreUnavailable):
        return


async def _add_shared(reader: Reader, key: str, size_bytes: int, onto: dict[TopicId, int]) -> None:
    try:
        for entry in await directory_of(reader, key, size_bytes):
            onto[entry.tp.topic_id] += entry.length + entry.index_length + entry.snapshot_length
    except (ObjectMissing, FormatError, StoreUnavailable):
        return


async def directory_of(reader: Reader, key: str, size_bytes: int) -> tuple[DirectoryEntry, ...]:
    """Which runs a segment has; one GET as a rule. Raises ObjectMissing, FormatError, StoreUnavailable, StoreLost."""
    start = max(0, size_bytes - LAST_BYTES)
    data = await reader.get(key, start=start, length=LAST_BYTES)
    footer = decode_footer(data)
    if footer.directory_position < start:
        data = await reader.get(key, start=footer.directory_position)
        start = footer.directory_position
    return decode_directory(footer, data[footer.directory_position - start : len(data) - SEGMENT_FOOTER_SIZE_BYTES])
