"""A copy that ends while its metadata is written is no store, and goes on when it is made again, though the store has
gone on meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from audit_world import CLUSTER, ORDERS, MemoryStore, World, copied, full_world
from scripted_store import run
from typing_extensions import Buffer

from bmq.metadata.codec import LOG_PREFIX, SNAPSHOT_PREFIX
from bmq.metadata.records import ConfigsChanged
from bmq.storage.numbered import number_of, numbered_key
from bmq_audit.findings import Report
from bmq_audit.metadata import NoMetadata, audit_metadata
from bmq_audit.reading import Progress, Reader
from bmq_backup.copied import Copied, NotCopied
from bmq_backup.copying import Copier


class Killed(BaseException):
    """The end of the process."""


@dataclass(slots=True)
class Ending(MemoryStore):
    """The process ends at a write of metadata, or a deletion, once it did so many."""

    left: int = 0

    def _one(self, key: str) -> None:
        if key.startswith("meta/"):
            if not self.left:
                raise Killed
            self.left -= 1

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        self._one(key)
        await MemoryStore.create(self, key, parts)

    async def delete(self, key: str) -> None:
        self._one(key)
        await MemoryStore.delete(self, key)


def copy(world: World, target: MemoryStore) -> Copied:
    async def copying() -> Copied:
        return await Copier(
            Reader(world.store, rng=world.rng, at_once=1, progress=Progress()), target, rng=world.rng
        ).run()

    return run(copying())


def goes_on(world: World) -> None:
    """Something is changed, so that the metadata log of the store is longer."""
    world.commit(
        ConfigsChanged(kind="topic", name=str(ORDERS), changes={"retention.ms": str(len(world.objects))}), epoch=2
    )


def of_metadata(objects: dict[str, bytes]) -> list[str]:
    return [key for key in objects if key.startswith("meta/")]


def old_world(*, trimmed: bool) -> World:
    """`trimmed`: the entries that its oldest snapshot covers are gone, but for the first of all."""
    world = full_world()
    for _ in range(4):
        goes_on(world)
    snapshots = [number_of(SNAPSHOT_PREFIX, key) or 0 for key in world.objects if key.startswith(SNAPSHOT_PREFIX)]
    for number in range(2, min(snapshots) + 1) if trimmed else ():
        del world.objects[numbered_key(LOG_PREFIX, number)]
    return world


def is_store(world: World, there: MemoryStore) -> bool:
    try:
        return run(audit_metadata(Reader(there, rng=world.rng, at_once=1, progress=Progress()), Report())).whole
    except NoMetadata:
        return False


@pytest.mark.parametrize("trimmed", [True, False])
@pytest.mark.parametrize("again", [None, 0, 1, 2, 3])
def test_it_is_made_again_over_the_same_target_wherever_it_ended(again: int | None, trimmed: bool) -> None:
    """And where that ended, too, after so many changes of metadata."""
    writes = len(of_metadata(old_world(trimmed=trimmed).objects)) + 1
    whole = 0
    for left in range(writes):
        world, there = old_world(trimmed=trimmed), MemoryStore()
        for moment in (left, again):
            if moment is not None and not is_store(world, there):
                with pytest.raises(Killed):
                    copy(world, Ending(there.objects, left=moment))
                goes_on(world)
        if is_store(world, there):  # it lacks snapshots without which it starts as well
            whole += 1
            with pytest.raises(NotCopied, match="an older copy of the same cluster"):
                copy(world, there)
            continue
        done = copy(world, there)
        assert done.cluster_id == CLUSTER
        assert max(key for key in there.objects if key.startswith(LOG_PREFIX)) == numbered_key(
            LOG_PREFIX, done.position
        )
        assert len(of_metadata(there.objects)) == len(of_metadata(world.objects)) + 1, (
            "nothing of the earlier tries is left of it"
        )
        found = copied(world)
        found.store.objects = there.objects
        assert found.faults() == []
    assert whole <= 2 < writes


def test_the_metadata_of_a_store_that_is_no_copy_of_this_one_is_left_alone() -> None:
    world, there = full_world(), MemoryStore()
    with pytest.raises(Killed):
        copy(world, Ending(there.objects, left=2))
    damaged = full_world()
    first = min(of_metadata(damaged.objects))
    del damaged.objects[first]
    for key in [key for key in damaged.objects if key.startswith(SNAPSHOT_PREFIX)]:
        del damaged.objects[key]
    before = dict(damaged.objects)
    with pytest.raises(NotCopied, match="a copy goes where there is none"):
        copy(world, damaged.store)
    assert damaged.objects == before
