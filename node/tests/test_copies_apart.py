"""A cluster over a copy of a store beside the one that it was copied from: same ids, same cluster id, same secret,
nothing to say.
"""

import asyncio

from nodes_in_one_loop import STEP_S, Cluster, run, until

from bmq.metadata.journal import MetadataJournal
from bmq.ports import ObjectStore
from bmq.roles.controller import NewTopic
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemRng
from bmq.values import TopicPartition
from bmq.wire.records import Record, build_batch
from bmq_audit.reading import Progress, Reader
from bmq_backup.copying import Copier
from bmq_proxy.proxy import Proxy

SECRET = {"cluster_secret": "correct horse battery staple"}
BATCH = build_batch([Record(0, 1_000, None, b"value")])


async def started(cluster: Cluster) -> Proxy:
    """A controller, a broker and a proxy, each of which the leader of this cluster knows."""
    before = await asyncio.gather(
        *(
            cluster.start(node_id, roles, **SECRET)
            for node_id, roles in ((101, "broker"), (201, "controller"), (1, "proxy"))
        )
    )
    assert before[2].proxy is not None
    proxy = before[2].proxy.proxy
    internal = {node.internal for node in before}
    await until(
        proxy.metadata,
        lambda image: {(node.internal_host, node.internal_port) for node in image.nodes.values()} == internal,
    )
    return proxy


async def append(proxy: Proxy, tp: TopicPartition) -> int:
    give_up_at = asyncio.get_running_loop().time() + STEP_S
    return (await proxy.appends.submit(tp, BATCH, produce_version=9, give_up_at=give_up_at).done).base_offset


async def copied(store: ObjectStore) -> ObjectStore:
    target = open_store("memory://")
    await Copier(Reader(store, rng=SystemRng(), at_once=4, progress=Progress()), target, rng=SystemRng()).run()
    return target


def test_nodes_over_a_copy_leave_those_over_the_original_alone_and_write_to_the_copy() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        [made] = await proxy.controller.create_topics([NewTopic(name="orders", partitions=1)])
        assert made.topic_id is not None
        tp = TopicPartition(made.topic_id, 0)
        await until(proxy.metadata, lambda image: image.partition(tp) is not None)
        assert await append(proxy, tp) == 0
        epochs = dict(proxy.image.last_epochs)
        restored = Cluster(await copied(cluster.store))
        there = (await MetadataJournal(restored.store, rng=SystemRng()).load()).image
        assert set(there.nodes) == {101}, (
            "clients are told of no proxy of the original; a broker is fenced for what it wrote"
        )
        try:
            theirs = await started(restored)
            assert [await append(theirs, tp), await append(theirs, tp)] == [1, 2]
            assert await append(proxy, tp) == 1, "and not behind what was written to the copy"
            assert dict(proxy.image.last_epochs) == epochs, "nobody registered in the place of a node of this cluster"
            assert not any(node.ended.done() for node in cluster.nodes.values())
            copies = {image.copy for image in (proxy.image, theirs.image)}
            again = Cluster(await copied(restored.store))
            assert len({*copies, (await started(again)).image.copy}) == 3, "a copy of a copy is another one"
            restored.nodes |= {node_id + 1000: node for node_id, node in again.nodes.items()}
        finally:
            for node_id in sorted(restored.nodes):
                await restored.stop(node_id, grace_s=0)

    run(test)
