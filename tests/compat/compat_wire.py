"""Looks at the stored batches themselves, which no client shows."""

import struct
from collections.abc import Iterator

from compat_contract import CODECS
from tests.bare_client import BareClient

from bmq.wire.apis import ApiKey
from bmq.wire.batches import split


def stored_codecs(servers: str, topic: str, partition: int, start: int) -> set[str]:
    """The codecs of a partition's batches from an offset on."""
    return {CODECS[attributes & 7] for attributes in _attributes(_fetch(servers, topic, partition, start))}


def stored_counts(servers: str, topic: str, partition: int, start: int) -> list[tuple[int, int]]:
    """(records, offsets) of each of a partition's batches from an offset on."""
    headers = split(_fetch(servers, topic, partition, start))
    return [(header.record_count, header.last_offset_delta + 1) for header in headers]


def _fetch(servers: str, topic: str, partition: int, start: int) -> bytes:
    asked = {"partition": partition, "fetch_offset": start, "partition_max_bytes": 50_000_000}
    with BareClient(servers) as client:
        answer = client.ask(
            ApiKey.FETCH,
            4,
            {
                "replica_id": -1,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": 50_000_000,
                "isolation_level": 0,
                "topics": [{"topic": topic, "partitions": [asked]}],
            },
        )
    (one,) = answer.responses[0].partitions
    assert one.error_code == 0, f"Fetch of {topic}-{partition} from {start} answered error {one.error_code}"
    return bytes(one.records or b"")


def _attributes(batches: bytes) -> Iterator[int]:
    at = 0
    while at + 61 <= len(batches):
        (length,) = struct.unpack_from(">i", batches, at + 8)
        yield struct.unpack_from(">h", batches, at + 21)[0]
        at += 12 + length
