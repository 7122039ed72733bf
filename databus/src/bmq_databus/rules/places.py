"""What is at a place of a JSON value, and values with other things there. Pure.

Objects and arrays are opened along the places alone; whatever else is in them stays as the bytes that it is, so that no
number is rounded. Of members with one name the last counts, as in most readers, and is the only one that is written.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from bmq_databus.errors import Unfit
from bmq_resources.json_paths import Path

VALUE_BYTES_MAX: Final = 1 << 20
"""A value is opened in one turn of the loop, and few of its bytes may be a member each."""
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_any: Final = msgspec.json.Decoder(msgspec.Raw).decode
_encode: Final = msgspec.json.Encoder().encode
_BLANK: Final = b" \t\r\n"
_NULL: Final = msgspec.Raw(b"null")

T = TypeVar("T")

Edits = Mapping[str | int, "Edits | bytes | None"]
"""By the step to a place: what stands there instead, as JSON; None: nothing does; or what changes within it."""


class NotJson(Unfit):
    """A value in which there are no places."""


def check(value: bytes) -> None:
    """Raises NotJson, and Unfit where it is too large to be looked into."""
    if len(value) > VALUE_BYTES_MAX:
        raise Unfit(f"a value that its channel looks into has {VALUE_BYTES_MAX} bytes at most, not {len(value)}")
    _opened(_any, value)


def found_at(value: bytes, path: Path) -> bytes | None:
    """The JSON there, without what is blank around it; None where there is nothing. Raises NotJson, Unfit."""
    check(value)
    here = value
    for step in path:
        below = _below(here, step)
        if below is None:
            return None
        here = bytes(below)
    return here.strip(_BLANK)


def edited(value: bytes, edits: Edits) -> bytes:
    """The value with these changes. Each object and array on the way to them is written anew, also where nothing is
    there: an earlier member of the same name is left out. Raises NotJson, Unfit.
    """
    check(value)
    return _edited(value, edits)


def _below(here: bytes, step: str | int) -> msgspec.Raw | None:
    if isinstance(step, str):
        return _opened(_object, here).get(step) if _is(here, b"{") else None
    if not _is(here, b"["):
        return None
    elements = _opened(_array, here)
    return elements[step] if step < len(elements) else None


def _edited(here: bytes, edits: Edits) -> bytes:
    if _is(here, b"{"):
        members = _opened(_object, here)
        for step, edit in edits.items():
            if isinstance(step, str) and step in members:
                if edit is None:
                    del members[step]
                else:
                    members[step] = _with(members[step], edit)
        return _encode(members)
    if _is(here, b"["):
        elements = _opened(_array, here)
        for step, edit in edits.items():
            if isinstance(step, int) and step < len(elements):
                elements[step] = _NULL if edit is None else _with(elements[step], edit)
        return _encode(elements)
    return here


def _with(here: msgspec.Raw, edit: Edits | bytes) -> msgspec.Raw:
    return msgspec.Raw(edit if isinstance(edit, bytes) else _edited(bytes(here), edit))


def _is(here: bytes, opening: bytes) -> bool:
    return here.lstrip(_BLANK)[:1] == opening


def _opened(decode: Callable[[bytes], T], value: bytes) -> T:
    try:
        return decode(value)
    except RecursionError:
        raise NotJson("the value is nested too deep") from None
    except (msgspec.MsgspecError, UnicodeError):
        raise NotJson("the value is no JSON") from None
