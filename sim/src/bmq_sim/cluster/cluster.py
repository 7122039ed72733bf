"""The nodes of one simulated cluster, and the supervisor that starts each of them again when it has ended."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from bmq.metadata.image import Image
from bmq.values import NodeId
from bmq_broker.main import BrokerRole
from bmq_node.configuration.values import Role
from bmq_sim.checkers import InvariantViolated
from bmq_sim.client import Address
from bmq_sim.cluster.operator import Operator
from bmq_sim.cluster.process import SimNode
from bmq_sim.cluster.settings import OUTSIDE, ClusterSettings, NodeSpec
from bmq_sim.owners_eyes import OwnersEyes
from bmq_sim.rest import Admin
from bmq_sim.world import World

FIRST_IDS: Mapping[Role, int] = {Role.PROXY: 1, Role.BROKER: 101, Role.CONTROLLER: 201}
"""As `bmq up --nodes` numbers its nodes."""
STARTS_MAX = 200
FOUND_WITHIN_S = 60.0
"""In which who was told something else about a node hears better, once all is well."""
RACKS = ("a", "b")


class SimCluster:
    """Starts the nodes, keeps them running, adds and removes some."""

    def __init__(self, world: World, shape: Mapping[Role, int], settings: ClusterSettings, *, where: str = "") -> None:
        """`shape`: how many nodes of each role; `where`: what the names of their hosts begin with."""
        self.operator = Operator(world)
        self.nodes: dict[int, SimNode] = {}
        self.restart_s_max = 2.5
        """How long a node that ended stays away, at most."""
        self._world = world
        self._settings = settings
        self._where = where
        self._rng = world.rng("cluster")
        self._watching: list[asyncio.Task[None]] = []
        self._settled = False
        self._eyes = OwnersEyes(world.store, image=self.image, brokers=self._brokers)
        for role, count in shape.items():
            for _ in range(count):
                self._add(role)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where Kafka clients find proxies."""
        return tuple(node.address for node in self.with_role(Role.PROXY))

    def addresses_for(self, client: str) -> tuple[Address, ...]:
        """Where this client finds proxies: some of them come by the further listener."""
        if self._settings.listeners_change and self._world.rng(f"listener of {client}").random() < 1 / 2:
            return tuple(node.outside for node in self.with_role(Role.PROXY))
        return self.addresses

    @property
    def admins(self) -> Sequence[Admin]:
        """Where the admin API is asked."""
        serving = [node.current for node in self.nodes.values() if node.serving and node.current is not None]
        return [(process.process, process.admin) for process in serving]

    def start(self) -> None:
        """Starts all nodes, in an order of the seed's."""
        self.operator.start()
        nodes = list(self.nodes.values())
        self._rng.shuffle(nodes)
        for node in nodes:
            self._watch(node)
        self._watching.append(asyncio.get_running_loop().create_task(self._eyes.run(), name="owners' eyes"))
        if self._settings.listeners_change:
            self._watching.append(asyncio.get_running_loop().create_task(self._move_listeners(), name="listeners move"))

    def _brokers(self) -> Iterator[BrokerRole]:
        for node in self.nodes.values():
            if node.current is not None and node.current.alive and (broker := node.current.broker) is not None:
                yield broker

    async def until_serving(self) -> None:
        """Returns when every node that is wanted serves."""
        while not all(node.serving for node in self.nodes.values() if node.wanted):
            await asyncio.sleep(0.1)

    def image(self) -> Image:
        """As the operator follows it."""
        return self.operator.image

    def settle(self) -> None:
        """No more accidents: wakes who hangs, sets the clocks right."""
        self._settled = True
        for node in self.nodes.values():
            node.resume()
            node.clock.skew_ms = 0

    def kill(self) -> None:
        """kill -9 of all brokers."""
        for node in self.with_role(Role.BROKER):
            node.kill()

    def check(self) -> None:
        """Raises InvariantViolated where a process gave itself up: whatever happens to the rest, a node of its own id
        goes on.
        """
        for node in self.nodes.values():
            if not node.alive:
                node.keep_end()
        ended = [f"{name}: {error}" for node in self.nodes.values() for name, error in node.ended]
        if ended:
            raise InvariantViolated("these nodes ended by themselves:\n  " + "\n  ".join(ended))
        self._eyes.check()

    async def until_found(self) -> None:
        """Returns when the metadata say of every node that is wanted where it is. Raises InvariantViolated where they
        go on saying something else.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + FOUND_WITHIN_S
        while wrong := [line for node in self.nodes.values() if node.wanted for line in self._not_found(node)]:
            if loop.time() > until_s:
                raise InvariantViolated("the metadata say where nodes are: " + "\n  ".join(wrong))
            await asyncio.sleep(1)

    def _not_found(self, node: SimNode) -> Iterator[str]:
        told = self.image().nodes.get(NodeId(node.spec.node_id))
        if told is None:
            if node.spec.role is not Role.CONTROLLER:
                yield f"{node.host} is not registered"
            return
        if (told.internal_host, told.internal_port) != node.internal:
            yield f"{node.host} is called at {node.internal}, told is {told.internal_host}:{told.internal_port}"
        if node.spec.role is Role.PROXY:
            outside = {OUTSIDE: node.outside} if self._settings.listeners_change else {}
            if ((told.host, told.port), dict(told.listeners)) != (node.address, outside):
                yield (
                    f"clients reach {node.host} at {node.address} and {outside}, told is {told.host}:{told.port} "
                    f"and {told.listeners}"
                )

    async def _move_listeners(self) -> None:
        rng = self._world.rng("listeners move")
        while not self._settled:
            await asyncio.sleep(rng.random() * rng.choice((4.0, 20.0)))
            proxies = self.with_role(Role.PROXY)
            if not self._settled and proxies:
                self._world.work.operations["listener moved"] += 1
                rng.choice(proxies).move()

    def with_role(self, role: Role) -> list[SimNode]:
        """Those that are wanted."""
        return [node for node in self.nodes.values() if node.spec.role is role and node.wanted]

    def by_host(self, host: str) -> SimNode | None:
        """The node of a host; None for a client's."""
        return next((node for node in self.nodes.values() if node.host == host), None)

    def leader(self) -> SimNode | None:
        """The leading controller, as far as the operator knows."""
        return self.nodes.get(self.image().controller_id)

    def add(self, role: Role) -> SimNode:
        """One more node."""
        node = self._add(role)
        self._world.note(f"add {node.host}")
        self._watch(node)
        return node

    def remove(self, node: SimNode) -> None:
        """SIGTERM, and it is not started again."""
        self._world.note(f"remove {node.host}")
        node.wanted = False
        node.stop()

    def _add(self, role: Role) -> SimNode:
        node_id = FIRST_IDS[role]
        while node_id in self.nodes:
            node_id += 1
        spec = NodeSpec(node_id=node_id, role=role, rack=RACKS[node_id % len(RACKS)], where=self._where)
        self.nodes[node_id] = node = SimNode(self._world, spec, self._settings)
        return node

    def _watch(self, node: SimNode) -> None:
        rng = self._world.rng(f"supervisor of {node.host}")
        self._watching.append(
            asyncio.get_running_loop().create_task(self._keep_running(node, rng), name=f"supervisor of {node.host}")
        )

    async def _keep_running(self, node: SimNode, rng: Random) -> None:
        while node.wanted or node.alive:
            if not node.alive:
                assert node.starts < STARTS_MAX, f"{node.host} does not stay up"
                node.begin()
            await asyncio.sleep(0.2 + self.restart_s_max * rng.random())
