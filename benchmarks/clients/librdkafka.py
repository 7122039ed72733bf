"""librdkafka itself (the library inside confluent-kafka), driven through its C interface by batches of records: no
Python per record.

As a program of its own it produces, and prints one JSON line: `python -m benchmarks.clients.librdkafka ADDRESS TOPIC
RECORDS RECORD_BYTES BATCH_BYTES MIB_PER_S`, where 0 is as fast as it can.
"""

import ctypes
import json
import os
import sys
import time
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from typing import Any

from benchmarks.processes import run_client
from benchmarks.servers import ROOT, Server

MIB = 1 << 20
DISTINCT = 4096
"""Records with a value of their own; they are sent over and over."""
CALL_COUNT = 1024
UNASSIGNED = -1
QUEUE_FULL = -184
UNLIMITED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """One run. `began_s` is seconds since 1970."""

    mib_per_s: float
    began_s: float


def produce(
    server: Server,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    batch_bytes: int,
    timeout_s: float,
    mib_per_s: int = UNLIMITED,
) -> Produced:
    """Runs the program."""
    sizes = (records, record_bytes, batch_bytes, mib_per_s)
    command = [sys.executable, "-m", "benchmarks.clients.librdkafka", server.address, topic, *map(str, sizes)]
    output = run_client(["/usr/bin/env", "-C", str(ROOT), *command], timeout_s=timeout_s)
    said = json.loads(output.splitlines()[-1])
    assert said["failed"] == 0, f"{said['failed']} of {records} records failed"
    return Produced(mib_per_s=records * record_bytes / MIB / said["seconds"], began_s=said["began_s"])


class _Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_length", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


_Report = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Message), ctypes.c_void_p)


def _library() -> Any:
    for path in files("confluent-kafka") or ():
        if path.name.startswith("librdkafka-") or path.name.startswith("librdkafka."):
            library = ctypes.CDLL(str(Path(str(path.locate()))))
            break
    else:
        raise SystemExit("confluent-kafka brings no librdkafka here")
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_conf_set.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    library.rd_kafka_conf_set_dr_msg_cb.argtypes = [ctypes.c_void_p, _Report]
    library.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_topic_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    library.rd_kafka_topic_new.restype = ctypes.c_void_p
    library.rd_kafka_produce_batch.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int,
        ctypes.POINTER(_Message),
        ctypes.c_int,
    ]
    library.rd_kafka_poll.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.rd_kafka_flush.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library


def _produce_here(
    address: str, topic: str, *, records: int, record_bytes: int, batch_bytes: int, mib_per_s: int
) -> dict[str, float]:
    library = _library()
    conf = library.rd_kafka_conf_new()
    said = ctypes.create_string_buffer(512)
    settings = {
        "bootstrap.servers": address,
        "acks": "-1",
        "linger.ms": "5",
        "batch.size": str(batch_bytes),
        "queue.buffering.max.kbytes": str(64 << 10),
        "delivery.report.only.error": "true",
    }
    for name, value in settings.items():
        if library.rd_kafka_conf_set(conf, name.encode(), value.encode(), said, len(said)):
            raise SystemExit(said.value.decode())
    failed = 0

    def count_failure(_: Any, message: Any, __: Any) -> None:
        nonlocal failed
        failed += 1

    report = _Report(count_failure)
    library.rd_kafka_conf_set_dr_msg_cb(conf, report)
    producer = library.rd_kafka_new(0, conf, said, len(said))
    if not producer:
        raise SystemExit(said.value.decode())
    handle = library.rd_kafka_topic_new(producer, topic.encode(), None)
    values = ctypes.create_string_buffer(os.urandom(DISTINCT * record_bytes), DISTINCT * record_bytes)
    messages = (_Message * DISTINCT)()
    for index, message in enumerate(messages):
        message.payload = ctypes.addressof(values) + index * record_bytes
        message.length = record_bytes
        message.partition = UNASSIGNED
    size = ctypes.sizeof(_Message)
    began_s, start = time.time(), time.perf_counter()
    sent = 0
    while sent < records:
        index = sent % DISTINCT
        count = min(CALL_COUNT, DISTINCT - index, records - sent)
        first = ctypes.cast(ctypes.addressof(messages) + index * size, ctypes.POINTER(_Message))
        taken = library.rd_kafka_produce_batch(handle, UNASSIGNED, 0, first, count)
        sent += taken
        if taken < count:
            if first[taken].err != QUEUE_FULL:
                raise SystemExit(f"librdkafka refused a record: error {first[taken].err}")
            library.rd_kafka_poll(producer, 1)
        if mib_per_s:
            time.sleep(max(0.0, start + sent * record_bytes / MIB / mib_per_s - time.perf_counter()))
    late = library.rd_kafka_flush(producer, 120_000)
    seconds = time.perf_counter() - start
    if late:
        raise SystemExit("librdkafka could not deliver everything within two minutes")
    return {"seconds": seconds, "began_s": began_s, "failed": failed}


if __name__ == "__main__":
    _amounts = dict(zip(("records", "record_bytes", "batch_bytes", "mib_per_s"), map(int, sys.argv[3:]), strict=True))
    print(json.dumps(_produce_here(sys.argv[1], sys.argv[2], **_amounts)))
