"""Channel: where what applications write by Databus goes, and how."""

from typing import ClassVar, Literal

from pydantic import Field

from bmq.naming.names import TOPIC_NAME_LENGTH_MAX
from bmq_resources.base import AGE, Column, Naming, Part, Resource, Status


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


class ChannelSpec(Part):
    """What the channel is to be."""

    topic: str = Field(
        default="",
        max_length=TOPIC_NAME_LENGTH_MAX,
        description="The topic that its messages go to. Empty: metadata.name.",
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


class Channel(Resource):
    """A name that applications write to."""

    naming: ClassVar[Naming] = Naming(
        plural="channels",
        short_names=("bmqch",),
        columns=(Column(name="Topic", json_path=".spec.topic", description="Where its messages go."), AGE),
    )

    kind: Literal["Channel"] = "Channel"
    spec: ChannelSpec = Field(default=ChannelSpec(), description="What the channel is to be.")
    status: Status = Field(default=Status(), description="What the channel is.")

    @property
    def topic_name(self) -> str:
        """Where its messages go."""
        return self.spec.topic or self.metadata.name
