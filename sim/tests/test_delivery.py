"""Each fault of delivery is found, and none where there is none."""

from bmq_sim.delivery import Following, Given, Reached, doubled, invented, missing_before, not_there, reordered, runs


def test_what_was_acknowledged_and_is_there_is_not_lost() -> None:
    log = {0: "a", 1: "b", 2: "c"}
    assert list(not_there([(0, "a"), (2, "c")], log.get)) == []


def test_a_lost_record_is_found() -> None:
    assert list(not_there([(0, "a"), (1, "b")], {0: "a"}.get)) == [(1, "b", None)]


def test_a_changed_record_is_found_with_what_took_its_place() -> None:
    assert list(not_there([(0, "a"), (1, "b")], {0: "b", 1: "a"}.get)) == [(0, "a", "b"), (1, "b", "a")]


def test_a_doubled_record_is_found_with_how_often_it_is_there() -> None:
    assert doubled("abc") == {}
    assert doubled("abcbb") == {"b": 3}


def test_a_reordered_record_is_found_behind_the_later_one() -> None:
    assert list(reordered([0, 1, 1, 5])) == []
    assert list(reordered([0, 2, 1, 3])) == [(2, 1)]
    assert list(reordered([3, 1, 2])) == [(3, 1), (3, 2)], "each that stands behind a later one"


def test_a_record_that_is_not_there_though_a_later_one_is_is_found() -> None:
    assert missing_before([]) == missing_before([0, 1, 2]) == []
    assert missing_before([0, 3]) == [1, 2]


def test_an_invented_record_is_found() -> None:
    assert list(invented([(0, "a"), (1, "x")], {"a", "b"})) == [(1, "x")]


def test_a_reader_that_goes_back_or_passes_over_something_is_found() -> None:
    reader = Following()
    assert [reader.breaks(0, offset) for offset in (5, 6, 7)] == [None] * 3, "it may begin anywhere"
    assert reader.breaks(0, 6) == 8, "back"
    assert reader.breaks(0, 9) == 7, "over two"
    assert reader.breaks(1, 3) is None, "of another partition"
    assert (reader.due(0), reader.due(1), reader.due(2)) == (10, 4, 0)


def test_a_reader_begins_where_it_is_told_to() -> None:
    reader = Following()
    reader.begins(0, 3)
    assert reader.breaks(0, 4) == 3
    reader.begins(0)
    assert reader.breaks(0, 1) is None


def test_what_a_group_was_not_given_is_found() -> None:
    given = Given()
    for offset in (0, 1, 4, 5_000):
        given.add(offset)
    assert given.passed_over(0, 2) == []
    assert given.passed_over(0, 6) == [2, 3, 5]
    assert given.passed_over(3, 5) == [3], "what lies below is gone"
    assert Given().passed_over(0, 2) == [0, 1]


def test_an_answer_is_held_against_what_was_told_before_it_was_asked_for() -> None:
    reached = Reached([(20, 7), (10, 3), (30, 5)])
    assert [reached.before(time) for time in (10, 11, 20, 21, 99)] == [0, 3, 3, 7, 7], "and not what was told then"
    assert reached.in_the_end() == 7
    assert Reached([]).before(99, default=-1) == -1


def test_offsets_are_shown_as_runs() -> None:
    assert runs([0, 1, 2, 7, 9, 10]) == "0-2, 7, 9-10"
    assert runs([]) == "none"
