"""Lane: an isolated line of traffic (dev, test, a branch) that shares topic names with the base."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from bmq.naming.names import TOPIC_NAME_LENGTH_MAX
from bmq_resources.base import (
    AGE,
    IMMUTABLE,
    Column,
    Naming,
    Part,
    Resource,
    Scale,
    Status,
    condition_columns,
    rule,
    rules,
)
from bmq_resources.pods import Placement, Resources
from bmq_resources.references import ClusterRef

LANE_NAME = r"^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$"

QUOTA_RATES_RULE: Final = "[self.writeBytesPerSecond, self.readBytesPerSecond].all(one, one == 0 || one >= 1024)"
QUOTA_STORAGE_RULE: Final = (
    "self.storageBytes == 0 || (self.partitions > 0 && self.storageBytes / self.partitions >= 1048576)"
)
_QUOTA_RATES: Final = "a rate is 1024 bytes a second at least, or 0 for no bound: raise it, or leave it out"
_QUOTA_STORAGE: Final = (
    "storageBytes is for so many partitions, each of which keeps 1048576 bytes of it at least: set partitions, or "
    "raise storageBytes"
)


class BaseReads(Part):
    """Base topics that clients in the lane may read."""

    enabled: bool = Field(default=False, description="Whether topics of the base can be read in the lane at all.")
    topics: list[Annotated[str, Field(max_length=TOPIC_NAME_LENGTH_MAX)]] = Field(
        default=["*"],
        max_length=64,
        description="Which ones, by name; * stands for any characters. A topic that the lane has written to is the "
        "lane's own, and no longer read from the base.",
    )
    bytes_per_second: int = Field(
        default=1_048_576,
        ge=1024,
        description="How much all of the lane's clients together read of the base at most, in bytes per second and "
        "proxy.",
    )


class Reads(Part):
    """What clients in the lane may read besides the lane's own messages."""

    base: BaseReads = Field(
        default=BaseReads(),
        description="Topics of the base, capped in rate, so that production does not drown a small environment.",
    )


class Quota(
    Part, json_schema_extra=rules(rule(QUOTA_RATES_RULE, _QUOTA_RATES), rule(QUOTA_STORAGE_RULE, _QUOTA_STORAGE))
):
    """How much the lane may take of the cluster."""

    write_bytes_per_second: int = Field(
        default=0,
        ge=0,
        le=1 << 40,
        description="How much all of the lane's clients together write at most, in bytes of requests per second and "
        "proxy; 1024 at least. 0: no bound.",
    )
    read_bytes_per_second: int = Field(
        default=0,
        ge=0,
        le=1 << 40,
        description="How much all of the lane's clients together read at most, in bytes per second and proxy; 1024 at "
        "least. 0: no bound.",
    )
    partitions: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="How many partitions all of the lane's own topics have together at most. 0: no bound.",
    )
    storage_bytes: int = Field(
        default=0,
        ge=0,
        le=1 << 50,
        description="How many bytes so many partitions keep together at most: each keeps an equal part of it, 1048576 "
        "at least. Needs partitions. 0: no bound.",
    )


class LaneProxies(Part):
    """The lane's own proxies."""

    replicas: int = Field(
        default=1,
        ge=0,
        le=100,
        description="How many. 0: none; clients are in the lane by lane=NAME in their client.id alone.",
    )
    resources: Resources = Field(default=Resources(), description="Their CPU and memory.")
    placement: Placement = Field(default=Placement(), description="Where they run.")


class LaneBrokers(Part):
    """The lane's own brokers."""

    replicas: int = Field(
        default=0, ge=0, le=100, description="How many. 0: the lane's topics are on the cluster's brokers."
    )
    resources: Resources = Field(default=Resources(), description="Their CPU and memory.")
    placement: Placement = Field(default=Placement(), description="Where they run.")


class LaneSpec(Part):
    """What the lane is to be."""

    cluster_ref: ClusterRef = Field(default=ClusterRef(), description="The Cluster that it is a lane of.")
    lane_name: str = Field(
        default="",
        max_length=32,
        pattern=r"^([a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?)?$",
        description="What clients write in lane=NAME. Empty: metadata.name. It cannot be changed.",
        json_schema_extra=rules(rule(IMMUTABLE, "laneName cannot be changed: create another Lane and delete this one")),
    )
    ttl_seconds: int = Field(
        default=0,
        ge=0,
        le=31_536_000,
        description="The lane is deleted, with its topics and groups, so long after it was created; what would be "
        "over at once is refused. 0: it stays.",
    )
    existing: Literal["Refuse", "Adopt"] = Field(
        default="Refuse",
        description="What happens where the lane was there before the resource, as after a restore. Refuse: "
        "nothing, and a condition says so. Adopt: it is managed from then on, with its topics and "
        "groups, and deleted with the resource.",
    )
    fallback: Literal["none", "base"] = Field(
        default="none",
        description="What happens to messages that nobody in the lane consumes. none: they stay in it. base: they go "
        "on to the base's topic of the same name. It cannot be changed.",
        json_schema_extra=rules(rule(IMMUTABLE, "fallback cannot be changed: create another Lane and delete this one")),
    )
    parent: str = Field(
        default="",
        max_length=32,
        pattern=r"^([a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?)?$",
        description="The lane (its laneName) that this one is nested in: what nobody in this one consumes goes on to "
        "that one first. Needs fallback base. Empty: to the base at once. It cannot be changed.",
        json_schema_extra=rules(rule(IMMUTABLE, "parent cannot be changed: create another Lane and delete this one")),
    )
    reads: Reads = Field(
        default=Reads(), description="What the lane's clients may read besides the lane's own messages."
    )
    quota: Quota = Field(default=Quota(), description="How much the lane may take of the cluster.")
    proxies: LaneProxies = Field(default=LaneProxies(), description="The lane's own proxies: its endpoint.")
    brokers: LaneBrokers = Field(
        default=LaneBrokers(), description="The lane's own brokers, so that its load never meets the base's."
    )


class LaneStatus(Status):
    """What the lane is."""

    lane_name: str = Field(default="", description="What clients write in lane=NAME.")
    bootstrap_servers: str = Field(default="", description="The lane's endpoint within Kubernetes.")
    topics: int = Field(default=0, ge=0, description="How many topics have been written to in it.")
    replicas: int = Field(default=0, ge=0, description="How many of its proxies there are.")
    selector: str = Field(default="", description="The labels of its proxies' pods.")
    number: int = Field(
        default=0,
        ge=0,
        description="The cluster's number of the lane, once it was found to be this resource's; 0: not yet.",
    )
    created_ms: int = Field(
        default=0, ge=0, description="When the cluster made that lane, in ms since 1970; 0: not known."
    )
    declaring: bool = Field(default=False, description="Whether that lane is gone, and is being declared anew.")
    node_ids_from: int = Field(default=-1, ge=-1, description="The first node id of its proxies; -1: not given yet.")
    expires_at: str = Field(default="", description="When it is deleted by itself (RFC 3339); empty: never.")


class Lane(Resource):
    """An isolated line of traffic."""

    naming: ClassVar[Naming] = Naming(
        plural="lanes",
        short_names=("bmql",),
        columns=(
            Column(name="Cluster", json_path=".spec.clusterRef.name", description="The Cluster that it is a lane of."),
            Column(
                name="Topics",
                json_path=".status.topics",
                type="integer",
                description="How many topics have been written to in it.",
            ),
            Column(
                name="Bootstrap",
                json_path=".status.bootstrapServers",
                priority=1,
                description="The lane's endpoint within Kubernetes.",
            ),
            Column(name="Expires", json_path=".status.expiresAt", description="When it is deleted by itself."),
            *condition_columns(),
            AGE,
        ),
        scale=Scale(
            spec_replicas_path=".spec.proxies.replicas",
            status_replicas_path=".status.replicas",
            label_selector_path=".status.selector",
        ),
    )

    kind: Literal["Lane"] = "Lane"
    spec: LaneSpec = Field(default=LaneSpec(), description="What the lane is to be.")
    status: LaneStatus = Field(default=LaneStatus(), description="What the lane is.")

    @property
    def lane_name(self) -> str:
        """What clients write in `lane=NAME`."""
        return self.spec.lane_name or self.metadata.name
