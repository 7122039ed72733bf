"""Manual assignments: the first broker that may own a partition gets it, proxies leave the choice to bmq, and Kafka's
refusals are bmq's.
"""

import pytest
from controller_committed import Committed

from bmq.errors import InvalidPartitions, InvalidReplicaAssignment, InvalidRequest
from bmq.metadata.records import NodeCordoned
from bmq.roles.controller import NewTopic
from bmq.values import NodeId
from bmq_controller.machine.topics import create_partitions


def assigned(*node_ids: list[int], name: str = "a", pool: str = "") -> NewTopic:
    return NewTopic(
        name=name, manual_assignment=True, assignments=list(node_ids), configs={"bmq.pool": pool} if pool else {}
    )


def cluster_with_proxies() -> Committed:
    """Brokers 1 to 3, of which 3 is in a pool, and the proxies 10 and 11; 4 has every role, 5 is a controller."""
    cluster = Committed(brokers=2)
    cluster.register(3, pool="own")
    cluster.register(4, roles=("controller", "broker", "proxy"))
    cluster.register(5, roles=("controller",))
    cluster.register(10, roles=("proxy",))
    cluster.register(11, roles=("proxy",))
    return cluster


def test_the_first_broker_of_each_list_owns_the_partition() -> None:
    cluster = cluster_with_proxies()
    [made] = cluster.create(assigned([2], [2], [1], [4], [2]))
    assert (getattr(made, "partitions", 0), getattr(made, "replication_factor", 0)) == (5, 1)
    assert cluster.owners("a") == [2, 2, 1, 4, 2]
    cluster.create(assigned([10, 2], [2, 1], [1, 2], name="b"))
    assert cluster.owners("b") == [2, 2, 1]


def test_of_the_brokers_that_are_named_the_first_that_takes_partitions_is_chosen() -> None:
    cluster = cluster_with_proxies()
    cluster.commit((NodeCordoned(node_id=NodeId(1), cordoned=True),))
    cluster.create(assigned([1, 2], [3, 2], [4, 1]), assigned([1, 3], name="pinned", pool="own"))
    assert cluster.owners("a") == [2, 2, 4]
    assert cluster.owners("pinned") == [3]


def test_where_only_proxies_are_named_partitions_are_spread() -> None:
    cluster = cluster_with_proxies()
    cluster.create(assigned([10], [11], [10]))
    assert sorted(cluster.owners("a")) == [1, 2, 4]


def test_one_process_with_every_role_owns_what_is_assigned_to_it() -> None:
    cluster = Committed()
    cluster.register(1, roles=("controller", "broker", "proxy"))
    cluster.create(assigned([1], [1]))
    assert cluster.owners("a") == [1, 1]


@pytest.mark.parametrize(
    ("topic", "error", "said"),
    [
        (assigned([9]), InvalidReplicaAssignment, "not registered: name one of 1, 2, 3, 4, 10, 11"),
        (assigned([-1]), InvalidReplicaAssignment, "not registered"),
        (assigned([5]), InvalidReplicaAssignment, "not registered"),
        (assigned([1, 1]), InvalidReplicaAssignment, "twice"),
        (assigned([1], []), InvalidReplicaAssignment, "names no broker"),
        (assigned([1], [1, 2]), InvalidReplicaAssignment, "as many for each"),
        (assigned([3]), InvalidReplicaAssignment, "takes partitions of this topic"),
        (assigned(), InvalidPartitions, "0 partitions"),
        (
            NewTopic(name="a", partitions=1, manual_assignment=True, assignments=[[1]]),
            InvalidRequest,
            "leave the number of partitions",
        ),
        (
            NewTopic(name="a", replication_factor=1, manual_assignment=True, assignments=[[1]]),
            InvalidRequest,
            "replication factor",
        ),
        (NewTopic(name="a", manual_assignment=True), InvalidReplicaAssignment, "earlier version"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(topic: NewTopic, error: type[Exception], said: str) -> None:
    cluster = cluster_with_proxies()
    for validate_only in (True, False):
        refused, _ = cluster.create(topic, NewTopic(name="good"), validate_only=validate_only)
        assert isinstance(refused, error)
        assert said in str(refused)
    assert set(cluster.image.topic_ids) == {"good"}


def test_added_partitions_go_where_they_are_assigned() -> None:
    cluster = cluster_with_proxies()
    cluster.create(assigned([1]))
    cluster.commit(
        create_partitions(cluster.image, "a", 4, limits=cluster.limits, assignments=[[2], [2], [10]]).records
    )
    assert cluster.owners("a")[:3] == [1, 2, 2]
    assert cluster.owners("a")[3] == 4
    for assignments in ([], [[1], [1]], [[7]], [[1, 1]], [[3]]):
        with pytest.raises(InvalidReplicaAssignment):
            create_partitions(cluster.image, "a", 5, limits=cluster.limits, assignments=assignments, validate_only=True)
