"""What many requests at once, each of which asks for much, make of a process's memory."""

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from abuse_process import BmqProcess, bmq_process
from abuse_requests import TOPICS, WIDE_PARTITIONS
from tests.bare_client import BareClient, framed
from wide_requests import ELEMENT_BYTES

from bmq.config.limits import Limits
from bmq.wire.records import Record, build_batch

KIB: Final = 1 << 10
MIB: Final = 1 << 20
DENSE: Final = 39_000
AT_ONCE: Final = 12
METADATA_BYTES: Final = 4_000
METADATA_AT_ONCE: Final = 400
"""Offsets of one commit, so that it is below 2 MiB."""
COLD_PARTITIONS: Final = 300
PAGES_AT_ONCE: Final = 300
CACHES_BYTES: Final = 96 * MIB

pytestmark = [pytest.mark.measures, pytest.mark.memory]

DENSE_REQUESTS: Final = {
    "reassignments": (
        45,
        1,
        {
            "timeout_ms": 1_000,
            "topics": [{"name": "wide", "partitions": [{"partition_index": n} for n in range(DENSE)]}],
        },
    ),
    "epochs": (
        23,
        4,
        {"replica_id": -1, "topics": [{"topic": "wide", "partitions": [{"partition": n} for n in range(DENSE)]}]},
    ),
    "groups": (15, 5, {"groups": [f"g{n}" for n in range(DENSE)]}),
    "nothing to write": (
        0,
        9,
        {"acks": -1, "timeout_ms": 1_000, "topic_data": [{"name": "wide", "partition_data": [{"index": 0}] * 20_000}]},
    ),
}


@pytest.mark.parametrize("name", list(DENSE_REQUESTS))
def test_many_dense_requests_at_once_take_no_more_than_is_worked_on_at_a_time(process: BmqProcess, name: str) -> None:
    api_key, version, request = DENSE_REQUESTS[name]
    frame = framed(api_key, version, request)
    with process.growth() as grown:
        asking = [threading.Thread(target=_ask, args=(process, frame)) for _ in range(AT_ONCE)]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
    together = Limits().wide_request_elements * ELEMENT_BYTES + 16 * MIB
    assert grown.size_bytes < together + AT_ONCE * len(frame) < AT_ONCE * DENSE * ELEMENT_BYTES // 2
    with BareClient(process.kafka) as client:
        assert client.ask(3, 9, {"topics": []}).brokers


def _ask(process: BmqProcess, frame: bytes) -> None:
    with BareClient(process.kafka) as client:
        assert client.exchange(frame) is not None


PAGES: Final = {
    "partitions": (75, 0, {"topics": [{"name": "wide"}], "response_partition_limit": 2_000}),
    "sizes": (35, 4, {"topics": None}),
}


@pytest.mark.parametrize("name", list(PAGES))
def test_pages_of_partitions_that_many_ask_for_at_once_take_no_more_than_is_put_together_at_a_time(
    process: BmqProcess, name: str
) -> None:
    """33 bytes ask for 2,000 partitions: each of those who waited for the encoding of theirs held 1.5 MB, and two
    thousand of them 1.8 GB.
    """
    process.have_topics(TOPICS)
    frame = framed(*PAGES[name])
    with contextlib.ExitStack() as open_ones:
        strangers = [open_ones.enter_context(BareClient(process.kafka)) for _ in range(PAGES_AT_ONCE)]
        process.until_quiet()
        with process.growth() as grown:
            for one in strangers:
                one.send_some(frame, within_s=1)
            for one in strangers:
                one.receive_frame()
    assert grown.size_bytes < Limits().wide_answer_elements * KIB + 64 * MIB < PAGES_AT_ONCE * MIB // 2


def test_large_pages_of_the_admin_address_that_nobody_reads_take_no_more_than_few_of_them(process: BmqProcess) -> None:
    """Fifty bytes ask for a page of a group's offsets, of 3 MB with their metadata: twelve who did not read theirs held
    all of them, as long as they liked. One group has `group_metadata_bytes_max` of that at most.
    """
    process.have_topics(TOPICS)
    with_metadata = min(WIDE_PARTITIONS, Limits().group_metadata_bytes_max // (METADATA_BYTES + 64))
    with BareClient(process.kafka) as client:
        for first in range(0, with_metadata, METADATA_AT_ONCE):
            some = range(first, min(first + METADATA_AT_ONCE, with_metadata))
            partitions = [
                {"partition_index": n, "committed_offset": 0, "committed_metadata": "m" * METADATA_BYTES} for n in some
            ]
            request = {
                "group_id": "large",
                "generation_id_or_member_epoch": -1,
                "topics": [{"name": "wide", "partitions": partitions}],
            }
            assert not any(one.error_code for one in client.ask(8, 9, request).topics[0].partitions)
    address = urlsplit(process.started.admin)
    size_bytes = with_metadata * METADATA_BYTES
    urlopen(f"{process.started.admin}/v1/topics").close()  # the framework of the pages is there
    process.until_quiet()
    with contextlib.ExitStack() as open_ones, process.growth() as grown:
        strangers = [
            open_ones.enter_context(socket.create_connection((address.hostname, address.port))) for _ in range(AT_ONCE)
        ]
        for one in strangers:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            one.sendall(b"GET /v1/groups/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        statuses = [one.recv(12) for one in strangers]
    told = statuses.count(b"HTTP/1.1 200")
    assert 1 <= told < AT_ONCE // 2 and statuses.count(b"HTTP/1.1 503") == AT_ONCE - told
    assert grown.size_bytes < AT_ONCE // 2 * size_bytes


def test_a_few_records_of_each_of_many_partitions_keep_no_large_blocks_in_memory(tmp_path: Path) -> None:
    """They are read from segments by blocks of a MiB: 8 KB that asked for 20 KB held 250 MiB of them beside the caches,
    for as long as the answer was not taken, and everybody else's reads waited for the store behind 300 of its own.
    """
    large, small = (build_batch([Record(0, 1_000, None, os.urandom(size_bytes))]) for size_bytes in (900_000, 4))
    with (
        bmq_process(tmp_path, topics={"cold": COLD_PARTITIONS}) as started,
        BareClient(started.kafka) as client,
    ):
        for _ in range(2):
            for index in range(COLD_PARTITIONS):
                for batch in (large, small):
                    data = [{"name": "cold", "partition_data": [{"index": index, "records": batch}]}]
                    answer = client.ask(
                        0, 9, {"transactional_id": None, "acks": -1, "timeout_ms": 60_000, "topic_data": data}
                    )
                    assert answer.responses[0].partition_responses[0].error_code == 0
        started.until_quiet()
        each = {"fetch_offset": 1, "partition_max_bytes": 200, "current_leader_epoch": -1}
        topics = [{"topic": "cold", "partitions": [{**each, "partition": index} for index in range(COLD_PARTITIONS)]}]
        with started.growth() as grown:
            found = client.ask(
                1, 11, {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": MIB, "session_epoch": -1, "topics": topics}
            )
        assert all(one.records for one in found.responses[0].partitions)
    assert grown.size_bytes < CACHES_BYTES + 64 * MIB < COLD_PARTITIONS * MIB * 2 // 3
