"""Which HTTP status each problem has: by the short name that programs know it by, and of bmq's errors by their class.
Nothing else chooses one. Pure; knows no framework.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bmq.errors import (
    BmqError,
    ChannelExists,
    ConfigsFull,
    ControllerUnavailable,
    Fenced,
    InvalidPartitions,
    InvalidTopicName,
    LaneExists,
    LaneFull,
    LaneInUse,
    NotOwner,
    NotReady,
    PartitionStopped,
    PolicyViolation,
    QuotaExceeded,
    RequestError,
    StoreError,
    TopicExists,
    UnknownChannel,
    UnknownLane,
    UnknownTopic,
)

UNAUTHENTICATED: Final = 401
UNAVAILABLE: Final = 503

OF_PROBLEMS: Final[Mapping[str, int]] = {
    "InvalidContinue": 400,
    "InvalidGroupId": 400,
    "InvalidRequest": 400,
    "Unauthenticated": UNAUTHENTICATED,
    "NoTokens": 403,
    "OtherSite": 403,
    "NotFound": 404,
    "UnknownGroup": 404,
    "UnknownNode": 404,
    "MethodNotAllowed": 405,
    "RequestTooSlow": 408,
    "GroupNotEmpty": 409,
    "NoHeir": 409,
    "NoHeirInPool": 409,
    "NotABroker": 409,
    "LengthRequired": 411,
    "RequestTooLarge": 413,
    "AddressTooLong": 414,
    "AnswerTooLarge": 500,
    "Bug": 500,
    "CoordinatorUnavailable": UNAVAILABLE,
    "LoadsUnknown": UNAVAILABLE,
    "NoLeader": UNAVAILABLE,
    "Starting": UNAVAILABLE,
    "TooManyRequests": UNAVAILABLE,
    "TooSlow": 504,
}
"""What the API itself finds."""


class VersionMismatch(RequestError):
    """The thing is not (any more) in the version that the request names; raised while the leader decides, so nothing is
    changed.
    """


@dataclass(frozen=True, slots=True)
class Told:
    """How an error of bmq's is told: `remedy` where its own text names none."""

    status: int
    remedy: str


OF_ERRORS: Final[Mapping[type[BmqError], Told]] = {
    VersionMismatch: Told(412, "read it again, and decide anew"),
    UnknownTopic: Told(404, "look at the list of them"),
    UnknownLane: Told(404, "look at the list of them"),
    LaneExists: Told(409, "choose another name, or use the one that is there"),
    LaneInUse: Told(409, "delete those that are nested in it first"),
    LaneFull: Told(409, "delete topics in the lane, or raise its quota"),
    UnknownChannel: Told(404, "look at the list of them"),
    ChannelExists: Told(409, "choose another name, or use the one that is there"),
    TopicExists: Told(409, "choose another name, or use the one that is there"),
    ConfigsFull: Told(400, "set shorter values, or delete some"),
    PolicyViolation: Told(403, "change the cluster's configuration if it is to be allowed"),
    QuotaExceeded: Told(429, "wait, or raise the limit"),
    InvalidTopicName: Told(400, "choose another name"),
    InvalidPartitions: Told(400, "ask for another number"),
    RequestError: Told(400, "change the request; /docs shows what it may be"),
    ControllerUnavailable: Told(UNAVAILABLE, "look whether it was done, and try again"),
    NotReady: Told(UNAVAILABLE, "try again in a moment"),
    NotOwner: Told(UNAVAILABLE, "try again in a moment"),
    Fenced: Told(UNAVAILABLE, "try again in a moment"),
    StoreError: Told(UNAVAILABLE, "look at the object store's health, and try again"),
    PartitionStopped: Told(500, "look at the log of the broker that owns it"),
    BmqError: Told(500, "look at the log of the node that answered"),
}
"""How errors of a class are told, and of those below it that are not here themselves."""


def told_of(error: BmqError) -> Told:
    """How it is told: as its own class, or as the nearest above it that is here."""
    return next(OF_ERRORS[kind] for kind in type(error).__mro__ if kind in OF_ERRORS)
