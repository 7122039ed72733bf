"""Whether records can be stored and read again. Asked of each operation before anything rests on its records. Pure.

A text with a lone surrogate (JSON can spell one) is no UTF-8, a number beyond 64 bits is no number of the format, and
what cannot be read again would end every reader of the log.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from bmq.errors import Corrupt, FormatTooNew, InvalidRequest
from bmq.metadata.codec import decode_records, encode_records
from bmq.metadata.records import AnyRecord

NUMBER_MIN: Final = -(2**63)
NUMBER_MAX: Final = 2**63 - 1


def check_storable(records: Sequence[AnyRecord]) -> None:
    """Raises InvalidRequest that names the first field which cannot be stored, and why."""
    try:
        decode_records(encode_records(records), what="records")
    except (UnicodeError, OverflowError, ValueError, TypeError, msgspec.MsgspecError, Corrupt, FormatTooNew) as error:
        found = next(_unstorable(records), None)
        raise InvalidRequest(found or f"it cannot be stored ({error}): change the request") from error


def unstorable_text(text: str) -> str | None:
    """Why a text cannot be stored or sent; None: it can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"has half a character (U+{ord(text[error.start]):04X}, a lone surrogate) at position "
            f"{error.start}, which UTF-8 cannot express"
        )
    return None


class Way(NamedTuple):
    """To a field from the value that it is in: by the field that it is in, and its name or place there. Written as text
    where somebody is told of it alone: the ways to all fields of a deep value are far longer than the value.
    """

    above: "Way | None"
    step: object
    is_place: bool = False
    """In a list."""
    is_name: bool = False
    """It is the name itself that is meant."""

    @property
    def said(self) -> str:
        """For people."""
        way: Way | None = self
        steps: list[str] = []
        while way is not None:
            step = f"[{way.step}]" if way.is_place else f".{_shown(way.step)}"
            steps.append(f"{step} (its name)" if way.is_name else step)
            way = way.above
        return "".join(reversed(steps)).removeprefix(".")


def fields_of(value: object) -> Iterator[tuple[Way | None, object]]:
    """Each text and number within a value of dictionaries, lists and records, with the way to it; None: it is the value
    itself. As deep as the value is, without recursion.
    """
    left: list[tuple[Way | None, object]] = [(None, value)]
    while left:
        at, one = left.pop()
        if isinstance(one, msgspec.Struct):
            left += [(Way(at, name), getattr(one, name)) for name in reversed(one.__struct_fields__)]
        elif isinstance(one, Mapping):
            left += [(Way(at, key), inner) for key, inner in one.items()]
            left += [(Way(at, key, is_name=True), key) for key in one]
        elif isinstance(one, (list, tuple)):
            left += [(Way(at, index, is_place=True), inner) for index, inner in reversed(list(enumerate(one)))]
        else:
            yield at, one


def _unstorable(records: Sequence[AnyRecord]) -> Iterator[str]:
    for record in records:
        for way, value in fields_of(record):
            if isinstance(value, str) and (why := unstorable_text(value)) is not None:
                yield f"{_said(way)} {why}: leave that character out"
            if isinstance(value, int) and not NUMBER_MIN <= value <= NUMBER_MAX:
                yield f"{_said(way)} is beyond 64 bits: use a number from -2^63 to 2^63 - 1"


def _said(way: Way | None) -> str:
    return "" if way is None else way.said


def _shown(key: object) -> str:
    """A key in a message: what UTF-8 cannot express is shown by its number."""
    return str(key)[:100].encode(errors="backslashreplace").decode()
