"""What the wire costs beside kio, per call in µs: `python benchmarks/wire/hot_paths.py`. Medians of seven runs,
alternating.
"""

import io
import statistics
import timeit
from collections.abc import Callable
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.records.readers import read_batch
from kio.serial import entity_reader, entity_writer

from bmq.wire.batches import (
    Record,
    build_batch,
    check_crc,
    count_records,
    patched,
    read_header,
    split,
    validate_records,
)
from bmq.wire.fetch import FetchedPartition, FetchedTopic, encode_fetch_response, parse_fetch
from bmq.wire.frames import FrameReader, parse_request_header
from bmq.wire.messages import decode_request, encode_request, encode_response
from bmq.wire.produce import ProducedPartition, ProducedTopic, encode_produce_response, parse_produce

RUNS = 7


def once_us(call: Callable[[], Any], number: int) -> float:
    return timeit.timeit(call, number=number) / number * 1e6


def row(name: str, ours: Callable[[], Any], theirs: Callable[[], Any] | None = None, *, number: int = 2000) -> None:
    mine, other = [], []
    for _ in range(RUNS):
        mine.append(once_us(ours, number))
        if theirs is not None:
            other.append(once_us(theirs, max(1, number // 10)))
    beside = (
        f"{statistics.median(other):10.1f} {statistics.median(mine) / statistics.median(other):7.2f}" if other else ""
    )
    print(f"{name:42} {statistics.median(mine):10.1f} {beside}")


def kio_write(version: int, key: int, body: bytes, *, request: bool = False) -> Callable[[], None]:
    """kio's writer with the entity that these bytes are."""
    entity = (load_request_schema if request else load_response_schema)(key, version)
    value, _ = entity_reader(entity)(body, 0)
    write = entity_writer(entity)
    return lambda: write(io.BytesIO(), value)


def kio_read(version: int, key: int, body: bytes) -> Callable[[], Any]:
    read = entity_reader(load_request_schema(key, version))
    return lambda: read(body, 0)


def main() -> None:
    print(f"{'µs per call':42} {'bmq':>10} {'kio':>10} {'ratio':>7}")
    batch = build_batch([Record(0, 5 * i, b"k" * 10, b"v" * 1000) for i in range(64)])
    header = read_header(batch)
    row("split 64 KiB", lambda: split(batch))
    row("check CRC of 64 KiB", lambda: check_crc(batch, header))
    row("patch 64 KiB", lambda: patched(batch, header, base_offset=1, leader_epoch=1))
    row("count 64 records", lambda: count_records(batch, header))
    row("validate 64 records", lambda: validate_records(batch, header), lambda: read_batch(batch, 0), number=300)
    produce = encode_request(
        0,
        10,
        {
            "acks": -1,
            "timeout_ms": 1,
            "topic_data": [{"name": "topic", "partition_data": [{"index": 0, "records": batch}]}],
        },
    )
    row("parse Produce, 1 partition", lambda: parse_produce(10, produce), kio_read(10, 0, produce))
    produced = [ProducedTopic("topic", None, [ProducedPartition(0, base_offset=5)])]
    row(
        "encode its answer",
        lambda: encode_produce_response(10, produced),
        kio_write(10, 0, encode_produce_response(10, produced)),
    )
    partitions = [{"partition": n, "fetch_offset": n, "partition_max_bytes": 1 << 20} for n in range(20)]
    fetch = encode_request(
        1, 11, {"max_wait_ms": 500, "min_bytes": 1, "topics": [{"topic": "topic", "partitions": partitions}]}
    )
    row("parse Fetch, 20 partitions", lambda: parse_fetch(11, fetch), kio_read(11, 1, fetch))
    fetched = [FetchedTopic("topic", None, [FetchedPartition(n, high_watermark=5, records=[batch]) for n in range(20)])]
    answer = b"".join(encode_fetch_response(11, fetched))
    row("encode its answer, 20 × 64 KiB", lambda: encode_fetch_response(11, fetched), kio_write(11, 1, answer))
    heartbeat = encode_request(12, 4, {"group_id": "group", "generation_id": 3, "member_id": "m" * 40})
    row("decode Heartbeat", lambda: decode_request(12, 4, heartbeat), kio_read(4, 12, heartbeat))
    commits = [{"partition_index": n, "committed_offset": 5} for n in range(10)]
    commit = encode_request(8, 8, {"group_id": "group", "topics": [{"name": "topic", "partitions": commits}]})
    row("decode OffsetCommit, 10 partitions", lambda: decode_request(8, 8, commit), kio_read(8, 8, commit))
    leaders = [
        {"partition_index": n, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}
        for n in range(10)
    ]
    metadata = {
        "brokers": [{"node_id": 1, "host": "h", "port": 1}],
        "topics": [{"name": f"t{n}", "partitions": leaders} for n in range(100)],
    }
    body = encode_response(3, 12, metadata)
    row(
        "encode Metadata, 100 × 10 partitions",
        lambda: encode_response(3, 12, metadata),
        kio_write(12, 3, body),
        number=30,
    )
    frame = len(produce).to_bytes(4, "big") + b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x01c\x00" + produce
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    reader = FrameReader()
    row("frame and header of a 64 KiB Produce", lambda: parse_request_header(reader.feed(frame)[0]))


if __name__ == "__main__":
    main()
