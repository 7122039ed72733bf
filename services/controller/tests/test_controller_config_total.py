"""What all configurations may have together: what is added beyond it is refused alone, and smaller values and deletions
always work.
"""

from dataclasses import replace

import pytest
from controller_committed import Committed

from bmq.errors import PolicyViolation, RequestError
from bmq.metadata.derived import measure_configs
from bmq.metadata.image import Image
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic
from bmq.wire.chosen_codes import code_for
from bmq.wire.error_codes import ErrorCode
from bmq_controller.api.problems import refusal_of
from bmq_controller.machine.configs import alter_configs, replace_configs
from bmq_controller.machine.lanes import LaneWanted, change_lane, create_lane, delete_lanes
from bmq_controller.machine.limits import Limits
from bmq_controller.machine.topics import delete_topics

LONG = "leader.replication.throttled.replicas"
OTHER = "follower.replication.throttled.replicas"
LIMITS = Limits(config_bytes=10_000)
CLUSTER = ConfigResource(kind="broker", name="")


def listed(size_bytes: int) -> str:
    return "x" * size_bytes


def topic(name: str) -> ConfigResource:
    return ConfigResource(kind="topic", name=name)


def set_to(cluster: Committed, name: str, key: str, value: str | None) -> None:
    change = ConfigChange(name=key, operation="set" if value is not None else "delete", value=value)
    cluster.commit(alter_configs(cluster.image, topic(name), [change], cluster={}, limits=cluster.limits).records)


def reads(*patterns: str, own_brokers: bool = False) -> LaneWanted:
    return LaneWanted(name="dev", own_brokers=own_brokers, reads_base=patterns, reads_base_bytes_per_s=4_096)


def filled(bytes_left: int = 10) -> Committed:
    """A cluster with so little left: topics `a`, `b` and `c` have all the rest."""
    cluster = Committed(limits=LIMITS)
    cluster.create(
        *(NewTopic(name=name, partitions=1, configs={LONG: listed(3_000)}) for name in "ab"),
        NewTopic(name="c", partitions=1),
    )
    left = LIMITS.config_bytes - cluster.image.config_bytes - bytes_left
    set_to(cluster, "c", LONG, listed(left - len(LONG)))
    assert cluster.image.config_bytes == LIMITS.config_bytes - bytes_left
    return cluster


def check_measured(image: Image) -> None:
    assert image.config_bytes == measure_configs(image.topics, image.configs, image.lanes)


def test_topics_that_bring_more_than_is_left_are_refused_alone() -> None:
    cluster = Committed(limits=LIMITS)
    large = {LONG: listed(4_000)}
    outcomes = cluster.create(
        *(NewTopic(name=name, partitions=1, configs=large) for name in ("a", "b", "c")),
        NewTopic(name="d", configs={"retention.ms": "5"}),
    )
    assert isinstance(outcomes[2], PolicyViolation)
    for words in ("10000", "12111", "config_bytes_max", "delete"):
        assert words in str(outcomes[2])
    assert set(cluster.image.topic_ids) == {"a", "b", "d"}
    assert isinstance(cluster.create(NewTopic(name="e", configs=large), validate_only=True)[0], PolicyViolation)
    cluster.commit(delete_topics(cluster.image, [cluster.image.topic_ids["a"]], cluster={}).records)
    [again] = cluster.create(NewTopic(name="c", partitions=1, configs=large))
    assert not isinstance(again, RequestError)
    check_measured(cluster.image)


def test_kafkas_clients_hear_of_a_policy_and_those_of_the_rest_api_of_the_request_alone_and_not_of_a_wrong_token() -> (
    None
):
    [refused] = filled().create(NewTopic(name="d", configs={LONG: listed(4_000)}))
    assert isinstance(refused, PolicyViolation)
    assert code_for(refused) == ErrorCode.policy_violation
    told = refusal_of(refused, "topic d")
    assert (told.status, told.code) == (400, "ConfigsFull")
    assert told.remedy.startswith("set shorter values, delete configurations or topics")


def test_topics_without_configurations_and_the_coordinators_own_are_made_though_nothing_is_left() -> None:
    cluster = filled(0)
    outcomes = cluster.create(NewTopic(name="plain"), NewTopic(name=CONSUMER_OFFSETS))
    assert [outcome for outcome in outcomes if isinstance(outcome, RequestError)] == []
    assert cluster.image.config_bytes > LIMITS.config_bytes
    check_measured(cluster.image)


def test_a_change_that_adds_more_than_is_left_is_refused_and_others_go_on() -> None:
    cluster = filled()
    with pytest.raises(PolicyViolation, match="config_bytes_max"):
        set_to(cluster, "a", OTHER, listed(100))
    with pytest.raises(PolicyViolation, match="config_bytes_max"):
        alter_configs(
            cluster.image,
            CLUSTER,
            [ConfigChange(name="log.retention.ms", operation="set", value="5")],
            cluster={},
            limits=LIMITS,
            validate_only=True,
        )
    with pytest.raises(PolicyViolation, match="config_bytes_max"):
        replace_configs(cluster.image, CLUSTER, {"log.retention.ms": "5"}, limits=LIMITS)
    set_to(cluster, "a", LONG, listed(3_010))
    set_to(cluster, "b", LONG, listed(2_000))
    set_to(cluster, "a", OTHER, listed(100))
    check_measured(cluster.image)


def test_smaller_values_and_deletions_always_work_even_above_the_total() -> None:
    cluster = filled()
    cluster.limits = replace(LIMITS, config_bytes=500)
    set_to(cluster, "a", LONG, listed(2_999))
    set_to(cluster, "a", LONG, "y" * 2_999)  # another value, as long
    cluster.commit(replace_configs(cluster.image, topic("b"), {OTHER: listed(10)}, limits=cluster.limits).records)
    set_to(cluster, "c", LONG, None)
    with pytest.raises(PolicyViolation):
        set_to(cluster, "a", LONG, listed(3_000))
    check_measured(cluster.image)


def test_what_is_counted_is_bytes_and_not_characters() -> None:
    cluster = Committed(limits=LIMITS)
    cluster.create(NewTopic(name="a", partitions=1))
    before = cluster.image.config_bytes
    set_to(cluster, "a", LONG, "ж" * 1_000)
    assert cluster.image.config_bytes - before == 2_000 + len(LONG)


def test_what_lanes_read_of_the_base_and_have_read_counts() -> None:
    cluster = filled()
    with pytest.raises(PolicyViolation, match="config_bytes_max"):
        create_lane(cluster.image, 1, reads("p" * 200), limits=LIMITS)
    set_to(cluster, "a", LONG, listed(2_000))
    cluster.commit(create_lane(cluster.image, 1, reads("p" * 200), limits=LIMITS).records)
    check_measured(cluster.image)
    cluster.commit(change_lane(cluster.image, 1, reads("q" * 200), limits=LIMITS).records)
    check_measured(cluster.image)
    with pytest.raises(PolicyViolation, match="config_bytes_max"):
        change_lane(cluster.image, 1, reads(*("r" * 150 + str(number) for number in range(9))), limits=LIMITS)
    cluster.commit(
        change_lane(cluster.image, 1, LaneWanted(name="dev"), limits=replace(LIMITS, config_bytes=1)).records
    )
    check_measured(cluster.image)
    cluster.commit(delete_lanes(cluster.image, ["dev"]).records)
    check_measured(cluster.image)


def test_a_lanes_topic_counts_what_it_takes_from_the_base() -> None:
    cluster = filled(2_000)
    cluster.commit(create_lane(cluster.image, 1, LaneWanted(name="dev"), limits=LIMITS).records)
    [refused] = cluster.create(NewTopic(name="a", lane="dev"))
    assert isinstance(refused, PolicyViolation)
    [made] = cluster.create(NewTopic(name="new", lane="dev"))
    assert not isinstance(made, RequestError)
    check_measured(cluster.image)


def test_the_pool_that_a_lanes_topics_get_counts() -> None:
    cluster = Committed(limits=LIMITS)
    cluster.commit(create_lane(cluster.image, 1, LaneWanted(name="dev"), limits=LIMITS).records)
    cluster.create(*(NewTopic(name=f"t{number}", lane="dev") for number in range(20)))
    with pytest.raises(PolicyViolation, match="config_bytes_max"):
        change_lane(
            cluster.image, 1, LaneWanted(name="dev", own_brokers=True), limits=replace(LIMITS, config_bytes=100)
        )
    cluster.commit(change_lane(cluster.image, 1, LaneWanted(name="dev", own_brokers=True), limits=LIMITS).records)
    check_measured(cluster.image)
    cluster.commit(
        change_lane(cluster.image, 1, LaneWanted(name="dev"), limits=replace(LIMITS, config_bytes=1)).records
    )
    check_measured(cluster.image)
