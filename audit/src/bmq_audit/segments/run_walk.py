"""Walks over the batches of a segment's run, given chunk by chunk, and compares them with the run's index. Pure."""

from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from bmq.errors import CorruptBatch
from bmq.storage.leader_epochs import EpochHistory, EpochStart
from bmq.storage.segment_index import SegmentIndex
from bmq.wire.batch_headers import CRC_START, HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, read_header
from bmq_audit.unopenable import TOLD_MAX, why_unopenable

PROBLEMS_MAX: Final = 8
"""Told of one run; the others are counted."""
_NO_MS: Final = -(1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run's batches say. Without damage everything else in the object has to agree with it."""

    base_offset: int
    last_offset: int
    record_count: int
    batch_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    epochs: EpochHistory
    problems: tuple[str, ...]
    problem_count: int
    unopenable: tuple[str, ...]


class RunWalk:
    """One run: `feed` its bytes in order, then `finish`.

    After a batch that is not what was written it goes on at the next block of the index, because its length cannot be
    believed either.
    """

    def __init__(
        self,
        *,
        base_offset: int,
        last_offset: int,
        length: int,
        leader_epoch: int,
        index: SegmentIndex | None,
        dense: bool,
    ) -> None:
        self._length = length
        self._leader_epoch = leader_epoch
        self._dense = dense
        self._base_offset = base_offset
        self._last_offset = last_offset
        self._index = index
        self._blocks = index.blocks if index is not None else ()
        self._block = -1
        """The index's block that the walk is in."""
        self._block_max_ms = _NO_MS
        self._block_whole = True
        self._left = b""
        self._at = 0
        """The position in the run of the first byte of `_left`."""
        self._skip_to = 0
        self._crc = 0
        self._fed = 0
        self._expected = base_offset
        self._first: int | None = None
        self._record_count = 0
        self._batch_count = 0
        self._min_ms: int | None = None
        self._max_ms: int | None = None
        self._epochs: list[EpochStart] = []
        self._problems: list[str] = []
        self._unopenable: list[str] = []
        self._problem_count = 0

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the run."""
        self._crc = crc32c(chunk, self._crc)
        self._fed += len(chunk)
        data = self._left + chunk if self._left else chunk
        view = memoryview(data)
        position = 0
        while True:
            start = self._at + position
            if start < self._skip_to:
                position = min(len(data), self._skip_to - self._at)
                if self._at + position < self._skip_to:
                    break
                continue
            step = self._step(view, position)
            if step is None:
                break
            position = step
        self._left = bytes(view[position:])
        self._at += position

    def finish(self) -> RunFacts:
        """When all was fed."""
        if self._left or self._fed != self._length:
            self._problem(f"{self._length} bytes of batches are promised, and they end at {self._at}")
        self._end_block()
        if not self._problem_count:
            self._check_whole()
        return RunFacts(
            base_offset=self._first if self._first is not None else self._base_offset,
            last_offset=self._expected - 1,
            record_count=self._record_count,
            batch_count=self._batch_count,
            min_timestamp_ms=self._min_ms if self._min_ms is not None else -1,
            max_timestamp_ms=self._max_ms if self._max_ms is not None else -1,
            epochs=tuple(self._epochs),
            problems=tuple(self._problems),
            problem_count=self._problem_count,
            unopenable=tuple(self._unopenable),
        )

    def _step(self, view: memoryview, position: int) -> int | None:
        """Where the next batch begins; None where more bytes are needed first."""
        start = self._at + position
        left = len(view) - position
        if left < HEADER_SIZE_BYTES:
            return None
        size_bytes = int.from_bytes(view[position + 8 : position + 12], "big", signed=True) + LOG_OVERHEAD_BYTES
        if not HEADER_SIZE_BYTES <= size_bytes <= self._length - start or view[position + 16] != MAGIC:
            return self._resync(
                start, f"at byte {start} of the run, where offset {self._expected} is due, there is no batch"
            )
        if size_bytes > left:
            return None
        end = position + size_bytes
        stored_crc = int.from_bytes(view[position + 17 : position + CRC_START], "big")
        if crc32c(view[position + CRC_START : end]) != stored_crc:
            return self._resync(
                start,
                f"the batch at byte {start} of the run, where offset {self._expected} is due, does not have its CRC",
            )
        try:
            header = read_header(view[position:end])
        except CorruptBatch as error:  # base offset and leader epoch are outside the CRC
            return self._resync(start, str(error))
        self._take(header, start)
        if len(self._unopenable) < TOLD_MAX and (why := why_unopenable(view[position:end], header)) is not None:
            self._unopenable.append(why)
        return end

    def _resync(self, start: int, problem: str) -> int:
        """Goes on at the next block; its first offset is the index's."""
        following = next((block for block in self._blocks if block.position > start), None)
        self._block_whole = False
        if following is None:
            self._problem(f"{problem}: offsets {self._expected} to {self._last_offset} are affected")
            self._skip_to = self._length
            self._expected = self._last_offset + 1
        else:
            resumes = self._base_offset + following.relative_offset
            self._problem(f"{problem}: of offsets {self._expected} to {resumes - 1} some are affected")
            self._skip_to = following.position
            self._expected = resumes
        return self._skip_to - self._at

    def _take(self, header: BatchHeader, start: int) -> None:
        """A batch whose CRC holds; base offset and leader epoch are outside it."""
        self._enter_block(header, start)
        if header.base_offset < self._expected or (self._dense and header.base_offset != self._expected):
            self._problem(
                f"the batch at byte {start} of the run has base offset {header.base_offset}, {self._expected} is due"
            )
        elif header.record_count > header.last_offset_delta + 1:
            self._problem(
                f"the batch of offset {header.base_offset} has {header.record_count} records in "
                f"{header.last_offset_delta + 1} offsets"
            )
        newest = self._epochs[-1].epoch if self._epochs else -1
        if not newest <= header.leader_epoch <= self._leader_epoch:
            self._problem(
                f"the batch of offset {header.base_offset} has leader epoch {header.leader_epoch}, after {newest}, "
                f"in a run of {self._leader_epoch}"
            )
        elif header.leader_epoch > newest:
            self._epochs.append(EpochStart(header.leader_epoch, header.base_offset))
        if self._first is None:
            self._first = header.base_offset
        self._expected = max(self._expected, header.next_offset)
        self._record_count += header.record_count
        self._batch_count += 1
        first_ms = header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms
        self._min_ms = first_ms if self._min_ms is None else min(self._min_ms, first_ms)
        self._max_ms = header.max_timestamp_ms if self._max_ms is None else max(self._max_ms, header.max_timestamp_ms)
        self._block_max_ms = max(self._block_max_ms, header.max_timestamp_ms)

    def _enter_block(self, header: BatchHeader, start: int) -> None:
        blocks = self._blocks
        while self._block + 1 < len(blocks) and blocks[self._block + 1].position <= start:
            self._end_block()
            self._block += 1
            block = blocks[self._block]
            if block.position != start:
                self._block_whole = False
                if not self._problem_count:
                    self._problem(f"the index has a block at byte {block.position} of the run, where no batch begins")
            elif self._base_offset + block.relative_offset != header.base_offset and not self._problem_count:
                self._problem(
                    f"the index has offset {self._base_offset + block.relative_offset} at byte {start} of the run, "
                    f"there is {header.base_offset}"
                )

    def _end_block(self) -> None:
        if 0 <= self._block < len(self._blocks) and self._block_whole:
            promised_ms = self._blocks[self._block].max_timestamp_ms
            if promised_ms != self._block_max_ms:
                self._problem(
                    f"the index's block {self._block} has the largest timestamp {promised_ms}, its batches have "
                    f"{self._block_max_ms}"
                )
        self._block_whole = True
        self._block_max_ms = _NO_MS

    def _check_whole(self) -> None:
        """What nothing but the run's sums tell: bytes outside the batches' own checksums, and a batch too few at the
        end.
        """
        if self._expected != self._last_offset + 1:
            self._problem(f"its batches end at offset {self._expected - 1}, {self._last_offset} is promised")
        if self._index is not None and self._crc != self._index.batches_crc:
            self._problem(
                "its batches do not have the checksum of the index: a base offset or leader epoch was changed"
            )
        if self._index is not None and self._record_count != self._index.record_count:
            self._problem(f"its batches have {self._record_count} records, the index says {self._index.record_count}")

    def _problem(self, text: str) -> None:
        self._problem_count += 1
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(text)
