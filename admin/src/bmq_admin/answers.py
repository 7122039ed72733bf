"""What an answer of HTTP's means: a document, the cluster's refusal, or nothing that bmq says. Pure."""

import json
from dataclasses import dataclass
from typing import Any, Final

from bmq_admin.documents import Problem
from bmq_admin.errors import AdminProblem, NotBmq
from bmq_admin.requests import Request
from bmq_admin.shapes import Misfit, fitted

TEXT_CHARS_MAX: Final = 2_000
"""Of each text of a refusal."""
_NO_CONTENT: Final = 204
_AS_IT_IS: Final = ("", "identity")


@dataclass(frozen=True, slots=True)
class Answered:
    """What was wanted."""

    document: Any


class Collected:
    """An answer's bytes as they come, which are not read to their end where there is none. Raises NotBmq, also before
    any came: what is compressed, which nobody asked for, may be a thousand times as large as what was sent.
    """

    def __init__(self, url: str, *, encoding: str, bytes_max: int) -> None:
        """`encoding`: the header content-encoding."""
        if encoding not in _AS_IT_IS:
            raise NotBmq(url, "a compressed answer, which was not asked for")
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


def read(url: str, request: Request[Any], *, status: int, reason: str, data: bytes, whole: bool) -> Answered:
    """What was answered; of a document, unless it is wanted as a `whole`, the fields that its kind has. Raises
    AdminProblem, NotBmq; neither holds the answer.
    """
    if not 200 <= status <= 299:
        raise _problem(url, status, reason, data)
    if request.raw:
        return Answered(data)
    try:
        document = None if status == _NO_CONTENT else _parsed(data)
        known = fitted(document, request.document)
        return Answered(document if whole else known)
    except Misfit as misfit:
        why = str(misfit)
    # Out here, as an error holds the one that was handled when it was raised, and that one the answer.
    raise NotBmq(url, f"the answer to {request.method} {request.target.partition('?')[0]}: {why}")


def _problem(url: str, status: int, reason: str, data: bytes) -> AdminProblem | NotBmq:
    try:
        told = fitted(_parsed(data), Problem)
    except Misfit:
        return NotBmq(url, "", status=status, reason=reason)
    return AdminProblem(status=status, **{name: text[:TEXT_CHARS_MAX] for name, text in told.items()})


def _parsed(data: bytes) -> Any:
    """Raises Misfit."""
    try:
        return json.loads(data)
    except RecursionError:
        raise Misfit("it is nested too deeply") from None
    except ValueError:
        raise Misfit("it is not JSON") from None
