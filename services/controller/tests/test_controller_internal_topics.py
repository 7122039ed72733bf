"""What coordinators keep in their topics cannot be made to expire, by any way to a topic's configuration."""

from collections.abc import Callable

import pytest
from controller_committed import Committed

from bmq.config.topic_config import PINNED, describe_topic, pinned, resolve
from bmq.errors import InvalidConfig
from bmq.metadata.image import Topic
from bmq.metadata.records import ConfigsChanged
from bmq.naming.names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic
from bmq_controller.machine.configs import alter_configs, replace_configs

Change = Callable[[Committed], None]


def topic_of(cluster: Committed, name: str = CONSUMER_OFFSETS) -> Topic:
    topic = cluster.image.topic(name)
    assert topic is not None
    return topic


def altered(*changes: tuple[str, str, str | None]) -> Change:
    def change(cluster: Committed) -> None:
        wanted = [ConfigChange(name=name, operation=operation, value=value) for name, operation, value in changes]
        cluster.commit(
            alter_configs(
                cluster.image, ConfigResource(kind="topic", name=CONSUMER_OFFSETS), wanted, cluster={}
            ).records
        )

    return change


def replaced(**configs: str) -> Change:
    given = {name.replace("_", "."): value for name, value in configs.items()}
    return lambda cluster: cluster.commit(
        replace_configs(cluster.image, ConfigResource(kind="topic", name=CONSUMER_OFFSETS), given).records
    )


REFUSED: dict[str, Change] = {
    "deleted": altered(("cleanup.policy", "delete", None)),
    "set": altered(("cleanup.policy", "set", "delete"), ("retention.ms", "set", "1")),
    "set beside": altered(("cleanup.policy", "set", "compact,delete")),
    "appended": altered(("cleanup.policy", "append", "delete")),
    "subtracted": altered(("cleanup.policy", "subtract", "compact")),
    "replaced": replaced(cleanup_policy="delete"),
    "replaced with another order": replaced(cleanup_policy="delete,compact"),
    "compression": altered(("compression.type", "delete", None)),
}
ACCEPTED: dict[str, Change] = {
    "another key": altered(("segment.ms", "set", "3600000")),
    "replaced without it": replaced(segment_ms="3600000"),
    "replaced with nothing": replaced(),
    "retention": altered(("retention.ms", "set", "1")),
    "as it is": altered(("cleanup.policy", "set", "compact")),
}


@pytest.mark.parametrize("way", REFUSED)
def test_the_policy_of_an_internal_topic_cannot_be_changed(way: str) -> None:
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name=CONSUMER_OFFSETS, partitions=1))
    with pytest.raises(InvalidConfig, match="coordinators' own topics keep"):
        REFUSED[way](cluster)


@pytest.mark.parametrize("way", ACCEPTED)
def test_other_keys_of_an_internal_topic_change_and_its_policy_stays(way: str) -> None:
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name=CONSUMER_OFFSETS, partitions=1))
    ACCEPTED[way](cluster)
    config = resolve(topic_of(cluster).configs)
    assert (config.delete, config.compact) == (False, True)
    assert {**topic_of(cluster).configs, **PINNED} == topic_of(cluster).configs


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize("configs", [{}, {"cleanup.policy": "compact"}, {"retention.ms": "1"}])
def test_an_internal_topic_that_a_client_creates_has_what_bmq_would_give_it(
    name: str, configs: dict[str, str | None]
) -> None:
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name=name, partitions=1, configs=configs))
    assert topic_of(cluster, name).configs == {**configs, **PINNED}


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact"])
def test_an_internal_topic_is_not_created_with_another_policy(policy: str) -> None:
    cluster = Committed(brokers=1)
    [refused] = cluster.create(NewTopic(name=CONSUMER_OFFSETS, partitions=1, configs={"cleanup.policy": policy}))
    assert isinstance(refused, InvalidConfig)


def test_what_an_older_version_stored_counts_for_nothing_and_is_shown_as_what_holds() -> None:
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name=CONSUMER_OFFSETS, partitions=1))
    changes: dict[str, str | None] = {"cleanup.policy": "delete", "retention.ms": "1"}
    cluster.commit((ConfigsChanged(kind="topic", name=str(topic_of(cluster).topic_id), changes=changes),))
    topic = topic_of(cluster)
    assert topic.configs["cleanup.policy"] == "delete"
    shown = {row.name: row.value for row in describe_topic(pinned(topic.name, topic.configs))}
    assert shown["cleanup.policy"] == "compact"
    assert not resolve(pinned(topic.name, topic.configs)).delete
    altered(("cleanup.policy", "set", "compact"))(cluster)
    assert topic_of(cluster).configs["cleanup.policy"] == "compact"


def test_other_topics_have_nothing_pinned() -> None:
    assert pinned("orders", {"cleanup.policy": "delete"}) == {"cleanup.policy": "delete"}
