"""Kafka's protocol by hand, for peers that behave and peers that do not: blocking sockets, whole control over every
byte.
"""

import struct
from collections.abc import Sequence
from time import time
from typing import Any

from crc32c import crc32c
from tests.bare_client import BareClient

from bmq.wire.apis import ApiKey
from bmq.wire.records import Record, build_batch

NO_ERROR = 0


def with_length(rest: bytes) -> bytes:
    """`rest` with its length before it."""
    return struct.pack(">i", len(rest)) + rest


def batch_of(*values: bytes, codec: int = 0, timestamp_ms: int | None = None) -> bytes:
    """One record batch without keys."""
    at_ms = int(time() * 1000) if timestamp_ms is None else timestamp_ms
    return build_batch([Record(0, at_ms, None, value) for value in values], codec=codec)


def with_max_timestamp(batch: bytes, timestamp_ms: int) -> bytes:
    """The same batch with another promise in its header, and a checksum that fits."""
    changed = batch[:35] + struct.pack(">q", timestamp_ms) + batch[43:]
    return changed[:17] + struct.pack(">I", crc32c(changed[21:])) + changed[21:]


def produce_fields(
    topic: str, partition: int, batch: bytes, *, acks: int = -1, timeout_ms: int = 30_000
) -> dict[str, Any]:
    return {
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }


def fetch_fields(
    topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 500
) -> dict[str, Any]:
    asked = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }


def create_topics_fields(
    topics: Sequence[str], *, partitions: int = 1, configs: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    named = [{"name": name, "value": value} for name, value in configs]
    return {
        "topics": [
            {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": named}
            for topic in topics
        ],
        "timeout_ms": 30_000,
        "validate_only": False,
    }


def create_topic(peer: BareClient, topic: str, *, partitions: int = 1, configs: Sequence[tuple[str, str]] = ()) -> None:
    """Raises AssertionError with what was answered."""
    (answer,) = peer.ask(
        ApiKey.CREATE_TOPICS, 5, create_topics_fields([topic], partitions=partitions, configs=configs)
    ).topics
    assert answer.error_code == NO_ERROR, answer


def produce(peer: BareClient, topic: str, partition: int, batch: bytes, *, timeout_ms: int = 30_000) -> tuple[int, int]:
    """(error code, base offset)."""
    answer = peer.ask(ApiKey.PRODUCE, 8, produce_fields(topic, partition, batch, timeout_ms=timeout_ms))
    (result,) = answer.responses[0].partition_responses
    return result.error_code, result.base_offset


def fetch(
    peer: BareClient, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 500
) -> tuple[int, int, bytes]:
    """(error code, high watermark, batches)."""
    answer = peer.ask(
        ApiKey.FETCH, 11, fetch_fields(topic, partition, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
    )
    (result,) = answer.responses[0].partitions
    return result.error_code, result.high_watermark, bytes(result.records or b"")
