"""A broker and a proxy that reach each other, and nobody else: not the store, not the controllers. What the broker says
is old soon.
"""

import asyncio

from bmq.wire.special_timestamps import LATEST
from bmq_node.configuration.values import Role
from bmq_sim.client import LIST_OFFSETS, Address, SimClient
from bmq_sim.history import EndOffset, Place
from bmq_sim.process import SimProcess
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.scenarios.cluster_workload import ClusterWorkload
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

SHAPE = {Role.CONTROLLER: 1, Role.BROKER: 2, Role.PROXY: 2}
CUT_OFF_S = 25.0
ASKS = 30


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=0.02)
    stage = Stage(world, SHAPE)
    cluster = stage.cluster
    await stage.begin()
    await asyncio.sleep(2 + 3 * rng.random())
    broker, proxy = rng.choice(cluster.with_role(Role.BROKER)), rng.choice(cluster.with_role(Role.PROXY))
    island = (broker.host, proxy.host)
    others = [node.host for node in cluster.nodes.values() if node.host not in island]
    for host in island:
        world.store.cut_off(host, CUT_OFF_S)
        for other in others:
            world.network.block_both_ways(host, other)
    asking = [
        SimProcess(f"asks-{number}", host=f"asks-{number}").start(_ask(world, stage.workload, proxy.address, number))
        for number in range(ASKS)
    ]
    await asyncio.sleep(CUT_OFF_S)
    for host in island:
        for other in others:
            world.network.unblock_both_ways(host, other)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await stage.end()


async def _ask(world: World, workload: ClusterWorkload, address: Address, number: int) -> None:
    """ "Latest" of some partition, from the proxy of the island itself, again and again."""
    rng = world.rng(f"asks-{number}")
    client = SimClient(f"asks-{number}", [address], rng=rng)
    await asyncio.sleep(CUT_OFF_S * rng.random())
    place: Place = rng.choice(workload.followed)
    part = {"partition_index": place.partition, "timestamp": LATEST}
    while True:
        asked = world.history.turn()
        answer = await client.call(
            LIST_OFFSETS,
            {"replica_id": -1, "isolation_level": 0, "topics": [{"name": place.name, "partitions": [part]}]},
        )
        found = answer.topics[0].partitions[0]
        if not found.error_code:
            world.history.ends.append(
                EndOffset(asked=asked, told=world.history.turn(), place=place, offset=int(found.offset))
            )
        await client.back_off(5)
