"""Versions of things for optimistic concurrency: digests of their metadata, as ETags. Pure.

The same on every node, because it is a function of the image. The condition of a change is checked on the very image
that the leader decides on, so nothing comes in between.
"""

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from bmq.metadata.channels import StoredChannel
from bmq.metadata.image import Image, Lane, PartitionMeta, Topic
from bmq.metadata.records import NO_QUOTA
from bmq.values import NodeId, TopicId
from bmq_controller.api.statuses import VersionMismatch

_DIGEST_BYTES: Final = 8

Holds = Callable[[Image], None]
"""Raises VersionMismatch where a condition does not hold on an image."""


def topic_version(topic: Topic) -> str:
    """Changes with its number of partitions and its configuration, and with the topic that has the name; not with who
    owns its partitions.
    """
    return _digest("topic", topic.topic_id, len(topic.partitions), sorted(topic.configs.items()))


def lane_version(lane: Lane) -> str:
    """Changes with what it is to be, and with the lane that has the name; not with its topics."""
    fields = lane.number, lane.ttl_s, lane.own_brokers, lane.reads_base, lane.reads_base_bytes_per_s
    quota = msgspec.structs.astuple(lane.quota) if lane.quota != NO_QUOTA else ()
    return _digest("lane", *fields, *((lane.falls_back,) if lane.falls_back else ()), *quota)


def channel_version(channel: StoredChannel) -> str:
    """Changes with each change of it, and with the channel that has the name."""
    return _digest("channel", channel.name, channel.revision)


def config_version(image: Image) -> str:
    """Changes with the cluster's configuration that was set while it ran."""
    return _digest("configs", sorted(image.configs.get(("broker", ""), {}).items()))


def node_version(image: Image, node_id: NodeId) -> str:
    """Changes with each of its registrations and when it is cordoned."""
    node = image.nodes.get(node_id)
    return _digest(
        "node", node_id, -1 if node is None else node.broker_epoch, node_id in image.cordoned, node_id in image.fencing
    )


def partition_version(topic_id: TopicId, index: int, meta: PartitionMeta) -> str:
    """Changes with its owner, and where a move begins or is led elsewhere."""
    return _digest("partition", topic_id, index, meta.node_id, meta.broker_epoch, meta.leader_epoch, meta.moving_to)


def holds(wanted: str | None, version: Callable[[Image], str | None]) -> Holds:
    """The condition that an If-Match header sets on what `version` gives of an image (None: it does not exist); no
    header: always true.
    """
    versions = wanted_versions(wanted)

    def check(image: Image) -> None:
        if versions is None:
            return
        present = version(image)
        if present is None or ("*" not in versions and present not in versions):
            now = "it does not exist" if present is None else f"this is version {present}"
            raise VersionMismatch(f"only version {', '.join(sorted(versions))} is to be changed, and {now}")

    return check


def wanted_versions(header: str | None) -> frozenset[str] | None:
    """The versions that an If-Match or If-None-Match header names, without their quotes; None without a header."""
    if header is None or not header.strip():
        return None
    return frozenset(part.strip().removeprefix("W/").strip('"') for part in header.split(","))


def etag(version: str) -> str:
    """As the header wants it."""
    return f'"{version}"'


def _digest(*fields: object) -> str:
    return hashlib.blake2b(msgspec.msgpack.encode(fields), digest_size=_DIGEST_BYTES).hexdigest()
