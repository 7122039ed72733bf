"""Record batches: the one place to import from. Headers are in `batch_headers` (hot path), the rest is for threads."""

from bmq.wire.batch_headers import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    check_crc,
    max_timestamp_of,
    of_producer,
    only_header,
    patched,
    read_header,
    split,
)
from bmq.wire.record_validation import RecordsSummary, count_records, validate_records
from bmq.wire.records import (
    Record,
    RecordHeaders,
    build_batch,
    build_empty_batch,
    counted_records,
    first_at_or_after,
    iterate_records,
    with_max_timestamp,
)

__all__ = [
    "HEADER_SIZE_BYTES",
    "BatchHeader",
    "Record",
    "RecordHeaders",
    "RecordsSummary",
    "build_batch",
    "build_empty_batch",
    "check_crc",
    "count_records",
    "counted_records",
    "first_at_or_after",
    "iterate_records",
    "max_timestamp_of",
    "of_producer",
    "only_header",
    "patched",
    "read_header",
    "split",
    "validate_records",
    "with_max_timestamp",
]
