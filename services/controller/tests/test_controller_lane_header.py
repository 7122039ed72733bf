"""Which header names the lane of a topic's records is said when the topic is made, and stays."""

from collections.abc import Mapping

import pytest
from controller_committed import Committed

from bmq.config.topic_config import LANE_HEADER
from bmq.errors import InvalidConfig
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic, TopicResult
from bmq_controller.machine.configs import alter_configs, replace_configs
from bmq_controller.machine.lanes import LaneWanted, create_lane

WITH = ConfigResource(kind="topic", name="with")
WITHOUT = ConfigResource(kind="topic", name="without")
HEADER = {LANE_HEADER: "x-lane"}
STAYS = rf"{LANE_HEADER}: .* is said when the topic is made.*: leave it as it is, or make the topic anew"


def two_topics() -> Committed:
    """`with` has it, and another configuration; `without` has neither."""
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name="with", configs={**HEADER, "retention.ms": "7"}), NewTopic(name="without"))
    return cluster


def configs(cluster: Committed, name: str = "with") -> Mapping[str, str]:
    topic = cluster.image.topic(name)
    assert topic is not None
    return topic.configs


def change(operation: str, value: str | None = None) -> ConfigChange:
    return ConfigChange(name=LANE_HEADER, operation=operation, value=value)


@pytest.mark.parametrize("text", ["x-lane", " baggage:lane ", "X-Lane"])
def test_it_is_taken_when_the_topic_is_made(text: str) -> None:
    cluster = Committed(brokers=1)
    [made] = cluster.create(NewTopic(name="with", configs={LANE_HEADER: text}))
    assert isinstance(made, TopicResult)
    assert configs(cluster) == {LANE_HEADER: text.strip()}


@pytest.mark.parametrize("text", ["x lane", "x-lane:dev", "baggage:"])
def test_a_topic_whose_records_could_not_have_it_is_not_made(text: str) -> None:
    cluster = Committed(brokers=1)
    [refused] = cluster.create(NewTopic(name="with", configs={LANE_HEADER: text}))
    assert isinstance(refused, InvalidConfig)
    assert LANE_HEADER in str(refused)
    assert not cluster.image.topics


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("resource", "changed"),
    [
        (WITH, change("set", "other")),
        (WITH, change("set", "X-LANE")),
        (WITH, change("set", "")),
        (WITH, change("delete")),
        (WITHOUT, change("set", "x-lane")),
    ],
)
def test_it_is_not_changed(resource: ConfigResource, changed: ConfigChange, *, validate_only: bool) -> None:
    cluster = two_topics()
    with pytest.raises(InvalidConfig, match=STAYS):
        alter_configs(cluster.image, resource, [changed], cluster={}, validate_only=validate_only)
    wanted = {LANE_HEADER: changed.value, "retention.ms": "9"}
    with pytest.raises(InvalidConfig, match=STAYS):
        replace_configs(cluster.image, resource, wanted, validate_only=validate_only)


@pytest.mark.parametrize("operation", ["append", "subtract"])
def test_nothing_is_added_to_it_or_taken_from_it(operation: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{LANE_HEADER}: {operation} is for lists"):
        alter_configs(two_topics().image, WITH, [change(operation, "x-lane")], cluster={})


@pytest.mark.parametrize(
    ("resource", "same"),
    [
        (WITH, change("set", "x-lane")),
        (WITH, change("set", " x-lane ")),
        (WITHOUT, change("set", "")),
        (WITHOUT, change("delete")),
    ],
)
def test_what_it_is_already_is_no_change(resource: ConfigResource, same: ConfigChange) -> None:
    cluster = two_topics()
    before = dict(configs(cluster, resource.name))
    assert alter_configs(cluster.image, resource, [same], cluster={}).records == ()
    assert replace_configs(cluster.image, resource, {**before, LANE_HEADER: same.value}).records == ()
    more = ConfigChange(name="segment.ms", operation="set", value="9")
    cluster.commit(alter_configs(cluster.image, resource, [same, more], cluster={}).records)
    assert configs(cluster, resource.name) == {**before, "segment.ms": "9"}


def test_alter_configs_that_do_not_name_it_leave_it_as_it_is() -> None:
    """As tools of older clients send them, which read what is there and send it back but for one value; and what is not
    named goes back to its default.
    """
    cluster = two_topics()
    cluster.commit(replace_configs(cluster.image, WITH, {"segment.ms": "9"}).records)
    assert configs(cluster) == {**HEADER, "segment.ms": "9"}
    cluster.commit(replace_configs(cluster.image, WITH, {}).records)
    assert configs(cluster) == HEADER


def test_a_lanes_topic_of_one_that_has_it_has_it_too_and_keeps_it() -> None:
    cluster = two_topics()
    cluster.commit(create_lane(cluster.image, 1, LaneWanted(name="dev")).records)
    cluster.create(NewTopic(name="with", lane="dev"), NewTopic(name="without", lane="dev"))
    assert configs(cluster, "dev:with") == {**HEADER, "retention.ms": "7"}
    assert configs(cluster, "dev:without") == {}
    own = ConfigResource(kind="topic", name="dev:with")
    with pytest.raises(InvalidConfig, match=STAYS):
        alter_configs(cluster.image, own, [change("delete")], cluster={})
    cluster.commit(replace_configs(cluster.image, own, {}).records)
    assert configs(cluster, "dev:with") == HEADER
