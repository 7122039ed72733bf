"""What a request makes of a process's memory, and how long others wait meanwhile: of a `bmq up` as it is shipped, in
its own process.

What is named in a request becomes objects of Python while it is worked on, up to ELEMENT_BYTES for each with its part
of the answer, however few bytes it takes on the wire. So a request is bounded by its bytes and by what it names; and
all of them together by what is worked on at a time.
"""

import contextlib
import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from abuse_node import AbusedNode, abused_node
from abuse_process import PATIENT, BmqProcess, PatientClient, bmq_process, nearly_all_within_s
from abuse_requests import API_KEYS, TOPIC_IDS, TOPICS, WIDE_PARTITIONS, Abuse, abuses
from tests.bare_client import BareClient, framed

from bmq.config.limits import Limits
from bmq.runtime.loop import settle
from bmq.wire import messages
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.frames import parse_request_header
from bmq.wire.records import Record, build_batch
from bmq_proxy.bulk import elements_of

KIB: Final = 1 << 10
MIB: Final = 1 << 20
ELEMENT_BYTES: Final = KIB
FETCHED_BYTES: Final = 3 * KIB
"""The same of a partition in a Fetch, which is looked up in its session, its owner's tail and its manifest."""
UNREACHABLE_MAX: Final = 1_000
"""Objects of a request that only the garbage collector frees: a few, however much it names."""
DENSE: Final = 39_000
AT_ONCE: Final = 12
HALF_SENT: Final = 300
METADATA_BYTES: Final = 4_000
METADATA_AT_ONCE: Final = 400
"""Offsets of one commit, so that it is below 2 MiB."""
TRIES: Final = 3
QUIET: Final = 150
"""Answers by which it is known how long others take."""
WAIT_S_MAX: Final = 0.1
_FLEXIBLE_FETCH: Final = 12
"""Newer ones may have fields with tags for each partition, of which few are taken."""


def version_of(api_key: int) -> int:
    return _FLEXIBLE_FETCH if api_key == ApiKey.FETCH else SERVED[api_key].version_max


def wide(api_key: int) -> Iterator[Abuse]:
    """Of all its abuses those with many elements."""
    return (abuse for abuse in abuses(api_key, version_of(api_key)) if "×" in abuse.what)


def elements_in(abuse: Abuse) -> int:
    header = parse_request_header(memoryview(abuse.frame)[4:])
    body = memoryview(abuse.frame)[4:][header.body_position :]
    return elements_of(
        messages.decode_request(abuse.api_key, abuse.version, body, elements_max=1_000_000), at_most=1_000_000
    )


def may_grow_bytes(abuse: Abuse, answer_bytes: int) -> int:
    """By its bytes and elements, and by those of what it is told: the groups that there are, for one."""
    each = FETCHED_BYTES if abuse.api_key == ApiKey.FETCH else ELEMENT_BYTES
    return 8 * (len(abuse.frame) + answer_bytes) + MIB + each * elements_in(abuse)


COLD_PARTITIONS: Final = 300
PAGES_AT_ONCE: Final = 300
CACHES_BYTES: Final = 96 * MIB


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BmqProcess]:
    with bmq_process(tmp_path_factory.mktemp("process")) as running:
        yield running


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("cycles")) as running:
        running.have_topics(TOPICS)
        thresholds = gc.get_threshold()
        settle()
        gc.disable()
        yield running
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@pytest.mark.parametrize("api_key", API_KEYS, ids=lambda key: SERVED[key].name)
def test_what_a_request_took_is_free_when_it_is_answered_and_waits_for_no_garbage_collector(
    node: AbusedNode, api_key: int
) -> None:
    """An error that is kept has the frames that it came through, and those have the error: forty requests of 234 KB
    held 2.5 GB so.
    """
    TOPIC_IDS.update(node.have_topics(TOPICS))
    found = []
    for abuse in wide(api_key):
        if abuse.what.endswith("same"):
            continue  # of which one is left
        node.ask(gc.collect)
        with BareClient(node.kafka) as client:
            client.exchange(abuse.frame)
        unreachable = node.ask(gc.collect)
        if unreachable > UNREACHABLE_MAX:
            found.append(f"{abuse.what}: {unreachable} objects of it are only found by the garbage collector")
    assert not found, "\n" + "\n".join(found)


@pytest.mark.measures
@pytest.mark.parametrize("api_key", API_KEYS, ids=lambda key: SERVED[key].name)
def test_one_request_takes_no_more_memory_than_its_bytes_and_what_it_names_come_to(
    process: BmqProcess, api_key: int
) -> None:
    process.have_topics(TOPICS)
    found = []
    for abuse in wide(api_key):
        grown_bytes, may_be_bytes = [1], 0
        while grown_bytes[-1] > may_be_bytes and len(grown_bytes) <= TRIES:
            grown, answer_bytes = _grown_bytes(process, abuse)
            grown_bytes.append(grown)
            may_be_bytes = may_grow_bytes(abuse, answer_bytes)
        if grown_bytes[-1] > may_be_bytes:
            found.append(f"{abuse.what}: {len(abuse.frame)} bytes take {grown_bytes[1:]}, more than {may_be_bytes}")
    assert not found, "\n" + "\n".join(found)


def _grown_bytes(process: BmqProcess, abuse: Abuse) -> tuple[int, int]:
    """(by how much more was in memory, the size of the answer)"""
    process.until_quiet()
    with process.growth() as grown, BareClient(process.kafka) as client:
        answer = client.exchange(abuse.frame)
    return grown.size_bytes, len(answer or b"")


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


@pytest.mark.measures
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


@pytest.mark.measures
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


@pytest.mark.measures
def test_another_client_is_answered_nearly_as_ever_while_requests_are_worked_on_that_name_much(
    process: BmqProcess,
) -> None:
    """Its latency is not above twice its own 99th percentile for longer than 100 ms."""
    process.have_topics(TOPICS)
    late = {}
    with PatientClient(process.kafka) as patient:
        for api_key in (key for key in API_KEYS if any(wide(key))):
            waits_s = [_waits_s(process, patient, api_key)]
            while len(waits_s) < TRIES and _is_late(*waits_s[-1]):
                waits_s.append(_waits_s(process, patient, api_key))
            if _is_late(*waits_s[-1]):
                late[SERVED[api_key].name] = waits_s
    assert not late, "own 99th percentile, longest meanwhile"


@pytest.mark.measures
@pytest.mark.parametrize("own_host", ["127.0.0.1", "127.0.0.2"], ids=["same address", "another address"])
def test_three_hundred_connections_with_half_a_request_each_stop_nobody(process: BmqProcess, own_host: str) -> None:
    """Small requests go on as ever, of the same address too; of another address large ones do so as well."""
    large = build_batch([Record(0, 1_000, None, bytes(900_000))])
    frame = framed(
        0,
        9,
        {
            "acks": -1,
            "timeout_ms": 60_000,
            "topic_data": [{"name": PATIENT, "partition_data": [{"index": 0, "records": large}]}],
        },
    )
    with contextlib.ExitStack() as open_ones, PatientClient(process.kafka) as patient:
        own_s = nearly_all_within_s(patient.next_ones(QUIET))
        for _ in range(HALF_SENT):
            stranger = open_ones.enter_context(BareClient(process.kafka))
            stranger.send_some(frame[: len(frame) // 2], within_s=0.02)
        waits_s = [max(patient.next_ones(QUIET)) for _ in range(TRIES)]
        assert not _is_late(own_s, min(waits_s))
        if own_host != "127.0.0.1":
            with BareClient(process.kafka, own_host=own_host) as other:
                began_s = time.perf_counter()
                assert other.exchange(frame) is not None
                assert time.perf_counter() - began_s < 1 + 10 * own_s


def _is_late(own_s: float, longest_s: float) -> bool:
    return longest_s > 2 * own_s + WAIT_S_MAX


def _waits_s(process: BmqProcess, patient: PatientClient, api_key: int) -> tuple[float, float]:
    """Its 99th percentile while nobody else asks for anything, and its longest while the widest request of that API is
    worked on.

    What other processes of this machine took of the processor meanwhile is not the request's doing.
    """
    # made before: this process's interpreter is the patient client's, too
    widest = max(wide(api_key), key=elements_in).frame
    own_s = nearly_all_within_s(patient.next_ones(QUIET))
    before, waited_s = patient.so_far(), process.waited_s()
    with BareClient(process.kafka) as client:
        client.exchange(widest)
    patient.next_ones(1)
    return own_s, max(patient.took_s[before:]) - (process.waited_s() - waited_s)


@pytest.mark.measures
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


@pytest.mark.measures
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
