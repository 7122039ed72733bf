"""What became of a message, as its writer is told. Pure."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from confluent_kafka import KafkaError

from bmq_databus.errors import (
    BadMessage,
    DatabusError,
    EntryTooLarge,
    LineTooLong,
    QueueFull,
    RateLimited,
    SpoolFailed,
    SpoolFull,
    TurnedOff,
    Unfit,
)
from bmq_databus.spool.frames import Spooled

FOR_GOOD: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
    }
)
"""Where sending it again later changes nothing by itself."""
_STATUSES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: 413,
    KafkaError.INVALID_MSG_SIZE: 413,
    KafkaError.UNKNOWN_TOPIC_OR_PART: 404,
    KafkaError._UNKNOWN_TOPIC: 404,
    KafkaError._UNKNOWN_PARTITION: 404,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: 403,
    KafkaError._MSG_TIMED_OUT: 503,
    KafkaError.REQUEST_TIMED_OUT: 503,
}
_OWN: Final[tuple[tuple[type[DatabusError], int], ...]] = (
    (EntryTooLarge, 413),
    (LineTooLong, 413),
    (BadMessage, 400),
    (TurnedOff, 403),
    (Unfit, 422),
    (RateLimited, 429),
    (SpoolFull, 507),
    (SpoolFailed, 507),
    (QueueFull, 503),
)

IN_SHORT: Final = "why was told in the first answer, which was too long to be kept"
_MAYBE: Final = "the cluster did not take it in time, and may have it all the same: see that it is there"

Outcome = dict[str, Any]
"""`status` as of a request for it alone, and where the message is, or `error`."""


def sent(partition: int, offset: int) -> Outcome:
    """The cluster has it."""
    return {"status": 200, "partition": partition, "offset": offset}


ACCEPTED: Final[Outcome] = {"status": 202}
"""The sidecar has it."""

SAMPLED_OUT: Final[Outcome] = {"status": 200, "sampledOut": True}
"""Nobody has it, as the channel wants it."""


def refused_by(error: KafkaError, message: Spooled) -> Outcome:
    """The cluster does not take it, or did not in time: then whether it has it is not known."""
    code, topic = error.code(), message.topic
    status = _STATUSES.get(code, 400 if code in FOR_GOOD else 503)
    match status:
        case 413:
            size_bytes = len(message.key or b"") + len(message.value or b"")
            why = f"topic {topic} does not take a message of {size_bytes} bytes: see its max.message.bytes"
        case 404 if message.partition >= 0:
            why = f"topic {topic} has no partition {message.partition}"
        case 404:
            why = f"there is no topic {topic}, and the cluster makes none"
        case 503 if code == KafkaError._PURGE_QUEUE and message.lane:
            why = f"{_MAYBE}, and that lane {message.lane} is (bmq lanes list)"
        case 503:
            why = _MAYBE
        case 403 if message.lane:
            why = (
                f"the cluster lets nobody write to topic {topic} in lane {message.lane}: there is no such lane (see "
                "bmq lanes list), or it may not be written"
            )
        case _:
            why = f"topic {topic} does not take it"
    return {"status": status, "error": f"{why} ({error.str()})"}


def failed(error: DatabusError) -> Outcome:
    """The sidecar does not take it; `retryAfter`, in seconds, where it would later."""
    status = next((status for kind, status in _OWN if isinstance(error, kind)), 500)
    outcome: Outcome = {"status": status, "error": str(error)}
    return {**outcome, "retryAfter": error.retry_after_s} if isinstance(error, RateLimited) else outcome


def dead_letter(outcome: Outcome, *, channel: str, why: str) -> Outcome:
    """What became of it as a dead letter of that channel, and why it is one. A status below 300 says that it is
    written there.
    """
    error = f"{why}; as a dead letter: {outcome['error']}" if "error" in outcome else why
    return {**outcome, "deadLetter": channel, "error": error}


def of_all(outcomes: Sequence[tuple[str, Outcome]]) -> Outcome:
    """What became of a message that goes to several topics, each named: it is written where all have it."""
    targets = [{"target": name, **outcome} for name, outcome in outcomes]
    missing = [(name, outcome) for name, outcome in outcomes if outcome["status"] != 200]
    if not missing:
        return {**outcomes[0][1], "targets": targets}
    why = "; ".join(f"{name}: {outcome['error']}" for name, outcome in missing)
    return {"status": max(outcome["status"] for _, outcome in missing), "error": why, "targets": targets}


def retry_after_s(outcomes: list[Outcome]) -> int | None:
    """When all that would be taken later would be; None: none of them."""
    return max([outcome["retryAfter"] for outcome in outcomes if "retryAfter" in outcome], default=None)


def whole(outcomes: list[Outcome]) -> int:
    """The status of a request for several messages: each one's own where they are the same, else 207."""
    statuses = set(map(itemgetter("status"), outcomes))
    return statuses.pop() if len(statuses) == 1 else 207 if statuses else 200


def in_short(outcome: Outcome) -> Outcome:
    """What is told of it again where the answer is too long to be kept: a bounded part, with the same status."""
    short = {name: value for name, value in outcome.items() if name not in ("error", "targets", "retryAfter")}
    if "error" in outcome:
        short["error"] = _MAYBE if _MAYBE in outcome["error"] else IN_SHORT
    return short


def may_be_written(outcome: Outcome) -> bool:
    """Whether sending the message again might have it there twice."""
    if any(may_be_written(target) for target in outcome.get("targets", ())):
        return True
    return outcome["status"] in (200, 202) or _MAYBE in outcome.get("error", "")
