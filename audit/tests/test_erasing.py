"""An erasure deletes what is bmq's and nothing else, and, wherever it ends, still knows whose store it is."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from audit_world import CLUSTER, MemoryStore, World, flipped, full_world
from scripted_store import run

from bmq.errors import StoreUnavailable
from bmq_audit.erasing import Amount, Eraser, amount_of
from bmq_audit.findings import Report
from bmq_audit.metadata import NoMetadata, audit_metadata
from bmq_audit.reading import Progress, Reader, StoreLost

STRANGER = "notes/of-somebody-else.txt"


class Killed(BaseException):
    """The end of the process."""


def reader(world: World) -> Reader:
    return Reader(world.store, rng=world.rng, at_once=4, progress=Progress())


def erase(world: World, *, at_once: int = 4) -> Amount:
    return run(Eraser(world.store, reader(world), rng=world.rng, at_once=at_once).run())


@dataclass(slots=True)
class Watched(MemoryStore):
    """Asks before each deletion; what is raised ends it."""

    before_delete: Callable[[], None] = lambda: None

    async def delete(self, key: str) -> None:
        self.before_delete()
        await MemoryStore.delete(self, key)


def kill_after(world: World, deletes: int) -> None:
    """The process ends in the middle of the next one."""
    left = iter(range(deletes))

    def count() -> None:
        if next(left, None) is None:
            raise Killed

    world.store = Watched(world.objects, count)


def cluster_of(world: World) -> str:
    return run(audit_metadata(reader(world), Report())).image.cluster_id


def test_everything_of_bmq_goes_and_what_is_not_stays() -> None:
    world = full_world()
    objects, size_bytes = len(world.objects), sum(map(len, world.objects.values()))
    world.objects[STRANGER] = b"keep me"
    found = run(amount_of(reader(world)))
    assert (found.objects, found.size_bytes, found.strangers) == (objects, size_bytes, 1)
    assert erase(world) == Amount(objects=objects, size_bytes=size_bytes)
    assert world.objects == {STRANGER: b"keep me"}


def test_another_cluster_below_a_scratch_prefix_stays_and_scratch_goes() -> None:
    world = full_world()
    scratch = {f"selftest/{world.rng.uuid()}": b"", f"clock/0000001000/{world.rng.uuid()}": b""}
    cluster = {**world.objects, **scratch}
    anothers = {
        f"{prefix}{key}": value
        for prefix in ("clock/", "selftest/", "clock/0000001000/")
        for key, value in cluster.items()
    }
    world.objects.update(scratch | anothers)
    found = run(amount_of(reader(world)))
    assert found.strangers == len(anothers)
    erase(world)
    assert world.objects == anothers


@pytest.mark.parametrize("damage", ["nothing", "newest snapshot unreadable", "no snapshots"])
def test_an_erasure_that_ends_anywhere_leaves_a_store_that_tells_whose_it_is(damage: str) -> None:
    def damaged() -> World:
        world = full_world()
        snapshots = sorted(key for key in world.objects if key.startswith("meta/snapshot/"))
        assert len(snapshots) == 2
        if damage == "newest snapshot unreadable":
            world.objects[snapshots[-1]] = flipped(world.objects[snapshots[-1]], 40, 1)
        for key in snapshots if damage == "no snapshots" else ():
            del world.objects[key]
        return world

    for deletes in range(1, len(damaged().objects)):
        world = damaged()
        whole = dict(world.objects)
        kill_after(world, deletes)
        with pytest.raises(Killed):
            erase(world)
        assert 0 < len(world.objects) < len(whole)
        if any(not key.startswith("meta/") for key in world.objects):
            assert {key for key in whole if key.startswith("meta/")} <= world.objects.keys(), "metadata goes last"
        assert cluster_of(world) == CLUSTER
        world.store = MemoryStore(world.objects)
        erase(world)
        assert world.objects == {}
    with pytest.raises(NoMetadata):
        cluster_of(world)


def test_a_store_that_fails_now_and_then_is_asked_again_and_one_that_is_lost_is_told() -> None:
    world = full_world()
    failures = iter([True, False, False, True, True, True, False] * 3)

    def fail_at_times() -> None:
        if next(failures, False):
            raise StoreUnavailable("slow down")

    world.store = Watched(world.objects, fail_at_times)
    erase(world, at_once=1)
    assert world.objects == {}

    def fail() -> None:
        raise StoreUnavailable("gone")

    world = full_world()
    world.store = Watched(world.objects, fail)
    with pytest.raises(StoreLost, match="does not delete its objects: gone"):
        erase(world)
