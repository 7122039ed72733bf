"""How what a lane has is named in the cluster, and who is in which lane. Pure.

A lane `dev` has its own topic `orders` as the topic `dev:orders`, and its own group `g` as the group `:dev#7:g`, where
7 is the number that the lane got when it was made. No client of the base can name either: Kafka refuses ':' in topic
names, and groups that begin so are refused to the base. The number is never given again, so that a lane that is made
again under an old name has none of the old one's groups.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from bmq.errors import InvalidRequest

BASE: Final = ""
"""The lane of who is in none."""
LANE_NAME_PATTERN: Final = r"[a-z0-9](?:[-a-z0-9]{0,30}[a-z0-9])?"
_SEPARATOR: Final = ":"
_ID_END_BYTES: Final = 7
_ID_END: Final = (1 << 8 * _ID_END_BYTES) - 1
_GLOBS_KEPT: Final = 256
_NAME: Final = re.compile(LANE_NAME_PATTERN)
_GROUP: Final = re.compile(rf":({LANE_NAME_PATTERN})#([0-9]{{1,18}}):(.*)", re.DOTALL)
_CLIENT: Final = re.compile(r"(?:^|[^a-z0-9])lane\s*=\s*([^\s,;/|&]*)", re.IGNORECASE)


class LaneGroup(NamedTuple):
    """A group of a lane, taken apart."""

    lane: str
    number: int
    group_id: str


def check_lane_name(name: str) -> None:
    """Raises InvalidRequest unless a lane may have this name."""
    if _NAME.fullmatch(name) is None:
        shown = name if len(name) <= 40 else f"{name[:40]}…"
        raise InvalidRequest(
            f"The lane name {shown!r} is illegal: use 1 to 32 lower-case letters, digits and '-', with a letter or "
            "a digit at both ends"
        )


def overlay_name(lane: str, topic: str) -> str:
    """What a lane's topic is called in the cluster's metadata; the base's topics are called what they are called."""
    return f"{lane}{_SEPARATOR}{topic}" if lane else topic


def overlay_id(cluster_id: str, number: int, topic: str, epoch: int, *, base_id: UUID | None = None) -> UUID:
    """The id of a lane's topic, known before there is one: so a lane's consumers may wait for the first write under the
    id that it will have.

    `epoch` is where the epochs of a topic of that name would start, which rises with each: no two have the same id.
    `base_id` is that of the base's topic of this name, None where there is none: the id ends as that does, so that an
    id says of which it may be (`id_end`), and needs no table.
    """
    named = f"{cluster_id}/{number}/{epoch}/{topic}/{base_id or ''}".encode()
    digest = hashlib.blake2b(named, digest_size=16, person=b"bmq lane topic").digest()
    return UUID(
        bytes=digest if base_id is None else digest[:-_ID_END_BYTES] + base_id.bytes[-_ID_END_BYTES:], version=5
    )


def id_end(topic_id: UUID) -> int:
    """What an id of a lane's topic has in common with that of the base's topic. 56 bits, in which ids are random."""
    return topic_id.int & _ID_END


def lane_of(stored_topic: str) -> str:
    """Whose topic it is; "": the base's."""
    if _SEPARATOR not in stored_topic:  # of all names this is what is asked most
        return BASE
    return stored_topic.partition(_SEPARATOR)[0]


def name_in_lane(stored_topic: str) -> str:
    """What clients in its lane call the topic."""
    return stored_topic.rpartition(_SEPARATOR)[2]


def stored_group(lane: str, number: int, group_id: str) -> str:
    """What a lane's group is called where groups are kept."""
    return f":{lane}#{number}:{group_id}"


def lane_group(stored_group_id: str) -> LaneGroup | None:
    """Whose group it is; None: the base's."""
    found = _GROUP.fullmatch(stored_group_id) if stored_group_id.startswith(_SEPARATOR) else None
    return None if found is None else LaneGroup(found[1], int(found[2]), found[3])


def lane_of_client(client_id: str) -> str | None:
    """What a client says of itself: `lane=NAME` in its client.id; None: nothing.

    A name ends at a comma, a semicolon, a blank, / | or &; before `lane` stands no letter or digit. Whatever looks like
    it counts (`app.lane=dev`, `LANE = dev`): who means a lane must not be taken for the base.
    """
    if "=" not in client_id:  # of nearly every request of the base this is all that is looked at
        return None
    found = _CLIENT.search(client_id)
    return found[1] if found is not None else None


def matches(topic: str, globs: tuple[str, ...]) -> bool:
    """Whether one of the patterns covers the topic; * stands for any characters."""
    return bool(globs) and _globs(globs).cover(topic)


def searched_for(globs: Iterable[str]) -> list[str]:
    """What stands between two stars: each is searched for in each name, so patterns cost as much as they have of it.
    How names begin and end is told by a comparison.
    """
    return [middle for glob in globs for middle in glob.split("*")[1:-1] if middle]


class _Globs:
    """Patterns taken apart at their stars: nearly every name is told by how it begins, all patterns at once."""

    def __init__(self, globs: Iterable[str]) -> None:
        parts = [glob.split("*") for glob in globs]
        self._whole = frozenset(part[0] for part in parts if len(part) == 1)
        self._beginnings = tuple(part[0] for part in parts if len(part) > 1 and not any(part[1:]))
        others = [
            (part[0], tuple(filter(None, part[1:-1])), part[-1]) for part in parts if len(part) > 1 and any(part[1:])
        ]
        self._others = [(beginning, "".join(middles[:1]), middles, end) for beginning, middles, end in others]
        self._beginnings_of_others = tuple(beginning for beginning, _, _ in others)

    def cover(self, name: str) -> bool:
        """Whether one of them does."""
        if name in self._whole or name.startswith(self._beginnings):
            return True
        if not name.startswith(self._beginnings_of_others):
            return False
        for beginning, first, middles, end in self._others:
            if (
                first in name
                and name.startswith(beginning)
                and name.endswith(end)
                and _are_between(name, beginning, middles, end)
            ):
                return True
        return False


def _are_between(name: str, beginning: str, middles: tuple[str, ...], end: str) -> bool:
    position, until = len(beginning), len(name) - len(end)
    for middle in middles:  # each where it comes first leaves the most to those behind it
        found = name.find(middle, position, until)
        if found < 0:
            return False
        position = found + len(middle)
    return position <= until


@lru_cache(maxsize=_GLOBS_KEPT)
def _globs(globs: tuple[str, ...]) -> _Globs:
    return _Globs(globs)
