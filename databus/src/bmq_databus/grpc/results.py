"""What became of messages, as it lies on the wire: results one behind the other are a response. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from grpc import StatusCode

from bmq_databus.grpc.statuses import code_of, number_of
from bmq_databus.producing.outcomes import Outcome
from bmq_databus.v1.databus_pb2 import (
    Accepted,
    DeadLetter,
    Error,
    Result,
    SampledOut,
    TargetResult,
    WriteResponse,
    WriteStreamResponse,
    Written,
)

_WRITTEN: Final = (200, 202)


def result_of(outcome: Outcome) -> Result:
    """One message's."""
    status = outcome["status"]
    found = Result()
    if status not in _WRITTEN:
        error = Error(code=number_of(code_of(outcome)), text=outcome["error"])
        error.retry_after_seconds = outcome.get("retryAfter", 0)
        found.error.CopyFrom(error)
    elif status == 202:
        found.accepted.CopyFrom(Accepted())
    elif outcome.get("sampledOut"):
        found.sampled_out.CopyFrom(SampledOut())
    else:
        found.written.CopyFrom(Written(partition=outcome["partition"], offset=outcome["offset"]))
    if "deadLetter" in outcome:
        found.dead_letter.CopyFrom(DeadLetter(channel=outcome["deadLetter"], reason=outcome["error"]))
    found.targets.extend(
        TargetResult(target=one["target"], result=result_of(one)) for one in outcome.get("targets", ())
    )
    return found


def results_on_wire(outcomes: Iterable[Outcome]) -> bytes:
    """What a response of either kind has."""
    return b"".join(map(_on_wire, outcomes))


def _on_wire(outcome: Outcome) -> bytes:
    """As `result_of` has it. What most are is put together here, in a fifth of the time."""
    if len(outcome) == 3 and "offset" in outcome:
        partition, offset = outcome["partition"], outcome["offset"]
        place = (b"\x08" + _varint(partition) if partition else b"") + (b"\x10" + _varint(offset) if offset else b"")
        return bytes((0x0A, len(place) + 2, 0x0A, len(place))) + place
    if len(outcome) == 1 and outcome["status"] == 202:
        return b"\x0a\x02\x12\x00"
    if len(outcome) == 2 and "error" in outcome:
        text: bytes = outcome["error"].encode()
        error = bytes((0x08, number_of(code_of(outcome)), 0x12)) + _varint(len(text)) + text
        result = b"\x22" + _varint(len(error)) + error
        return b"\x0a" + _varint(len(result)) + result
    return WriteStreamResponse(results=[result_of(outcome)]).SerializeToString()


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def failed_on_wire(outcomes: Iterable[Outcome]) -> bytes:
    """How many failed, of a `WriteResponse`."""
    return WriteResponse(failed=sum(one["status"] not in _WRITTEN for one in outcomes)).SerializeToString()


def code_of_all(outcomes: Sequence[Outcome]) -> StatusCode:
    """A call's: that of its messages where they all failed by the same, else none hides another."""
    if not outcomes or any(one["status"] in _WRITTEN for one in outcomes):
        return StatusCode.OK
    codes = {code_of(one) for one in outcomes}
    return codes.pop() if len(codes) == 1 else StatusCode.OK
