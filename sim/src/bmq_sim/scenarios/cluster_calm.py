"""A cluster of several nodes to which nothing happens: what `bmq server` composes serves every kind of client in the
simulator.
"""

import asyncio

from bmq_node.configuration.values import Role
from bmq_sim.checkers import InvariantViolated
from bmq_sim.cluster.cluster import SimCluster
from bmq_sim.cluster.settings import ClusterSettings
from bmq_sim.history import Place
from bmq_sim.network import NetworkFaults
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.store import StoreFaults
from bmq_sim.world import World

SHAPE = {Role.CONTROLLER: 1, Role.BROKER: 2, Role.PROXY: 1}
SERVING_S = 30.0


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = NetworkFaults(
        latency_s_min=0.0001, latency_s_max=0.002, split_probability=rng.choice((0.0, 0.3))
    )
    world.store.faults = StoreFaults(latency_s_min=0.001, latency_s_max=0.02)
    cluster = SimCluster(world, SHAPE, ClusterSettings(world.rng))
    cluster.start()
    async with asyncio.timeout(SERVING_S):
        await cluster.until_serving()
    places = [Place(TOPIC, partition) for partition in range(3)]
    clients = Clients(world=world, supervisor=cluster, places=places)
    await clients.client("admin").create_topic(TOPIC, partitions=len(places))
    for place in places:
        clients.idempotent(f"idempotent-{place.partition}", place, batches=10, pace_s=0.3)
        clients.plain(f"plain-{place.partition}", place, batches=10, pace_s=0.3)
        clients.follower(f"follower-{place.partition}", place)
    for index in range(2):
        clients.member(f"member-{index}")
    await asyncio.gather(*clients.finishing)
    lost = [attempt for attempt in world.history.attempts if attempt.acknowledged is None]
    if lost:
        raise InvariantViolated(
            f"nothing happened, and {len(lost)} batches were not acknowledged, the first of them {lost[0]}"
        )
    again = {node.host: node.starts for node in cluster.nodes.values() if node.starts > 1}
    if again or any(epoch > 1 for epoch in cluster.image().last_epochs.values()):
        raise InvariantViolated(
            f"nothing happened, and nodes started or registered again: {again}, {cluster.image().last_epochs}"
        )
    await finish(clients)
