"""Which of Kafka's error codes an error becomes where the wire's own table is not enough."""

from typing import Final

from bmq.errors import BmqError, ControllerUnavailable, Fenced, NotOwner, NotReady, PartitionStopped, StoreError
from bmq.wire.error_codes import ErrorCode, code_for

TRANSACTION_REFUSED: Final = "transactional producer refused: this version of bmq has no transactions"
"""The line of the log: most clients show their user no more than a code."""


def coordinator_code(error: BmqError) -> int:
    """What a client of a group is told: to find its coordinator again, or to wait for it."""
    match error:
        case NotReady():
            return int(ErrorCode.coordinator_load_in_progress)
        case NotOwner() | Fenced():
            return int(ErrorCode.not_coordinator)
        case StoreError() | ControllerUnavailable() | PartitionStopped():
            return int(ErrorCode.coordinator_not_available)
        case _:
            return int(code_for(error))


def controller_code(error: BmqError) -> int:
    """What an administrator's client is told: a controller that cannot commit is worth another try."""
    match error:
        case ControllerUnavailable() | StoreError():
            return int(ErrorCode.request_timed_out)
        case _:
            return int(code_for(error))
