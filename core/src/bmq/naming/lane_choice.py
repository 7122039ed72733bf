"""Which lane a message is for, by what its headers say. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from bmq.errors import InvalidConfig

BAGGAGE: Final = "baggage"
HEADER_CHARS_MAX: Final = 249
_HEADER: Final = re.compile(rf"[!-9;-~]{{1,{HEADER_CHARS_MAX}}}", re.ASCII)
_MEMBER: Final = re.compile(rf"[0-9A-Za-z!#$%&'*+.^_`|~-]{{1,{HEADER_CHARS_MAX}}}", re.ASCII)
"""What a member of baggage may be called (RFC 7230, token): any other would never be found."""
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

    def names(self, contents: Iterable[bytes]) -> set[str]:
        """The lanes that these contents of that header name, legal or not; blank ones name none."""
        if self.member:
            member = self.member.encode()
            contents = [value for content in contents for name, value in _members(content) if name == member]
        return {one.strip().decode(errors="backslashreplace") for one in contents} - {""}


def _members(baggage: bytes) -> list[tuple[bytes, bytes]]:
    """By https://www.w3.org/TR/baggage/, without their properties."""
    parts = (one.partition(b";")[0].partition(b"=") for one in baggage.split(b","))
    return [(name.strip(), unquote_to_bytes(value.strip())) for name, _, value in parts]
