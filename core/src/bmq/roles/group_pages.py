"""A coordinator's list of groups in pages between nodes: a hundred thousand of them would be one frame, packed and read
in one turn of the loop.

A field of the request and one of the reply, which clients never see. A node of an older version that is asked for a
page answers with all groups and names no next page; one that asks names no page, and is answered with all.
"""

from dataclasses import dataclass
from typing import Any, Final

from bmq.errors import InvalidRequest
from bmq.wire.message import Message

AFTER: Final = "after"
"""In a request the page that is asked for, "" the first one; in a reply the next one, "" where there is none."""
PAGES_MAX: Final = 100_000
"""Far more than a coordinator makes of the groups that it may have."""


@dataclass(frozen=True, slots=True)
class GroupPage:
    """`salt` decides which group is on which page: the first page's chooses it, for all of them."""

    number: int
    count: int
    salt: str

    @classmethod
    def parse(cls, text: str) -> "GroupPage":
        """Raises InvalidRequest."""
        number, _, rest = text.partition("/")
        count, _, salt = rest.partition("/")
        if not (
            number.isascii()
            and number.isdigit()
            and count.isascii()
            and count.isdigit()
            and salt
            and int(number) < int(count)
        ):
            raise InvalidRequest(f"{text[:100]!r} is no page of a list of groups")
        return cls(int(number), int(count), salt)

    @property
    def next(self) -> str:
        """What to ask for next; "" where this is the last page."""
        return f"{self.number + 1}/{self.count}/{self.salt}" if self.number + 1 < self.count else ""


def asking(request: Message, after: str) -> Message:
    """The request for one page."""
    return Message(**{**vars(request), AFTER: after})


def joined(pages: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer that all pages are together: the newest one's error, if it has one."""
    last = {name: value for name, value in pages[-1].items() if name != AFTER}
    return last if last.get("error_code") else {**last, "groups": [group for page in pages for group in page["groups"]]}
