"""Idempotent producers of a partition."""

import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.errors import Corrupt, FormatTooNew, InvalidProducerEpoch, OutOfOrderSequence
from bmq.wire.batches import BatchHeader
from bmq_broker.partitions.producers import KEPT_BATCHES, REMEMBERED_BATCHES, Producers, at_most


def batch(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return BatchHeader(0, 0, 61, 0, 2, 0, 0, count - 1, 0, 0, producer_id, epoch, sequence, count)


def appended(producers: Producers, header: BatchHeader, base_offset: int) -> None:
    assert producers.check(header) is None
    producers.replay(header, base_offset=base_offset, seen_ms=1)


def test_each_of_the_last_batches_is_recognised_with_its_first_offset() -> None:
    producers = Producers()
    for number in range(REMEMBERED_BATCHES + 2):
        appended(producers, batch(number * 10, 10), number * 10)
    for number in range(2, REMEMBERED_BATCHES + 2):
        assert producers.check(batch(number * 10, 10)) == number * 10
    with pytest.raises(OutOfOrderSequence):
        producers.check(batch(10, 10))


def test_what_a_client_sent_over_one_proxy_is_recognised_after_five_batches_over_each_of_two_others() -> None:
    """Java's client: five requests in flight for each connection, and it goes on over another one while those of the
    first are not answered.
    """
    producers = Producers()
    for number in range(15):
        appended(producers, batch(number), number)
    assert [producers.check(batch(number)) for number in range(5)] == [0, 1, 2, 3, 4]


def test_a_gap_in_the_sequence_is_refused_and_changes_nothing() -> None:
    producers = Producers()
    appended(producers, batch(0), 0)
    with pytest.raises(OutOfOrderSequence):
        producers.check(batch(2))
    appended(producers, batch(1), 1)


def test_a_lower_epoch_is_refused_and_a_higher_one_begins_at_zero() -> None:
    producers = Producers()
    appended(producers, batch(0, epoch=3), 0)
    with pytest.raises(InvalidProducerEpoch):
        producers.check(batch(1, epoch=2))
    with pytest.raises(OutOfOrderSequence):
        producers.check(batch(1, epoch=4))
    appended(producers, batch(0, epoch=4), 1)


def test_sequences_begin_again_after_the_largest() -> None:
    producers = Producers()
    appended(producers, batch(2**31 - 2, 4), 0)
    assert batch(2**31 - 2, 4).last_sequence == 1
    appended(producers, batch(2), 4)


SEQUENCES = 2**31


@given(st.integers(0, SEQUENCES - 1), st.lists(st.tuples(st.integers(-12, 40), st.integers(1, 5)), max_size=60))
def test_where_numbers_may_be_left_out_nothing_comes_twice_or_behind_what_was_sent_later(
    begin: int, sent: list[tuple[int, int]]
) -> None:
    """Against a list of what was taken, counted on where sequences begin again."""
    producers = Producers()
    taken: list[tuple[int, int]] = []
    for ahead, count in sent:
        end = taken[-1][1] if taken else begin
        one = end + ahead, end + ahead + count
        header = batch(one[0] % SEQUENCES, count)
        if one in taken[-REMEMBERED_BATCHES:]:
            assert producers.check(header, is_sparse=True) == taken.index(one)
        elif taken and ahead < 0:
            with pytest.raises(OutOfOrderSequence):
                producers.check(header, is_sparse=True)
        else:
            assert producers.check(header, is_sparse=True) is None
            producers.replay(header, base_offset=len(taken), seen_ms=1)
            taken.append(one)
    assert Producers.decode(producers.encode()).encode() == producers.encode()


def test_where_numbers_may_be_left_out_an_epoch_begins_anywhere() -> None:
    producers = Producers()
    appended(producers, batch(5), 0)
    assert producers.check(batch(9, epoch=1), is_sparse=True) is None
    producers.replay(batch(9, epoch=1), base_offset=1, seen_ms=1)
    with pytest.raises(InvalidProducerEpoch):
        producers.check(batch(10), is_sparse=True)
    with pytest.raises(OutOfOrderSequence):
        producers.check(batch(8, epoch=1), is_sparse=True)


def test_a_batch_counts_as_many_numbers_as_offsets_though_records_are_missing() -> None:
    producers = Producers()
    appended(producers, batch(0, 10)._replace(record_count=0), 0)
    appended(producers, batch(10, 3)._replace(record_count=1), 10)
    assert producers.check(batch(0, 10)._replace(record_count=0)) == 0
    assert producers.next_sequence(7) == 13


def test_a_forgotten_producer_may_begin_anywhere() -> None:
    producers = Producers()
    appended(producers, batch(0), 0)
    assert producers.settled(forget_before_ms=1, shorten_before_ms=2) is producers
    kept = producers.settled(forget_before_ms=2, shorten_before_ms=2)
    assert (len(kept), len(producers)) == (0, 1)
    assert kept.check(batch(41)) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=40))
def test_a_snapshot_and_a_copy_decide_as_the_original_does(writes: list[tuple[int, int]]) -> None:
    producers = Producers()
    following = dict.fromkeys(range(4), 0)
    offset = 0
    for producer_id, count in writes:
        appended(producers, batch(following[producer_id], count, producer_id=producer_id), offset)
        following[producer_id] += count
        offset += count
    encoded = producers.encode()
    assert Producers.decode(encoded).encode() == encoded == producers.copy().encode()


def test_a_snapshot_of_other_bytes_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        Producers.decode(b"\x01\x02")


def test_a_copy_is_independent() -> None:
    producers = Producers()
    appended(producers, batch(0), 0)
    copy = producers.copy()
    appended(producers, batch(1), 1)
    assert copy.check(batch(1)) is None


def test_those_seen_last_are_kept_and_may_go_on_where_the_others_begin_anew() -> None:
    producers = Producers()
    for number in range(1_000):
        producers.replay(batch(0, producer_id=number), base_offset=number, seen_ms=number)
    producers.replay(batch(1, producer_id=3), base_offset=1_000, seen_ms=2_000)
    kept = producers.newest(10, 0)
    assert len(kept) == 10
    assert len(producers) == 1_000, "a roll may be reading it"
    assert kept.check(batch(1, producer_id=3)) == 1_000
    assert kept.check(batch(0, producer_id=999)) == 999
    assert kept.check(batch(0, producer_id=5)) is None
    assert producers.newest(1_000, 0) is producers


@given(st.lists(st.integers(0, 500)), st.integers(1, 300), st.integers(1, 5_000))
def test_no_partition_has_more_than_its_share_and_the_small_ones_keep_all(
    counts: list[int], each: int, together: int
) -> None:
    most = at_most(counts, each=each, together=together)
    assert 1 <= most <= each
    kept = [min(count, most) for count in counts]
    assert sum(kept) <= together or most == 1
    if most < each and any(count > most for count in counts):
        assert sum(min(count, most + 1) for count in counts) > together


def test_when_a_batch_was_appended_is_remembered_where_its_time_is_the_logs() -> None:
    producers = Producers()
    producers.replay(batch(0)._replace(attributes=8, max_timestamp_ms=1_234), base_offset=0, seen_ms=9)
    producers.replay(batch(1)._replace(max_timestamp_ms=5), base_offset=1, seen_ms=9)
    for known in (producers, Producers.decode(producers.encode()), producers.copy()):
        assert [known.append_time_ms(7, offset) for offset in (0, 1, 2)] == [1_234, -1, -1]
        assert known.append_time_ms(8, 0) == -1


def written(batch_counts: dict[int, int], *, seen_ms: int = 1) -> Producers:
    """Producers that wrote so many batches each; one is seen a millisecond after the one before."""
    producers = Producers()
    for late, (producer_id, count) in enumerate(batch_counts.items()):
        for number in range(count):
            header = batch(number, producer_id=producer_id)
            producers.replay(header, base_offset=100 * producer_id + number, seen_ms=seen_ms + late)
    return producers


def recognised(producers: Producers, producer_id: int, count: int) -> int:
    """How many of the last of the first `count` batches it knows again."""
    found = 0
    for number in reversed(range(count)):
        try:
            offset = producers.check(batch(number, producer_id=producer_id))
        except OutOfOrderSequence:
            break
        assert offset == 100 * producer_id + number
        found += 1
    return found


def test_who_is_silent_keeps_its_last_five_batches_and_goes_on_with_its_sequence() -> None:
    producers = written({1: 20, 2: 20, 3: 5})
    kept = producers.settled(forget_before_ms=0, shorten_before_ms=2)
    assert [recognised(kept, *each) for each in ((1, 20), (2, 20), (3, 5))] == [KEPT_BATCHES, 20, 5]
    assert recognised(producers, 1, 20) == 20, "a roll may be reading it"
    assert (producers.further, kept.further) == (30, 15)
    appended(kept, batch(20, producer_id=1), 120)
    assert kept.settled(forget_before_ms=0, shorten_before_ms=1) is kept


def test_where_batches_are_too_many_those_seen_last_keep_all_and_nobody_is_forgotten() -> None:
    producers = written(dict.fromkeys(range(10), 20))
    kept = producers.newest(10, 45)
    assert [recognised(kept, number, 20) for number in range(10)] == [KEPT_BATCHES] * 7 + [20] * 3
    assert kept.further == 45
    assert kept.newest(10, 45) is kept


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=120))
def test_batches_beyond_the_last_five_are_counted_as_they_come_and_go(writes: list[tuple[int, int]]) -> None:
    producers = Producers()
    held: dict[int, tuple[int, int]] = {}
    for offset, (producer_id, epoch) in enumerate(writes):
        before, count = held.get(producer_id, (epoch, 0))
        held[producer_id] = epoch, min(count + 1, REMEMBERED_BATCHES) if before == epoch else 1
        producers.replay(batch(offset, epoch=epoch, producer_id=producer_id), base_offset=offset, seen_ms=1)
        assert producers.further == sum(max(0, count - KEPT_BATCHES) for _, count in held.values())
    assert Producers.decode(producers.encode()).further == producers.copy().further == producers.further


def test_two_that_say_the_same_of_a_producer_hold_it_once() -> None:
    live, rolled = written({1: 20, 2: 4, 3: 1}), written({1: 20, 2: 3, 4: 1}, seen_ms=9)
    rolled.share(live)
    assert rolled._producers[1] is live._producers[1]
    assert recognised(rolled, 2, 3) == 3
    assert rolled.check(batch(3, producer_id=2)) is None, "what is only in the tail is none of its"
    assert (len(rolled), rolled.check(batch(0, producer_id=3)), rolled.check(batch(0, producer_id=4))) == (3, None, 400)
    appended(live, batch(20, producer_id=1), 120)
    assert rolled.check(batch(20, producer_id=1)) is None


def test_twenty_batches_of_a_producer_take_less_than_a_kilobyte() -> None:
    live, rolled = written(dict.fromkeys(range(100), 20)), written(dict.fromkeys(range(100), 20))
    rolled.share(live)
    held = [rolled._producers[number] for number in range(100)]
    assert all(one is live._producers[number] for number, one in enumerate(held))
    assert max(sys.getsizeof(one) + sys.getsizeof(one.batches) for one in held) < 600


def test_of_a_snapshot_with_more_batches_than_are_remembered_the_last_are_taken() -> None:
    batches = [[number, number, number] for number in range(30)]
    producers = Producers.decode(msgspec.msgpack.encode([1, [[7, 0, 9, batches]]]))
    assert [producers.check(batch(number)) for number in range(10, 30)] == list(range(10, 30))
    assert producers.further == REMEMBERED_BATCHES - KEPT_BATCHES


def test_a_snapshot_of_batches_with_and_without_times_is_what_it_was() -> None:
    stored = [2, [[7, 0, 9, [[0, 0, 0, 5], [1, 1, 1]]], [8, 0, 9, [[2**31 - 1, 3, 2**62]]]]]
    assert msgspec.msgpack.decode(Producers.decode(msgspec.msgpack.encode(stored)).encode()) == stored


def test_a_snapshot_with_numbers_that_no_batch_has_is_damaged() -> None:
    with pytest.raises(Corrupt):
        Producers.decode(msgspec.msgpack.encode([1, [[7, 0, 9, [[2**40, 0, 0]]]]]))


def test_a_snapshot_without_times_is_one_that_earlier_versions_read() -> None:
    producers = Producers()
    producers.replay(batch(0), base_offset=0, seen_ms=9)
    assert msgspec.msgpack.decode(producers.encode()) == [1, [[7, 0, 9, [[0, 0, 0]]]]]
    producers.replay(batch(1)._replace(attributes=8, max_timestamp_ms=5), base_offset=1, seen_ms=9)
    assert msgspec.msgpack.decode(producers.encode()) == [2, [[7, 0, 9, [[0, 0, 0], [1, 1, 1, 5]]]]]
    with pytest.raises(Corrupt, match="neither 3 nor 4"):
        Producers.decode(msgspec.msgpack.encode([2, [[7, 0, 9, [[0, 0]]]]]))


@pytest.mark.parametrize("rest", [[], [{"another": "form"}], [1, 2, 3]])
def test_a_snapshot_of_a_newer_version_is_not_taken_for_a_damaged_one(rest: list[object]) -> None:
    with pytest.raises(FormatTooNew, match=r"version 9; this bmq reads up to version 2: upgrade it"):
        Producers.decode(msgspec.msgpack.encode([9, *rest]))


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", msgspec.msgpack.encode([]), msgspec.msgpack.encode(["1", []]), msgspec.msgpack.encode([0, []])],
)
def test_a_snapshot_that_names_no_version_is_damaged(data: bytes) -> None:
    with pytest.raises(Corrupt):
        Producers.decode(data)
