"""Reading slices: ranged GETs ahead of the decoder, every batch checked, and a manifest read again where a segment has
gone meanwhile.
"""

import logging
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from typing import Final

import pyarrow as pa

from bmq.errors import CorruptBatch, FormatError, ObjectMissing, UnsupportedMessageFormat
from bmq.storage.segment import SegmentEntry
from bmq.storage.segment_index import SegmentIndex, decode_index
from bmq.wire.batches import HEADER_SIZE_BYTES, BatchHeader, read_header
from bmq_spark.source.decoding import Wanted, decode
from bmq_spark.source.failures import RecordsGone, SegmentBroken
from bmq_spark.source.opening import OpenedStore
from bmq_spark.source.sections import BatchBroken, Scratch
from bmq_spark.source.slices import Slice, slice_of

GET_BYTES: Final = 8 << 20
GETS_AHEAD: Final = 3
INDEX_PAYS_BYTES: Final = 1 << 20
"""A run that is smaller is read whole, wherever in it a slice begins."""
REREADS_MAX: Final = 10
_SIZE_END: Final = 12
"""Base offset and length, the first fields of a batch."""
_log = logging.getLogger(__name__)


def read_slice(
    store: OpenedStore,
    piece: Slice,
    *,
    columns: tuple[str, ...],
    fail_on_data_loss: bool,
    scratch: Scratch | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a slice. Raises SegmentBroken, RecordsGone, StoreLost; records may have been given before.

    Whoever reads one slice after the other brings `scratch`.
    """
    at = piece.from_offset
    memory = scratch or Scratch()
    for _ in range(REREADS_MAX):
        try:
            for entry in piece.segments:
                if entry.last_offset < at:
                    continue
                wanted = Wanted(
                    topic=piece.topic.name,
                    partition=piece.partition,
                    lane=piece.topic.lane,
                    columns=columns,
                    from_offset=at,
                    below_offset=piece.below_offset,
                    min_timestamp_ms=piece.min_timestamp_ms,
                )
                for read_to, batch in _RunReader(store, piece, entry, wanted, memory).read():
                    if batch is not None:
                        yield batch
                    else:
                        at = read_to
                at = min(entry.last_offset + 1, piece.below_offset)
        except ObjectMissing as error:
            piece = _again(store, piece, at, str(error), fail_on_data_loss=fail_on_data_loss)
            at = piece.from_offset
            continue
        return
    raise RecordsGone(
        f"{_place(piece, at)}: segments went {REREADS_MAX} times while they were to be read: start the job again"
    )


def lost(piece: str, from_offset: int, below: int, log_start: int | None, *, fail_on_data_loss: bool) -> None:
    """Records that are gone: raises RecordsGone, or says it in the log where that is wanted."""
    why = (
        "the topic was deleted"
        if log_start is None
        else f"its log starts at {log_start}: retention or a deletion was faster"
    )
    message = f"{piece}, offsets {from_offset} to {below - 1} are gone: {why}"
    if fail_on_data_loss:
        raise RecordsGone(
            f"{message}: set failOnDataLoss=false to go on without them, and keep the topic's records for longer"
        )
    _log.warning("%s; going on without them", message)


def _again(store: OpenedStore, piece: Slice, at: int, what: str, *, fail_on_data_loss: bool) -> Slice:
    """The rest of a slice, from `at`, as the manifest is now."""
    from bmq_spark.source.logs import read_log  # seldom needed, and costs an executor some time

    log = store.run(read_log(store, piece.tp, at, piece.below_offset))
    place = f"topic {piece.topic.name}, partition {piece.partition}"
    if not log.manifest.parts and log.end == 0:
        lost(place, at, piece.below_offset, None, fail_on_data_loss=fail_on_data_loss)
        at = piece.below_offset
    elif log.log_start > at:
        lost(place, at, min(log.log_start, piece.below_offset), log.log_start, fail_on_data_loss=fail_on_data_loss)
        at = min(log.log_start, piece.below_offset)
    elif log.end < piece.below_offset:
        raise SegmentBroken(
            f"{place}: its manifest ends at {log.end} and ended behind {piece.below_offset - 1} before: `bmq store "
            "check` says more"
        )
    found = slice_of(
        piece.topic,
        piece.partition,
        log.entries,
        from_offset=at,
        below_offset=piece.below_offset,
        min_timestamp_ms=piece.min_timestamp_ms,
    )
    if found.segments and found.segments == piece.segments and at == piece.from_offset:
        raise SegmentBroken(
            f"{_place(piece, at)}: the manifest names an object that is missing ({what}): `bmq store check` says more"
        )
    return found


class _RunReader:
    """Reads one run as far as it is wanted."""

    def __init__(self, store: OpenedStore, piece: Slice, entry: SegmentEntry, wanted: Wanted, scratch: Scratch) -> None:
        self._store = store
        self._piece = piece
        self._entry = entry
        self._wanted = wanted
        self._scratch = scratch
        self._next_offset = entry.base_offset
        self._records = 0

    def read(self) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        """RecordBatches (with 0), and after each stretch without one (the offset up to which everything was given,
        None).
        """
        if self._entry.store_id != 0:
            raise SegmentBroken(
                f"{self._where(self._entry.base_offset)}: it is in the store {self._entry.store_id}, which this "
                "version cannot read"
            )
        start, end = self._stretch()
        is_whole = (start, end) == (0, self._entry.length)
        rest, position = b"", start
        for chunk in self._chunks(start, end):
            begin = 0
            # the batch between two chunks is joined alone: new memory for all of a chunk costs more than reading it
            if rest:
                begin = _missing(rest, chunk)
                rest += chunk[:begin]
                read = yield from self._decoded(rest, 0, position, end)
                rest, position = rest[read:], position + read
            if not rest:
                read = yield from self._decoded(chunk, begin, position, end)
                rest, position = chunk[begin + read :], position + read
        if rest:
            raise self._broken(f"{len(rest)} bytes are left that are no batch", self._next_offset, position)
        if is_whole and self._records != self._entry.record_count:
            raise self._broken(
                f"{self._records} records instead of {self._entry.record_count}", self._entry.base_offset, 0
            )

    def _decoded(
        self, data: bytes, start: int, position: int, end: int
    ) -> Generator[tuple[int, pa.RecordBatch | None], None, int]:
        """Gives what `read` does, of the whole batches in `data` from `start` on, which is `position` of the run.
        Returns how long they are.
        """
        headers = self._headers(data, start, position, end)
        if not headers:
            return 0
        try:
            for batch in decode(data, headers, self._wanted, self._scratch):
                yield 0, batch
        except BatchBroken as broken:
            raise self._broken(
                broken.why, broken.header.base_offset, position + broken.header.position - start
            ) from broken
        yield headers[-1].next_offset, None
        return headers[-1].end - start

    def _stretch(self) -> tuple[int, int]:
        """(first position, position behind the last) within the run: all of it, or the blocks that are wanted."""
        entry, wanted = self._entry, self._wanted
        is_cut = (
            wanted.from_offset > entry.base_offset
            or wanted.below_offset <= entry.last_offset
            or wanted.min_timestamp_ms is not None
        )
        if not is_cut or entry.length < INDEX_PAYS_BYTES:
            return 0, entry.length
        index = self._index()
        start, base = index.position_for_offset(wanted.from_offset)
        if wanted.min_timestamp_ms is not None:
            found = index.position_for_time(wanted.min_timestamp_ms, from_position=start)
            if found is None:
                return entry.length, entry.length
            start, base = found
        last = min(wanted.below_offset, entry.last_offset + 1) - 1
        end = index.block_end(index.position_for_offset(last)[0])
        self._next_offset = base
        return start, max(start, end)

    def _index(self) -> SegmentIndex:
        entry = self._entry
        data = self._store.run(
            self._store.objects.get(entry.key, start=entry.index_position, length=entry.index_length)
        )
        try:
            index = decode_index(data)
        except FormatError as error:
            raise self._broken(str(error), entry.base_offset, entry.length) from error
        if (index.tp, index.base_offset, index.last_offset, index.length) != (
            self._piece.tp,
            entry.base_offset,
            entry.last_offset,
            entry.length,
        ):
            raise self._broken(
                f"its index is that of {index.tp} at {index.base_offset}", entry.base_offset, entry.length
            )
        return index

    def _chunks(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to `end` of the run, some requests ahead. Raises ObjectMissing."""
        ahead: deque[tuple[int, Future[bytes]]] = deque()
        asked = start
        try:
            while ahead or asked < end:
                while asked < end and len(ahead) < GETS_AHEAD:
                    length = min(GET_BYTES, end - asked)
                    get = self._store.objects.get(self._entry.key, start=self._entry.position + asked, length=length)
                    ahead.append((length, self._store.start(get)))
                    asked += length
                length, future = ahead.popleft()
                data = future.result()
                if len(data) != length:
                    raise self._broken(
                        f"the object ends {length - len(data)} bytes too early", self._next_offset, asked
                    )
                yield data
        finally:
            for _, future in ahead:
                future.cancel()

    def _headers(self, data: bytes, start: int, position: int, end: int) -> list[BatchHeader]:
        """The headers of the whole batches in `data` from `start` on, which is `position` of the run; the last batch
        may not be whole.
        """
        headers: list[BatchHeader] = []
        at, position = start, position - start
        while len(data) - at >= HEADER_SIZE_BYTES:
            size = int.from_bytes(data[at + 8 : at + _SIZE_END], "big", signed=True) + _SIZE_END
            if size > len(data) - at and position + at + size <= end:
                break
            try:
                header = read_header(data, at)
            except (CorruptBatch, UnsupportedMessageFormat) as error:
                raise self._broken(str(error), self._next_offset, position + at) from error
            if header.base_offset < self._next_offset or header.last_offset > self._entry.last_offset:
                raise self._broken(
                    f"a batch of offsets {header.base_offset} to {header.last_offset}", self._next_offset, position + at
                )
            headers.append(header)
            self._next_offset = header.next_offset
            self._records += header.record_count
            at = header.end
        return headers

    def _broken(self, why: str, offset: int, position: int) -> SegmentBroken:
        byte = self._entry.position + position
        remedy = (
            f"`bmq store check` says more; to read on behind this segment begin at offset {self._entry.last_offset + 1}"
        )
        return SegmentBroken(f"{self._where(offset)}, byte {byte}: {why}: {remedy}")

    def _where(self, offset: int) -> str:
        return f"{_place(self._piece, offset)}, object {self._entry.key}"


def _missing(rest: bytes, chunk: bytes) -> int:
    """How much of `chunk` belongs to the batch that begins with `rest`, as far as both tell."""
    start = rest[:_SIZE_END] + chunk[: max(0, _SIZE_END - len(rest))]
    if len(start) < _SIZE_END:
        return len(chunk)
    size = int.from_bytes(start[8:], "big", signed=True) + _SIZE_END
    return min(max(size, HEADER_SIZE_BYTES) - len(rest), len(chunk))


def _place(piece: Slice, offset: int) -> str:
    return f"topic {piece.topic.name}, partition {piece.partition}, offset {offset}"
