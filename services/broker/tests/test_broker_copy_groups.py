"""What groups commit over a copy of a store outlives the coordinator, whatever was committed while the copy was
made.
"""

import asyncio
from collections.abc import Iterable
from random import Random

import pytest
from broker_under_test import Cluster
from test_coordinator_log_life import FEW, commit, fetched, started

from bmq.metadata.image import Image
from bmq.values import TopicId
from bmq_audit.reading import Progress, Reader
from bmq_backup.copying import COORDINATOR_ROUNDS_MAX, Copier
from bmq_sim.clock import SimRng
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore


@pytest.mark.parametrize("times", [1, 3, COORDINATOR_ROUNDS_MAX + 1])
@on_virtual_time
async def test_a_commit_over_a_copy_is_not_lost_though_snapshots_were_taken_while_it_was_made(times: int) -> None:
    cluster, tp = await started(groups=FEW, tail_budget_bytes=200_000, tail_limit_bytes=800_000)
    assert await commit(cluster, 1) == 0

    class Late(Copier):
        """Groups commit behind the WAL, and before the manifests, until a snapshot is named."""

        happened = 0

        async def _topics(self, image: Image, topics: Iterable[TopicId]) -> bool:
            if self.happened < times:
                self.happened += 1
                for offset in range(10 * self.happened, 10 * self.happened + 10):
                    assert await commit(cluster, offset) == 0
                await asyncio.sleep(1)
                manifest = (await cluster.broker._ownership.open(tp)).manifest
                assert manifest.coordinator_snapshot is not None
                assert manifest.coordinator_snapshot.offset > manifest.next_offset
            return await super()._topics(image, topics)

    copy = SimStore()
    reader = Reader(cluster.store.for_node("copier"), rng=SimRng(Random(1)), at_once=3, progress=Progress())
    done = await Late(reader, copy.for_node("copier"), rng=SimRng(Random(1))).run()
    assert done.passes == 1, "however much groups commit"
    await cluster.kill()
    restored = Cluster(copy, groups=FEW, seed=9)
    await restored.start()
    assert (await fetched(restored))[0] == 0
    named = restored.broker.partitions[tp].manifest.coordinator_snapshot
    assert (0 if named is None else named.offset) <= restored.broker.partitions[tp].high_watermark
    for offset in (1_000, 1_001):
        assert await commit(restored, offset) == 0
    await restored.kill()
    await restored.start("again")
    assert await fetched(restored) == (0, 1_001)
    await restored.kill()
