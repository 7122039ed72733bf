"""How much a lane may take: partitions, and what they keep."""

import pytest
from controller_committed import Committed

from bmq.errors import InvalidRequest, LaneFull
from bmq.metadata.derived import count_lane_partitions
from bmq.metadata.records import NO_QUOTA, LaneQuota
from bmq.roles.controller import NewTopic, TopicResult
from bmq_controller.machine.lanes import LaneWanted, change_lane, create_lane, delete_lanes
from bmq_controller.machine.topics import create_partitions, delete_topics

MIB = 1 << 20
PART = MIB // 4
"""What one partition of a lane with QUOTA keeps."""
QUOTA = LaneQuota(partitions=4, storage_bytes=MIB)


def with_quota(quota: LaneQuota, *, brokers: int = 1) -> Committed:
    """A cluster with a lane `dev`."""
    cluster = Committed(brokers=brokers)
    cluster.commit(create_lane(cluster.image, 1, LaneWanted(name="dev", quota=quota)).records)
    return cluster


def change(cluster: Committed, quota: LaneQuota) -> None:
    cluster.commit(change_lane(cluster.image, 1, LaneWanted(name="dev", quota=quota)).records)


def kept(cluster: Committed, name: str) -> str | None:
    topic = cluster.image.topic(name)
    assert topic is not None
    return topic.configs.get("retention.bytes")


def in_lane(name: str, partitions: int = 1, **configs: str) -> NewTopic:
    return NewTopic(
        name=name,
        lane="dev",
        partitions=partitions,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


def test_a_lane_takes_as_many_partitions_as_its_quota_says_however_they_come() -> None:
    cluster = with_quota(LaneQuota(partitions=4))
    cluster.create(NewTopic(name="orders", partitions=9))
    cluster.commit(create_lane(cluster.image, 1, LaneWanted(name="other")).records)
    cluster.create(NewTopic(name="orders", lane="other"))
    one, two, three = cluster.create(in_lane("a", 3), in_lane("b", 2), in_lane("c"))
    assert isinstance(one, TopicResult)
    assert isinstance(two, LaneFull)
    assert "'dev' has 0 partitions and would have 5; its quota is 4" in str(two)
    assert isinstance(three, TopicResult)
    [more] = cluster.create(in_lane("d"))
    assert isinstance(more, LaneFull)
    with pytest.raises(LaneFull, match="has 4 partitions and would have 5"):
        create_partitions(cluster.image, "dev:a", 4, limits=cluster.limits)
    create_partitions(cluster.image, "orders", 12, limits=cluster.limits)
    c = cluster.image.topic_ids["dev:c"]
    cluster.commit(delete_topics(cluster.image, [c], cluster={}).records)
    cluster.commit(create_partitions(cluster.image, "dev:a", 4, limits=cluster.limits).records)
    assert cluster.image.lane_partitions == {"dev": 4, "other": 9}
    with pytest.raises(InvalidRequest, match=r"quota.partitions = 3: the lane has 4 partitions"):
        change(cluster, LaneQuota(partitions=3))
    change(cluster, LaneQuota(partitions=5))
    assert isinstance(cluster.create(in_lane("d"))[0], TopicResult)
    cluster.commit(delete_lanes(cluster.image, ["dev"]).records)
    assert cluster.image.lane_partitions == {"other": 9}


def test_the_partitions_of_lanes_are_counted_alike_by_the_fold_and_from_scratch() -> None:
    cluster = with_quota(NO_QUOTA, brokers=2)
    cluster.create(NewTopic(name="orders", partitions=3), in_lane("orders", 3), in_lane("b", 2))
    cluster.commit(create_partitions(cluster.image, "dev:b", 7, limits=cluster.limits).records)
    assert cluster.image.lane_partitions == count_lane_partitions(cluster.image.topics) == {"dev": 10}


@pytest.mark.parametrize(
    ("quota", "says"),
    [
        (LaneQuota(write_bytes_per_s=1_023), r"quota.write_bytes_per_second = 1023: set 0"),
        (LaneQuota(read_bytes_per_s=-1), r"quota.read_bytes_per_second = -1: set 0"),
        (LaneQuota(read_bytes_per_s=1 << 41), "set 0"),
        (LaneQuota(partitions=-1), r"quota.partitions = -1"),
        (LaneQuota(partitions=1_000_001), r"quota.partitions"),
        (LaneQuota(storage_bytes=MIB), r"storage_bytes = 1048576, and no quota.partitions"),
        (LaneQuota(storage_bytes=10 * MIB, partitions=11), r"953250 for each partition"),
        (LaneQuota(storage_bytes=1, partitions=1), r"quota.storage_bytes = 1: set"),
        (LaneQuota(storage_bytes=1 << 61, partitions=1), r"quota.storage_bytes"),
    ],
)
def test_a_quota_that_cannot_be_is_refused_by_name(quota: LaneQuota, says: str) -> None:
    cluster = Committed(brokers=1)
    with pytest.raises(InvalidRequest, match=says):
        create_lane(cluster.image, 1, LaneWanted(name="dev", quota=quota))
