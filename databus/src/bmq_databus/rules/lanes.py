"""Which lane a message is of. Pure."""

from collections.abc import Sequence

from bmq.errors import InvalidRequest
from bmq.naming.lane_choice import LaneChoice
from bmq.naming.lanes import check_lane_name
from bmq_databus.errors import Unfit
from bmq_databus.messages.forms import NewMessage

Headers = Sequence[tuple[bytes, bytes]]
"""A request's, their names in lower case."""


def lane_of(rule: LaneChoice, new: NewMessage, request: Headers) -> str:
    """The lane that the message's own header names, else its request's; empty: none. Raises Unfit for what is no
    lane's name, so that nothing of a lane comes to the base by a slip.
    """
    said = [content or b"" for name, content in new.headers if name.lower() == rule.header]
    names = rule.names(said or [content for name, content in request if name == rule.header.encode()])
    if len(names) > 1:
        raise Unfit(f"it names several lanes ({', '.join(sorted(names))[:80]}): name one")
    for name in names:
        try:
            check_lane_name(name)
        except InvalidRequest as error:
            raise Unfit(f"its lane, {name[:40]!r}, is no lane's name: {error}") from None
        return name
    return ""
