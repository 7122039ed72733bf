"""Clients of a copy are told of no proxy of the original, be it a broker besides: what they write would go there."""

from uuid import UUID

import pytest
from audit_world import CLUSTER, MemoryStore, copied, full_world
from scripted_store import run

from bmq.metadata.image import Image
from bmq.metadata.records import FencingBegun, NodeCordoned, NodeRegistered
from bmq_audit.findings import Report
from bmq_audit.metadata import audit_metadata
from bmq_audit.reading import Progress, Reader
from bmq_backup.copying import Copier

BOOT = UUID(int=7)


@pytest.mark.parametrize("fencing", [False, True])
def test_a_node_that_is_broker_and_proxy_is_in_a_copy_as_the_broker_alone(fencing: bool) -> None:
    world, target = full_world(), MemoryStore()
    before = set(world.image.nodes)
    both, alone = max(before) + 1, max(before) + 2
    given = {"broker_epoch": 1, "boot": BOOT, "rack": "r", "internal_host": "i", "internal_port": 7, "pool": "p"}
    there = {"host": "original.example", "port": 9092, "listeners": {"outside": ("out.example", 9094)}}
    world.commit(NodeRegistered(node_id=both, roles=("broker", "proxy"), **given, **there), epoch=2)  # type: ignore[arg-type]
    world.commit(NodeRegistered(node_id=alone, roles=("proxy",), **given, **there), epoch=2)  # type: ignore[arg-type]
    world.commit(NodeCordoned(node_id=both, cordoned=True), epoch=2)
    if fencing:
        world.commit(FencingBegun(node_id=both, broker_epoch=1), epoch=2)

    async def copying() -> Image:
        await Copier(Reader(world.store, rng=world.rng, at_once=1, progress=Progress()), target, rng=world.rng).run()
        return (await audit_metadata(Reader(target, rng=world.rng, at_once=1, progress=Progress()), Report())).image

    image = run(copying())
    node = image.nodes[both]  # type: ignore[index]
    assert (node.roles, node.host, node.port, dict(node.listeners)) == (("broker",), "", 0, {})
    assert (node.broker_epoch, node.boot, node.rack, node.pool) == (1, BOOT, "r", "p"), (
        "it is fenced for what it wrote, as ever"
    )
    assert (both in image.fencing, both in image.cordoned, alone in image.nodes) == (fencing, True, False)
    assert not any(one.host or one.listeners for one in image.nodes.values())
    assert image.cluster_id == CLUSTER and image.copy
    there_now = copied(world)
    there_now.store.objects = target.objects
    assert there_now.faults() == []
