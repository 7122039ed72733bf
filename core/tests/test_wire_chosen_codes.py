"""Every error of bmq has a Kafka code, whoever is told it."""

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from bmq import errors
from bmq.wire.chosen_codes import (
    code_for,
    controller_code,
    coordinator_code,
    has_code_of_its_own,
    own_coordinator_code,
)
from bmq.wire.error_codes import ErrorCode

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BmqError)]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_of_its_own(kind: type[errors.BmqError]) -> None:
    assert has_code_of_its_own(kind)
    assert code_for(kind("x")) != ErrorCode.none


def test_codes_are_kafkas() -> None:
    assert {code.name: code.value for code in ErrorCode} == {code.name: code.value for code in KioErrorCode}


def test_success_subclasses_and_strangers() -> None:
    class Odd(errors.OffsetOutOfRange):
        pass

    assert code_for(None) == ErrorCode.none
    assert code_for(Odd("x")) == ErrorCode.offset_out_of_range
    assert code_for(ValueError("x")) == ErrorCode.unknown_server_error


def test_what_a_fetch_may_meet_is_a_code_that_javas_consumer_retries() -> None:
    retried = {ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error, ErrorCode.unknown_topic_or_partition}
    for kind in (
        errors.NotOwner,
        errors.NotReady,
        errors.Fenced,
        errors.PartitionStopped,
        errors.StoreUnavailable,
        errors.ObjectMissing,
        errors.Corrupt,
    ):
        assert code_for(kind("x")) in retried


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_for_whoever_is_told_it(kind: type[errors.BmqError]) -> None:
    error = kind("x")
    for told in (coordinator_code(error), own_coordinator_code(error), controller_code(error)):
        assert ErrorCode(told) != ErrorCode.none
    assert controller_code(error, knows_quotas=False) != ErrorCode.throttling_quota_exceeded


def test_a_groups_client_asks_again_and_elsewhere_for_what_is_not_its_own_fault() -> None:
    retried = {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
    passing = (errors.NotReady, errors.NotOwner, errors.Fenced, errors.StoreError)
    for kind in (one for one in ALL if issubclass(one, passing)):
        assert {coordinator_code(kind("x")), own_coordinator_code(kind("x"))} <= retried
    assert coordinator_code(errors.PartitionStopped("x")) in retried
    assert own_coordinator_code(errors.InvalidGroupId("x")) == ErrorCode.invalid_request


def test_an_administrators_client_asks_again_where_the_controller_cannot_commit() -> None:
    for kind in (errors.NoLeader, errors.ControllerUnavailable, errors.StoreUnavailable, errors.UnknownOutcome):
        assert controller_code(kind("x")) == ErrorCode.request_timed_out
    assert controller_code(errors.TopicExists("x")) == ErrorCode.topic_already_exists
