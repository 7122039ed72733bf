"""A request that comes again has the same answer for a while; keys and answers are bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_databus.channels.channel import Channel
from bmq_databus.requests.idempotency import (
    Answer,
    BadKey,
    Idempotency,
    KeyReused,
    KeyUnderWay,
    fingerprint_of,
    key_of,
)
from bmq_databus.spool.frames import Once
from bmq_databus.spool.keys import EXTRA_BYTES

ORDERS = Channel(name="orders", topic="orders", idempotency_window_s=60.0)
CLICKS = Channel(name="clicks", topic="clicks")
ANSWER = Answer(200, b"{}")
ONE, OTHER = fingerprint_of(b"one"), fingerprint_of(b"other")


class Time:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def write(idempotency: Idempotency, key: str, answer: Answer | None = ANSWER) -> None:
    assert idempotency.kept(ORDERS, key, ONE) is None
    with idempotency.first(ORDERS, key, ONE) as claim:
        with pytest.raises(KeyUnderWay):
            idempotency.kept(ORDERS, key, ONE)
        with pytest.raises(KeyReused):
            idempotency.kept(ORDERS, key, OTHER)
        if answer is not None:
            claim.keep(answer)


def test_the_same_request_has_the_same_answer_within_the_window_and_another_one_is_refused() -> None:
    time = Time()
    idempotency = Idempotency(time)
    write(idempotency, "k")
    time.now_s = 59.0
    assert idempotency.kept(ORDERS, "k", ONE) == ANSWER
    with pytest.raises(KeyReused, match="take a new key"):
        idempotency.kept(ORDERS, "k", OTHER)
    assert idempotency.kept(CLICKS, "k", OTHER) is None, "another channel's keys are its own"
    time.now_s = 60.0
    assert idempotency.kept(ORDERS, "k", ONE) is None


def test_a_request_that_wrote_nothing_may_come_again_also_where_it_failed_by_a_bug() -> None:
    idempotency = Idempotency(Time())
    write(idempotency, "k", None)
    with pytest.raises(ZeroDivisionError), idempotency.first(ORDERS, "k", ONE):
        1 / 0  # noqa: B018
    write(idempotency, "k")


def test_the_oldest_answers_give_way_where_there_are_too_many_or_too_large_ones() -> None:
    few = Idempotency(Time(), keys_max=3)
    for n in range(5):
        write(few, f"k{n}")
    assert [few.kept(ORDERS, f"k{n}", ONE) for n in range(5)] == [None, None, ANSWER, ANSWER, ANSWER]
    small = Idempotency(Time(), bytes_max=3 * EXTRA_BYTES)
    write(small, "small")
    write(small, "large", Answer(200, bytes(2 * EXTRA_BYTES)))
    assert small.kept(ORDERS, "small", ONE) is None
    write(small, "again")
    assert small.kept(ORDERS, "large", ONE) is None
    assert small.kept(ORDERS, "again", ONE) == ANSWER


def test_all_channels_together_have_a_bound_and_the_one_with_the_most_gives_way() -> None:
    large = Answer(200, bytes(EXTRA_BYTES))
    idempotency = Idempotency(Time(), all_bytes_max=20 * EXTRA_BYTES)
    channels = [Channel(name=f"c{n}", topic="t") for n in range(4)]

    def write_to(channel: Channel, key: str) -> None:
        with idempotency.first(channel, key, ONE) as claim:
            claim.keep(large)

    def kept_of(channel: Channel) -> int:
        return sum(idempotency.kept(channel, f"k{n}", ONE) is not None for n in range(20))

    write_to(channels[0], "k0")
    for n in range(20):
        write_to(channels[1], f"k{n}")
    assert (kept_of(channels[0]), kept_of(channels[1])) == (1, 8), "about two each take the room of one EXTRA_BYTES"
    assert idempotency.kept(channels[1], "k19", ONE) == large, "the newest"
    for channel in channels[2:]:
        for n in range(20):
            write_to(channel, f"k{n}")
    assert kept_of(channels[0]) == 1
    assert min(map(kept_of, channels[1:])) >= 2
    assert sum(map(kept_of, channels)) == 9
    later = Idempotency(Time(), all_bytes_max=20 * EXTRA_BYTES)
    for channel in channels:
        later.remember(channel, [Once(f"k{n}", ONE, 60_000, 200, large.body) for n in range(20)], now_ms=0)
    assert sum(later.kept(channel, f"k{n}", ONE) is not None for channel in channels for n in range(20)) == 9


def test_what_is_over_goes_before_what_is_not_in_whichever_channel_it_is() -> None:
    time = Time()
    idempotency = Idempotency(time, all_bytes_max=40 * EXTRA_BYTES)
    idle = [Channel(name=f"idle{n}", topic="t", idempotency_window_s=10.0) for n in range(10)]
    for channel in idle:
        for n in range(3):
            with idempotency.first(channel, f"k{n}", ONE) as claim:
                claim.keep(ANSWER)
    time.now_s = 11.0
    for n in range(20):
        write(idempotency, f"k{n}")
    assert [idempotency.kept(ORDERS, f"k{n}", ONE) for n in range(20)] == [ANSWER] * 20


def test_a_key_is_a_string_with_quotes_or_without() -> None:
    assert key_of([]) is None
    assert key_of(['"8e03-97"']) == key_of(["8e03-97"]) == "8e03-97"
    assert key_of([r'"a \"b\""']) == 'a "b"'
    for bad in ([""], ['""'], ['"a'], ["a b"], ['"é"'], ["a" * 256], ["a", "b"], ['"a";b=1']):
        with pytest.raises(BadKey, match="one string of 1 to 255"):
            key_of(bad)


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_requests_are_told_apart_wherever_their_parts_are_cut(one: list[bytes], other: list[bytes]) -> None:
    assert (fingerprint_of(*one) == fingerprint_of(*other)) == (one == other)
