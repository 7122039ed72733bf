"""The one state of a broker incarnation: what whoever asks or waits is told, and what may follow what."""

import itertools

import pytest

from bmq.errors import Fenced, NotOwner, NotReady, UnknownOutcome
from bmq_broker.ended import TABLE, BrokerEvent, BrokerState, Ended
from bmq_broker.partitions.states import ImpossibleTransition


def serving() -> Ended:
    ended = Ended()
    ended.registered()
    ended.recovered()
    return ended


def test_a_broker_that_hands_over_refuses_requests_while_what_it_took_becomes_durable() -> None:
    ended = serving()
    ended.hand_over()
    assert (ended.refusal, ended.lost) == (None, None)
    ended.stop()
    assert isinstance(ended.refusal, NotOwner)
    assert ended.lost is None
    ended.sealed()
    assert ended.state is BrokerState.SEALED
    assert not ended.may_hand_over


def test_who_is_fenced_says_so_to_all_and_a_kill_afterwards_to_those_that_come_then() -> None:
    ended, error = serving(), Fenced("replaced")
    ended.fence(error)
    assert ended.refusal is error
    assert ended.lost is error
    assert not ended.kill()
    assert isinstance(ended.refusal, NotReady)
    assert ended.lost is error


def test_what_waits_at_a_killed_broker_may_be_in_the_log_and_what_comes_is_not() -> None:
    ended = serving()
    assert ended.kill()
    assert isinstance(ended.lost, UnknownOutcome)
    assert isinstance(ended.refusal, NotReady)
    assert not ended.kill()


def test_a_broker_that_was_fenced_while_it_handed_over_stays_over() -> None:
    ended = serving()
    ended.hand_over()
    ended.fence(Fenced("replaced"))
    ended.stop()
    ended.sealed()
    assert ended.is_over
    assert isinstance(ended.lost, Fenced)


def test_a_broker_is_over_once() -> None:
    ended = serving()
    ended.kill()
    with pytest.raises(ImpossibleTransition):
        ended.fence(Fenced("replaced"))


def test_no_broker_goes_back() -> None:
    order = list(BrokerState)
    assert all(order.index(after) >= order.index(before) for (before, _), after in TABLE.items())
    ends = {state for state in BrokerState if (state, BrokerEvent.END) in TABLE}
    assert ends == set(BrokerState) - {BrokerState.UNREGISTERED, BrokerState.OVER}
    served = {BrokerState.STARTING, BrokerState.SERVING}
    assert {before for before, event in itertools.chain(TABLE) if event is BrokerEvent.HAND_OVER} == served
