"""Which batches of a lane's log are opened in one step: some small ones together, or one. Pure; it looks at headers."""

from typing import Final, NamedTuple

from bmq.wire.batches import BatchHeader, read_header

RUN_BATCHES: Final = 100
RUN_RECORDS: Final = 5_000
RUN_BYTES: Final = 256 << 10


class Run(NamedTuple):
    """Whole batches one after the other, between which nothing is missing."""

    position: int
    """Where in the log they begin…"""
    end: int
    """…and end."""
    first: BatchHeader


class Gap(NamedTuple):
    """What is to go on next is not there."""

    goes_on_at: int


def run_at(log: memoryview, position: int, next_offset: int) -> Run | Gap | None:
    """What of the log's batches from there on is opened next, which hold `next_offset` and what follows; None: they
    hold no more.
    """
    first: BatchHeader | None = None
    end, batches, records = position, 0, 0
    while end < len(log):
        header = read_header(log, end)
        if first is None and header.next_offset <= next_offset:
            end = position = header.end
            continue
        if header.base_offset > next_offset or not header.record_count:
            if first is None:
                return Gap(header.base_offset if header.record_count else header.next_offset)
            break
        records += header.record_count
        is_full = batches == RUN_BATCHES or records > RUN_RECORDS or header.end - position > RUN_BYTES
        if first is not None and is_full:
            break
        first = header if first is None else first
        end, next_offset = header.end, header.next_offset
        batches += 1
    return None if first is None else Run(position, end, first)
