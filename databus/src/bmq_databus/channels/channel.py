"""A channel as the sidecar goes by it. Pure."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from bmq.naming.names import check_topic_name
from bmq_databus.messages.forms import NewMessage
from bmq_databus.rules.keys import KeyRule
from bmq_databus.rules.lanes import LaneRule
from bmq_databus.rules.rates import Rate
from bmq_databus.rules.redaction import Redaction
from bmq_databus.rules.sampling import Sampling
from bmq_databus.rules.schemas import JsonSchema
from bmq_databus.spool.channel_spool import SpoolLimits
from bmq_databus.spool.frames import Spooled
from bmq_resources.channel import Channel as ChannelResource
from bmq_resources.channel import ChannelSpec
from bmq_resources.json_paths import path_of

SEGMENT_BYTES: Final = 32 << 20
SEGMENTS: Final = 8
"""A spool has so many segments at least before it is full: space is given back by whole ones."""

DEFAULT_PARTITIONER: Final = "consistent_random"
"""What librdkafka does by itself."""

Acknowledgement = Literal["durable", "accepted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How messages are handed to a cluster. Those of one manner share a producer."""

    partitioner: str = ""
    """As librdkafka calls it; empty: as it does by itself."""
    linger_ms: int = 5
    batch_bytes: int = 1_000_000
    compression: str = "none"
    lane: str = ""
    """Empty: the base."""
    bootstrap_servers: str = ""
    """Empty: the sidecar's cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A topic of some cluster."""

    topic: str
    manner: Manner


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
    manner: Manner = Manner()
    others: tuple[Target, ...] = ()
    """Where each message goes, too."""
    key: KeyRule | None = None
    lane: LaneRule | None = None
    redaction: Redaction | None = None
    sampling: Sampling | None = None
    rate: Rate | None = None
    schema: JsonSchema | None = None
    dead_letter: str = ""
    """The channel that gets what the rules do not take as it is; empty: its writer does."""

    @property
    def manners(self) -> list[Manner]:
        """Those that its messages are sent in."""
        return [self.manner, *(one.manner for one in self.others)]

    def message(self, new: NewMessage, *, now_ms: int, lane: str = "") -> Spooled:
        """What is produced of it."""
        return Spooled(
            topic=self.topic,
            partition=new.partition,
            key=new.key,
            value=new.value,
            headers=new.headers,
            timestamp_ms=now_ms if new.timestamp_ms < 0 else new.timestamp_ms,
            accepted_ms=now_ms,
            lane=lane,
            partitioner=self.manner.partitioner,
        )


def channel_of(resource: ChannelResource) -> Channel:
    """The channel that the resource says. Raises InvalidTopicName, BadSchema."""
    targets = _targets_of(resource)
    for target in targets:
        check_topic_name(target.topic)
    spool = resource.spec.spool
    return Channel(
        name=resource.channel_name,
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
        manner=targets[0].manner,
        others=tuple(targets[1:]),
        key=_key_of(resource.spec),
        lane=_lane_of(resource.spec),
        redaction=_redaction_of(resource.spec),
        sampling=_sampling_of(resource.spec),
        rate=_rate_of(resource.spec),
        schema=None if resource.spec.value_schema is None else JsonSchema.of(resource.spec.value_schema.json_schema),
        dead_letter=resource.spec.dead_letter,
    )


def _targets_of(resource: ChannelResource) -> list[Target]:
    """One or more."""
    manner = _manner_of(resource.spec)
    if not resource.spec.targets:
        return [Target(topic=resource.topic_name, manner=manner)]
    return [
        Target(topic=one.topic, manner=replace(manner, bootstrap_servers=one.bootstrap_servers))
        for one in resource.spec.targets
    ]


def _manner_of(spec: ChannelSpec) -> Manner:
    return Manner(
        partitioner="" if spec.partitioner == DEFAULT_PARTITIONER else spec.partitioner,
        linger_ms=spec.batching.linger_ms,
        batch_bytes=spec.batching.max_bytes,
        compression=spec.compression,
    )


def _key_of(spec: ChannelSpec) -> KeyRule | None:
    if (key := spec.key) is None:
        return None
    return KeyRule(
        field=path_of(key.field) if key.field else (),
        header=key.header,
        constant=key.constant.encode(),
        when_missing=key.when_missing,
        said=key.field or (f"header {key.header}" if key.header else "constant"),
    )


def _lane_of(spec: ChannelSpec) -> LaneRule | None:
    return None if spec.lane is None else LaneRule(header=spec.lane.header.lower(), baggage=spec.lane.baggage)


def _redaction_of(spec: ChannelSpec) -> Redaction | None:
    if (redact := spec.redact) is None:
        return None
    replace, remove = (tuple(map(path_of, paths)) for paths in (redact.replace, redact.remove))
    return Redaction(replace=replace, remove=remove, text=redact.text)


def _sampling_of(spec: ChannelSpec) -> Sampling | None:
    return None if spec.sampling is None else Sampling(percent=spec.sampling.percent, by=spec.sampling.by)


def _rate_of(spec: ChannelSpec) -> Rate | None:
    if (rate := spec.rate) is None:
        return None
    return Rate(
        messages_per_second=rate.messages_per_second,
        bytes_per_second=rate.bytes_per_second,
        burst_s=rate.burst_seconds,
    )
