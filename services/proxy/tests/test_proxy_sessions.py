"""Incremental fetch sessions: their own rules, and against a twin that keeps nothing but dictionaries."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq_proxy.fetch.sessions import (
    ERRORS_MAX,
    InvalidSessionEpoch,
    SessionCache,
    SessionNotFound,
    SessionTopicIdMismatch,
    Shown,
    Wanted,
)


def ids() -> Callable[[], float]:
    numbers = itertools.count(1)
    return lambda: (next(numbers) * 0.618033988749) % 1


def cache(
    *,
    sessions_max: int = 10,
    partitions_max: int = 1_000,
    session_partitions_max: int = 1_000,
    eviction_ms: int = 120_000,
) -> SessionCache:
    return SessionCache(
        sessions_max=sessions_max,
        partitions_max=partitions_max,
        session_partitions_max=session_partitions_max,
        eviction_ms=eviction_ms,
        random=ids(),
    )


def wanted(partition: int, offset: int = 0) -> Wanted:
    return Wanted("orders", partition, offset, 1_000)


def quiet(count: int, high_watermark: int = 5) -> list[Shown]:
    return [Shown(high_watermark, 0, False, False)] * count


def test_the_first_answer_names_everything_and_the_next_only_what_changed() -> None:
    sessions = cache()
    fetching = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(0), wanted(1), wanted(2)], topic_ids=False
    )
    assert fetching.changed(quiet(3)) == [0, 1, 2]
    session_id = fetching.session_id
    assert session_id > 0
    fetching = sessions.begin(now_ms=1, session_id=session_id, session_epoch=1, wanted=[], topic_ids=False)
    assert [one.partition for one in fetching.wanted] == [0, 1, 2]
    assert fetching.changed([*quiet(1), Shown(6, 0, False, False), Shown(5, 1, False, False)]) == [1, 2]


def test_an_answer_that_is_put_together_in_parts_is_the_same() -> None:
    found = [Shown(5, 0, n % 3 == 0, n % 7 == 0) for n in range(40)]
    told = []
    for parts in ([(0, 40)], [(0, 10), (10, 13), (13, 40)]):
        sessions = cache()
        first = sessions.begin(
            now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(n) for n in range(40)], topic_ids=False
        )
        first.changed(quiet(40))
        second = sessions.begin(now_ms=1, session_id=first.session_id, session_epoch=1, wanted=[], topic_ids=False)
        changed = [one for begin, end in parts for one in second.changed(found[begin:end], first=begin)]
        third = sessions.begin(now_ms=2, session_id=first.session_id, session_epoch=2, wanted=[], topic_ids=False)
        told.append((changed, [one.partition for one in third.wanted]))
    assert told[0] == told[1]
    assert told[0][0] == [n for n in range(40) if n % 3 == 0 or n % 7 == 0]


def test_a_request_that_waits_is_for_what_it_was_let_in_with_and_keeps_nothing_of_an_ended_session() -> None:
    sessions = cache()
    session_id = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(n) for n in range(3)], topic_ids=False
    ).session_id
    first, second = (
        sessions.begin(now_ms=0, session_id=session_id, session_epoch=epoch, wanted=[], topic_ids=False)
        for epoch in (1, 2)
    )
    grown = sessions.begin(
        now_ms=0, session_id=session_id, session_epoch=3, wanted=[wanted(n) for n in range(3, 9)], topic_ids=False
    )
    assert (first.count, [one.partition for one in first.wanted], grown.count) == (3, [0, 1, 2], 9)
    sessions.begin(now_ms=0, session_id=session_id, session_epoch=-1, wanted=[], topic_ids=False)
    assert (second.count, second.wanted, second.changed([])) == (3, [], [])
    assert first.changed(quiet(3)) == []
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_a_session_does_not_come_by_small_steps_to_more_than_one_request_may_name() -> None:
    sessions = cache(session_partitions_max=30)
    fetching = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(n) for n in range(20)], topic_ids=False
    )
    session_id = fetching.session_id
    further = [wanted(n) for n in range(20, 30)]
    assert (
        len(sessions.begin(now_ms=0, session_id=session_id, session_epoch=1, wanted=further, topic_ids=False).wanted)
        == 30
    )
    changed = sessions.begin(
        now_ms=0,
        session_id=session_id,
        session_epoch=2,
        wanted=[wanted(30)],
        forgotten=[("orders", 0)],
        topic_ids=False,
    )
    assert [one.partition for one in changed.wanted] == list(range(1, 31))
    with pytest.raises(SessionNotFound):
        sessions.begin(now_ms=0, session_id=session_id, session_epoch=3, wanted=[wanted(31)], topic_ids=False)
    assert (len(sessions), sessions.partitions) == (0, 0)


@pytest.mark.parametrize("name", ["x" * 250, "ü" * 10], ids=["too long", "of other letters"])
def test_names_that_no_topic_has_are_not_remembered(name: str) -> None:
    sessions = cache()
    odd = Wanted(name, 0, 0, 1_000)
    fetching = sessions.begin(now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(0), odd], topic_ids=False)
    assert (fetching.session_id, [one.topic for one in fetching.wanted], len(sessions)) == (0, ["orders", name], 0)
    fetching = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(0), Wanted("y" * 249, 0, 0, 1_000)], topic_ids=False
    )
    assert fetching.session_id
    with pytest.raises(SessionNotFound):
        sessions.begin(now_ms=0, session_id=fetching.session_id, session_epoch=1, wanted=[odd], topic_ids=False)
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_partitions_that_returned_records_go_to_the_end_of_the_line() -> None:
    sessions = cache()
    fetching = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(0), wanted(1), wanted(2)], topic_ids=False
    )
    fetching.changed([Shown(5, 0, True, False), *quiet(2)])
    fetching = sessions.begin(
        now_ms=0, session_id=fetching.session_id, session_epoch=1, wanted=[wanted(0, 5)], topic_ids=False
    )
    assert [(one.partition, one.offset) for one in fetching.wanted] == [(1, 0), (2, 0), (0, 5)]


def test_after_an_error_the_next_answer_is_shown_even_if_nothing_else_changed() -> None:
    sessions = cache()
    fetching = sessions.begin(now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(0)], topic_ids=False)
    fetching.changed([Shown(5, 0, False, True)])
    for epoch, told in ((1, [0]), (2, [])):
        fetching = sessions.begin(
            now_ms=0, session_id=fetching.session_id, session_epoch=epoch, wanted=[], topic_ids=False
        )
        assert fetching.changed(quiet(1)) == told


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_session_that_would_repeat_many_errors_for_a_few_bytes_ends_with_the_answer_that_tells_them(
    in_parts: bool,
) -> None:
    sessions, failed = cache(), [Shown(-1, -1, False, True)]
    names = [wanted(n) for n in range(ERRORS_MAX + 1)]

    def tell(epoch: int, session_id: int, count: int) -> int:
        fetching = sessions.begin(
            now_ms=0, session_id=session_id, session_epoch=epoch, wanted=[] if epoch else names, topic_ids=False
        )
        shown = [*failed * count, *quiet(len(names) - count)]
        told = (
            [one for n in range(len(shown)) for one in fetching.changed(shown[n : n + 1], first=n)]
            if in_parts
            else fetching.changed(shown)
        )
        assert told[:count] == list(range(count))
        return fetching.session_id

    session_id = tell(0, 0, ERRORS_MAX)
    assert tell(1, session_id, ERRORS_MAX) == session_id
    assert tell(2, session_id, ERRORS_MAX + 1) == session_id, "the answer itself comes whole"
    assert (len(sessions), sessions.partitions) == (0, 0)
    with pytest.raises(SessionNotFound):
        sessions.begin(now_ms=0, session_id=session_id, session_epoch=3, wanted=[], topic_ids=False)


def test_forgotten_partitions_leave_and_an_empty_session_ends() -> None:
    sessions = cache()
    session_id = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(0), wanted(1)], topic_ids=False
    ).session_id
    left = sessions.begin(
        now_ms=0, session_id=session_id, session_epoch=1, wanted=[], forgotten=[("orders", 0)], topic_ids=False
    )
    assert [one.partition for one in left.wanted] == [1]
    gone = sessions.begin(
        now_ms=0, session_id=session_id, session_epoch=2, wanted=[], forgotten=[("orders", 1)], topic_ids=False
    )
    assert (gone.session_id, gone.wanted, len(sessions), sessions.partitions) == (0, [], 0, 0)


def test_what_does_not_continue_a_session_is_refused_by_its_reason() -> None:
    sessions = cache()
    session_id = sessions.begin(now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(0)], topic_ids=False).session_id
    with pytest.raises(SessionNotFound):
        sessions.begin(now_ms=0, session_id=session_id + 1, session_epoch=1, wanted=[], topic_ids=False)
    with pytest.raises(InvalidSessionEpoch):
        sessions.begin(now_ms=0, session_id=session_id, session_epoch=2, wanted=[], topic_ids=False)
    with pytest.raises(SessionTopicIdMismatch):
        sessions.begin(now_ms=0, session_id=session_id, session_epoch=1, wanted=[], topic_ids=True)
    final = sessions.begin(now_ms=0, session_id=session_id, session_epoch=-1, wanted=[wanted(0)], topic_ids=False)
    assert (final.session_id, len(sessions)) == (0, 0)


def test_a_full_cache_gives_way_only_to_the_rules() -> None:
    sessions = cache(sessions_max=2, eviction_ms=100)

    def create(now_ms: int, size: int) -> int:
        return sessions.begin(
            now_ms=now_ms, session_id=0, session_epoch=0, wanted=[wanted(n) for n in range(size)], topic_ids=False
        ).session_id

    small, large = create(0, 2), create(0, 5)
    assert create(50, 9) == 0, "nobody is old enough"
    for session_id in (small, large):
        sessions.begin(now_ms=90, session_id=session_id, session_epoch=1, wanted=[], topic_ids=False)
    assert create(150, 2) == 0, "not larger than the smallest"
    assert create(150, 3) > 0, "larger than the smallest, which is old"
    with pytest.raises(SessionNotFound):
        sessions.begin(now_ms=150, session_id=small, session_epoch=2, wanted=[], topic_ids=False)
    assert create(191, 1) > 0, "the other one was not used for longer than the limit"
    with pytest.raises(SessionNotFound):
        sessions.begin(now_ms=191, session_id=large, session_epoch=2, wanted=[], topic_ids=False)


def test_all_sessions_together_keep_a_bounded_number_of_partitions() -> None:
    sessions = cache(partitions_max=10)
    session_id = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(n) for n in range(8)], topic_ids=False
    ).session_id
    refused = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(n) for n in range(3)], topic_ids=False
    )
    assert (refused.session_id, len(refused.wanted)) == (0, 3)
    grown = sessions.begin(
        now_ms=0, session_id=session_id, session_epoch=1, wanted=[wanted(n) for n in range(8, 20)], topic_ids=False
    )
    assert len(grown.wanted) == 20
    assert (len(sessions), sessions.partitions) == (0, 0)


class Twin:
    """One session the obvious way: what is wanted, and what was shown last."""

    def __init__(self) -> None:
        self.wanted: dict[int, int] = {}
        self.seen: dict[int, tuple[int, int] | None] = {}

    def update(self, changes: dict[int, int], forgotten: list[int]) -> None:
        for partition, offset in changes.items():
            self.wanted[partition] = offset
            self.seen.setdefault(partition, None)
        for partition in forgotten:
            self.wanted.pop(partition, None)
            self.seen.pop(partition, None)

    def told(self, shown: dict[int, Shown]) -> set[int]:
        told = set()
        for partition, one in shown.items():
            now = (one.high_watermark, one.log_start)
            if one.has_records or one.notable or self.seen[partition] != now:
                told.add(partition)
            self.seen[partition] = None if one.notable else now
        return told


_partitions = st.integers(0, 5)
_step = st.tuples(
    st.dictionaries(_partitions, st.integers(0, 9), max_size=4),
    st.lists(_partitions, max_size=2),
    st.lists(
        st.builds(Shown, st.integers(0, 2), st.integers(0, 1), st.booleans(), st.booleans()), min_size=6, max_size=6
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_step, min_size=1, max_size=12))
def test_a_session_tells_what_its_twin_tells(steps: list[tuple[dict[int, int], list[int], list[Shown]]]) -> None:
    sessions, twin = cache(), Twin()
    session_id = epoch = 0
    for changes, forgotten, news in steps:
        begins = not session_id
        if begins:
            twin, forgotten, epoch = Twin(), [], 0
        twin.update(changes, forgotten)
        fetching = sessions.begin(
            now_ms=0,
            session_id=session_id,
            session_epoch=epoch,
            wanted=[wanted(partition, offset) for partition, offset in changes.items()],
            forgotten=[("orders", partition) for partition in forgotten],
            topic_ids=False,
        )
        assert {one.partition: one.offset for one in fetching.wanted} == twin.wanted
        shown = {one.partition: news[one.partition] for one in fetching.wanted}
        told = {fetching.wanted[i].partition for i in fetching.changed(list(shown.values()))}
        expected = twin.told(shown)
        assert told == expected
        assert sessions.partitions == len(twin.wanted)
        session_id, epoch = fetching.session_id, epoch + 1


def test_sessions_of_all_lanes_have_one_bound_and_nobody_goes_on_with_one_of_another_lane() -> None:
    sessions = cache(partitions_max=100, eviction_ms=1_000)
    first = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(n) for n in range(60)], topic_ids=False, lane=1
    )
    second = sessions.begin(
        now_ms=0, session_id=0, session_epoch=0, wanted=[wanted(n) for n in range(60)], topic_ids=False, lane=2
    )
    assert (first.session_id > 0, second.session_id, sessions.partitions) == (True, 0, 60)
    for session_id in (first.session_id, first.session_id + 1):
        with pytest.raises(SessionNotFound):
            sessions.begin(now_ms=1, session_id=session_id, session_epoch=1, wanted=[], topic_ids=False, lane=2)
    sessions.begin(now_ms=1, session_id=first.session_id, session_epoch=-1, wanted=[], topic_ids=False, lane=2)
    assert (
        sessions.begin(now_ms=1, session_id=first.session_id, session_epoch=1, wanted=[], topic_ids=False, lane=1).count
        == 60
    )
    sessions.begin(now_ms=1, session_id=first.session_id, session_epoch=-1, wanted=[], topic_ids=False, lane=1)
    assert sessions.partitions == 0
