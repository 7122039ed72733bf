"""What an answer of HTTP's means: a document, the cluster's refusal, or nothing that bmq says. Pure."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bmq_admin.documents import Kind, Problem
from bmq_admin.errors import AdminProblem, NotBmq
from bmq_admin.requests import Request

TEXT_CHARS_MAX: Final = 2_000
"""How long each text of a refusal may be."""
PIECES_FREE: Final = 2_000
"""So many pieces of an answer may be of any size…"""
PIECE_BYTES_MIN: Final = 64
"""…and beyond them they have so many bytes on the average: chunks of a byte each take longer to read than they tell."""
_NO_CONTENT: Final = 204
_NULL: Final = b"null"
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
        self.pieces = 0
        """How many came."""

    def add(self, piece: bytes) -> None:
        """The next ones."""
        self._data += piece
        if len(self._data) > self._bytes_max:
            raise NotBmq(self._url, f"an answer of more than {self._bytes_max} bytes")
        self.pieces += 1
        if self.pieces > PIECES_FREE and len(self._data) < self.pieces * PIECE_BYTES_MIN:
            raise NotBmq(self._url, f"an answer in pieces of less than {PIECE_BYTES_MIN} bytes")

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
        document = _NULL if status == _NO_CONTENT else data
        known = _read_as(request.document, document)
        return Answered(_read_as(Any, document) if whole else known)
    except _Misfit as misfit:
        why = str(misfit)
    # Out here, as an error holds the one that was handled when it was raised, and that one the answer.
    raise NotBmq(url, f"the answer to {request.method} {request.target.partition('?')[0]}: {why}")


def _problem(url: str, status: int, reason: str, data: bytes) -> AdminProblem | NotBmq:
    try:
        told = _read_as(Problem, data)
    except _Misfit:
        return NotBmq(url, "", status=status, reason=reason)
    return AdminProblem(status=status, **{name: text[:TEXT_CHARS_MAX] for name, text in told.items()})


class _Misfit(Exception):
    """It is no such document; why."""


def _read_as(kind: Kind, data: bytes) -> Any:
    """Raises _Misfit. What the kind does not have is passed over, and takes no memory."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        why = str(error)
    except msgspec.DecodeError:
        why = "it is not JSON"
    except RecursionError:
        why = "it is nested too deeply"
    raise _Misfit(why)
