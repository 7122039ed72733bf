"""What proxies and brokers ask of the controller. Reads never come here: every node has the image."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.metadata.records import Range
from bmq.naming.listeners import ListenerAddresses
from bmq.roles.lane_turns import LaneControl
from bmq.values import BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId, TopicId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """`partitions` -1 and `replication_factor` -1: the cluster's default, or with `assignments` as many as there are of
    them.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    manual_assignment: bool = False
    """Whether there are `assignments`. Without them, from a node of an earlier version, it is refused."""
    lane: str = ""
    """Whose own it is to be; "": the base's. What is not said of a lane's topic is as with the base's topic of that
    name, where there is one."""
    assignments: Sequence[Sequence[int]] | None = None
    """For each partition the nodes that it is wanted on, the first choice first (bmq.metadata.assignments)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """error None: done (or, with validate_only, would be done)."""

    name: str
    topic_id: TopicId | None = None
    error: BmqError | None = None
    partitions: int = -1
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """`operation` is "set", "delete", "append" or "subtract" (IncrementalAlterConfigs)."""

    name: str
    operation: str
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResource:
    """`kind` is "topic" (name = topic), "broker" (name = node id, or "" for all) or "group"."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """Which broker is to own a partition; None: a move that is under way is taken back."""

    tp: TopicPartition
    to: NodeId | None


class Controller(Protocol):
    """Commits changes of the metadata. Each method returns when its records are durable; raises
    ControllerUnavailable.
    """

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]: ...

    async def delete_topics(self, topics: Sequence[TopicId]) -> list[TopicResult]: ...

    async def create_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> TopicResult:
        """Grows a topic to `total` partitions; `assignments` as in NewTopic, for the new ones."""

    async def alter_configs(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Raises RequestError."""

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """AlterConfigs: everything not named goes back to its default. Raises RequestError."""

    async def allocate_producer_ids(self, count: int) -> range:
        """Ids never given before."""

    async def reassign(self, changes: Sequence[Reassignment]) -> list[BmqError | None]:
        """Begins planned moves, or takes them back. For each in order: None (begun, or there already), or why not."""


class Metadata(Protocol):
    """A node's image, kept up to date."""

    @property
    def image(self) -> Image: ...

    def subscribe(self, changed: Callable[[Image, Image], None]) -> Callable[[], None]:
        """Calls `changed(old, new)` on the loop after each change; returns the unsubscriber."""

    async def wait_for(self, position: int) -> Image:
        """The image once it covers the metadata log's entry `position`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A starting node. `boot` is new at each start of a process. `host` and `port` are its Kafka address, "" and 0
    without a proxy.
    """

    node_id: NodeId
    boot: UUID
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str = ""
    internal_host: str = ""
    internal_port: int = 0
    """Where other nodes reach it; "" and 0 where none does."""
    pool: str = ""
    """The pool that its broker belongs to; "": the one of all topics that name none."""
    lane: str = ""
    """The lane that its proxy serves alone; "": the base."""
    listeners: ListenerAddresses = field(default_factory=dict)
    """Where clients reach its proxy by further listeners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedPartition:
    """This owner appends no more to `tp` under `leader_epoch`, and will never again: everything of it in its stream is
    durable and below `end`.

    `end` 0: its stream holds nothing of it that the manifest does not cover. What lies below `start` the manifest
    covers: the heir of a partition with a short tail need not read the whole stream. Repeated in each heartbeat until
    the image shows what came of it.
    """

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    end: int
    start: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoad:
    """What a partition takes: bytes written per second, of late."""

    tp: TopicPartition
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A node lives. `closed` and `covered` are repeated until the image shows them.

    It is to get no more partitions where it stops soon (`draining`), and while its clock and the store's are too far
    apart (`clock_differs`).
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    boot: UUID
    closed: tuple[ClosedPartition, ...] = ()
    covered: tuple[tuple[TopicPartition, tuple[Range, ...]], ...] = ()
    loads: tuple[PartitionLoad, ...] = ()
    draining: bool = False
    clock_differs: bool = False
    listeners: ListenerAddresses | None = None
    """Where clients reach its proxy by further listeners, which may change while it lives; None: as it is
    registered."""
    manifests: tuple[tuple[TopicPartition, ManifestVersion], ...] = ()
    """Manifest versions, of partitions of its own, that are in force: once the image shows them, nobody opens one of
    these from less."""
    trouble: str = ""
    """What keeps it from writing to the store, and for how long, for who looks at the cluster; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """`lease_ms`: fenced unless heard again within it; a third of it is a good interval. `position`: of the leader's
    image.
    """

    lease_ms: int
    position: int


class BrokerControl(LaneControl, Protocol):
    """What a broker asks of the controller."""

    async def register(self, registration: Registration) -> BrokerEpoch:
        """Seals the stream of the node's earlier incarnation, then gives the new one its epoch and the partitions that
        were the old one's.

        Returned once committed; the image names the partitions from then on.
        """

    async def report_stopped(self, node_id: NodeId, broker_epoch: BrokerEpoch, end: int) -> None:
        """A clean stop: the node sealed its own stream at `end` and is gone."""

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Renews the lease, and takes up what the node reports, committed when this returns.

        Raises Fenced where this incarnation is not the registered one any more, or its fencing is begun: it may only
        register again. Raises ControllerUnavailable.
        """


class ClusterControl(Protocol):
    """What whoever runs the cluster asks of the controller. Each method returns when its records are durable; raises
    ControllerUnavailable.
    """

    async def move(self, tp: TopicPartition, to: NodeId) -> None:
        """Begins to move a partition; done once the image names the new owner. Idempotent; a later call leads the move
        elsewhere.

        Raises UnknownTopic, InvalidRequest where `to` is no broker that takes partitions.
        """

    async def drain(self, node_id: NodeId) -> None:
        """Cordons a node and begins to move all its partitions away; done once the image shows that it owns none.
        Raises InvalidRequest.
        """

    async def cordon(self, node_id: NodeId, cordoned: bool) -> None:
        """Gives the node no new partitions, or does so again. Idempotent."""


class MetadataSource(Protocol):
    """What followers ask of the leader."""

    async def metadata_poll(self, after_position: int, wait_ms: int) -> list[bytes]:
        """The log's entries above `after_position`, in order and each as the whole object in the store; waits for one,
        not longer than `wait_ms`.

        Committed entries only; not all of them where they are many. Raises ControllerUnavailable where this one does
        not lead, NotReady where it no longer has what follows `after_position` (or never had): the follower reads the
        store.
        """
