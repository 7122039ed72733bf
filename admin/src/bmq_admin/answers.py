"""What an answer of HTTP's means: a document, the cluster's refusal, or nothing that bmq says. Pure."""

import json
from dataclasses import dataclass
from typing import Any, Final

from bmq_admin.errors import AdminProblem, NotBmq
from bmq_admin.requests import Request

ANSWER_BYTES_MAX: Final = 64 << 20
_NO_CONTENT: Final = 204


@dataclass(frozen=True, slots=True)
class Answered:
    """What was wanted."""

    document: Any


class Collected:
    """An answer's bytes as they come, which are not read to their end where there is none. Raises NotBmq."""

    def __init__(self, url: str, *, bytes_max: int) -> None:
        self._url = url
        self._bytes_max = bytes_max
        self._data = bytearray()

    def add(self, piece: bytes) -> None:
        """The next ones."""
        self._data += piece
        if len(self._data) > self._bytes_max:
            raise NotBmq(self._url, f"an answer of more than {self._bytes_max} bytes")

    def all(self) -> bytes:
        """The bytes that came so far."""
        return bytes(self._data)


def read(url: str, request: Request[Any], *, status: int, reason: str, data: bytes) -> Answered:
    """What was answered. Raises AdminProblem, NotBmq."""
    if not 200 <= status <= 299:
        raise _problem(url, status, reason, data)
    if request.raw:
        return Answered(data)
    if status == _NO_CONTENT:
        return Answered(None)
    try:
        return Answered(json.loads(data))
    except ValueError as error:
        raise NotBmq(url, f"the answer to {request.method} {request.target.partition('?')[0]} is not JSON") from error


def _problem(url: str, status: int, reason: str, data: bytes) -> AdminProblem | NotBmq:
    try:
        problem = json.loads(data)
        return AdminProblem(status=status, **{name: str(problem[name]) for name in ("code", "what", "why", "remedy")})
    except (ValueError, KeyError, TypeError):
        return NotBmq(url, "", status=status, reason=reason)
