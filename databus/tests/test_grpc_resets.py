"""Calls that are taken back: counted wherever parts of what comes end, and who has too many waits."""

import random

import pytest
from test_grpc_relay import DATA, HEADERS, RESET, frame

from bmq_databus.grpc.resets import BURST, PER_S, Resets


def test_they_are_counted_however_what_comes_is_cut() -> None:
    dice = random.Random(1)
    for _ in range(100):
        kinds = dice.choices([DATA, HEADERS, RESET], k=40)
        # payloads of zeros and of the kind's own number: neither is a head
        data = b"".join(frame(kind, bytes(dice.choices([0, RESET], k=dice.choice([0, 4, 300])))) for kind in kinds)
        resets = Resets(0)
        count, at = 0, 0
        while at < len(data):
            size = dice.choice([1, 5, 9, 100])
            count += resets._count(data[at : at + size])
            at += size
        assert count == kinds.count(RESET)


def test_who_gives_up_all_calls_at_once_does_not_wait_and_who_goes_on_so_does() -> None:
    one = frame(HEADERS, b"x" * 80) + frame(RESET, b"none")
    resets = Resets(0)
    assert resets.wait_s(one * BURST, 0) == 0
    assert resets.wait_s(frame(DATA, b"x" * 1_000), 0) == 0
    assert resets.wait_s(one * PER_S, 0) == pytest.approx(1)
    assert resets.wait_s(b"", 1) == 0
    assert resets.wait_s(one, 1) == pytest.approx(1 / PER_S)
    assert resets.wait_s(one * BURST, 100) == 0
