"""Rules for topic names: which are legal, which collide, which are bmq's own. Pure."""

import re
from typing import Final

from bmq.errors import InvalidTopicName

TOPIC_NAME_LENGTH_MAX: Final = 249
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""Topics that the coordinators write: clients may read them and may neither delete nor write to them."""
SHOWN_CHARS_MAX: Final = 80
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def shown(name: str) -> str:
    """A name as messages tell it, in quotes. What a client calls a topic may have 32,000 characters, and it is told of
    each of the partitions that it names beneath.
    """
    return repr(name[:SHOWN_CHARS_MAX])[: SHOWN_CHARS_MAX + 2]


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicName unless the name is one that Kafka allows: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-',
    not '.' or '..'.
    """
    if not name:
        raise InvalidTopicName("The topic name is empty: give it 1 to 249 characters")
    if name in (".", ".."):
        raise InvalidTopicName(f"The topic name {name!r} is reserved: choose another one")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicName(
            f"The topic name {name[:20]!r}… has {len(name)} characters: at most {TOPIC_NAME_LENGTH_MAX} are possible"
        )
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicName(
            f"The topic name {name!r} is illegal: use only ASCII letters and digits, '.', '_' and '-'"
        )


def collision_key(name: str) -> str:
    """Equal for names that Kafka treats as colliding, because metric names turn '.' into '_'."""
    return name.replace(".", "_")


def may_collide(name: str) -> bool:
    """Whether the name holds a character that can make it collide with another one."""
    return "." in name or "_" in name


def is_internal(name: str) -> bool:
    """Whether the topic is one of the coordinators' own."""
    return name in INTERNAL_TOPICS
