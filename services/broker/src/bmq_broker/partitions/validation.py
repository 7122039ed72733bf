"""What a produced record batch has to fulfil before it gets an offset. Pure; the batch's records stay unopened.

The CRC is checked by the caller, because it needs the bytes; everything here is read from the batch header.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from bmq.errors import BatchTooLarge, InvalidBatch, InvalidTimestamp, UnsupportedCompression
from bmq.wire.batch_headers import CODEC_MASK, LOG_APPEND_TIME_BIT, NO_TIMESTAMP
from bmq.wire.batches import HEADER_SIZE_BYTES, BatchHeader
from bmq.wire.compression import Codec
from bmq.wire.limits import BATCH_RECORDS_MAX, DECOMPRESSED_BYTES_MAX, ZSTD_PRODUCE_VERSION_MIN

TAKEN_BITS: Final = CODEC_MASK | LOG_APPEND_TIME_BIT
"""The attributes of batches that are taken."""
SMALLEST_RECORD_BYTES = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, number of headers: one byte each."""


class Taken(Protocol):
    """What is said of the batches that a topic takes: by its configuration, as a rule."""

    @property
    def max_message_bytes(self) -> int: ...

    @property
    def log_append_time(self) -> bool: ...

    @property
    def timestamp_before_max_ms(self) -> int: ...

    @property
    def timestamp_after_max_ms(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The same of a part of a batch, of which some was judged before."""

    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int


def validate(
    header: BatchHeader, limits: Taken, *, now_ms: int, produce_version: int, may_have_gaps: bool = False
) -> None:
    """`may_have_gaps`: it is a part of what a client wrote. Raises BatchTooLarge, InvalidBatch, InvalidTimestamp or
    UnsupportedCompression.
    """
    if header.size_bytes > limits.max_message_bytes:
        raise BatchTooLarge(
            f"a batch of {header.size_bytes} bytes exceeds max.message.bytes of {limits.max_message_bytes}"
        )
    if header.attributes & ~TAKEN_BITS:
        raise _not_taken(header)
    offsets = header.last_offset_delta + 1
    if header.record_count > offsets or (not may_have_gaps and not 0 < header.record_count == offsets):
        raise InvalidBatch(
            f"a batch of {header.record_count} records whose last offset delta is {header.last_offset_delta}"
        )
    if offsets > BATCH_RECORDS_MAX:
        raise InvalidBatch(f"a batch of {offsets} records: send at most {BATCH_RECORDS_MAX} in one batch")
    codec = header.codec
    # a small batch must not use up millions of offsets
    records_bytes_max = header.size_bytes - HEADER_SIZE_BYTES if codec is Codec.NONE else DECOMPRESSED_BYTES_MAX
    if header.record_count * SMALLEST_RECORD_BYTES > records_bytes_max:
        raise InvalidBatch(
            f"a batch of {header.size_bytes} bytes cannot hold the {header.record_count} records that it claims"
        )
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidBatch(
            f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
        )
    if codec is Codec.ZSTD and produce_version < ZSTD_PRODUCE_VERSION_MIN:
        raise UnsupportedCompression(f"codec {codec} in Produce version {produce_version}")
    if not limits.log_append_time:
        _check_timestamps(header, limits, now_ms=now_ms)


def _not_taken(header: BatchHeader) -> InvalidBatch:
    if header.is_control:
        return InvalidBatch("clients may not write control batches")
    if header.is_transactional:
        return InvalidBatch("a transactional batch without a transaction")
    return InvalidBatch(
        f"a batch with attributes {header.attributes & 0xFFFF:#06x}: producers set the codec, the timestamp type and "
        "the bits of transactions alone; the others are for brokers, or for formats to come"
    )


def _check_timestamps(header: BatchHeader, limits: Taken, *, now_ms: int) -> None:
    if header.is_log_append_time:
        raise InvalidTimestamp(
            "a batch with timestamp type LogAppendTime, which is the broker's to set: send CreateTime"
        )
    if header.base_timestamp_ms < NO_TIMESTAMP or header.max_timestamp_ms < header.base_timestamp_ms:
        raise InvalidTimestamp(
            f"a batch whose first timestamp is {header.base_timestamp_ms} and whose largest is "
            f"{header.max_timestamp_ms}: none is below -1, and none is larger than the largest"
        )
    if header.max_timestamp_ms - now_ms > limits.timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {header.max_timestamp_ms} is {header.max_timestamp_ms - now_ms} ms ahead of the broker's "
            f"clock; message.timestamp.after.max.ms allows {limits.timestamp_after_max_ms}"
        )
    if header.base_timestamp_ms >= 0 and now_ms - header.base_timestamp_ms > limits.timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"timestamp {header.base_timestamp_ms} is {now_ms - header.base_timestamp_ms} ms behind the broker's "
            f"clock; message.timestamp.before.max.ms allows {limits.timestamp_before_max_ms}"
        )
