"""The controller's decisions: cases, and random histories against the invariants and a plain model of what brokers wrote."""

import contextlib
from collections.abc import Mapping
from uuid import UUID

import pytest
from controller_committed import Committed
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bmq.errors import (
    Fenced,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    PolicyViolation,
    TopicExists,
    UnknownTopic,
)
from bmq.metadata.codec import decode_records, decode_snapshot, encode_records, encode_snapshot
from bmq.metadata.derived import count_owners, count_ranges, find_moving
from bmq.metadata.image import Image, apply
from bmq.metadata.invariants import check_image
from bmq.metadata.records import Range, StreamSealed, TopicCreated
from bmq.roles.controller import ClosedPartition, ConfigChange, ConfigResource, Heartbeat, NewTopic, Registration
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, Nonce, StreamId, TopicId, TopicPartition
from bmq_controller.machine.configs import alter_configs, replace_configs
from bmq_controller.machine.fencing import begin_fencing, complete_fencing
from bmq_controller.machine.moves import drain, move
from bmq_controller.machine.nodes import collected, cordon, heartbeat, register, report_covered, report_stopped, stream_to_seal
from bmq_controller.machine.placement import living_broker
from bmq_controller.machine.producer_ids import allocate_producer_ids
from bmq_controller.machine.topics import Limits, create_partitions, delete_topics


def test_partitions_of_new_topics_are_spread_by_count() -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a", partitions=4), NewTopic(name="b", partitions=2))
    cluster.create(NewTopic(name="c", partitions=3))
    assert cluster.image.owned_counts == {1: 3, 2: 3, 3: 3}


def test_without_a_broker_partitions_wait_for_the_first_one() -> None:
    cluster = Committed()
    cluster.create(NewTopic(name="a", partitions=2))
    assert cluster.owners("a") == [-1, -1]
    cluster.register(4, roles=("proxy",))
    assert cluster.owners("a") == [-1, -1]
    cluster.register(5)
    assert cluster.owners("a") == [5, 5]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic(name="a b"), InvalidTopicName),
        (NewTopic(name="there"), TopicExists),
        (NewTopic(name="dotted_name"), InvalidTopicName),
        (NewTopic(name="x", partitions=0), InvalidPartitions),
        (NewTopic(name="x", partitions=-2), InvalidPartitions),
        (NewTopic(name="x", partitions=10_001), InvalidPartitions),
        (NewTopic(name="x", replication_factor=0), InvalidReplicationFactor),
        (NewTopic(name="x", replication_factor=32_768), InvalidReplicationFactor),
        (NewTopic(name="x", manual_assignment=True), InvalidReplicaAssignment),
        (NewTopic(name="x", configs={"no.such": "1"}), InvalidConfig),
        (NewTopic(name="x", configs={"retention.ms": None}), InvalidConfig),
        (NewTopic(name="x", configs={"cleanup.policy": "compact"}), InvalidConfig),
    ],
)
def test_a_topic_that_cannot_be_is_refused_beside_one_that_can(topic: NewTopic, error: type[Exception]) -> None:
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name="there"), NewTopic(name="dotted.name"))
    refused, made = cluster.create(topic, NewTopic(name="good", replication_factor=3))
    assert isinstance(refused, error)
    assert getattr(made, "replication_factor", None) == 1
    assert set(cluster.image.topic_ids) == {"there", "dotted.name", "good"}


def test_topics_of_one_request_are_checked_against_each_other() -> None:
    cluster = Committed()
    outcomes = cluster.create(NewTopic(name="a"), NewTopic(name="a"), NewTopic(name="b.c"), NewTopic(name="b_c"))
    assert [type(outcome) for outcome in outcomes[:2]] == [InvalidRequest, InvalidRequest]
    assert isinstance(outcomes[3], InvalidTopicName)
    assert set(cluster.image.topic_ids) == {"b.c"}


def test_validate_only_says_what_would_be_and_changes_nothing() -> None:
    cluster = Committed(brokers=1, cluster={"num.partitions": "7"})
    [result, exists] = cluster.create(NewTopic(name="a"), NewTopic(name="a b"), validate_only=True)
    assert (getattr(result, "partitions", 0), getattr(result, "topic_id", 0)) == (7, None)
    assert isinstance(exists, InvalidTopicName)
    assert cluster.image.topics == {}


def test_the_clusters_partitions_are_bounded() -> None:
    cluster = Committed(limits=Limits(partitions_per_topic=10, partitions=12))
    outcomes = cluster.create(NewTopic(name="a", partitions=8), NewTopic(name="b", partitions=5), NewTopic(name="c", partitions=4))
    assert isinstance(outcomes[1], InvalidPartitions)
    assert set(cluster.image.topic_ids) == {"a", "c"}
    with pytest.raises(InvalidPartitions):
        create_partitions(cluster.image, "a", 9, limits=cluster.limits)


def test_internal_topics_may_be_compacted_and_neither_grow_nor_go() -> None:
    cluster = Committed(brokers=1)
    [made] = cluster.create(NewTopic(name="__consumer_offsets", configs={"cleanup.policy": "compact"}))
    assert getattr(made, "partitions", 0) == 50
    topic_id = cluster.image.topic_ids["__consumer_offsets"]
    [result] = delete_topics(cluster.image, [topic_id], cluster={}).result
    assert isinstance(result.error, PolicyViolation)
    with pytest.raises(PolicyViolation):
        create_partitions(cluster.image, "__consumer_offsets", 60, limits=cluster.limits)


def test_a_topic_is_deleted_once_and_its_name_starts_above_the_tombstone() -> None:
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name="a"))
    cluster.register(1, boot=2)
    topic_id = cluster.image.topic_ids["a"]
    decision = delete_topics(cluster.image, [topic_id, topic_id, TopicId(UUID(int=99))], cluster={})
    assert [type(result.error) for result in decision.result] == [type(None), UnknownTopic, UnknownTopic]
    cluster.commit(decision.records)
    cluster.create(NewTopic(name="a"))
    [created] = [record for record in cluster.entries[-1] if isinstance(record, TopicCreated)]
    assert created.leader_epoch == 3
    assert created.topic_id != topic_id


def test_deletion_can_be_switched_off() -> None:
    cluster = Committed()
    cluster.create(NewTopic(name="a"))
    decision = delete_topics(cluster.image, [cluster.image.topic_ids["a"]], cluster={"delete.topic.enable": "false"})
    assert isinstance(decision.result[0].error, PolicyViolation)
    assert decision.records == ()


def test_a_topic_can_only_grow() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a", partitions=3))
    for total in (3, 2, 0):
        with pytest.raises(InvalidPartitions, match="only grow"):
            create_partitions(cluster.image, "a", total, limits=cluster.limits)
    with pytest.raises(UnknownTopic):
        create_partitions(cluster.image, "b", 4, limits=cluster.limits)
    with pytest.raises(InvalidReplicaAssignment):
        create_partitions(cluster.image, "a", 4, limits=cluster.limits, manual_assignment=True)
    assert create_partitions(cluster.image, "a", 4, limits=cluster.limits, validate_only=True).records == ()
    cluster.commit(create_partitions(cluster.image, "a", 6, limits=cluster.limits).records)
    assert sorted(cluster.owners("a")) == [1, 1, 1, 2, 2, 2]


TOPIC = ConfigResource(kind="topic", name="a")
CLUSTER = ConfigResource(kind="broker", name="")


def change(name: str, operation: str, value: str | None = None) -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value)


def test_configurations_are_set_unset_appended_and_replaced() -> None:
    cluster = Committed()
    cluster.create(NewTopic(name="a", configs={"retention.ms": "5"}))

    def configs() -> Mapping[str, str]:
        topic = cluster.image.topic("a")
        assert topic is not None
        return topic.configs

    throttled = "leader.replication.throttled.replicas"
    steps = [change("segment.ms", "set", "9"), change("retention.ms", "delete"), change(throttled, "append", "0:1,1:1")]
    cluster.commit(alter_configs(cluster.image, TOPIC, steps, cluster={}).records)
    assert configs() == {"segment.ms": "9", throttled: "0:1,1:1"}
    cluster.commit(alter_configs(cluster.image, TOPIC, [change(throttled, "subtract", "0:1")], cluster={}).records)
    assert configs()[throttled] == "1:1"
    cluster.commit(replace_configs(cluster.image, TOPIC, {"retention.ms": "8"}).records)
    assert configs() == {"retention.ms": "8"}
    assert alter_configs(cluster.image, TOPIC, [change("retention.ms", "set", "8")], cluster={}).records == (), "nothing changes"
    assert replace_configs(cluster.image, TOPIC, {}, validate_only=True).records == ()
    cluster.commit(replace_configs(cluster.image, TOPIC, {}).records)
    assert configs() == {}


@pytest.mark.parametrize(
    ("resource", "changes", "error"),
    [
        (TOPIC, [change("retention.ms", "set", "x")], InvalidConfig),
        (TOPIC, [change("retention.ms", "set")], InvalidConfig),
        (TOPIC, [change("retention.ms", "append", "1")], InvalidConfig),
        (TOPIC, [change("cleanup.policy", "append", "compact")], InvalidConfig),
        (TOPIC, [change("cleanup.policy", "subtract", "delete")], InvalidConfig),
        (TOPIC, [change("retention.ms", "set", "1"), change("retention.ms", "delete")], InvalidRequest),
        (TOPIC, [change("retention.ms", "multiply", "1")], InvalidRequest),
        (TOPIC, [change("no.such", "delete")], InvalidConfig),
        (ConfigResource(kind="topic", name="b"), [], UnknownTopic),
        (ConfigResource(kind="broker", name="1"), [], InvalidConfig),
        (ConfigResource(kind="group", name="g"), [], InvalidConfig),
        (CLUSTER, [change("log.retention.ms", "set", "x")], InvalidConfig),
        (CLUSTER, [change("retention.ms", "set", "1")], InvalidConfig),
    ],
)
def test_a_change_of_configuration_that_cannot_be_is_refused(resource: ConfigResource, changes: list[ConfigChange], error: type[Exception]) -> None:
    cluster = Committed()
    cluster.create(NewTopic(name="a"))
    with pytest.raises(error):
        alter_configs(cluster.image, resource, changes, cluster={})


def test_the_clusters_configuration_is_kept_under_one_name() -> None:
    cluster = Committed()
    cluster.commit(alter_configs(cluster.image, CLUSTER, [change("log.retention.ms", "set", "77")], cluster={}).records)
    assert cluster.image.configs == {("broker", ""): {"log.retention.ms": "77"}}
    cluster.commit(replace_configs(cluster.image, CLUSTER, {}).records)
    assert cluster.image.configs == {}


def test_producer_ids_are_given_once_and_in_bounded_blocks() -> None:
    cluster = Committed()
    first = allocate_producer_ids(cluster.image, 1000)
    cluster.commit(first.records)
    assert (first.result, allocate_producer_ids(cluster.image, 5).result) == (range(1000), range(1000, 1005))
    for count in (0, -1, 1_000_001):
        with pytest.raises(PolicyViolation):
            allocate_producer_ids(cluster.image, count)


def test_a_registration_seals_and_hands_over_with_ranges() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a", partitions=4))
    cluster.register(1, boot=2, end=7)
    topic = cluster.image.topic("a")
    assert topic is not None
    for meta in topic.partitions:
        if meta.node_id == 1:
            assert (meta.broker_epoch, meta.leader_epoch, meta.ranges) == (2, 2, (Range(1, 1, 1, 7),))
        else:
            assert (meta.broker_epoch, meta.leader_epoch, meta.ranges) == (1, 1, ())
    assert cluster.image.sealed == {StreamId(NodeId(1), BrokerEpoch(1)): 7}


def test_a_registration_whose_plan_is_old_is_not_committed() -> None:
    cluster = Committed(brokers=1)
    wanted = Registration(node_id=NodeId(1), boot=UUID(int=9), roles=("broker",), host="h", port=1)
    sealed = stream_to_seal(cluster.image, wanted)
    cluster.register(1, boot=2)
    decision = register(cluster.image, wanted, sealed=sealed, end=3)
    assert (decision.result, decision.records) == (None, ())


def test_a_boot_that_lost_its_id_may_not_take_it_back() -> None:
    cluster = Committed(brokers=1)
    cluster.register(1, boot=2)
    cluster.register(1, boot=2)
    with pytest.raises(Fenced, match="has to exit"):
        cluster.register(1, boot=1)


def test_a_stopped_brokers_partitions_go_to_the_others() -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a", partitions=6))
    cluster.commit(report_stopped(cluster.image, NodeId(2), BrokerEpoch(1), end=4).records)
    assert sorted(cluster.owners("a")) == [1, 1, 1, 3, 3, 3]
    assert NodeId(2) not in cluster.image.nodes
    assert report_stopped(cluster.image, NodeId(2), BrokerEpoch(1), end=4).records == ()
    assert cluster.register(2, boot=2) == 2


def test_a_stream_is_dropped_with_the_last_range_that_names_it() -> None:
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name="a"), NewTopic(name="b"))
    cluster.register(1, boot=2, end=5)
    stream = StreamId(NodeId(1), BrokerEpoch(1))
    tp = TopicPartition(cluster.image.topic_ids["a"], 0)
    meta = cluster.image.partition(tp)
    assert meta is not None
    elsewhere = Range(9, 9, 9, 9)
    for node_id, epoch in ((1, 1), (2, 2)):
        ignored = report_covered(cluster.image, NodeId(node_id), BrokerEpoch(epoch), [(tp, meta.ranges)])
        assert ignored.records == (), "not the owner's report"
    cluster.commit(report_covered(cluster.image, NodeId(1), BrokerEpoch(2), [(tp, (*meta.ranges, elsewhere))]).records)
    assert stream in cluster.image.sealed
    cluster.commit(delete_topics(cluster.image, [cluster.image.topic_ids["b"]], cluster={}).records)
    assert stream in cluster.image.dropped
    cluster.commit(collected(cluster.image, streams=[stream]).records)
    assert cluster.image.dropped == {}
    assert collected(cluster.image, streams=[stream]).records == ()


NODES = st.integers(1, 3)
NAMES = st.sampled_from(["a", "b", "c"])


class Histories(RuleBasedStateMachine):
    """Random operations. `written` is the plain model: what each owner wrote of each partition and no manifest covers."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Committed()
        self.boots = 100
        self.lengths: dict[StreamId, int] = {}
        self.written: dict[TopicPartition, set[tuple[StreamId, int, int]]] = {}
        self.closed: dict[tuple[TopicPartition, StreamId, int], int] = {}
        """What owners closed, and where: they write no more of it, and the report may come at any time, also twice."""
        self.given: set[int] = set()
        self.topic_ids: set[TopicId] = set()

    @rule(name=NAMES, partitions=st.integers(1, 4), twice=st.booleans())
    def create(self, name: str, partitions: int, twice: bool) -> None:
        topics = [NewTopic(name=name, partitions=partitions), NewTopic(name=name + "2", partitions=1)]
        self.cluster.create(*topics, *(topics[:1] if twice else []))
        self.topic_ids |= set(self.cluster.image.topics)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        topic_id = self.cluster.image.topic_ids.get(name)
        if topic_id is not None:
            self.cluster.commit(delete_topics(self.cluster.image, [topic_id], cluster={}).records)
            self.written = {tp: batches for tp, batches in self.written.items() if tp.topic_id != topic_id}

    @rule(name=NAMES, more=st.integers(1, 2))
    def grow(self, name: str, more: int) -> None:
        topic = self.cluster.image.topic(name)
        if topic is not None:
            total = len(topic.partitions) + more
            self.cluster.commit(create_partitions(self.cluster.image, name, total, limits=Limits()).records)

    @rule(node_id=NODES, roles=st.sampled_from([("broker",), ("broker",), ("broker", "proxy"), ("proxy",)]))
    def register(self, node_id: int, roles: tuple[str, ...]) -> None:
        self.boots += 1
        node = self.cluster.image.nodes.get(NodeId(node_id))
        end = 0 if node is None else self.lengths.get(StreamId(node.node_id, node.broker_epoch), 0)
        self.cluster.register(node_id, boot=self.boots, end=end, roles=roles)

    @rule(node_id=NODES)
    def stop(self, node_id: int) -> None:
        node = self.cluster.image.nodes.get(NodeId(node_id))
        if node is not None:
            end = self.lengths.get(StreamId(node.node_id, node.broker_epoch), 0)
            self.cluster.commit(report_stopped(self.cluster.image, node.node_id, node.broker_epoch, end=end).records)

    @rule(node_id=NODES)
    def write(self, node_id: int) -> None:
        """One WAL object with a batch of every other partition that the broker owns."""
        node = self.cluster.image.nodes.get(NodeId(node_id))
        if node is None or "broker" not in node.roles:
            return
        stream = StreamId(node.node_id, node.broker_epoch)
        number = self.lengths.get(stream, 0)
        self.lengths[stream] = number + 1
        for topic in self.cluster.image.topics.values():
            for index, meta in enumerate(topic.partitions):
                tp = TopicPartition(topic.topic_id, index)
                if (tp, stream, meta.leader_epoch) in self.closed:
                    continue
                if (meta.node_id, meta.broker_epoch) == stream and (index + number) % 2 == 0:
                    self.written.setdefault(tp, set()).add((stream, meta.leader_epoch, number))

    @rule(name=NAMES, partition=st.integers(0, 3), what=st.integers(1, 3))
    def cover(self, name: str, partition: int, what: int) -> None:
        """The owner's manifest covers the oldest ranges of one partition."""
        topic_id = self.cluster.image.topic_ids.get(name)
        if topic_id is None:
            return
        tp = TopicPartition(topic_id, partition)
        meta = self.cluster.image.partition(tp)
        if meta is None or meta.node_id == -1:
            return
        ranges = meta.ranges[:what]
        self.written[tp] = {
            (stream, epoch, number)
            for stream, epoch, number in self.written.get(tp, set())
            if not any((found.node_id, found.broker_epoch) == stream and found.leader_epoch == epoch for found in ranges)
        }
        self.cluster.commit(report_covered(self.cluster.image, meta.node_id, meta.broker_epoch, [(tp, ranges)]).records)

    @rule(name=NAMES, partition=st.integers(0, 3), node_id=NODES)
    def begin_to_move(self, name: str, partition: int, node_id: int) -> None:
        topic_id = self.cluster.image.topic_ids.get(name)
        if topic_id is not None:
            with contextlib.suppress(UnknownTopic, InvalidRequest):
                self.cluster.commit(move(self.cluster.image, TopicPartition(topic_id, partition), NodeId(node_id)).records)

    @rule(node_id=NODES)
    def begin_to_drain(self, node_id: int) -> None:
        with contextlib.suppress(InvalidRequest):
            self.cluster.commit(drain(self.cluster.image, NodeId(node_id)).records)

    @rule(node_id=NODES, cordoned=st.booleans())
    def cordon(self, node_id: int, cordoned: bool) -> None:
        with contextlib.suppress(InvalidRequest):
            self.cluster.commit(cordon(self.cluster.image, NodeId(node_id), cordoned=cordoned).records)

    @rule(node_id=NODES, every=st.integers(1, 2))
    def close(self, node_id: int, every: int) -> None:
        """The owner closes partitions that are to move (or every other of them): it writes no more of them, ever, under this leader epoch."""
        for tp in list(self.cluster.image.moving)[::every]:
            meta = self.cluster.image.partition(tp)
            assert meta is not None
            if meta.node_id == node_id:
                stream = StreamId(meta.node_id, meta.broker_epoch)
                self.closed.setdefault((tp, stream, meta.leader_epoch), self.lengths.get(stream, 0))

    @precondition(lambda self: self.closed)
    @rule(data=st.data(), count=st.integers(1, 8), empty=st.booleans())
    def report(self, data: st.DataObject, count: int, empty: bool) -> None:
        """Any old or new report of closed partitions, of one incarnation."""
        reports = sorted(self.closed, key=str)
        _, stream, _ = data.draw(st.sampled_from(reports))
        closed = [
            ClosedPartition(tp=tp, leader_epoch=LeaderEpoch(epoch), end=self.closed[tp, of, epoch]) for tp, of, epoch in reports if of == stream
        ][:count]
        node = self.cluster.image.nodes.get(stream.node_id)
        boot = node.boot if node is not None else UUID(int=0)
        beat = Heartbeat(node_id=stream.node_id, broker_epoch=stream.broker_epoch, boot=boot, closed=tuple(closed))
        if self.lives(stream) and stream.node_id not in self.cluster.image.fencing:
            self.cluster.commit(heartbeat(self.cluster.image, beat, empty=empty).records)
        else:
            with pytest.raises(Fenced):
                heartbeat(self.cluster.image, beat, empty=empty)

    @rule(node_id=NODES)
    def begin_to_fence(self, node_id: int) -> None:
        node = self.cluster.image.nodes.get(NodeId(node_id))
        if node is not None:
            self.cluster.commit(begin_fencing(self.cluster.image, (node.node_id, node.broker_epoch)).records)

    @precondition(lambda self: self.cluster.image.fencing)
    @rule(node_id=NODES)
    def fence(self, node_id: int) -> None:
        epoch = self.cluster.image.fencing.get(NodeId(node_id))
        if epoch is not None:
            stream = StreamId(NodeId(node_id), epoch)
            decision = complete_fencing(self.cluster.image, stream, end=self.lengths.get(stream, 0))
            assert decision.result
            self.cluster.commit(decision.records)
            assert complete_fencing(self.cluster.image, stream, end=0).records == ()

    def lives(self, stream: StreamId) -> bool:
        node = self.cluster.image.nodes.get(stream.node_id)
        return node is not None and node.broker_epoch == stream.broker_epoch

    @invariant()
    def moves_lead_to_living_brokers_unless_their_owner_is_being_fenced(self) -> None:
        image = self.cluster.image
        for tp, to in image.moving.items():
            meta = image.partition(tp)
            assert meta is not None
            assert living_broker(image, to) is not None or living_broker(image, meta.node_id) is None

    @rule(count=st.integers(1, 5))
    def allocate(self, count: int) -> None:
        decision = allocate_producer_ids(self.cluster.image, count)
        self.cluster.commit(decision.records)
        assert not self.given & set(decision.result)
        self.given |= set(decision.result)

    @precondition(lambda self: self.cluster.image.dropped or self.cluster.image.deleted)
    @rule()
    def collect(self) -> None:
        image = self.cluster.image
        self.cluster.commit(collected(image, streams=list(image.dropped), topics=list(image.deleted)).records)

    @invariant()
    def the_image_holds_all_invariants(self) -> None:
        check_image(self.cluster.image)

    @invariant()
    def what_was_written_and_is_not_covered_is_named(self) -> None:
        for tp, batches in self.written.items():
            meta = self.cluster.image.partition(tp)
            assert meta is not None
            for stream, epoch, number in batches:
                if (*stream, epoch) == (meta.node_id, meta.broker_epoch, meta.leader_epoch):
                    continue
                named = [r for r in meta.ranges if (r.node_id, r.broker_epoch) == stream and r.leader_epoch == epoch and number < r.end]
                assert named, f"{tp}: object {number} of {stream} is named by none of {meta.ranges}"
                assert stream in self.cluster.image.sealed or self.lives(stream)

    @invariant()
    def sealed_streams_are_named_and_named_ones_are_there(self) -> None:
        image = self.cluster.image
        assert set(image.sealed) <= set(image.range_counts)
        assert all(stream in image.sealed or self.lives(stream) for stream in image.range_counts)
        assert image.owned_counts == count_owners(image.topics)
        assert image.moving == find_moving(image.topics)
        assert image.range_counts == count_ranges(image.topics)

    def teardown(self) -> None:
        """The records, stored and read back, fold into the same image; a snapshot of it is the same image."""
        image = Image()
        for records in self.cluster.entries:
            image = apply(image, image.position + 1, decode_records(encode_records(records), what="entry"))
        assert image == self.cluster.image
        data = b"".join(encode_snapshot(image, entry_nonce=Nonce(bytes(16)), nonce=Nonce(bytes(16))))
        assert decode_snapshot(data, what="snapshot")[0] == image
        sealed = [(r.node_id, r.broker_epoch) for records in self.cluster.entries for r in records if isinstance(r, StreamSealed)]
        assert len(set(sealed)) == len(sealed), "a stream is sealed once"


Histories.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase
