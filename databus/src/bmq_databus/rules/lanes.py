"""Which lane a message is of. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from bmq.errors import InvalidRequest
from bmq.naming.lanes import check_lane_name
from bmq_databus.errors import Unfit
from bmq_databus.messages.forms import NewMessage

BAGGAGE: Final = "baggage"

Headers = Sequence[tuple[bytes, bytes]]
"""A request's, their names in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRule:
    """One of `header`, in lower case, and `baggage`, a name within W3C's header of that name."""

    header: str = ""
    baggage: str = ""


def lane_of(rule: LaneRule, new: NewMessage, request: Headers) -> str:
    """The lane that the message's own header names, else its request's; empty: none. Raises Unfit for what is no
    lane's name, so that nothing of a lane comes to the base by a slip.
    """
    wanted = rule.header or BAGGAGE
    said = [content or b"" for name, content in new.headers if name.lower() == wanted]
    said = said or [content for name, content in request if name == wanted.encode()]
    if rule.baggage:
        said = [value for content in said for name, value in _members(content) if name == rule.baggage.encode()]
    names = {one.strip().decode(errors="backslashreplace") for one in said} - {""}
    if len(names) > 1:
        raise Unfit(f"it names several lanes ({', '.join(sorted(names))[:80]}): name one")
    for name in names:
        try:
            check_lane_name(name)
        except InvalidRequest as error:
            raise Unfit(f"its lane, {name[:40]!r}, is no lane's name: {error}") from None
        return name
    return ""


def _members(baggage: bytes) -> list[tuple[bytes, bytes]]:
    """By https://www.w3.org/TR/baggage/, without their properties."""
    parts = (one.partition(b";")[0].partition(b"=") for one in baggage.split(b","))
    return [(name.strip(), unquote_to_bytes(value.strip())) for name, _, value in parts]
