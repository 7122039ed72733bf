"""What a caller by gRPC is told of each outcome, and what the whole call is told."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as some

import bmq_databus.v1
from bmq_databus.errors import ClusterAway, QueueFull, RateLimited, SpoolFull, TurnedOff, Unfit
from bmq_databus.grpc.results import code_of_all, failed_on_wire, result_of, results_on_wire
from bmq_databus.grpc.statuses import code_numbered
from bmq_databus.producing.outcomes import ACCEPTED, SAMPLED_OUT, Outcome, dead_letter, failed, of_all, refused_by, sent
from bmq_databus.spool.frames import Spooled
from bmq_databus.v1.databus_pb2 import Result, WriteResponse

MESSAGE = Spooled("orders", -1, None, b"x", (), 1, 1)


def refused(code: int) -> Outcome:
    return refused_by(KafkaError(code), MESSAGE)


def test_what_is_written_is_told_with_its_place() -> None:
    assert result_of(sent(2, 1 << 40)).written.offset == 1 << 40
    assert result_of(sent(0, 0)).WhichOneof("outcome") == "written"
    assert result_of(ACCEPTED).WhichOneof("outcome") == "accepted"
    assert result_of(SAMPLED_OUT).WhichOneof("outcome") == "sampled_out"


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (failed(TurnedOff("off")), StatusCode.PERMISSION_DENIED),
        (failed(Unfit("unfit")), StatusCode.INVALID_ARGUMENT),
        (failed(SpoolFull("full")), StatusCode.RESOURCE_EXHAUSTED),
        (failed(QueueFull("queue")), StatusCode.UNAVAILABLE),
        (failed(ClusterAway("away")), StatusCode.UNAVAILABLE),
        (refused(KafkaError.MSG_SIZE_TOO_LARGE), StatusCode.INVALID_ARGUMENT),
        (refused(KafkaError._UNKNOWN_TOPIC), StatusCode.NOT_FOUND),
        (refused(KafkaError.TOPIC_AUTHORIZATION_FAILED), StatusCode.PERMISSION_DENIED),
        (refused(KafkaError._MSG_TIMED_OUT), StatusCode.DEADLINE_EXCEEDED),
    ],
    ids=lambda one: one.name if isinstance(one, StatusCode) else str(one["status"]),
)
def test_what_is_not_written_has_a_code_that_says_whether_it_may_be(outcome: Outcome, code: StatusCode) -> None:
    error = result_of(outcome).error
    assert (code_numbered(error.code), error.text) == (code, outcome["error"])
    assert code_of_all([outcome, outcome]) is code


def test_who_writes_too_much_is_told_when_it_is_not() -> None:
    error = result_of(failed(RateLimited("rate", retry_after_s=7))).error
    assert (code_numbered(error.code), error.retry_after_seconds) == (StatusCode.RESOURCE_EXHAUSTED, 7)


def test_dead_letters_say_where_they_are_and_why() -> None:
    found = result_of(dead_letter(sent(1, 5), channel="dead", why="no total"))
    assert (found.written.offset, found.dead_letter.channel, found.dead_letter.reason) == (5, "dead", "no total")
    found = result_of(dead_letter(ACCEPTED, channel="dead", why="no total"))
    assert (found.WhichOneof("outcome"), found.dead_letter.channel) == ("accepted", "dead")
    found = result_of(dead_letter(failed(SpoolFull("full")), channel="dead", why="no total"))
    assert found.error.text == "no total; as a dead letter: full"


def test_targets_are_told_one_by_one() -> None:
    outcome = of_all([("a", sent(0, 3)), ("b", failed(QueueFull("queue")))])
    found = result_of(outcome)
    assert [one.target for one in found.targets] == ["a", "b"]
    assert found.targets[0].result.written.offset == 3
    assert code_numbered(found.targets[1].result.error.code) is StatusCode.UNAVAILABLE
    # One of them has it: the message is not told to be written nowhere.
    assert code_numbered(found.error.code) is StatusCode.DEADLINE_EXCEEDED


def test_no_code_hides_a_message_that_failed_otherwise() -> None:
    bad, away = failed(Unfit("unfit")), failed(ClusterAway("away"))
    assert code_of_all([]) is StatusCode.OK
    assert code_of_all([sent(0, 0), bad]) is StatusCode.OK
    assert code_of_all([bad, away]) is StatusCode.OK
    assert code_of_all([bad, bad]) is StatusCode.INVALID_ARGUMENT


@given(
    some.lists(
        some.one_of(
            some.builds(sent, some.integers(0, (1 << 31) - 1), some.integers(0, (1 << 63) - 1)),
            some.sampled_from([ACCEPTED, SAMPLED_OUT, failed(RateLimited("rate", retry_after_s=3))]),
            some.builds(lambda text: failed(Unfit(text)), some.text(min_size=1)),
            some.builds(lambda outcome: dead_letter(outcome, channel="dead", why="why"), some.just(ACCEPTED)),
        )
    )
)
def test_what_is_put_together_by_hand_is_what_protobuf_writes(outcomes: list[Outcome]) -> None:
    assert results_on_wire(outcomes) == WriteResponse(results=map(result_of, outcomes)).SerializeToString()


def test_parts_one_behind_the_other_are_a_response() -> None:
    outcomes = [sent(0, n) for n in range(300)] + [failed(Unfit("unfit"))]
    wire = results_on_wire(outcomes[:100]) + results_on_wire(outcomes[100:]) + failed_on_wire(outcomes)
    found = WriteResponse.FromString(wire)
    assert list(found.results) == list(map(result_of, outcomes))
    assert isinstance(found.results[0], Result)
    assert found.failed == 1


def test_what_is_committed_is_what_protoc_makes_of_the_definitions(tmp_path: Path) -> None:
    source = Path(bmq_databus.v1.__file__).parent
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", source.parents[1], f"--python_out={tmp_path}"]
    command += [f"--pyi_out={tmp_path}", "bmq_databus/v1/databus.proto"]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    for name in ("databus_pb2.py", "databus_pb2.pyi"):
        made = (tmp_path / "bmq_databus" / "v1" / name).read_text()
        assert made == (source / name).read_text(), "make generated"
