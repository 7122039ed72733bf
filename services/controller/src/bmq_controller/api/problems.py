"""Problems as the API tells them (RFC 9457, application/problem+json): what, why, remedy. Pure; knows no framework."""

import json
import re
from dataclasses import dataclass
from typing import Final

from bmq.errors import (
    BmqError,
    ConfigsFull,
    ControllerUnavailable,
    Fenced,
    InvalidPartitions,
    InvalidTopicName,
    LaneExists,
    NotOwner,
    NotReady,
    PartitionStopped,
    PolicyViolation,
    RequestError,
    StoreError,
    TopicExists,
    UnknownLane,
    UnknownTopic,
)
from bmq.roles.admin import AdminReply

CONTENT_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
UNAVAILABLE: Final = 503

_STATUSES: Final[tuple[tuple[type[BmqError], int, str], ...]] = (
    (UnknownTopic, 404, "look at the list of them"),
    (UnknownLane, 404, "look at the list of them"),
    (LaneExists, 409, "choose another name, or use the one that is there"),
    (TopicExists, 409, "choose another name, or use the one that is there"),
    (ConfigsFull, 400, "set shorter values, or delete some"),
    (PolicyViolation, 403, "change the cluster's configuration if it is to be allowed"),
    (InvalidTopicName, 400, "choose another name"),
    (InvalidPartitions, 400, "ask for another number"),
    (RequestError, 400, "change the request; /docs shows what it may be"),
    (ControllerUnavailable, UNAVAILABLE, "look whether it was done, and try again"),
    (NotReady, UNAVAILABLE, "try again in a moment"),
    (NotOwner, UNAVAILABLE, "try again in a moment"),
    (Fenced, UNAVAILABLE, "try again in a moment"),
    (StoreError, UNAVAILABLE, "look at the object store's health, and try again"),
    (PartitionStopped, 500, "look at the log of the broker that owns it"),
    (BmqError, 500, "look at the log of the node that answered"),
)
"""By class, the first that fits: status, and the remedy where the error's own text names none."""
_KINDS: Final = {"topics": "topic", "groups": "group", "nodes": "node", "lanes": "lane", "placement": "partition"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`code` is a short name for programs; the texts are for people."""

    status: int
    code: str
    what: str
    why: str
    remedy: str

    def reply(self) -> AdminReply:
        """The answer."""
        headers = {"content-type": CONTENT_TYPE}
        if self.status == UNAVAILABLE:
            headers["retry-after"] = str(RETRY_AFTER_S)
        if self.status == 401:
            headers["www-authenticate"] = 'Bearer realm="bmq"'
        return AdminReply(
            status=self.status, headers=headers, body=json.dumps(self.document(), ensure_ascii=False).encode()
        )

    def document(self) -> dict[str, object]:
        """The answer's fields."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.code)
        return {
            "type": f"urn:bmq:problem:{words.lower().replace(' ', '-')}",
            "title": words.capitalize(),
            "status": self.status,
            "detail": f"{self.what}: {self.why}. {self.remedy}",
            "code": self.code,
            "what": self.what,
            "why": self.why,
            "remedy": self.remedy,
        }


class Refused(Exception):
    """An endpoint's way to say no."""

    def __init__(self, status: int, code: str, why: str, remedy: str) -> None:
        super().__init__(status, code, why, remedy)
        self.status, self.code, self.why, self.remedy = status, code, why, remedy

    def about(self, what: str) -> Refusal:
        """The refusal, with what was asked for."""
        return Refusal(status=self.status, code=self.code, what=what, why=self.why, remedy=self.remedy)


class VersionMismatch(RequestError):
    """The thing is not (any more) in the version that the request names; raised while the leader decides, so nothing is
    changed.
    """


def refusal_of(error: BmqError, what: str) -> Refusal:
    """The refusal that tells of an error of bmq's. The error's text is split where it names its remedy: after the last
    colon.
    """
    if isinstance(error, VersionMismatch):
        return Refusal(
            status=412, code="VersionMismatch", what=what, why=str(error), remedy="read it again, and decide anew"
        )
    status, remedy = next((status, remedy) for kind, status, remedy in _STATUSES if isinstance(error, kind))
    why, colon, own = str(error).rstrip(".").rpartition(": ")
    if not colon or len(own.split()) < 2:
        why, own = str(error).rstrip("."), remedy
    return Refusal(status=status, code=type(error).__name__, what=what, why=why, remedy=own)


def subject_of(method: str, path: str) -> str:
    """What a request is about, in words: `/v1/topics/orders/configs` → `topic orders`."""
    parts = [part for part in path.split("/") if part][1:]
    if len(parts) < 2 or parts[0] not in _KINDS:
        return f"{method} {path}"
    name = "/".join(parts[1:]) if parts[0] == "groups" else parts[1]
    return f"{_KINDS[parts[0]]} {'/'.join(parts[1:3]) if parts[0] == 'placement' else name}"
