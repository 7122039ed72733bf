"""A channel as the sidecar goes by it. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

from bmq.naming.names import check_topic_name
from bmq_databus.messages.forms import NewMessage
from bmq_databus.spool.channel_spool import SpoolLimits
from bmq_databus.spool.frames import Spooled
from bmq_resources.channel import Channel as ChannelResource

SEGMENT_BYTES: Final = 32 << 20
SEGMENTS: Final = 8
"""A spool has so many segments at least before it is full: space is given back by whole ones."""

Acknowledgement = Literal["durable", "accepted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """By whose rules a message is written."""

    name: str
    topic: str
    acknowledgement: Acknowledgement = "durable"
    enabled: bool = True
    idempotency_window_s: float = 3_600.0
    """How long a request that comes again with its key has the same answer."""
    spool: SpoolLimits = SpoolLimits()

    def message(self, new: NewMessage, *, now_ms: int) -> Spooled:
        """What is produced of it."""
        return Spooled(
            topic=self.topic,
            partition=new.partition,
            key=new.key,
            value=new.value,
            headers=new.headers,
            timestamp_ms=now_ms if new.timestamp_ms < 0 else new.timestamp_ms,
            accepted_ms=now_ms,
        )


def channel_of(resource: ChannelResource) -> Channel:
    """The channel that the resource says. Raises InvalidTopicName."""
    check_topic_name(resource.topic_name)
    spool = resource.spec.spool
    return Channel(
        name=resource.metadata.name,
        topic=resource.topic_name,
        acknowledgement=resource.spec.acknowledgement,
        enabled=resource.spec.enabled,
        idempotency_window_s=float(resource.spec.idempotency.window_seconds),
        spool=SpoolLimits(
            bytes_max=spool.max_bytes,
            age_s_max=float(spool.max_age_seconds),
            segment_bytes=min(SEGMENT_BYTES, spool.max_bytes // SEGMENTS),
            when_full="drop_oldest" if spool.when_full == "dropOldest" else spool.when_full,
        ),
    )
