"""Produced batches that cost much more than they are long hold nobody up: neither in one request, nor in many at
once.
"""

import gc
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import pytest
from abuse_node import AbusedNode, abused_node, may_hold_s
from crc32c import crc32c
from tests.bare_client import BareClient, framed
from tests.waiting import let_pass

from bmq.runtime.loop import settle
from bmq.wire.batch_headers import HEADER_SIZE_BYTES
from bmq.wire.compression import Codec, compress
from bmq.wire.records import Record, build_batch

PARTITIONS: Final = 1_000
TURN_S_MAX: Final = 0.15
TURNS_S_MAX: Final = 0.35
"""What is begun bit by bit may become durable at once."""
ANSWERED_WITHIN_S: Final = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("batches")) as running:
        with BareClient(running.kafka) as client:
            configs = [{"name": "bmq.validation", "value": "records"}]
            topics = [
                {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": own}
                for name, own in {"lengths": [], "records": configs}.items()
            ]
            client.ask(19, 5, {"topics": topics, "timeout_ms": 60_000, "validate_only": False})
        thresholds = gc.get_threshold()
        settle()
        yield running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def claiming(body: bytes, *, codec: Codec = Codec.NONE) -> bytes:
    """A batch of one record, as its header says."""
    batch = bytearray(build_batch([Record(0, 1_000, None, b"one")]))
    batch[HEADER_SIZE_BYTES:] = body if codec is Codec.NONE else compress(codec, body)
    batch[22] = codec
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def produce(topic: str, batches: Sequence[bytes]) -> bytes:
    data = [{"index": index, "records": batch} for index, batch in enumerate(batches)]
    asked = {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": data}]}
    return framed(0, 9, {"transactional_id": None, **asked})


MANY_HEADERS: Final = [("", None)] * 10_000
CASES: Final = {
    "zeros that are compressed": ("lengths", [claiming(bytes(64 << 10), codec=Codec.ZSTD)] * 300),
    "zeros": ("lengths", [claiming(bytes(1_000_000))] * 10),
    "more than is opened at once": ("lengths", [claiming(bytes(8 << 20), codec=Codec.ZSTD)] * 100),
    "as many records as are proved at once": ("lengths", [build_batch([Record(0, 1_000, None, None)] * 1_000)] * 500),
    "headers": ("records", [build_batch([Record(0, 1_000, None, None, MANY_HEADERS)] * 40)] * 10),
    "headers that are compressed": (
        "records",
        [build_batch([Record(0, 1_000, None, None, MANY_HEADERS)] * 3, codec=Codec.ZSTD)] * 100,
    ),
}


@pytest.mark.measures
@pytest.mark.parametrize("case", list(CASES))
def test_one_request_of_batches_that_are_dear_to_prove_does_not_hold_the_loop(node: AbusedNode, case: str) -> None:
    topic, batches = CASES[case]
    frame = produce(topic, batches)
    node.longest_turn_s()
    with BareClient(node.kafka) as client:
        client.send_bytes(frame)
        assert len(client.receive_frame()) > 30 * len(batches)
    assert node.longest_turn_s() < may_hold_s(TURN_S_MAX), f"{len(frame)} bytes"


@pytest.mark.measures
def test_wide_produce_requests_of_many_connections_are_not_begun_in_one_turn(node: AbusedNode) -> None:
    frame = produce("lengths", [build_batch([Record(0, 1_000, None, b"one")])] * PARTITIONS)
    clients = [BareClient(node.kafka) for _ in range(40)]
    for client in clients:
        client.send_bytes(frame[:-1])
    let_pass(0.2, "so much has arrived, whatever comes of it")
    node.longest_turn_s()
    busy = threading.Thread(target=node.ask, args=(lambda: let_pass(0.3, "so that all last bytes are there at once"),))
    busy.start()
    for client in clients:
        client.send_bytes(frame[-1:])
    busy.join()
    for client in clients:
        assert len(client.receive_frame()) > 30 * PARTITIONS
        client.close()
    assert node.longest_turn_s() < may_hold_s(TURNS_S_MAX)
