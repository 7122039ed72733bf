"""Whether records can be stored and read again. Asked of each operation before anything rests on its records. Pure.

A text with a lone surrogate (JSON can spell one) is no UTF-8, a number beyond 64 bits is no number of the format, and
what cannot be read again would end every reader of the log.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

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


def fields_of(value: object, where: str) -> Iterator[tuple[str, object]]:
    """Each text and number within a value of dictionaries, lists and records, with the way to it. As deep as the value
    is, without recursion.
    """
    left: list[tuple[str, object]] = [(where, value)]
    while left:
        at, one = left.pop()
        below = f"{at}." if at else ""
        if isinstance(one, msgspec.Struct):
            left += [(f"{below}{name}", getattr(one, name)) for name in reversed(one.__struct_fields__)]
        elif isinstance(one, Mapping):
            left += [(f"{below}{_shown(key)}", inner) for key, inner in one.items()]
            left += [(f"{below}{_shown(key)} (its name)", key) for key in one]
        elif isinstance(one, (list, tuple)):
            left += [(f"{at}[{index}]", inner) for index, inner in reversed(list(enumerate(one)))]
        else:
            yield at, one


def _unstorable(records: Sequence[AnyRecord]) -> Iterator[str]:
    for record in records:
        for where, value in fields_of(record, ""):
            if isinstance(value, str) and (why := unstorable_text(value)) is not None:
                yield f"{where} {why}: leave that character out"
            if isinstance(value, int) and not NUMBER_MIN <= value <= NUMBER_MAX:
                yield f"{where} is beyond 64 bits: use a number from -2^63 to 2^63 - 1"


def _shown(key: object) -> str:
    """A key in a message: what UTF-8 cannot express is shown by its number."""
    return str(key)[:100].encode(errors="backslashreplace").decode()
