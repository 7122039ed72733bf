"""librdkafka's settings for what a sidecar, or a replay, writes to a cluster. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from bmq_databus.channels.channel import DEFAULT_PARTITIONER, Manner

QUEUE_MESSAGES: Final = 50_000
QUEUE_KIB: Final = 32 << 10
"""What librdkafka holds of messages under way, of all producers for one purpose together."""
REFRESH_MS: Final = 10_000
"""Partitions that are added to a topic are known so soon."""
RECONNECT_MS_MAX: Final = 2_000
"""A cluster that was away is found so soon after it is back."""
MESSAGE_BYTES_MAX: Final = 64 << 20
"""What a message may have as far as the sidecar is asked: what a topic takes, the cluster says."""
NEVER_MS: Final = 0
"""librdkafka's word for a message that never times out."""


def cluster_settings(bootstrap_servers: str) -> dict[str, Any]:
    """Where the cluster is, and who writes to it."""
    return {"bootstrap.servers": bootstrap_servers, "client.id": "bmq-databus", "log_level": 0}


def producer_settings(cluster: Mapping[str, Any], *, timeout_ms: int) -> dict[str, Any]:
    """A producer that keeps the order of each partition, and writes nothing twice while it lives. `timeout_ms`: how
    long it tries a message, or NEVER_MS.
    """
    return {
        "enable.idempotence": True,
        "linger.ms": 1,
        "queue.buffering.max.messages": QUEUE_MESSAGES,
        "queue.buffering.max.kbytes": QUEUE_KIB,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "topic.metadata.refresh.interval.ms": REFRESH_MS,
        "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
        "message.timeout.ms": timeout_ms,
        **cluster,
    }


def with_manner(settings: Mapping[str, Any], manner: Manner) -> dict[str, Any]:
    """A producer's settings for messages of a manner. How a client is in a lane is in docs/lanes.md."""
    lane = {"client.id": f"{settings.get('client.id', '')},lane={manner.lane}"} if manner.lane else {}
    cluster = {"bootstrap.servers": manner.bootstrap_servers} if manner.bootstrap_servers else {}
    return {
        **settings,
        **cluster,
        **lane,
        **({} if manner.makes_topics else {"allow.auto.create.topics": False}),
        "partitioner": manner.partitioner or DEFAULT_PARTITIONER,
        "linger.ms": manner.linger_ms,
        "batch.size": manner.batch_bytes,
        "compression.type": manner.compression,
    }
