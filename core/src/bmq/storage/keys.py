"""Where a partition's objects, and scratch ones, lie. Numbers are padded so that a listing's order is their order
(docs/formats/README.md).

Keys of WAL streams are values.StreamId's.
"""

import re
from typing import Final, NamedTuple

from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, Nonce, Offset, StreamId, TopicId, TopicPartition

SHARED_PREFIX: Final = "shared/"
TOPICS_PREFIX: Final = "topics/"
_NUMBERED: Final = re.compile(r"([0-9]{10})/([0-9]{20})-([0-9a-f]{8})")

_SHARED: Final = re.compile(SHARED_PREFIX + r"([0-9]{10})/([0-9]{20})/[0-9a-f]{32}")
_SCRATCH: Final = re.compile(
    r"(?:selftest|clock/[0-9]{10})/(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})"
)
"""Tables' proofs of their store end with 32 digits."""


class NumberedKey(NamedTuple):
    """What the key of a segment or of a coordinator snapshot tells: who wrote it, where it starts, the nonce's first 8
    hex digits.
    """

    leader_epoch: LeaderEpoch
    offset: Offset
    nonce_hex: str


def clock_prefix(node_id: NodeId) -> str:
    """What a node makes to compare its clock with the store's."""
    return f"clock/{node_id:010d}/"


def is_scratch(key: str) -> bool:
    """Whether bmq makes such keys for moments only: comparisons of clocks, the self-test at a start.

    Another cluster may live below their prefixes.
    """
    return _SCRATCH.fullmatch(key) is not None


def topic_prefix(topic_id: TopicId) -> str:
    """Everything of a topic but its runs in shared segments."""
    return f"{TOPICS_PREFIX}{topic_id}/"


def partition_prefix(tp: TopicPartition) -> str:
    """Everything of a partition but its runs in shared segments."""
    return f"topics/{tp.topic_id}/{tp.partition:010d}/"


def manifest_prefix(tp: TopicPartition) -> str:
    """The flat log of the partition's manifest."""
    return f"{partition_prefix(tp)}manifest/"


def manifest_page_prefix(tp: TopicPartition) -> str:
    """The partition's manifest pages."""
    return f"{partition_prefix(tp)}manifest-page/"


def manifest_page_key(tp: TopicPartition, nonce: Nonce) -> str:
    """One manifest page."""
    return f"{manifest_page_prefix(tp)}{nonce.hex()}"


def segment_prefix(tp: TopicPartition) -> str:
    """The partition's own segments: by leader epoch, then by base offset."""
    return f"{partition_prefix(tp)}segment/"


def segment_key(tp: TopicPartition, leader_epoch: LeaderEpoch, base_offset: Offset, nonce: Nonce) -> str:
    """A segment of one partition, written by the owner of that leader epoch."""
    return f"{segment_prefix(tp)}{leader_epoch:010d}/{base_offset:020d}-{nonce[:4].hex()}"


def shared_segment_prefix(node_id: NodeId, broker_epoch: BrokerEpoch) -> str:
    """The segments with runs of several partitions that one broker incarnation wrote."""
    return f"{SHARED_PREFIX}{node_id:010d}/{broker_epoch:020d}/"


def shared_node_prefix(node_id: NodeId) -> str:
    """The shared segments that a node id ever wrote."""
    return f"{SHARED_PREFIX}{node_id:010d}/"


def parse_shared_key(key: str) -> StreamId | None:
    """The broker incarnation that wrote a shared segment; None where bmq makes no such key."""
    found = _SHARED.fullmatch(key)
    return None if found is None else StreamId(NodeId(int(found[1])), BrokerEpoch(int(found[2])))


def shared_segment_key(node_id: NodeId, broker_epoch: BrokerEpoch, nonce: Nonce) -> str:
    """A segment with runs of several partitions: its directory tells which."""
    return f"{shared_segment_prefix(node_id, broker_epoch)}{nonce.hex()}"


def coordinator_snapshot_prefix(tp: TopicPartition) -> str:
    """The snapshots of the coordinator whose log the partition is."""
    return f"{partition_prefix(tp)}coordinator-snapshot/"


def coordinator_snapshot_key(tp: TopicPartition, leader_epoch: LeaderEpoch, offset: Offset, nonce: Nonce) -> str:
    """A snapshot of everything below `offset`."""
    return f"{coordinator_snapshot_prefix(tp)}{leader_epoch:010d}/{offset:020d}-{nonce[:4].hex()}"


def parse_numbered_key(prefix: str, key: str) -> NumberedKey | None:
    """What a key below segment_prefix or coordinator_snapshot_prefix tells; None where bmq makes no such key."""
    found = _NUMBERED.fullmatch(key, len(prefix)) if key.startswith(prefix) else None
    if found is None:
        return None
    return NumberedKey(LeaderEpoch(int(found[1])), Offset(int(found[2])), found[3])
