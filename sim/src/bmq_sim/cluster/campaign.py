"""A campaign of faults: each is aimed at a step of a protocol, which is brought about where it does not come by itself.

Which pairs of fault and step a seed aims at follows from the seed alone, so that many seeds meet all of them equally
often.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import product
from random import Random

from bmq.values import TopicPartition
from bmq_node.configuration.values import Role
from bmq_sim.cluster.activity import Activity
from bmq_sim.cluster.cluster import SimCluster
from bmq_sim.cluster.faults import Faults, Kind, of_role
from bmq_sim.cluster.steps import Step
from bmq_sim.world import World

PAIRS = tuple(product(Kind, Step))
AIM_S = 12.0
"""How long a step is waited for."""
LOOK_S = 0.02
BROKERS = range(2, 5)
PROXIES = range(1, 4)
SKIPS_MAX = 3
"""A node enters some steps all the time: not always the first is met."""

_OFTEN = frozenset(
    (Step.HEARTBEAT, Step.PRODUCE, Step.FETCH, Step.COMMIT, Step.GROUP, Step.SIGN_OF_LIFE, Step.MANIFEST, Step.ROLL)
)


def pairs_of(seed: int, count: int) -> Iterator[tuple[Kind, Step]]:
    """The seed's share: `count` pairs of a list that is in another order each time that it begins anew."""
    for number in range(seed * count, (seed + 1) * count):
        turn, at = divmod(number, len(PAIRS))
        order = list(PAIRS)
        Random(turn).shuffle(order)
        yield order[at]


class Campaign:
    """Aims the faults of one run, and has the cluster operated between them."""

    def __init__(self, world: World, cluster: SimCluster, activity: Activity, faults: Faults) -> None:
        self._world = world
        self._cluster = cluster
        self._activity = activity
        self._faults = faults
        self._rng = world.rng("campaign")

    async def run(self, pairs: Iterable[tuple[Kind, Step]], *, operations_share: float = 0.0) -> None:
        """One aim after the other, and now and then an operation of those who run the cluster."""
        rng = self._rng
        for kind, step in pairs:
            if rng.random() < operations_share:
                await self._operate()
            await self._aim(kind, step)
            await asyncio.sleep(rng.random() * rng.choice((0.2, 1.0, 3.0)))

    async def keep_moving(self, *, pause_s_max: float) -> None:
        """Moves partitions from broker to broker, until it is cancelled."""
        while True:
            await asyncio.sleep(self._rng.random() * pause_s_max)
            self._move()

    async def _aim(self, kind: Kind, step: Step) -> None:
        hit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        skips = self._rng.randrange(SKIPS_MAX) if step in _OFTEN else 0

        def entered(host: str, step: Step) -> None:
            nonlocal skips
            node = self._cluster.by_host(host)
            if hit.done():
                return
            if node is None or not node.alive or skips:
                skips = max(0, skips - 1)
                self._activity.when(step, entered)
                return
            hit.set_result(None)
            self._faults.inject(kind, node, step=step)

        self._activity.when(step, entered)
        self._bring_about(step)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + AIM_S
        while not hit.done() and loop.time() < until_s:
            self._activity.look()
            await asyncio.wait((hit,), timeout=LOOK_S)
        if not hit.done():
            self._world.note(f"no node came to {step} in time for {kind}")
        hit.cancel()
        self._activity.give_up(step)

    def _bring_about(self, step: Step) -> None:
        rng = self._rng
        match step:
            case Step.TAKEOVER:
                leader = self._cluster.leader()
                if leader is not None and leader.alive:
                    self._faults.inject(rng.choice((Kind.KILL, Kind.PAUSE, Kind.STOP)), leader)
            case Step.REGISTER | Step.RECOVER | Step.ADOPT | Step.HAND_OVER | Step.COVER | Step.CLAIM:
                broker = of_role(self._cluster, Role.BROKER, rng)
                if broker is not None:
                    self._faults.inject(Kind.KILL, broker)
            case Step.SEAL | Step.FENCE:
                broker = of_role(self._cluster, Role.BROKER, rng)
                if broker is not None:
                    self._faults.count(Kind.PAUSE, self._activity.steps_of(broker.host))
                    self._faults.pause(broker, 7 + 4 * rng.random())
            case Step.MOVE | Step.CLOSE:
                self._move()
            case Step.DRAIN:
                node = of_role(self._cluster, rng.choice((Role.BROKER, Role.BROKER, Role.PROXY)), rng)
                if node is not None:
                    self._faults.inject(Kind.STOP, node)
            case _:
                pass

    def _move(self) -> None:
        rng, image = self._rng, self._cluster.image()
        places = [
            TopicPartition(topic.topic_id, index)
            for topic in image.topics.values()
            for index in range(len(topic.partitions))
        ]
        brokers = [node_id for node_id, node in image.nodes.items() if "broker" in node.roles]
        if places and brokers:
            self._cluster.operator.move(rng.choice(places), rng.choice(brokers))

    async def _operate(self) -> None:
        rng = self._rng
        what = rng.choice(("rolling restart", "add broker", "remove broker", "add proxy", "remove proxy", "drain"))
        self._world.note(f"operation {what}")
        brokers, proxies = self._cluster.with_role(Role.BROKER), self._cluster.with_role(Role.PROXY)
        match what:
            case "rolling restart":
                await self._roll(rng.choice(tuple(Role)))
            case "add broker" if len(brokers) + 1 in BROKERS:
                self._cluster.add(Role.BROKER)
            case "remove broker" if len(brokers) - 1 in BROKERS:
                self._cluster.remove(rng.choice(brokers))
            case "add proxy" if len(proxies) + 1 in PROXIES:
                self._cluster.add(Role.PROXY)
            case "remove proxy" if len(proxies) - 1 in PROXIES:
                self._cluster.remove(rng.choice(proxies))
            case "drain" if len(brokers) > 1:
                broker = rng.choice(brokers)
                self._cluster.operator.drain(broker.spec.node_id)
                await asyncio.sleep(rng.random() * 5)
                self._cluster.operator.cordon(broker.spec.node_id, False)
            case _:
                return
        self._world.work.operations[what] += 1

    async def _roll(self, role: Role) -> None:
        """An upgrade: one node after the other is stopped and started again, with other settings."""
        for node in self._cluster.with_role(role):
            self._faults.inject(Kind.STOP, node)
            try:
                async with asyncio.timeout(AIM_S):
                    while not node.serving:
                        await asyncio.sleep(0.2)
            except TimeoutError:
                self._world.note(f"{node.host} does not serve yet")
