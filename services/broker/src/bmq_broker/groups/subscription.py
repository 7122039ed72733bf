"""The one place where group metadata is not opaque: which topics a member of protocol type "consumer" subscribes to.

Kafka's ConsumerProtocolSubscription, of which only the part that every version starts with is read: version, topics.
"""

import struct
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_HEAD: Final = struct.Struct(">hi")
_SHORT: Final = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None where the bytes are not such a subscription (a client that uses the type with metadata of its own)."""
    if len(metadata) < _HEAD.size:
        return None
    version, count = _HEAD.unpack_from(metadata)
    at = _HEAD.size
    if version < 0 or not 0 <= count <= (len(metadata) - at) // 2:
        return None
    topics = set()
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
    return frozenset(topics)
