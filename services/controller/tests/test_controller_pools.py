"""Topics pinned to dedicated brokers: where their partitions go, stay and wait, decision by decision."""

from collections.abc import Mapping, ValuesView
from dataclasses import replace

import pytest
from controller_committed import Committed

from bmq.config.topic_config import POOL
from bmq.errors import InvalidConfig, InvalidRequest
from bmq.metadata.image import Topic
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic, TopicResult
from bmq.values import NodeId, TopicId
from bmq_controller.machine.balance import plan
from bmq_controller.machine.balance_input import cluster_load
from bmq_controller.machine.balance_model import BalanceSettings, MoveKind
from bmq_controller.machine.configs import alter_configs, replace_configs
from bmq_controller.machine.fencing import begin_fencing, complete_fencing
from bmq_controller.machine.moves import drained, move
from bmq_controller.machine.pools import Heirless, may_be_inherited
from bmq_controller.machine.topics import create_partitions

GOLD: Mapping[str, str] = {POOL: "gold"}
PINNED = ConfigResource(kind="topic", name="pinned")


def two_pools() -> Committed:
    """Brokers 1 and 2 are everybody's, 8 and 9 are of the pool gold."""
    cluster = Committed(brokers=2)
    cluster.register(8, pool="gold")
    cluster.register(9, pool="gold")
    return cluster


def pin(cluster: Committed, value: str | None) -> None:
    change = ConfigChange(name=POOL, operation="delete" if value is None else "set", value=value)
    cluster.commit(alter_configs(cluster.image, PINNED, [change], cluster={}).records)


def fence(cluster: Committed, node_id: int) -> None:
    who = (NodeId(node_id), cluster.image.nodes[NodeId(node_id)].broker_epoch)
    cluster.commit(begin_fencing(cluster.image, who).records)
    cluster.commit(complete_fencing(cluster.image, who, end=3).records)


def test_partitions_of_a_pinned_topic_are_made_on_its_brokers_alone() -> None:
    cluster = two_pools()
    cluster.create(NewTopic(name="pinned", partitions=4, configs=GOLD), NewTopic(name="other", partitions=4))
    assert (cluster.owners("pinned"), cluster.owners("other")) == ([8, 9, 8, 9], [1, 2, 1, 2])
    cluster.commit(create_partitions(cluster.image, "pinned", 6, limits=cluster.limits).records)
    assert cluster.owners("pinned") == [8, 9, 8, 9, 8, 9]


def test_heirs_are_of_the_pool_and_without_one_partitions_wait_for_one() -> None:
    cluster = two_pools()
    cluster.create(NewTopic(name="pinned", partitions=4, configs=GOLD), NewTopic(name="other", partitions=4))
    fence(cluster, 8)
    assert cluster.owners("pinned") == [9, 9, 9, 9]
    fence(cluster, 9)
    assert cluster.owners("pinned") == [-1, -1, -1, -1]
    cluster.register(3)
    assert cluster.owners("pinned") == [-1, -1, -1, -1], "a broker of another pool does not get them"
    cluster.register(9, boot=2, pool="gold")
    assert cluster.owners("pinned") == [9, 9, 9, 9]
    assert cluster.owners("other") == [1, 2, 1, 2]


def test_a_pool_is_named_only_where_it_has_a_broker() -> None:
    cluster = two_pools()
    [refused] = cluster.create(NewTopic(name="pinned", configs={POOL: "glod"}))
    assert isinstance(refused, InvalidConfig)
    assert "start one with pool glod, or name one of gold" in str(refused)
    [made] = cluster.create(NewTopic(name="pinned"))
    assert isinstance(made, TopicResult)
    with pytest.raises(InvalidConfig, match="no broker of this pool"):
        pin(cluster, "glod")
    with pytest.raises(InvalidConfig, match="letters, digits"):
        pin(cluster, "gold bars")
    with pytest.raises(InvalidConfig, match="leave it empty"):
        alone = Committed(brokers=1)
        alone.create(NewTopic(name="pinned"))
        pin(alone, "gold")


def test_a_topic_whose_pool_is_empty_for_the_moment_may_be_changed_otherwise() -> None:
    cluster = two_pools()
    cluster.create(NewTopic(name="pinned", configs=GOLD))
    for node_id in (8, 9):
        fence(cluster, node_id)
    cluster.commit(replace_configs(cluster.image, PINNED, {**GOLD, "retention.ms": "5"}).records)
    topic = cluster.image.topic("pinned")
    assert topic is not None
    assert topic.configs == {**GOLD, "retention.ms": "5"}


def test_a_changed_pin_moves_the_partitions_when_the_cluster_is_balanced() -> None:
    cluster = two_pools()
    cluster.create(NewTopic(name="pinned", partitions=4), NewTopic(name="other", partitions=4))
    pin(cluster, "gold")
    planned = plan(cluster_load(cluster.image, {}), BalanceSettings())
    pins = [one for one in planned.moves if one.kind is MoveKind.PIN]
    assert {one.topic for one in pins} == {"pinned"}
    assert sorted(one.target for one in pins) == [8, 8, 9, 9]
    assert "belongs on the brokers of gold, and broker 1 is one of the brokers that are everybody's" in pins[0].reason
    for one in pins:
        cluster.commit(move(cluster.image, one.tp, one.target).records)
    pin(cluster, None)
    back = plan(cluster_load(cluster.image, {}), BalanceSettings())
    assert all(one.kind is not MoveKind.PIN for one in back.moves), "what is under way is left alone"


def test_a_move_out_of_the_pool_is_refused_with_those_that_are_possible() -> None:
    cluster = two_pools()
    cluster.create(NewTopic(name="pinned", configs=GOLD), NewTopic(name="other"))
    with pytest.raises(
        InvalidRequest, match=r"belongs on the brokers of gold.*name one of 8, 9, or change the topic's bmq\.pool"
    ):
        move(cluster.image, cluster.tp("pinned"), NodeId(1))
    with pytest.raises(InvalidRequest, match="name one of 1, 2"):
        move(cluster.image, cluster.tp("other"), NodeId(9))
    assert move(cluster.image, cluster.tp("pinned"), NodeId(9)).records


def test_what_a_silent_broker_owns_may_be_inherited_within_the_pools_of_its_topics() -> None:
    cluster = two_pools()
    cluster.create(NewTopic(name="pinned", partitions=4, configs=GOLD), NewTopic(name="other", partitions=2))
    gold = NodeId(8)
    assert may_be_inherited(cluster.image, gold, {"gold"})
    assert not may_be_inherited(cluster.image, gold, {""}), "nobody would gain"
    assert not may_be_inherited(cluster.image, gold, set())
    cluster.register(8, boot=2, end=4)
    assert may_be_inherited(cluster.image, gold, {"gold"}), "it changed its pool and has yet to lose what it owns"
    cluster.register(7, pool="silver")
    assert may_be_inherited(cluster.image, NodeId(7), {"gold"}), "it owns nothing, and may go"


class Looked(dict[TopicId, Topic]):
    """Topics that count how often somebody looks at all of them."""

    times = 0

    def values(self) -> ValuesView[Topic]:
        self.times += 1
        return super().values()


def test_whether_a_silent_broker_may_be_inherited_is_looked_for_again_only_when_topics_or_heirs_change() -> None:
    cluster = two_pools()
    cluster.create(NewTopic(name="pinned", partitions=4, configs=GOLD))
    topics = Looked(cluster.image.topics)
    image = replace(cluster.image, topics=topics)
    gold = [(NodeId(8), image.nodes[NodeId(8)].broker_epoch), (NodeId(9), image.nodes[NodeId(9)].broker_epoch)]
    heirless = Heirless()
    for position in range(5):
        assert heirless.among(replace(image, position=position), gold, frozenset({""})) == set(gold)
    assert topics.times == 2, "once for each"
    assert heirless.among(image, gold, frozenset({"", "silver"})) == set(gold)
    assert topics.times == 4
    assert heirless.among(image, gold[:1], frozenset({"", "gold"})) == set()
    own = {topic_id: replace(topic, configs={}) for topic_id, topic in topics.items()}
    assert heirless.among(image, gold, frozenset({""})) == set(gold)
    assert heirless.among(replace(image, topics=own), gold, frozenset({""})) == set(), (
        "their topics are no longer pinned"
    )


def test_a_drained_broker_empties_into_its_pool() -> None:
    cluster = two_pools()
    cluster.create(NewTopic(name="pinned", partitions=4, configs=GOLD))
    assert {one.to_node_id for one in drained(cluster.image, NodeId(8))} == {9}
    fence(cluster, 9)
    assert drained(cluster.image, NodeId(8)) == [], "there is nowhere else"


def test_a_broker_that_changes_its_pool_loses_its_partitions_by_moves() -> None:
    cluster = two_pools()
    cluster.create(NewTopic(name="pinned", partitions=2, configs=GOLD), NewTopic(name="other", partitions=2))
    cluster.register(8, boot=2, end=4)
    assert cluster.owners("pinned") == [8, 9], "better there than without an owner"
    [one] = [one for one in plan(cluster_load(cluster.image, {}), BalanceSettings()).moves if one.kind is MoveKind.PIN]
    assert (one.source, one.target) == (8, 9)
