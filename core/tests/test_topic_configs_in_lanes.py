"""What topics of a lane come to whose lane may keep so much alone."""

from uuid import UUID

import pytest

from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import NO_QUOTA, ConfigsChanged, LaneDeclared, LaneQuota, TopicCreated
from bmq.metadata.topic_configs import TopicConfigs
from bmq.values import TopicId

MIB = 1 << 20
QUOTA = LaneQuota(partitions=4, storage_bytes=16 * MIB)
HALF = 2 * MIB
"""Of what one partition keeps."""


def declared(quota: LaneQuota) -> LaneDeclared:
    return LaneDeclared(name="dev", number=1, created_ms=0, quota=quota)


def image_with(quota: LaneQuota, **configs: str) -> Image:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    made = [
        TopicCreated(topic_id=UUID(int=number), name=name, partitions=1, leader_epoch=0, configs=named)
        for number, name in ((1, "orders"), (2, "dev:orders"))
    ]
    return apply(Image(), 1, [declared(quota), *made])


def kept(configs: TopicConfigs, image: Image, number: int) -> tuple[int, int]:
    config = configs.of(image, TopicId(UUID(int=number)))
    return config.retention_bytes, config.segment_bytes


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, (HALF, HALF)),
        ({"retention_bytes": "-1"}, (HALF, HALF)),
        ({"retention_bytes": str(10 * MIB), "segment_bytes": str(3 * MIB)}, (HALF, HALF)),
        ({"retention_bytes": "7", "segment_bytes": str(MIB)}, (7, MIB)),
    ],
)
def test_a_partition_keeps_its_part_of_the_lanes_storage_whatever_its_topic_says(
    asked: dict[str, str], wanted: tuple[int, int]
) -> None:
    image, configs = image_with(QUOTA, **asked), TopicConfigs({})
    assert kept(configs, image, 2) == wanted
    base = image_with(NO_QUOTA, **asked)
    assert kept(configs, image, 1) == kept(TopicConfigs({}), base, 1) == kept(TopicConfigs({}), base, 2)


def test_a_default_of_the_cluster_that_is_less_holds() -> None:
    assert kept(TopicConfigs({"log.retention.bytes": "9", "log.segment.bytes": str(MIB)}), image_with(QUOTA), 2) == (
        9,
        MIB,
    )


def test_topics_follow_a_quota_that_changes() -> None:
    configs, image = TopicConfigs({}), image_with(QUOTA)
    assert kept(configs, image, 2) == (HALF, HALF)
    for quota, wanted in ((LaneQuota(partitions=8, storage_bytes=16 * MIB), HALF // 2), (NO_QUOTA, -1)):
        before, image = image, apply(image, image.position + 1, [declared(quota)])
        assert configs.image_changed(before, image)
        assert kept(configs, image, 2)[0] == wanted


def test_other_changes_have_nothing_worked_out_anew() -> None:
    image, configs = image_with(QUOTA), TopicConfigs({})
    others = [declared(LaneQuota(partitions=4, storage_bytes=16 * MIB, write_bytes_per_s=5_000))]
    assert not configs.image_changed(image, apply(image, 2, others))
    assert not configs.image_changed(
        image, apply(image, 2, [LaneDeclared(name="more", number=2, created_ms=0, quota=QUOTA)])
    )
    assert configs.image_changed(image, apply(image, 2, [ConfigsChanged(kind="broker", name="", changes={"a": "b"})]))
