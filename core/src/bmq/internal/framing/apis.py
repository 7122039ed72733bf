"""The calls between nodes: their keys, which connection each travels on, and which may be stopped half-way. The tables
of the protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from bmq.internal.limits import ATTACHMENT_BYTES_MAX

PROTOCOL_VERSION: Final = 3
"""The newest one that this bmq speaks. Fields are only ever added at the end of a header, with a default; anything else
is a new version."""
PROTOCOL_VERSION_MIN: Final = 1
PINGS_FROM: Final = 2
"""The first version whose servers know pings, and tails that are followed."""
PARTS_FROM: Final = 3
"""The first version whose clients know answers in parts."""


class Purpose(IntEnum):
    """What a connection is for. Back-pressure stops PRODUCE alone: a slow store must end no long poll, no group session
    and no lease.
    """

    PRODUCE = 0
    TAIL = 1
    CONTROL = 2
    FOLLOW = 3
    """One session of many tails; from version 2 on."""


class Api(IntEnum):
    """The calls' keys, apart from Kafka's so that one is never taken for the other. A key is never used again for
    something else; 1107 was one of a call that is no more.
    """

    APPEND = 1000
    READ_TAIL = 1001
    OFFSET_FOR_TIME = 1002
    EPOCH_END = 1003
    DELETE_RECORDS = 1004
    STATUS = 1005
    GROUP_CALL = 1006
    FOLLOW_CHANGE = 1007
    FOLLOW_POLL = 1008
    UNREAD = 1009
    HANDED_OVER = 1010

    CREATE_TOPICS = 1100
    DELETE_TOPICS = 1101
    CREATE_PARTITIONS = 1102
    ALTER_CONFIGS = 1103
    REPLACE_CONFIGS = 1104
    ALLOCATE_PRODUCER_IDS = 1105
    REGISTER = 1106
    REPORT_STOPPED = 1108
    HEARTBEAT = 1109
    MOVE = 1110
    DRAIN = 1111
    CORDON = 1112
    METADATA_POLL = 1113
    REASSIGN = 1114
    CONSUMED = 1115
    UNCONSUMED = 1116
    TURNED = 1117
    ADMIN = 1120


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSpec:
    """`stoppable`: ended when its caller does not want it any more or is gone; everything else is carried through, and
    its answer dropped (but for what a route says of a single call: `Kept.ends`)."""

    purpose: Purpose = Purpose.CONTROL
    stoppable: bool = False


_STOPPABLE: Final = ApiSpec(stoppable=True)
_CARRIED_THROUGH: Final = ApiSpec()

APIS: Final[Mapping[int, ApiSpec]] = MappingProxyType(
    {
        **{int(api): _CARRIED_THROUGH for api in Api},
        Api.APPEND: ApiSpec(purpose=Purpose.PRODUCE),
        Api.READ_TAIL: ApiSpec(purpose=Purpose.TAIL, stoppable=True),
        Api.METADATA_POLL: ApiSpec(purpose=Purpose.TAIL, stoppable=True),
        Api.FOLLOW_CHANGE: ApiSpec(purpose=Purpose.FOLLOW),
        Api.FOLLOW_POLL: ApiSpec(purpose=Purpose.FOLLOW, stoppable=True),
        Api.OFFSET_FOR_TIME: _STOPPABLE,
        Api.EPOCH_END: _STOPPABLE,
        Api.STATUS: _STOPPABLE,
        Api.UNREAD: _STOPPABLE,
    }
)
"""By key."""


def attachments_of_calls_max(purpose: Purpose) -> int:
    """How many bytes may be attached to a call."""
    return ATTACHMENT_BYTES_MAX if purpose is Purpose.PRODUCE else 0


def attachments_of_answers_max(purpose: Purpose) -> int:
    """How many bytes may be attached to an answer."""
    return 0 if purpose is Purpose.CONTROL else ATTACHMENT_BYTES_MAX


def api_name(api_key: int) -> str:
    """For texts that people read."""
    try:
        return Api(api_key).name.lower().replace("_", " ")
    except ValueError:
        return f"call {api_key}"
