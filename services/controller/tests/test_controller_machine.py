"""The controller's decisions, case by case. Random histories of them: test_controller_histories."""

from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

import pytest
from controller_committed import Committed

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
from bmq.metadata.records import ConfigsChanged, Range, TopicCreated
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic, Registration
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicId, TopicPartition
from bmq_controller.machine.configs import alter_configs, replace_configs
from bmq_controller.machine.limits import Limits
from bmq_controller.machine.nodes import collected, register, report_covered, report_stopped, stream_to_seal
from bmq_controller.machine.producer_ids import allocate_producer_ids
from bmq_controller.machine.topics import create_partitions, delete_topics


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
    outcomes = cluster.create(
        NewTopic(name="a", partitions=8), NewTopic(name="b", partitions=5), NewTopic(name="c", partitions=4)
    )
    assert isinstance(outcomes[1], InvalidPartitions)
    assert set(cluster.image.topic_ids) == {"a", "c"}
    with pytest.raises(InvalidPartitions):
        create_partitions(cluster.image, "a", 9, limits=cluster.limits)


def test_internal_topics_may_be_compacted_and_neither_grow_nor_go() -> None:
    cluster = Committed(brokers=1)
    [made] = cluster.create(NewTopic(name="__consumer_offsets", configs={"cleanup.policy": "compact"}))
    assert getattr(made, "partitions", 0) == 16
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
    assert create_partitions(cluster.image, "a", 4, limits=cluster.limits, validate_only=True).records == ()
    cluster.commit(create_partitions(cluster.image, "a", 6, limits=cluster.limits).records)
    assert sorted(cluster.owners("a")) == [1, 1, 1, 2, 2, 2]


TOPIC = ConfigResource(kind="topic", name="a")
CLUSTER = ConfigResource(kind="broker", name="")


def change(name: str, operation: str, value: str | None = None) -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value)


SHORTEST, LONGEST = "group.min.session.timeout.ms", "group.max.session.timeout.ms"


def test_session_timeouts_that_leave_none_are_refused_whatever_the_change_and_one_change_may_set_both() -> None:
    cluster = Committed()

    def altered(*changes: ConfigChange, static: Mapping[str, str] = MappingProxyType({})) -> None:
        cluster.commit(alter_configs(cluster.image, CLUSTER, changes, cluster={}, static=static).records)

    altered(change(LONGEST, "set", "5000"), change(SHORTEST, "set", "5000"))
    for refused in (change(LONGEST, "set", "4999"), change(SHORTEST, "set", "5001"), change(SHORTEST, "delete")):
        with pytest.raises(InvalidConfig, match=f"{LONGEST}=.* is below {SHORTEST}=.*: set {LONGEST} to no less"):
            altered(refused)
    altered(change(SHORTEST, "delete"), static={SHORTEST: "100"})
    for configs in ({LONGEST: "99"}, {SHORTEST: "1800001"}):
        with pytest.raises(InvalidConfig, match=f"{LONGEST}=.* is below {SHORTEST}=.*: set {LONGEST} to no less"):
            replace_configs(cluster.image, CLUSTER, configs, static={SHORTEST: "100"}, validate_only=True)
    cluster.commit(replace_configs(cluster.image, CLUSTER, {LONGEST: "100"}, static={SHORTEST: "100"}).records)
    cluster.commit(replace_configs(cluster.image, CLUSTER, {}).records)


def test_where_session_timeouts_that_leave_none_are_stored_other_keys_and_what_mends_them_may_be_set() -> None:
    cluster = Committed()
    stored = {LONGEST: "5", SHORTEST: "7"}
    cluster.commit((ConfigsChanged(kind="broker", name="", changes=stored),))
    for changes in ([change("num.partitions", "set", "4")], [change(LONGEST, "set", "7")]):
        cluster.commit(alter_configs(cluster.image, CLUSTER, changes, cluster=stored).records)
    assert cluster.image.configs["broker", ""] == {LONGEST: "7", SHORTEST: "7", "num.partitions": "4"}


PADDED = "5" + " " * 100


def test_blanks_around_a_value_are_not_kept() -> None:
    cluster = Committed()
    cluster.create(NewTopic(name="a", configs={"retention.ms": PADDED}))
    topic = cluster.image.topic("a")
    assert topic is not None
    assert topic.configs == {"retention.ms": "5"}
    for decided in (
        alter_configs(cluster.image, TOPIC, [change("segment.ms", "set", PADDED)], cluster={}),
        replace_configs(cluster.image, TOPIC, {"retention.ms": PADDED, "segment.ms": PADDED}),
    ):
        [record] = decided.records
        assert isinstance(record, ConfigsChanged)
        assert record.changes == {"segment.ms": "5"}
    [record] = replace_configs(cluster.image, CLUSTER, {"num.partitions": PADDED}).records
    assert isinstance(record, ConfigsChanged)
    assert record.changes == {"num.partitions": "5"}


@pytest.mark.parametrize(("resource", "name"), [(TOPIC, "retention.ms"), (CLUSTER, "num.partitions")])
def test_a_value_is_measured_with_its_blanks(resource: ConfigResource, name: str) -> None:
    cluster = Committed()
    cluster.create(NewTopic(name="a"))
    with pytest.raises(InvalidConfig, match="bytes"):
        alter_configs(cluster.image, resource, [change(name, "set", "5" + " " * 4_096)], cluster={})


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
    assert alter_configs(cluster.image, TOPIC, [change("retention.ms", "set", "8")], cluster={}).records == (), (
        "nothing changes"
    )
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
        (TOPIC, [change("leader.replication.throttled.replicas", "append", "0:1," * 1_025)], InvalidConfig),
        (TOPIC, [change("leader.replication.throttled.replicas", "subtract", "0:1," * 1_025)], InvalidConfig),
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
def test_a_change_of_configuration_that_cannot_be_is_refused(
    resource: ConfigResource, changes: list[ConfigChange], error: type[Exception]
) -> None:
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
