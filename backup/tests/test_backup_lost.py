"""A store that has lost objects: a copy of it says which, at once, and has all the rest where that is asked for."""

from collections.abc import AsyncIterator

import pytest
from audit_world import CLUSTER, ORDERS, MemoryStore, World, full_world, manifest_of, tp
from scripted_store import run
from test_audit_repair import FIRST, copied, entries, newest, repaired

from bmq.metadata.codec import LOG_PREFIX
from bmq.ports import ObjectMeta
from bmq.storage.keys import manifest_prefix, segment_prefix
from bmq.storage.numbered import numbered_key
from bmq_audit.findings import Level
from bmq_audit.reading import Progress, Reader
from bmq_backup.copied import Copied, NotCopied
from bmq_backup.copying import Copier

THIRD = tp(ORDERS, 2)


def what_is_lost(world: World, what: str) -> str:
    """The key of an object that a newest manifest version names."""
    match what:
        case "segment":
            return entries(world, FIRST)[3].key
        case "page":
            return newest(world, FIRST).pages[0].key
        case _:
            return entries(world, THIRD)[0].key


def copy(world: World, target: MemoryStore, *, without_lost: bool = False, store: object = None) -> Copied:
    async def copying() -> Copied:
        reader = Reader(store or world.store, rng=world.rng, at_once=3, progress=Progress())  # type: ignore[arg-type]
        return await Copier(reader, target, rng=world.rng, without_lost=without_lost).run()

    return run(copying())


@pytest.mark.parametrize("what", ["segment", "page", "shared"])
def test_of_a_store_that_has_lost_an_object_no_copy_is_made_and_the_object_is_named(what: str) -> None:
    world, target = full_world(), MemoryStore()
    lost = what_is_lost(world, what)
    del world.objects[lost]
    with pytest.raises(NotCopied, match=f"the store has lost {lost}.*bmq store check --repair.*--without-lost"):
        copy(world, target)
    assert not [key for key in target.objects if key.startswith("meta/")], "what is not complete is no store"


@pytest.mark.parametrize("what", ["segment", "page", "shared"])
def test_all_the_rest_of_it_is_copied_where_that_is_asked_for(what: str) -> None:
    world, target = full_world(), MemoryStore()
    lost = what_is_lost(world, what)
    del world.objects[lost]
    done = copy(world, target, without_lost=True)
    assert (done.cluster_id, done.passes, done.lost) == (CLUSTER, 1, [lost])
    own = numbered_key(LOG_PREFIX, done.position)
    assert {key: data for key, data in target.objects.items() if key != own}.items() <= world.objects.items()
    faults = {fault.key for fault in world.faults()}
    there = copied(world)
    there.store.objects = target.objects
    assert {fault.key for fault in there.faults()} == faults
    report, _ = repaired(there)
    assert report.findings[Level.FAULT]
    assert there.faults() == []
    assert entries(there, FIRST)[0] == entries(full_world(), FIRST)[0], "also what a lost page named is in the copy"


def test_what_a_newer_version_released_meanwhile_is_not_lost() -> None:
    world, target = full_world(), MemoryStore()
    old = entries(world, THIRD)
    own = world.segment(THIRD, 0, 2)
    key = world.manifest(THIRD, manifest_of(own))
    version = world.objects.pop(key)

    class MergedMeanwhile:
        """The store of an owner that names another segment, and deletes the old one, once the copy has read what the
        old version names.
        """

        def __getattr__(self, name: str) -> object:
            return getattr(world.store, name)

        def list(self, listed: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
            if (
                listed == "shared/"
                and key not in world.objects
                and any(each.startswith(manifest_prefix(THIRD)) for each in target.objects)
            ):
                world.objects[key] = version
                del world.objects[old[0].key]
            return world.store.list(listed, after=after)

    done = copy(world, target, store=MergedMeanwhile())
    assert done.lost == []
    assert done.passes > 1
    assert own.key in target.objects
    assert [key for key in target.objects if key.startswith(segment_prefix(THIRD))] == [own.key]
