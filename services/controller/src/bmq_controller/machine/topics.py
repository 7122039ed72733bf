"""Creating, growing and deleting topics. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from bmq.config.cluster_config import ClusterConfig, resolve_cluster
from bmq.config.topic_config import pinned, pool_of, validate
from bmq.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    PolicyViolation,
    RequestError,
    TopicExists,
    UnknownTopic,
)
from bmq.metadata.assignments import Assignments
from bmq.metadata.derived import config_size
from bmq.metadata.image import Image, Lane, Topic
from bmq.metadata.records import AnyRecord, PartitionChange, PartitionsAdded, TopicCreated, TopicDeleted
from bmq.naming.lanes import BASE, lane_of, name_in_lane, overlay_id, overlay_name
from bmq.naming.names import CONSUMER_OFFSETS, check_topic_name, collision_key, is_internal, may_collide
from bmq.roles.controller import NewTopic, TopicResult
from bmq.values import LeaderEpoch, NodeId, TopicId
from bmq_controller.machine.assigning import Wanted, wanted_brokers
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.lanes import check_lane_partitions, find_lane, overlay_configs
from bmq_controller.machine.limits import Limits, check_config_bytes, check_partitions
from bmq_controller.machine.placement import Placement
from bmq_controller.machine.pools import check_pool

REPLICATION_FACTOR_MAX: Final = 32_767
_REPLICATION_FACTOR: Final = 1
"""What is reported whatever was asked for: an owner has no followers, the object store replicates."""


def create_topics(
    image: Image,
    now_ms: int,
    topics: Sequence[NewTopic],
    *,
    new_id: Callable[[], UUID],
    cluster: Mapping[str, str],
    limits: Limits,
    avoid: Collection[NodeId] = (),
    validate_only: bool = False,
) -> Decision[list[TopicResult]]:
    """Each topic by itself: one that is refused does not stop the others. `cluster` is the cluster's configuration that
    was set.

    `avoid` are brokers that stop soon: they get nothing.
    """
    creation = _Creation(
        image, resolve_cluster(cluster), limits, Counter((topic.lane, topic.name) for topic in topics), avoid=avoid
    )
    results: list[TopicResult] = []
    for topic in topics:
        try:
            partitions, configs, wanted = creation.check(topic)
        except RequestError as error:
            results.append(TopicResult(name=topic.name, error=error.with_traceback(None)))  # which has this list
            continue
        topic_id = None if validate_only else TopicId(creation.overlay_id(topic) if topic.lane else new_id())
        if topic_id is not None:
            creation.add(topic_id, topic, partitions=partitions, configs=configs, wanted=wanted, now_ms=now_ms)
        results.append(
            TopicResult(
                name=topic.name,
                topic_id=topic_id,
                partitions=partitions,
                replication_factor=_REPLICATION_FACTOR,
                configs=configs,
            )
        )
    return Decision(results, tuple(creation.records))


def delete_topics(
    image: Image, topics: Sequence[TopicId], *, cluster: Mapping[str, str]
) -> Decision[list[TopicResult]]:
    """One result for each id, in order. The name is in the result where the topic exists."""
    allowed = resolve_cluster(cluster).delete_topics
    results: list[TopicResult] = []
    records: list[AnyRecord] = []
    done: set[TopicId] = set()
    for topic_id in topics:
        topic = image.topics.get(topic_id)
        error: RequestError | None = None
        if topic is None or topic_id in done:
            error = UnknownTopic(f"There is no topic with the id {topic_id}")
        elif is_internal(topic.name):
            error = PolicyViolation(f"{topic.name} holds the coordinators' state: it cannot be deleted")
        elif not allowed:
            error = PolicyViolation("delete.topic.enable is false: topics cannot be deleted")
        else:
            last = max(meta.leader_epoch for meta in topic.partitions)
            records.append(TopicDeleted(topic_id=topic_id, name=topic.name, last_leader_epoch=last))
            done.add(topic_id)
        results.append(TopicResult(name="" if topic is None else topic.name, topic_id=topic_id, error=error))
    return Decision(results, tuple(records))


def create_partitions(
    image: Image,
    name: str,
    total: int,
    *,
    limits: Limits,
    avoid: Collection[NodeId] = (),
    assignments: Assignments | None = None,
    validate_only: bool = False,
) -> Decision[TopicResult]:
    """Grows a topic to `total` partitions; brokers to `avoid` get none, unless `assignments` ask for them. Raises
    RequestError.
    """
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopic(f"There is no topic {name!r}")
    if is_internal(name):
        raise PolicyViolation(f"{name} maps groups to partitions by their number: it cannot grow")
    before = len(topic.partitions)
    if total <= before:
        raise InvalidPartitions(f"{name!r} has {before} partitions and can only grow: ask for more than {before}")
    check_partitions(image, total, added=total - before, limits=limits)
    if (lane := image.lanes.get(lane_of(name))) is not None:
        check_lane_partitions(image, lane, total - before)
    placement = Placement.on(image, avoid=avoid)
    if assignments is not None and len(assignments) != total - before:
        raise InvalidReplicaAssignment(
            f"{total - before} partitions are to be added, and {len(assignments)} have an assignment: give one for each"
        )
    wanted = wanted_brokers(image, placement, assignments, pool=pool_of(topic.configs))
    result = TopicResult(
        name=name,
        topic_id=topic.topic_id,
        partitions=total,
        replication_factor=_REPLICATION_FACTOR,
        configs=topic.configs,
    )
    if validate_only:
        return Decision(result)
    # As in the fold: the new partitions start where the lowest of the present ones is.
    epoch = LeaderEpoch(min(meta.leader_epoch for meta in topic.partitions))
    placement.announce(topic.topic_id, pool=pool_of(topic.configs), partitions=total)
    placed = place(placement, topic.topic_id, range(before, total), epoch, wanted=wanted)
    return Decision(result, (PartitionsAdded(topic_id=topic.topic_id, partitions=total), *placed))


def place(
    placement: Placement,
    topic_id: TopicId,
    partitions: Sequence[int],
    created_epoch: LeaderEpoch,
    *,
    wanted: Wanted = None,
) -> list[PartitionChange]:
    """Gives new partitions, whose epochs start at `created_epoch`, to brokers; none where no broker may have them: they
    wait for one.
    """
    changes = []
    for at, partition in enumerate(partitions):
        broker = None if wanted is None else wanted[at]
        owner = placement.next(topic_id) if broker is None else placement.on_broker(topic_id, broker)
        if owner is None:
            continue
        node_id, broker_epoch = owner
        changes.append(
            PartitionChange(
                topic_id=topic_id,
                partition=partition,
                node_id=node_id,
                broker_epoch=broker_epoch,
                leader_epoch=created_epoch + 1,
            )
        )
    return changes


class _Creation:
    """The topics of one request: what is legal beside those that exist and those that came before in the request."""

    def __init__(
        self,
        image: Image,
        config: ClusterConfig,
        limits: Limits,
        named: Counter[tuple[str, str]],
        *,
        avoid: Collection[NodeId],
    ) -> None:
        self.records: list[AnyRecord] = []
        self._image = image
        self._config = config
        self._limits = limits
        self._named = named
        self._placement = Placement.on(image, avoid=avoid)
        self._added = 0
        self._added_in_lanes: Counter[str] = Counter()
        self._added_config_bytes = 0
        """What the topics of this request that passed bring along."""
        self._colliding: dict[str, str] = {}

    def check(self, topic: NewTopic) -> tuple[int, dict[str, str], Wanted]:
        """(number of partitions, configurations, wanted brokers). Raises RequestError. A topic that passes counts
        against the limits from then on.
        """
        if self._named[topic.lane, topic.name] > 1:
            raise InvalidRequest(
                f"The request names the topic {topic.name!r} {self._named[topic.lane, topic.name]} times: name it once"
            )
        check_topic_name(topic.name)
        lane, base = self._lane_and_base(topic)
        stored = overlay_name(topic.lane, topic.name)
        if stored in self._image.topic_ids:
            raise TopicExists(f"Topic {topic.name!r} already exists")
        if may_collide(stored):
            self._check_collision(stored)
        partitions = self._partitions(topic, base)
        check_partitions(self._image, partitions, added=self._added + partitions, limits=self._limits)
        if topic.replication_factor != -1 and not 1 <= topic.replication_factor <= REPLICATION_FACTOR_MAX:
            raise InvalidReplicationFactor(
                f"Replication factor {topic.replication_factor}: set 1 (or -1); the object store replicates, so "
                f"any number up to {REPLICATION_FACTOR_MAX} is taken for 1"
            )
        configs = _configs(topic)
        configs = validate(configs, internal=is_internal(topic.name))
        configs = dict(pinned(topic.name, configs))
        if lane is None:
            check_pool(self._image, configs, before={})
        else:
            check_lane_partitions(self._image, lane, self._added_in_lanes[lane.name] + partitions)
            # its partitions wait for the lane's brokers where none is there yet
            configs = overlay_configs(lane, base, configs)
        wanted = wanted_brokers(self._image, self._placement, topic.assignments, pool=pool_of(configs))
        size_bytes = config_size(configs)
        if size_bytes and not is_internal(topic.name):  # without the coordinators' own there are no groups
            check_config_bytes(self._image, self._added_config_bytes + size_bytes, limits=self._limits)
        self._added += partitions
        if lane is not None:
            self._added_in_lanes[lane.name] += partitions
        self._added_config_bytes += size_bytes
        if may_collide(stored):
            self._colliding[collision_key(stored)] = stored
        return partitions, configs, wanted

    def add(
        self,
        topic_id: TopicId,
        topic: NewTopic,
        *,
        partitions: int,
        configs: dict[str, str],
        wanted: Wanted,
        now_ms: int,
    ) -> None:
        name = overlay_name(topic.lane, topic.name)
        epoch = self._image.next_leader_epoch(name)
        _, base = self._lane_and_base(topic)
        if base is not None:
            # Who has read the base's topic in the lane has seen its epochs, and takes older ones for stale.
            epoch = LeaderEpoch(max(epoch, *(meta.leader_epoch + 1 for meta in base.partitions)))
        self.records.append(
            TopicCreated(
                topic_id=topic_id,
                name=name,
                partitions=partitions,
                leader_epoch=epoch,
                configs=configs,
                created_ms=now_ms,
            )
        )
        self._placement.announce(topic_id, pool=pool_of(configs), partitions=partitions)
        self.records.extend(place(self._placement, topic_id, range(partitions), epoch, wanted=wanted))

    def overlay_id(self, topic: NewTopic) -> UUID:
        """The id that proxies have told for it."""
        lane, _ = self._lane_and_base(topic)
        assert lane is not None
        epoch = self._image.next_leader_epoch(overlay_name(topic.lane, topic.name))
        root = self._image.rooted_in(lane, topic.name)
        return overlay_id(
            self._image.cluster_id, lane.number, topic.name, epoch, base_id=None if root is None else root.topic_id
        )

    def _lane_and_base(self, topic: NewTopic) -> tuple[Lane | None, Topic | None]:
        """Whose it is to be, and the topic of that name beneath. Raises UnknownLane, PolicyViolation."""
        if topic.lane == BASE:
            return None, None
        lane = find_lane(self._image, topic.lane)
        if is_internal(topic.name):
            raise PolicyViolation(f"{topic.name} is bmq's own: a lane has none")
        return lane, self._image.beneath(lane, topic.name)

    def _partitions(self, topic: NewTopic, base: Topic | None) -> int:
        if topic.assignments is not None:
            if topic.partitions != -1 or topic.replication_factor != -1:
                raise InvalidRequest(
                    "There is an assignment: leave the number of partitions and the replication factor at -1, "
                    "which follow from it"
                )
            return len(topic.assignments)
        if topic.manual_assignment:
            raise InvalidReplicaAssignment(
                "The assignment did not arrive: the node that sent it is of an earlier version; leave the "
                "assignment out"
            )
        return self._default_partitions(topic.name, base) if topic.partitions == -1 else topic.partitions

    def _default_partitions(self, name: str, base: Topic | None) -> int:
        if base is not None:
            return len(base.partitions)
        return self._config.offsets_topic_partitions if name == CONSUMER_OFFSETS else self._config.num_partitions

    def _check_collision(self, name: str) -> None:
        key = collision_key(name)
        other = self._image.colliding.get(key, self._colliding.get(key))
        if other is not None:
            raise InvalidTopicName(
                f"Topic {name_in_lane(name)!r} collides with the existing topic {name_in_lane(other)!r}: metrics "
                "cannot tell '.' from '_'"
            )


def _configs(topic: NewTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for name, value in topic.configs.items():
        if value is None:
            raise InvalidConfig(f"{name}: no value: give one, or leave the key out for the default")
        configs[name] = value
    return configs
