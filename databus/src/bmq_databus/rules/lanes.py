"""Which lane a message is of. Pure."""

from collections.abc import Sequence

from bmq.errors import InvalidRequest
from bmq.naming.lane_choice import LaneChoice, TooMuchBaggage
from bmq.naming.lanes import check_lane_name
from bmq_databus.errors import Unfit
from bmq_databus.messages.forms import NewMessage

Headers = Sequence[tuple[bytes, bytes]]
"""A request's, their names in lower case."""
_Contents = tuple[bytes, ...]


class Lanes:
    """Those of one request's messages. What several of them say alike, or their request for all, is read once."""

    def __init__(self, request: Headers = ()) -> None:
        self._request = request
        self._of_request: dict[str, _Contents] = {}
        """By the header's name."""
        self._read: tuple[LaneChoice, _Contents] | None = None
        self._lane: str | Unfit = ""
        """What came of the last reading."""

    def of(self, rule: LaneChoice, new: NewMessage) -> str:
        """The lane that the message's own header names, else its request's; empty: none. Raises Unfit for what is no
        lane's name, so that nothing of a lane comes to the base by a slip.
        """
        said = tuple(content or b"" for name, content in new.headers if name.lower() == rule.header)
        contents = said or self._said_by_request(rule.header)
        if self._read != (rule, contents):
            self._read, self._lane = None, ""
            try:
                self._lane = _named(rule, contents)
            except Unfit as error:
                self._lane = Unfit(*error.args)  # without the frames that it was raised in
            self._read = rule, contents
        if isinstance(self._lane, Unfit):
            raise Unfit(*self._lane.args)
        return self._lane

    def _said_by_request(self, header: str) -> _Contents:
        if header not in self._of_request:
            named = header.encode()
            self._of_request[header] = tuple(content for name, content in self._request if name == named)
        return self._of_request[header]


def _named(rule: LaneChoice, contents: _Contents) -> str:
    """Raises Unfit."""
    if not rule.member:
        contents = tuple(content.strip() for content in contents)
    try:
        names = rule.names(contents)
    except TooMuchBaggage as error:
        raise Unfit(
            f"its baggage, which names its lane, has {error.count} {error.what}: {error.most} are the most; send less"
        ) from None
    if len(names) > 1:
        raise Unfit(f"it names several lanes ({', '.join(sorted(names))[:80]}): name one")
    for name in names:
        try:
            check_lane_name(name)
        except InvalidRequest as error:
            raise Unfit(f"its lane, {name[:40]!r}, is no lane's name: {error}") from None
        return name
    return ""
