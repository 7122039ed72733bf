"""The next conditions from the old ones."""

from bmq_operator.conditions import MESSAGE_LENGTH_MAX, Finding, condition, next_conditions, pace_s

NOON_MS = 1_700_000_000_000


def test_the_time_of_a_condition_stays_while_its_status_does() -> None:
    first = next_conditions([], [Finding(status="False", reason="Starting")], generation=1, now_ms=NOON_MS)
    second = next_conditions(
        first, [Finding(status="False", reason="Waiting", message="for pods")], generation=2, now_ms=NOON_MS + 60_000
    )
    assert second[0].last_transition_time == first[0].last_transition_time == "2023-11-14T22:13:20Z"
    assert (second[0].reason, second[0].message, second[0].observed_generation) == ("Waiting", "for pods", 2)


def test_the_time_of_a_condition_is_that_of_its_last_change_of_status() -> None:
    first = next_conditions([], [Finding(status="False", reason="Starting")], generation=1, now_ms=NOON_MS)
    second = next_conditions(first, [Finding(status="True", reason="Ready")], generation=1, now_ms=NOON_MS + 60_000)
    assert second[0].last_transition_time == "2023-11-14T22:14:20Z"


def test_nothing_changed_gives_the_same_conditions() -> None:
    found = [Finding(status="True", reason="Ready"), Finding(type="StoreAvailable", status="True", reason="Answers")]
    first = next_conditions([], found, generation=1, now_ms=NOON_MS)
    assert next_conditions(first, found, generation=1, now_ms=NOON_MS + 3_600_000) == first


def test_what_was_not_found_again_is_gone() -> None:
    first = next_conditions(
        [],
        [Finding(status="True", reason="R"), Finding(type="Old", status="True", reason="R")],
        generation=1,
        now_ms=NOON_MS,
    )
    second = next_conditions(first, [Finding(status="True", reason="R")], generation=1, now_ms=NOON_MS)
    assert condition(second, "Old") is None
    assert condition(second) is not None


def test_a_message_is_bounded() -> None:
    assert (
        len(
            next_conditions([], [Finding(status="False", reason="R", message="x" * 9000)], generation=1, now_ms=0)[
                0
            ].message
        )
        == MESSAGE_LENGTH_MAX
    )


def test_what_waits_is_looked_at_less_and_less_often() -> None:
    [ready] = next_conditions([], [Finding(status="False", reason="ProxiesStarting")], generation=1, now_ms=0)
    paces = [pace_s(ready, first_s=3.0, most_s=30.0, now_ms=ms) for ms in (0, 30_000, 60_000, 300_000, 86_400_000)]
    assert paces == [3.0, 3.0, 6.0, 30.0, 30.0]
    assert pace_s(None, first_s=3.0, most_s=30.0, now_ms=86_400_000) == 3.0
    [good] = next_conditions([], [Finding(status="True", reason="AsWritten")], generation=1, now_ms=0)
    assert pace_s(good, first_s=3.0, most_s=30.0, now_ms=86_400_000) == 3.0, "it begins to wait"
