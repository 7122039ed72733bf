"""Every error of bmq has a Kafka code."""

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from bmq import errors
from bmq.wire.chosen_codes import code_for, has_code_of_its_own
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
