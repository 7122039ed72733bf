"""Which lane a message is for, by what its headers say. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from bmq.errors import InvalidConfig

BAGGAGE: Final = "baggage"
HEADER_CHARS_MAX: Final = 249
_HEADER: Final = re.compile(rf"[!-9;-~]{{1,{HEADER_CHARS_MAX}}}", re.ASCII)
_MEMBER: Final = re.compile(rf"[0-9A-Za-z!#$%&'*+.^_`|~-]{{1,{HEADER_CHARS_MAX}}}", re.ASCII)
"""What a member of baggage may be called (RFC 7230, token): any other would never be found."""
CONTENT_BYTES_MAX: Final = 256
"""No lane has so long a name, whatever blanks stand around it: a longer content is cut, and names none there is."""
BAGGAGE_BYTES_MAX: Final = 8_192
BAGGAGE_MEMBERS_MAX: Final = 64
"""What whoever passes baggage on has to take (W3C Baggage, limits); more is not looked through."""
_CUT: Final = "..."
_REMEDY: Final = f"write a header's name of 1 to {HEADER_CHARS_MAX} visible characters without ':', or baggage:MEMBER"


@dataclass(frozen=True, slots=True)
class LaneChoice:
    """The header that names a lane, in lower case, or the member of it that does (`baggage`, W3C)."""

    header: str
    member: str = ""

    @classmethod
    def parse(cls, text: str) -> "LaneChoice":
        """`x-lane`, or `baggage:lane`. Raises InvalidConfig."""
        name, colon, member = text.partition(":")
        header = name.lower()
        if _HEADER.fullmatch(name) is None or (colon and (header != BAGGAGE or _MEMBER.fullmatch(member) is None)):
            raise InvalidConfig(f"{text[:60]!r} names no header: {_REMEDY}")
        return cls(header, member)

    def names(self, contents: Sequence[bytes]) -> set[str]:
        """The lanes that these contents of that header name, legal or not; blank ones name none. Raises
        TooMuchBaggage.
        """
        if self.member:
            member = self.member.encode()
            contents = [value for name, value in _members(contents) if name == member]
        return {_name(one) for one in contents} - {""}


class TooMuchBaggage(ValueError):
    """What a message's baggage has more of than anybody has to pass on: `count` bytes or members, where `most` may be.
    `str` says it.
    """

    def __init__(self, what: str, *, count: int, most: int) -> None:
        super().__init__(f"its baggage has more than {most:,} {what}: send less")
        self.what = what
        self.count = count
        self.most = most


def _name(content: bytes) -> str:
    # Decoding what is no UTF-8 takes half a microsecond a byte, and lets nobody else have the interpreter meanwhile.
    cut = content[:CONTENT_BYTES_MAX].strip().decode(errors="backslashreplace")
    return cut if len(content) <= CONTENT_BYTES_MAX else cut + _CUT


def _members(contents: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """By https://www.w3.org/TR/baggage/, without their properties. Raises TooMuchBaggage."""
    if (size_bytes := sum(map(len, contents))) > BAGGAGE_BYTES_MAX:
        raise TooMuchBaggage("bytes", count=size_bytes, most=BAGGAGE_BYTES_MAX)
    if (members := sum(one.count(b",") + 1 for one in contents)) > BAGGAGE_MEMBERS_MAX:
        raise TooMuchBaggage("members", count=members, most=BAGGAGE_MEMBERS_MAX)
    parts = (one.partition(b";")[0].partition(b"=") for content in contents for one in content.split(b","))
    return [(name.strip(), unquote_to_bytes(value.strip())) for name, _, value in parts]
