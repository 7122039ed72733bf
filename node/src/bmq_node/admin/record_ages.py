"""How old records are, for the lags that the admin API tells: read as a proxy reads them, with caches too small to
notice.
"""

from collections.abc import Callable, Sequence

from typing_extensions import Buffer

from bmq.errors import BmqError
from bmq.fairness.greedy_window import Modest
from bmq.ports import Clock, ObjectStore, Rng
from bmq.roles.controller import Metadata
from bmq.roles.owner import Owner
from bmq.values import TopicPartition
from bmq.wire.batch_headers import HEADER_SIZE_BYTES, BatchHeader, read_header
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.fetch.answers import Read
from bmq_proxy.fetch.blocks import BlockCache
from bmq_proxy.fetch.manifests import ManifestCache
from bmq_proxy.fetch.reader import FetchReader, Reader
from bmq_proxy.fetch.segments import SegmentReader
from bmq_proxy.fetch.turns import ReadTurns

MIB = 1 << 20
MEMORY_BYTES = 64 * MIB
MANIFESTS_MAX = 1_000


class RecordAges:
    """One node's. `reader` is its proxy's, where it has one."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock

    async def age_of(self, tp: TopicPartition, offset: int) -> float | None:
        """About how many seconds ago the record at (or after) an offset was written; None where it cannot be read now.

        By its batch's header, between whose first and last timestamp it lies: to open the batch would be work without
        a bound, for a page that anybody may ask for.
        """
        result = await self._reader.read(
            [Read(tp=tp, offset=offset, max_bytes=1)], min_bytes=0, max_bytes=1, max_wait_ms=0
        )
        try:
            [found] = result.found
            if found.error is not None or not found.size_bytes:
                return None
            timestamp_ms = _timestamp_at(read_header(_start_of(found.parts), whole=False), offset)
        except BmqError:
            return None
        finally:
            result.release()
        return max(0.0, (self._clock.now_ms() - timestamp_ms) / 1000)


def small_reader(
    store: ObjectStore, owner_for: Callable[[TopicPartition], Owner], metadata: Metadata, *, rng: Rng
) -> FetchReader:
    """A reader for a node without a proxy. The caller closes it."""
    blocks = BlockCache(store, tail_bytes=MIB, catch_up_bytes=4 * MIB, catch_up_gets_at_once=2)
    segments = SegmentReader(store, blocks, index_cache_bytes=MIB, read_ahead_blocks=0)
    manifests = ManifestCache(store, rng, entries_max=MANIFESTS_MAX)
    turns = ReadTurns(Modest(), bytes_max=MEMORY_BYTES)
    return FetchReader(owner_for, metadata, manifests, segments, memory=MemoryBudget(MEMORY_BYTES), turns=turns)


def _start_of(parts: Sequence[Buffer]) -> bytes:
    """As much of the first batch as its header is, of which a part may have the beginning alone."""
    start = b""
    for part in parts:
        start += bytes(memoryview(part)[: HEADER_SIZE_BYTES - len(start)])
        if len(start) == HEADER_SIZE_BYTES:
            break
    return start


def _timestamp_at(header: BatchHeader, offset: int) -> float:
    if header.is_log_append_time or header.max_timestamp_ms < header.base_timestamp_ms:
        return header.max_timestamp_ms
    share = min(1.0, max(0, offset - header.base_offset) / max(1, header.last_offset_delta))
    return header.base_timestamp_ms + share * (header.max_timestamp_ms - header.base_timestamp_ms)
