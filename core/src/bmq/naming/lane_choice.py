"""Which lane a message is for, by what its headers say. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
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
WRITINGS_MAX: Final = 8
"""So many that differ are looked at of what one message says of its lane: two name several lanes already, but where
baggage writes one of them in several ways."""
SHOWN_BYTES_MAX: Final = 20
"""What is no UTF-8 names no lane, and so much of it is shown."""
_WRITTEN_BYTES_MAX: Final = 3 * (CONTENT_BYTES_MAX + 1)
"""Each byte as %XX."""
_MEMBERS_KEPT: Final = 256
_REST: Final = "..."
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
        """The lanes that these contents of that header name, legal or not; blank ones name none. Of many not all, and
        "...". Raises TooMuchBaggage.
        """
        if len(contents) == 1 and not self.member:  # as in nearly every message
            name = _name(_cut(contents[0]))
            return {name} if name else set()
        names: set[str] = set()
        seen: set[bytes] = set()
        for written in _of_member(self.member, contents) if self.member else map(_cut, contents):
            if written not in seen:
                if len(seen) == WRITINGS_MAX:
                    names.add(_REST)
                    break
                seen.add(written)
                names.add(_name(_cut(unquote_to_bytes(written)) if self.member else written))
        return names - {""}


class TooMuchBaggage(ValueError):
    """What a message's baggage has more of than anybody has to pass on: `count` bytes or members, where `most` may be.
    `str` says it.
    """

    def __init__(self, what: str, *, count: int, most: int) -> None:
        super().__init__(f"its baggage has more than {most:,} {what}: send less")
        self.what = what
        self.count = count
        self.most = most


def _cut(content: bytes) -> bytes:
    """All of a lane's name that it may be, and a byte more where it is none for its length."""
    return content.strip() if len(content) <= CONTENT_BYTES_MAX else content[: CONTENT_BYTES_MAX + 1]


def _name(cut: bytes) -> str:
    name = cut[:CONTENT_BYTES_MAX].strip()
    try:
        return name.decode() if len(cut) <= CONTENT_BYTES_MAX else name.decode() + _REST
    except UnicodeDecodeError:
        # Decoding what is no UTF-8 takes a fifth of a microsecond a byte, and lets nobody else have the interpreter.
        shown = name[:SHOWN_BYTES_MAX].decode(errors="backslashreplace")
        return shown if len(cut) <= SHOWN_BYTES_MAX else shown + _REST


def _of_member(member: str, contents: Sequence[bytes]) -> list[bytes]:
    """What a member's values are by https://www.w3.org/TR/baggage/, without their properties, as they are written, as
    much of each as a lane's name may take. Raises TooMuchBaggage.
    """
    if (size_bytes := sum(map(len, contents))) > BAGGAGE_BYTES_MAX:
        raise TooMuchBaggage("bytes", count=size_bytes, most=BAGGAGE_BYTES_MAX)
    if (members := sum(one.count(b",") + 1 for one in contents)) > BAGGAGE_MEMBERS_MAX:
        raise TooMuchBaggage("members", count=members, most=BAGGAGE_MEMBERS_MAX)
    values = _values(member)
    return [value.strip()[:_WRITTEN_BYTES_MAX] for one in contents for value in values.findall(b"," + one)]


@lru_cache(maxsize=_MEMBERS_KEPT)
def _values(member: str) -> re.Pattern[bytes]:
    return re.compile(rb",\s*%s\s*=([^,;]*)" % re.escape(member.encode()))
