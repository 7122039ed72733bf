"""Nodes of a cluster with a secret talk to each other; who has another one, or none, is refused in words that say what
to do.
"""

import asyncio

import pytest
from nodes_in_one_loop import Cluster, run, until
from tests.waiting import until_async

from bmq.errors import ConfigurationError, NotReady
from bmq.roles.controller import NewTopic
from bmq.values import TopicPartition
from bmq.wire.records import Record, build_batch
from bmq_node.configuration.sources import read_config
from bmq_node.node import Node
from bmq_proxy.proxy import Proxy

SECRET = "correct horse battery staple"
GIVEN = {"node_id": 1, "store": "memory://"}
BATCH = build_batch([Record(0, 1_000, None, b"value")])


def proxy_of(node: Node) -> Proxy:
    assert node.proxy is not None
    return node.proxy.proxy


@pytest.mark.parametrize(
    ("theirs", "said"), [("another secret altogether", "has another cluster secret"), ("", "has no cluster secret")]
)
def test_who_does_not_know_the_secret_writes_nothing(theirs: str, said: str) -> None:
    async def test(cluster: Cluster) -> None:
        secret = {"cluster_secret": SECRET}
        started = (
            cluster.start(201, "controller", **secret),
            cluster.start(101, "broker", **secret),
            cluster.start(1, "proxy", **secret),
        )
        proxy = proxy_of((await asyncio.gather(*started))[2])
        [made] = await proxy.controller.create_topics([NewTopic(name="orders", partitions=1)])
        assert made.topic_id is not None
        tp = TopicPartition(made.topic_id, 0)
        await until(proxy.metadata, lambda image: 101 in image.nodes and image.partition(tp) is not None)
        give_up_at = asyncio.get_running_loop().time() + 20
        assert (await proxy.appends.submit(tp, BATCH, produce_version=9, give_up_at=give_up_at).done).base_offset == 0
        stranger = cluster.make(2, "proxy", cluster_secret=theirs)
        cluster.nodes[2] = stranger
        starting = asyncio.ensure_future(stranger.start())
        await until_async(lambda: stranger.proxy is not None, "the stranger's proxy", every_s=0.01)
        await until(proxy_of(stranger).metadata, lambda image: image.partition(tp) is not None)
        owner = proxy_of(stranger).owner_for(tp)
        with pytest.raises(NotReady, match=rf"node 2 {said}.*: give all nodes of the cluster the same cluster_secret"):
            await owner.append(tp, BATCH, produce_version=9)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert 2 not in proxy.image.nodes

    run(test)


def test_a_secret_that_is_too_short_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"^--cluster-secret has 6 characters: use 16 to 1024$"):
        read_config({**GIVEN, "cluster_secret": "hunter"})
    config = read_config({**GIVEN, "cluster_secret": SECRET})
    assert config.cluster_secret == SECRET
    assert SECRET not in repr(config)
