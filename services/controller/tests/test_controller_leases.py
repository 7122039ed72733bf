"""Leases: cases, and random times against a plain model of what the leader heard while it ran."""

from hypothesis import given
from hypothesis import strategies as st

from bmq.values import BrokerEpoch, NodeId
from bmq_controller.machine.leases import Leases
from bmq_controller.machine.placement import Incarnation

ONE: Incarnation = (NodeId(1), BrokerEpoch(1))
TWO: Incarnation = (NodeId(2), BrokerEpoch(1))
AGAIN: Incarnation = (NodeId(1), BrokerEpoch(2))


def leases() -> Leases:
    return Leases(lease_s=6.0, lag_s_max=1.5)


def run(found: Leases, registered: list[Incarnation], *, start_s: float, end_s: float) -> dict[Incarnation, float]:
    """Ticks each second; when each incarnation was first found silent."""
    silent: dict[Incarnation, float] = {}
    now_s = start_s
    while now_s <= end_s:
        for who in found.tick(registered, now_s=now_s):
            silent.setdefault(who, now_s)
        now_s += 1
    return silent


def test_a_lease_runs_out_six_seconds_after_the_last_sign_of_life() -> None:
    found = leases()
    found.start({}, [ONE, TWO], now_s=10)
    run(found, [ONE, TWO], start_s=11, end_s=12)
    found.heard(TWO, now_s=12)
    assert run(found, [ONE, TWO], start_s=13, end_s=18) == {ONE: 16, TWO: 18}


def test_a_node_that_comes_later_has_its_whole_lease() -> None:
    found = leases()
    found.start({}, [ONE], now_s=0)
    run(found, [ONE], start_s=1, end_s=4)
    assert run(found, [ONE, TWO, AGAIN], start_s=5, end_s=11) == {ONE: 6, TWO: 11, AGAIN: 11}


def test_leases_do_not_run_while_their_leader_slept() -> None:
    found = leases()
    found.start({}, [ONE], now_s=0)
    run(found, [ONE], start_s=1, end_s=5)
    assert found.tick([ONE], now_s=500) == []
    assert run(found, [ONE], start_s=501, end_s=506) == {ONE: 506}


def test_a_new_leader_counts_the_silence_that_the_old_one_saw_but_leaves_time_to_find_it() -> None:
    found = leases()
    found.start({ONE[0]: 3.0, TWO[0]: 100.0}, [ONE, TWO], now_s=0)
    assert run(found, [ONE, TWO], start_s=1, end_s=4) == {TWO: 2, ONE: 3}


# Steps of whole eighths: their sums are exact, so one of 1.5 s is never a little more than the lag that is allowed.
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([0.125, 0.5, 1.0, 1.5, 2.0, 9.0]), st.sets(st.sampled_from([ONE, TWO, AGAIN]))),
        max_size=60,
    ),
)
def test_nobody_is_silent_who_was_heard_within_the_lease_of_a_leader_that_ran(
    steps: list[tuple[float, set[Incarnation]]],
) -> None:
    found = leases()
    everyone = [ONE, TWO, AGAIN]
    now_s = 0.0
    found.start({}, everyone, now_s=now_s)
    ran_s = dict.fromkeys(everyone, 0.0)
    """The plain model: for how long the leader has run and not heard each."""
    for step_s, heard in steps:
        now_s += step_s
        ran_s = (
            dict.fromkeys(everyone, 0.0)
            if step_s > 1.5
            else {who: silent_s + step_s for who, silent_s in ran_s.items()}
        )
        for who in heard:
            found.heard(who, now_s=now_s)
            ran_s[who] = 0.0
        silent = found.tick(everyone, now_s=now_s)
        assert (
            {who for who in everyone if ran_s[who] > 6.001}
            <= set(silent)
            <= {who for who in everyone if ran_s[who] >= 5.999}
        )
