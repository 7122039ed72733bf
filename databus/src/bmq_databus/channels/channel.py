"""A channel as the sidecar goes by it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from bmq.naming.lane_choice import BAGGAGE, LaneChoice
from bmq_databus.messages.forms import NewMessage
from bmq_databus.rules.keys import KeyRule
from bmq_databus.rules.rates import Rate
from bmq_databus.rules.redaction import Redaction
from bmq_databus.rules.sampling import Sampling
from bmq_databus.spool.channel_spool import SpoolLimits
from bmq_databus.spool.clusters import spool_name
from bmq_databus.spool.frames import Spooled
from bmq_resources.channel import Channel as ChannelResource
from bmq_resources.channel import ChannelSpec
from bmq_resources.channel_sets import check_channel
from bmq_resources.json_paths import path_of
from bmq_resources.value_schemas import JsonSchema

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
    linger_ms: int = 2
    batch_bytes: int = 1_000_000
    compression: str = "none"
    lane: str = ""
    """Empty: the base."""
    bootstrap_servers: str = ""
    """Empty: the sidecar's cluster."""
    makes_topics: bool = True
    """Whether a topic that there is not is made by what is written to it, where the cluster makes such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A topic of some cluster."""

    topic: str
    manner: Manner


class Spool(NamedTuple):
    """What one cluster gets of a channel that accepts: the spool's name, how it is sent, and to which topics each
    message.
    """

    name: str
    manner: Manner
    topics: tuple[str, ...]


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
    lane: LaneChoice | None = None
    redaction: Redaction | None = None
    sampling: Sampling | None = None
    rate: Rate | None = None
    schema: JsonSchema | None = None
    dead_letter: str = ""
    """The channel that gets what the rules do not take as it is; empty: its writer does."""
    is_declared: bool = True
    """False: it is a topic that is written by its name."""

    @property
    def manners(self) -> list[Manner]:
        """Those that its messages are sent in."""
        return [self.manner, *(one.manner for one in self.others)]

    @property
    def targets(self) -> list[Target]:
        """Where each message goes: one or more."""
        return [Target(topic=self.topic, manner=self.manner), *self.others]

    @property
    def topics(self) -> list[str]:
        """Those of the sidecar's cluster that its messages go to."""
        return [one.topic for one in self.targets if not one.manner.bootstrap_servers]

    @property
    def spools(self) -> list[Spool]:
        """Those of a channel that accepts."""
        found: dict[str, Spool] = {}
        for target in self.targets:
            servers = target.manner.bootstrap_servers
            before = found.get(servers, Spool(spool_name(self.name, servers), target.manner, ()))
            found[servers] = before._replace(topics=(*before.topics, target.topic))
        return list(found.values())

    def messages(self, news: Iterable[NewMessage], *, now_ms: int) -> list[Spooled]:
        """What is produced of many, in no lane."""
        topic, partitioner = self.topic, self.manner.partitioner
        return [
            Spooled(
                topic,
                new.partition,
                new.key,
                new.value,
                new.headers,
                now_ms if new.timestamp_ms < 0 else new.timestamp_ms,
                now_ms,
                "",
                partitioner,
            )
            for new in news
        ]

    def message(self, new: NewMessage, *, now_ms: int, lane: str = "") -> Spooled:
        """What is produced of one."""
        return Spooled(
            self.topic,
            new.partition,
            new.key,
            new.value,
            new.headers,
            now_ms if new.timestamp_ms < 0 else new.timestamp_ms,
            now_ms,
            lane,
            self.manner.partitioner,
        )


def channel_of(resource: ChannelResource) -> Channel:
    """The channel that the resource says. Raises InvalidTopicName, BadSchema."""
    check_channel(resource)
    targets = _targets_of(resource)
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


def _lane_of(spec: ChannelSpec) -> LaneChoice | None:
    return None if spec.lane is None else LaneChoice(spec.lane.header.lower() or BAGGAGE, spec.lane.baggage)


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
