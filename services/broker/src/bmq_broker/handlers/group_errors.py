"""The one place where the group coordinator's refusals become Kafka's error codes."""

from typing import Final

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq_broker.coordinators.groups.requests import Refusal

_CODES: Final[dict[Refusal, ErrorCode]] = {
    Refusal.INVALID_GROUP_ID: ErrorCode.invalid_group_id,
    Refusal.INVALID_SESSION_TIMEOUT: ErrorCode.invalid_session_timeout,
    Refusal.UNKNOWN_MEMBER: ErrorCode.unknown_member_id,
    Refusal.FENCED_INSTANCE: ErrorCode.fenced_instance_id,
    Refusal.ILLEGAL_GENERATION: ErrorCode.illegal_generation,
    Refusal.INCONSISTENT_PROTOCOL: ErrorCode.inconsistent_group_protocol,
    Refusal.REBALANCE_IN_PROGRESS: ErrorCode.rebalance_in_progress,
    Refusal.MEMBER_ID_REQUIRED: ErrorCode.member_id_required,
    Refusal.GROUP_FULL: ErrorCode.group_max_size_reached,
    Refusal.TOO_MANY_GROUPS: ErrorCode.coordinator_not_available,
    Refusal.OVERLOADED: ErrorCode.coordinator_not_available,
    Refusal.GROUP_NOT_FOUND: ErrorCode.group_id_not_found,
    Refusal.GROUP_NOT_EMPTY: ErrorCode.non_empty_group,
    Refusal.SUBSCRIBED_TO_TOPIC: ErrorCode.group_subscribed_to_topic,
    Refusal.METADATA_TOO_LARGE: ErrorCode.offset_metadata_too_large,
    Refusal.STORED_TOO_MUCH: ErrorCode.invalid_commit_offset_size,
    Refusal.STORED_TOO_FAST: ErrorCode.throttling_quota_exceeded,
    Refusal.NOT_THE_LANES_TURN: ErrorCode.coordinator_load_in_progress,
    Refusal.UNKNOWN_TOPIC: ErrorCode.unknown_topic_or_partition,
    Refusal.ASSIGNMENT_TOO_LARGE: ErrorCode.unknown_server_error,
    Refusal.INVALID_REQUEST: ErrorCode.invalid_request,
}

_TEXT_MAX: Final = 8_000
"""Characters of a text that a stored record has to hold: its length there has 16 bits."""


def code_of(refusal: Refusal | None) -> ErrorCode:
    """None is success."""
    return ErrorCode.none if refusal is None else _CODES[refusal]


def group_id_error(group_id: str, *, may_be_empty: bool = False) -> ErrorCode | None:
    """Kafka still takes the empty id where only offsets and tools are concerned."""
    if (not group_id and not may_be_empty) or len(group_id) > _TEXT_MAX:
        return ErrorCode.invalid_group_id
    return None


def fits_record(*texts: str | None) -> bool:
    """Whether each can stand in a stored record."""
    return all(text is None or len(text) <= _TEXT_MAX for text in texts)


def is_at_least(caller: Caller, version: int) -> bool:
    """Whether the client used this version of the request or a newer one."""
    return caller.api_version < 0 or caller.api_version >= version
