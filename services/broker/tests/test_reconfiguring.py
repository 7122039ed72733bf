"""Changed defaults of the cluster, for a broker that has very many partitions open."""

import asyncio
from typing import cast
from uuid import UUID

from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import AnyRecord, ConfigsChanged, TopicCreated
from bmq.metadata.topic_configs import TopicConfigs
from bmq.values import TopicId, TopicPartition
from bmq_broker.ownership.reconfiguring import AT_ONCE, Reconfiguring
from bmq_broker.partitions.partition import Partition

TOPICS = 5 * AT_ONCE


class Open:
    """An open partition, as far as it is looked at here."""

    def __init__(self) -> None:
        self.config: object = None


def made() -> Image:
    records: list[AnyRecord] = [
        TopicCreated(topic_id=UUID(int=number), name=f"t{number}", partitions=1, leader_epoch=0)
        for number in range(TOPICS)
    ]
    return apply(Image(), 1, [*records, default(7)])


def default(retention_ms: int) -> ConfigsChanged:
    return ConfigsChanged(kind="broker", name="", changes={"log.retention.ms": str(retention_ms)})


def test_changed_defaults_are_taken_up_some_in_each_turn_and_the_newest_in_the_end() -> None:
    async def main() -> None:
        image = made()
        partitions = {TopicPartition(TopicId(UUID(int=number)), 0): Open() for number in range(TOPICS)}
        configs = TopicConfigs({})
        reconfiguring = Reconfiguring(configs, cast(dict[TopicPartition, Partition], partitions), image=lambda: image)

        def changed() -> int:
            return sum(getattr(one.config, "retention_ms", None) == 7 for one in partitions.values())

        reconfiguring.begin()
        assert changed() == AT_ONCE
        await asyncio.sleep(0)
        assert AT_ONCE < changed() <= 2 * AT_ONCE
        before, image = image, apply(image, 2, [default(8)])
        assert configs.image_changed(before, image)
        del partitions[TopicPartition(TopicId(UUID(int=TOPICS - 1)), 0)]
        reconfiguring.begin()
        for _ in range(2 * TOPICS // AT_ONCE):
            await asyncio.sleep(0)
        assert {getattr(one.config, "retention_ms", None) for one in partitions.values()} == {8}
        reconfiguring.begin()
        reconfiguring.end()

    asyncio.run(main())
