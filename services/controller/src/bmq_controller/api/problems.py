"""Problems as the API tells them (RFC 9457, application/problem+json): what, why, remedy. Pure; knows no framework."""

import json
import re
from dataclasses import dataclass
from typing import Final

from bmq.errors import BmqError
from bmq.roles.admin import AdminReply
from bmq_controller.api.statuses import OF_PROBLEMS, UNAUTHENTICATED, UNAVAILABLE, told_of

CONTENT_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
_KINDS: Final = {
    "topics": "topic",
    "groups": "group",
    "nodes": "node",
    "lanes": "lane",
    "routes": "topic",
    "channels": "channel",
    "placement": "partition",
}


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
        if self.status == UNAUTHENTICATED:
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
    """An endpoint's way to say no. `code` names its status."""

    def __init__(self, code: str, why: str, remedy: str) -> None:
        super().__init__(code, why, remedy)
        self.code, self.why, self.remedy = code, why, remedy

    def about(self, what: str) -> Refusal:
        """The refusal, with what was asked for."""
        return refusal(self.code, what=what, why=self.why, remedy=self.remedy)


def refusal(code: str, *, what: str, why: str, remedy: str) -> Refusal:
    """What the API itself refuses."""
    return Refusal(status=OF_PROBLEMS[code], code=code, what=what, why=why, remedy=remedy)


def refusal_of(error: BmqError, what: str) -> Refusal:
    """The refusal that tells of an error of bmq's. The error's text is split where it names its remedy: after the last
    colon.
    """
    told = told_of(error)
    why, colon, own = str(error).rstrip(".").rpartition(": ")
    if not colon or len(own.split()) < 2:
        why, own = str(error).rstrip("."), told.remedy
    return Refusal(status=told.status, code=type(error).__name__, what=what, why=why, remedy=own)


def subject_of(method: str, path: str) -> str:
    """What a request is about, in words: `/v1/topics/orders/configs` → `topic orders`."""
    parts = [part for part in path.split("/") if part][1:]
    if len(parts) < 2 or parts[0] not in _KINDS:
        return f"{method} {path}"
    name = "/".join(parts[1:]) if parts[0] == "groups" else parts[1]
    return f"{_KINDS[parts[0]]} {'/'.join(parts[1:3]) if parts[0] == 'placement' else name}"
