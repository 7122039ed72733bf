"""Channel: where what applications write by Databus goes, and how."""

from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bmq.naming.channels import CHANNEL_NAME_LENGTH_MAX
from bmq.naming.names import TOPIC_NAME_LENGTH_MAX
from bmq_resources.base import (
    AGE,
    IMMUTABLE,
    OBJECT_NAME_OR_NONE,
    Column,
    Naming,
    Part,
    Resource,
    Status,
    condition_columns,
    rule,
    rules,
)
from bmq_resources.channel_rules import Batching, Key, LaneOf, Rate, Redact, Sampling, Target, ValueSchema
from bmq_resources.json_paths import is_within, path_of
from bmq_resources.references import ClusterRef


class Spool(Part):
    """What is accepted and not in the cluster yet, on the sidecar's disk."""

    max_bytes: int = Field(default=1 << 30, ge=1 << 20, description="How much of it there may be.")
    max_age_seconds: int = Field(
        default=604_800, ge=1, description="What is older is given up, and counted as dropped."
    )
    when_full: Literal["block", "reject", "dropOldest"] = Field(
        default="block",
        description="What happens to a message for which there is no room. block: it waits, as long as its writer "
        "does. reject: it is refused. dropOldest: the oldest give way to it, and are counted as dropped.",
    )


class Idempotency(Part):
    """Requests that come again with the same Idempotency-Key."""

    window_seconds: int = Field(
        default=3_600,
        ge=1,
        le=604_800,
        description="How long they have the same answer and write nothing again, after the first one was answered.",
    )


Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Partitioner = Literal["consistent_random", "consistent", "murmur2_random", "murmur2", "fnv1a_random", "fnv1a", "random"]


# The API server looks at a spec that is not written, too, before it has the defaults of its fields.
TARGETS_RULE: Final = "!has(self.targets) || self.targets.size() == 0 || !has(self.topic) || self.topic == ''"
_TARGETS: Final = "targets stand in the place of topic: leave topic out"


class ChannelSpec(Part, json_schema_extra=rules(rule(TARGETS_RULE, _TARGETS))):
    """What the channel is to be."""

    topic: str = Field(
        default="",
        max_length=TOPIC_NAME_LENGTH_MAX,
        description="The topic that its messages go to. Empty: the channel's name.",
    )
    targets: list[Target] = Field(
        default=[],
        max_length=4,
        description="Several topics that each message goes to, instead of topic. durable: a writer is answered when "
        "all have it. accepted: when it is on disk for all of their clusters, each of which gets it by itself.",
    )
    acknowledgement: Literal["durable", "accepted"] = Field(
        default="durable",
        description="When a writer is answered. durable: the cluster has the message. accepted: the sidecar has it on "
        "its disk, and sends it as soon as the cluster takes it.",
    )
    enabled: bool = Field(default=True, description="false: what is written to it is refused.")
    idempotency: Idempotency = Field(
        default=Idempotency(), description="Requests that come again with the same Idempotency-Key."
    )
    spool: Spool = Field(default=Spool(), description="For acknowledgement: accepted.")
    key: Key | None = Field(
        default=None, description="Where the messages' keys come from. Left out: from whoever writes them."
    )
    partitioner: Partitioner = Field(
        default="consistent_random",
        description="How a partition is chosen, as librdkafka calls it. One that a message names goes before it. "
        "What ends with _random sends messages without a key to one partition for a while, then to another.",
    )
    batching: Batching = Field(default=Batching(), description="How messages become batches.")
    compression: Compression = Field(default="none", description="How batches are compressed.")
    redact: Redact | None = Field(default=None, description="What of the value is written nowhere.")
    lane: LaneOf | None = Field(
        default=None, description="Which lane each message is written in. Left out: the base alone."
    )
    sampling: Sampling | None = Field(default=None, description="Which part of the messages is written.")
    rate: Rate | None = Field(default=None, description="How much may be written.")
    value_schema: ValueSchema | None = Field(default=None, alias="schema", description="What values have to be.")
    dead_letter: str = Field(
        default="",
        max_length=253,
        pattern=OBJECT_NAME_OR_NONE,
        description="The channel that gets the messages that these rules do not take as they are. Empty: they are "
        "refused.",
    )

    @model_validator(mode="after")
    def _targets_are_apart(self) -> Self:
        if self.targets and self.topic:
            raise PydanticCustomError("targets", _TARGETS)
        if len({(one.topic, one.bootstrap_servers) for one in self.targets}) < len(self.targets):
            raise PydanticCustomError("targets", "a target stands there twice: leave one out")
        return self

    @model_validator(mode="after")
    def _key_is_not_redacted(self) -> Self:
        if self.key is not None and self.key.field and self.redact is not None:
            path = path_of(self.key.field)
            for text in (*self.redact.replace, *self.redact.remove):
                redacted = path_of(text)
                if is_within(path, redacted) or is_within(redacted, path):
                    raise PydanticCustomError(
                        "key",
                        "key.field {field} has what redact takes out ({text}), and the key would show it: take "
                        "another field",
                        {"field": self.key.field, "text": text},
                    )
        return self

    @property
    def clusters(self) -> int:
        """How many its messages go to."""
        return max(1, len({one.bootstrap_servers for one in self.targets}))

    def said(self) -> dict[str, Any]:
        """As a cluster keeps it: JSON values, camelCase, without what is as by default, and without which cluster it
        is.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=set(ChannelSpec.model_fields))


class DeclaredChannelSpec(ChannelSpec):
    """What the channel is to be, and of which Cluster it is."""

    cluster_ref: ClusterRef = Field(
        default=ClusterRef(), description="The Cluster that has it, and whose sidecars follow it."
    )
    channel_name: str = Field(
        default="",
        max_length=CHANNEL_NAME_LENGTH_MAX,
        pattern=OBJECT_NAME_OR_NONE,
        description="What applications write to. Empty: metadata.name. It cannot be changed.",
        json_schema_extra=rules(
            rule(IMMUTABLE, "channelName cannot be changed: create another Channel and delete this one")
        ),
    )
    existing: Literal["Refuse", "Adopt"] = Field(
        default="Refuse",
        description="What happens where the channel was there before the resource, as after a restore. Refuse: "
        "nothing, and a condition says so. Adopt: it is managed from then on, made what is written, and deleted with "
        "the resource.",
    )


def topics_of(name: str, spec: ChannelSpec) -> dict[str, str]:
    """All topics that messages of the channel of this name go to, by the field that says each."""
    if spec.targets:
        return {f"spec.targets[{at}].topic": one.topic for at, one in enumerate(spec.targets)}
    return {"spec.topic": spec.topic} if spec.topic else {"metadata.name": name}


class ChannelStatus(Status):
    """What the channel is."""

    channel_name: str = Field(default="", description="What applications write to.")
    topic_name: str = Field(default="", description="Where its messages go, or the first of several.")
    owned: bool = Field(
        default=False,
        description="Whether this resource made or adopted the channel. Before it is made, this says that it is to be.",
    )
    created_ms: int = Field(
        default=0, ge=0, description="When the cluster made that channel, in ms since 1970; 0: not known."
    )


class Channel(Resource):
    """A name that applications write to."""

    naming: ClassVar[Naming] = Naming(
        plural="channels",
        short_names=("bmqch",),
        columns=(
            Column(name="Cluster", json_path=".spec.clusterRef.name", description="The Cluster that has it."),
            Column(name="Topic", json_path=".status.topicName", description="Where its messages go."),
            Column(name="Answers", json_path=".spec.acknowledgement", description="When a writer is answered."),
            Column(name="Enabled", json_path=".spec.enabled", type="boolean", description="Whether it takes messages."),
            *condition_columns(),
            AGE,
        ),
    )

    kind: Literal["Channel"] = "Channel"
    spec: DeclaredChannelSpec = Field(default=DeclaredChannelSpec(), description="What the channel is to be.")
    status: ChannelStatus = Field(default=ChannelStatus(), description="What the channel is.")

    @property
    def channel_name(self) -> str:
        """What applications write to."""
        return self.spec.channel_name or self.metadata.name

    @property
    def dead_letter(self) -> str:
        """The channel that gets what its rules do not take as it is; empty: its writer does."""
        return self.spec.dead_letter

    @property
    def manners(self) -> list[tuple[str | int, ...]]:
        """How its messages are handed to clusters: those of one manner share a producer."""
        spec = self.spec
        manner = (spec.partitioner, spec.batching.linger_ms, spec.batching.max_bytes, spec.compression)
        return [(*manner, where) for where in [one.bootstrap_servers for one in spec.targets] or [""]]

    @property
    def topics(self) -> dict[str, str]:
        """All topics that its messages go to, by the field that says each."""
        return topics_of(self.channel_name, self.spec)

    @property
    def topic_name(self) -> str:
        """Where its messages go, or the first of several."""
        return self.spec.targets[0].topic if self.spec.targets else self.spec.topic or self.channel_name
