"""How long others wait while much is asked for."""

import contextlib
import time
from typing import Final

import pytest
from abuse_process import PATIENT, BmqProcess, PatientClient, nearly_all_within_s
from abuse_requests import API_KEYS, TOPICS
from tests.bare_client import BareClient, framed
from wide_requests import elements_in, wide

from bmq.wire.apis import SERVED
from bmq.wire.records import Record, build_batch

HALF_SENT: Final = 300
TRIES: Final = 3
QUIET: Final = 150
"""Answers by which it is known how long others take."""
WAIT_S_MAX: Final = 0.1

pytestmark = pytest.mark.measures


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
