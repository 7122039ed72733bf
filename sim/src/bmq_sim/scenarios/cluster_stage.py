"""A cluster with its clients, its faults and all who watch it: what every scenario of a cluster begins and ends
with.
"""

import asyncio
from collections.abc import Mapping

from bmq_node.configuration.values import Role
from bmq_sim.cluster.activity import Activity
from bmq_sim.cluster.campaign import Campaign
from bmq_sim.cluster.cluster import SimCluster
from bmq_sim.cluster.evidence import Evidence
from bmq_sim.cluster.faults import Faults
from bmq_sim.cluster.settings import ClusterSettings
from bmq_sim.scenarios.cluster_workload import ClusterWorkload
from bmq_sim.scenarios.workload import finish
from bmq_sim.world import World

HEALED_WITHIN_S = 400.0
"""Virtual time after healing by which every client must be done. Starts that read one WAL object at a time take a
minute and more, twice."""
QUIET_S = 90.0
"""Longer than readers may still want what was given up, and than anything is on its way to the store."""

ROUNDS_MAX = 6
"""After so many of them all is collected: who was given a partition for evenness in one of them had claimed nothing,
and tiny settings delete little at a time."""


class Stage:
    """What one run has: its cluster, clients and faults, and who watches them."""

    def __init__(
        self,
        world: World,
        shape: Mapping[Role, int],
        *,
        balance_interval_s: float = 0.0,
        partitions: int | None = None,
        writes_only: bool = False,
        deletes_soon: bool = False,
        light: bool = False,
        programs_share: float = 0.0,
    ) -> None:
        """`shape`: how many nodes have each role. `balance_interval_s` 0: the cluster moves nothing by itself.
        `partitions` None: as the seed will. `writes_only`: no groups, no other topics. `deletes_soon`: hardly anything
        stays in the WAL, and hardly for a moment what was given up. `light`: hardly more than a few batches each
        second. `programs_share`: how likely each kind of program (bmq_sim.scenarios.programs) is.
        """
        self.world = world
        settings = ClusterSettings(world.rng, balance_interval_s=balance_interval_s, deletes_soon=deletes_soon)
        self.cluster = SimCluster(world, shape, settings)
        self.evidence = Evidence(world, self.cluster)
        self.activity = Activity(world, self.cluster, self.evidence)
        self.faults = Faults(world, self.cluster, self.activity)
        self.campaign = Campaign(world, self.cluster, self.activity, self.faults)
        self.workload = ClusterWorkload(
            world,
            self.cluster,
            partitions=partitions,
            writes_only=writes_only,
            light=light,
            programs_share=programs_share,
        )

    async def begin(self) -> None:
        """Returns when all nodes serve and all clients have begun."""
        self.cluster.start()
        await self.cluster.until_serving()
        await self.workload.start()

    async def end(self) -> None:
        """Heals, lets clients finish, and checks every invariant. Raises InvariantViolated."""
        await self.workload.stop()
        self.faults.count_requests()
        self.workload.clients.before_check = self.evidence.take
        await finish(self.workload.clients, within_s=HEALED_WITHIN_S)
        self.evidence.check_metadata()
        await self.cluster.until_found()
        for _ in range(ROUNDS_MAX):
            await self.workload.write_once_more()
            await asyncio.sleep(QUIET_S)
            self.evidence.check_objects()
            if not self.workload.rolls_soon or not self.evidence.uncollected():
                return
        self.evidence.check_collected()
