"""gRPC's codes for what went wrong, chosen here alone. Pure."""

from dataclasses import dataclass
from typing import Final

from grpc import StatusCode

from bmq_databus.errors import BadMessage, DatabusError, NoSuchChannel, NothingKnown, TurnedOff
from bmq_databus.grpc.errors import BadRequest, NoSuchService, StreamOver, TooMuchMetadata, TooSlow, Unauthenticated
from bmq_databus.producing.outcomes import Outcome, may_be_written
from bmq_databus.requests.admission import Ending
from bmq_databus.requests.idempotency import BadKey, KeyReused, KeyUnderWay
from bmq_databus.requests.places import GaveWay
from bmq_databus.requests.room import TooMuchAtOnce
from bmq_databus.requests.streams import ChannelGone

_OF_HTTP: Final = {
    400: StatusCode.INVALID_ARGUMENT,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    413: StatusCode.INVALID_ARGUMENT,
    422: StatusCode.INVALID_ARGUMENT,
    429: StatusCode.RESOURCE_EXHAUSTED,
    500: StatusCode.INTERNAL,
    503: StatusCode.UNAVAILABLE,
    507: StatusCode.RESOURCE_EXHAUSTED,
}
REFUSALS: Final[tuple[tuple[type[DatabusError], StatusCode, int], ...]] = (
    (BadKey, StatusCode.INVALID_ARGUMENT, 400),
    (BadMessage, StatusCode.INVALID_ARGUMENT, 400),
    (BadRequest, StatusCode.INVALID_ARGUMENT, 400),
    (Unauthenticated, StatusCode.UNAUTHENTICATED, 401),
    (ChannelGone, StatusCode.PERMISSION_DENIED, 403),
    (TurnedOff, StatusCode.PERMISSION_DENIED, 403),
    (NoSuchChannel, StatusCode.NOT_FOUND, 404),
    (NoSuchService, StatusCode.NOT_FOUND, 404),
    (StreamOver, StatusCode.UNAVAILABLE, 408),
    (TooSlow, StatusCode.UNAVAILABLE, 408),
    (KeyUnderWay, StatusCode.ABORTED, 409),
    (KeyReused, StatusCode.INVALID_ARGUMENT, 422),
    (TooMuchMetadata, StatusCode.RESOURCE_EXHAUSTED, 431),
    (Ending, StatusCode.UNAVAILABLE, 503),
    (GaveWay, StatusCode.UNAVAILABLE, 503),
    (NothingKnown, StatusCode.UNAVAILABLE, 503),
    (TooMuchAtOnce, StatusCode.RESOURCE_EXHAUSTED, 503),
)
"""What a call fails by of which nothing was looked at, or no more; and the status that it is counted with."""
REFUSES: Final = tuple(kind for kind, _, _ in REFUSALS)
RETRY_AFTER_S: Final = 1
WHY_CHARS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a call ends with. It is no error: an error keeps all that it came through, and so the call's requests."""

    code: StatusCode
    why: str
    retry_after_s: int | None = None


def failure_of(error: DatabusError) -> Failure:
    """That of one of `REFUSES`."""
    code, status = refusal(error)
    return Failure(
        code=code, why=str(error)[:WHY_CHARS_MAX], retry_after_s=RETRY_AFTER_S if status in (409, 503) else None
    )


def refusal(error: DatabusError) -> tuple[StatusCode, int]:
    """The code of one of `REFUSES`, and its status."""
    return next((code, status) for kind, code, status in REFUSALS if isinstance(error, kind))


def code_of(outcome: Outcome) -> StatusCode:
    """That of a message which is not written, or of which that is not known."""
    if may_be_written(outcome) and outcome["status"] == 503:
        return StatusCode.DEADLINE_EXCEEDED
    return _OF_HTTP[outcome["status"]]


def number_of(code: StatusCode) -> int:
    """As it goes over the wire."""
    number: int = code.value[0]
    return number


def code_numbered(number: int) -> StatusCode:
    """The reverse."""
    return next(code for code in StatusCode if code.value[0] == number)
