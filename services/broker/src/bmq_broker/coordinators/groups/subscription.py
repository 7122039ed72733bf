"""The one place where group metadata is not opaque: which topics a member of protocol type "consumer" subscribes to.

Kafka's ConsumerProtocolSubscription, of which only the part that every version starts with is read: version, topics.
"""

import struct
from collections import deque
from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_HEAD: Final = struct.Struct(">hi")
_SHORT: Final = struct.Struct(">h")
TOPICS_MAX: Final = 10_000
"""Topics that are read and remembered of a generation, those that several members name alike once; of one that names
more it cannot be told what it subscribes to, as if its members spoke a protocol of their own: none of its offsets is
deleted or expires while it has members.
"""
_KNOWN_MAX: Final = 8
"""Subscriptions with which each further one is compared before it is read."""


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None where the bytes are not such a subscription (a client that uses the type with metadata of its own), or name
    too many topics.
    """
    return topics_of((metadata,))


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of several together; None as above, also where they are too many together."""
    topics: set[str] = set()
    known: deque[bytes] = deque(maxlen=_KNOWN_MAX)
    left = TOPICS_MAX
    for metadata in subscriptions:
        version, count = _HEAD.unpack_from(metadata) if len(metadata) >= _HEAD.size else (-1, 0)
        if version < 0:
            return None
        if any(metadata.startswith(one, _SHORT.size) for one in known):
            continue
        left -= count
        end = None if left < 0 else _read(metadata, count, topics)
        if end is None:
            return None
        known.append(metadata[_SHORT.size : end])
    return frozenset(topics)


def same_topics(before: bytes, after: bytes) -> bool:
    """Whether an assignment that was made of the one holds for the other, as far as they can be read: of topics that
    are too many to be read any change counts.
    """
    if before == after:
        return True
    if any(len(one) >= _HEAD.size and _HEAD.unpack_from(one)[1] > TOPICS_MAX for one in (before, after)):
        return False
    return subscribed_topics(before) == subscribed_topics(after)


def _read(metadata: bytes, count: int, topics: set[str]) -> int | None:
    """Adds the names; where they end, None where they do not hold."""
    at = _HEAD.size
    if not 0 <= count <= (len(metadata) - at) // 2:
        return None
    for _ in range(count):
        if at + 2 > len(metadata):
            return None
        (size_bytes,) = _SHORT.unpack_from(metadata, at)
        at += 2
        if size_bytes < 0 or at + size_bytes > len(metadata):
            return None
        try:
            topics.add(metadata[at : at + size_bytes].decode())
        except UnicodeDecodeError:
            return None
        at += size_bytes
    return at
