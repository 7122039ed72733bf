"""How old records are, for the lags that the admin API tells: read as a proxy reads them, with caches too small to
notice.
"""

import asyncio
from collections.abc import Callable

from bmq.errors import BmqError
from bmq.fairness.greedy_window import Modest
from bmq.ports import Clock, ObjectStore, Rng
from bmq.roles.controller import Metadata
from bmq.roles.owner import Owner
from bmq.values import TopicPartition
from bmq.wire.batch_headers import read_header
from bmq.wire.records import iterate_records
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
        """How many seconds ago the record at (or after) an offset was written, by its timestamp; None where it cannot
        be read now.
        """
        result = await self._reader.read(
            [Read(tp=tp, offset=offset, max_bytes=1)], min_bytes=0, max_bytes=1, max_wait_ms=0
        )
        try:
            [found] = result.found
            if found.error is not None or not found.size_bytes:
                return None
            data = b"".join(found.parts)
            timestamp_ms = await asyncio.get_running_loop().run_in_executor(None, _timestamp_at, data, offset)
        except BmqError:
            return None
        finally:
            result.release()
        return None if timestamp_ms is None else max(0.0, (self._clock.now_ms() - timestamp_ms) / 1000)


def small_reader(
    store: ObjectStore, owner_for: Callable[[TopicPartition], Owner], metadata: Metadata, *, rng: Rng
) -> FetchReader:
    """A reader for a node without a proxy. The caller closes it."""
    blocks = BlockCache(store, tail_bytes=MIB, catch_up_bytes=4 * MIB, catch_up_gets_at_once=2)
    segments = SegmentReader(store, blocks, index_cache_bytes=MIB, read_ahead_blocks=0)
    manifests = ManifestCache(store, rng, entries_max=MANIFESTS_MAX)
    turns = ReadTurns(Modest(), bytes_max=MEMORY_BYTES)
    return FetchReader(owner_for, metadata, manifests, segments, memory=MemoryBudget(MEMORY_BYTES), turns=turns)


def _timestamp_at(data: bytes, offset: int) -> int | None:
    header = read_header(data)
    if header.is_log_append_time:
        return header.max_timestamp_ms
    return next((record.timestamp_ms for record in iterate_records(data, header) if record.offset >= offset), None)
