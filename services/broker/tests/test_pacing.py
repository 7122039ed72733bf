"""When a WAL object is sent: who shares one, and how far apart they are."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.fairness.fair_shares import SMALL_BYTES
from bmq_broker.wal.pacing import LARGE_BYTES, RETURN_S, Pacing

KIB = 1024


def test_a_client_alone_that_waits_for_each_answer_never_lingers() -> None:
    pacing = Pacing(linger_s=0.005, eager=True)
    for step in range(10):
        now_s = step * 0.001
        assert pacing.wait_s(batches=1, size_bytes=KIB, since_s=now_s, in_flight=(), now_s=now_s) <= 0
        pacing.sent(now_s)
        pacing.answered(1, now_s + 0.0005)


def test_clients_answered_together_share_the_next_object() -> None:
    pacing = Pacing(linger_s=0.005, eager=True)
    pacing.sent(0.0)
    pacing.answered(64, 0.001)
    assert pacing.wait_s(batches=1, size_bytes=KIB, since_s=0.0015, in_flight=(), now_s=0.0015) > 0
    assert pacing.wait_s(batches=63, size_bytes=KIB, since_s=0.0015, in_flight=(), now_s=0.002) > 0
    assert pacing.wait_s(batches=64, size_bytes=KIB, since_s=0.0015, in_flight=(), now_s=0.002) <= 0


def test_who_does_not_come_back_soon_is_not_waited_for() -> None:
    pacing = Pacing(linger_s=0.005, eager=True)
    pacing.sent(0.0)
    pacing.answered(64, 0.001)
    assert 0 < pacing.wait_s(batches=1, size_bytes=KIB, since_s=0.002, in_flight=(), now_s=0.002) <= RETURN_S
    assert pacing.wait_s(batches=1, size_bytes=KIB, since_s=0.002, in_flight=(), now_s=0.001 + RETURN_S) <= 0
    assert pacing.wait_s(batches=1, size_bytes=KIB, since_s=7.0, in_flight=(), now_s=7.0) <= 0


def test_no_wait_is_longer_than_the_linger() -> None:
    pacing = Pacing(linger_s=0.0001, eager=True)
    pacing.answered(64, 1.0)
    assert pacing.wait_s(batches=1, size_bytes=KIB, since_s=1.0, in_flight=(), now_s=1.0) <= 0.0001


def test_while_something_is_in_flight_batches_gather_for_the_linger() -> None:
    pacing = Pacing(linger_s=0.005, eager=True)
    pacing.sent(0.0)
    assert pacing.wait_s(batches=100, size_bytes=KIB, since_s=0.001, in_flight=(4 * KIB,), now_s=0.002) > 0
    assert pacing.wait_s(batches=100, size_bytes=KIB, since_s=0.001, in_flight=(4 * KIB,), now_s=0.0061) <= 0


@pytest.mark.parametrize(
    ("size_bytes", "in_flight", "waits"),
    [
        (SMALL_BYTES, (LARGE_BYTES,), False),
        (SMALL_BYTES + 1, (LARGE_BYTES,), True),
        (SMALL_BYTES, (LARGE_BYTES - 1,), True),
        (SMALL_BYTES, (LARGE_BYTES, SMALL_BYTES), True),
        (SMALL_BYTES, (LARGE_BYTES, LARGE_BYTES), True),
    ],
)
def test_a_small_buffer_does_not_wait_for_the_end_of_one_object_of_large_batches(
    size_bytes: int, in_flight: tuple[int, ...], waits: bool
) -> None:
    pacing = Pacing(linger_s=0.005, eager=True)
    pacing.sent(0.0)
    assert (
        pacing.wait_s(batches=1, size_bytes=size_bytes, since_s=0.001, in_flight=in_flight, now_s=0.001) > 0
    ) is waits


def test_a_small_buffer_behind_a_large_object_waits_for_those_who_were_just_answered() -> None:
    pacing = Pacing(linger_s=0.005, eager=True)
    pacing.sent(0.0)
    pacing.answered(64, 0.001)
    assert pacing.wait_s(batches=1, size_bytes=KIB, since_s=0.0015, in_flight=(LARGE_BYTES,), now_s=0.0015) > 0


def test_frugal_waits_whatever_is_in_flight() -> None:
    pacing = Pacing(linger_s=0.25, eager=False)
    pacing.sent(3.0)
    assert pacing.wait_s(batches=1, size_bytes=KIB, since_s=3.1, in_flight=(LARGE_BYTES,), now_s=3.1) > 0


def test_frugal_sends_the_first_batch_after_a_pause_at_once() -> None:
    pacing = Pacing(linger_s=0.25, eager=False)
    assert pacing.wait_s(batches=1, size_bytes=KIB, since_s=3.0, in_flight=(), now_s=3.0) <= 0
    pacing.sent(3.0)
    assert pacing.wait_s(batches=1, size_bytes=KIB, since_s=9.0, in_flight=(), now_s=9.0) <= 0


@given(
    st.lists(st.floats(min_value=0.0, max_value=0.3), min_size=1, max_size=200),
    st.floats(min_value=0.001, max_value=0.1),
)
def test_frugal_objects_are_a_linger_apart_whatever_the_store_takes(gaps_s: list[float], create_s: float) -> None:
    linger_s = 0.1
    pacing = Pacing(linger_s=linger_s, eager=False)
    now_s = 0.0
    sent_at: list[float] = []
    since_s: float | None = None
    for gap_s in gaps_s:
        arrives_s = now_s + gap_s
        if since_s is not None:
            due_s = now_s + pacing.wait_s(
                batches=1,
                size_bytes=KIB,
                since_s=since_s,
                in_flight=(4 * KIB,) if sent_at and now_s - sent_at[-1] < create_s else (),
                now_s=now_s,
            )
            if due_s <= arrives_s:
                assert due_s - since_s <= linger_s + 1e-9
                pacing.sent(due_s)
                sent_at.append(due_s)
                pacing.answered(1, due_s + create_s)
                since_s = None
        now_s = arrives_s
        if since_s is None:
            since_s = now_s
            if pacing.wait_s(batches=1, size_bytes=KIB, since_s=since_s, in_flight=(), now_s=now_s) <= 0:
                pacing.sent(now_s)
                sent_at.append(now_s)
                since_s = None
    assert all(later - earlier >= linger_s - 1e-9 for earlier, later in pairwise(sent_at))
