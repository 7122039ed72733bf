"""One node with every role: controller, broker and proxy over one store. What `bmq up` runs, and what the simulator
runs too.

Only composition: the store, the clock and randomness come from outside, so nothing here knows whether they are real.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError, ControllerUnavailable, Fenced
from bmq.ports import Clock, ObjectStore, Rng
from bmq.roles.controller import Registration
from bmq.roles.owner import Owner
from bmq.values import NodeId, TopicPartition
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.main import BrokerRole
from bmq_broker.settings import BrokerSettings
from bmq_controller.main import ControllerRole, start_controller
from bmq_controller.settings import ControllerSettings
from bmq_node.admin.api import AdminApi
from bmq_node.process.listening import bound
from bmq_proxy.main import ProxyRole, start_proxy
from bmq_proxy.settings import ProxySettings

log = structlog.get_logger()

MIB = 1024 * 1024
REGISTERED_AGAIN_MAX = 5
"""Each takes half a minute at most."""
TAKEN_OVER = "another bmq has taken over this store"


def proxy_settings(*, one_disk: bool) -> ProxySettings:
    """The settings of a proxy that shares its process with a broker and, with `one_disk`, a disk with it, too."""
    return ProxySettings(
        request_memory_bytes=64 * MIB, fetch_memory_bytes=64 * MIB, catch_up_gets_at_once=2 if one_disk else 16
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of a node that has all roles. The cluster's configuration is given by Kafka's names."""

    node_id: int = 1
    host: str = "127.0.0.1"
    port: int = 9092
    rack: str = ""
    cluster_configs: Mapping[str, str] = field(default_factory=dict)
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    proxy: ProxySettings = field(default_factory=lambda: proxy_settings(one_disk=False))
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    """Where the cluster's configuration says nothing else."""
    log_dir: str = "object-store"
    """What DescribeLogDirs calls the store."""


class Node:
    """A process's whole life: start, serve until stopped or taken over, stop."""

    def __init__(self, store: ObjectStore, *, clock: Clock, rng: Rng, settings: NodeSettings) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._guard_task: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves with the reason once this process may only end: another has taken over the store, the WAL broke, or
        the controller did."""
        self.controller: ControllerRole
        self.broker: BrokerRole
        self.proxy: ProxyRole

    async def start(self) -> None:
        """Leads, recovers, listens. Raises BmqError, OSError where it cannot listen."""
        settings = self._settings
        node_id = NodeId(settings.node_id)
        self.controller = await start_controller(
            self._store,
            node_id=node_id,
            clock=self._clock,
            rng=self._rng,
            settings=replace(settings.controller, cluster_configs=settings.cluster_configs),
            on_deposed=self._end,
        )
        guard = ClockGuard(
            self._store, self._clock, self._rng, node_id=node_id, settle_ms=settings.broker.clock_settle_ms
        )
        self._guard_task = asyncio.get_running_loop().create_task(guard.run(), name="clock guard")
        self.broker = BrokerRole(
            store=self._store,
            control=self.controller.controller,
            metadata=self.controller.metadata,
            registration=Registration(
                node_id=node_id,
                boot=self._rng.uuid(),
                roles=("controller", "broker", "proxy"),
                host=settings.host,
                port=settings.port,
                rack=settings.rack,
            ),
            rng=self._rng,
            clock_guard=guard,
            settings=settings.broker,
            group_settings=settings.groups,
            cluster_configs=settings.cluster_configs,
            on_fenced=self._fenced,
        )
        await self._start_broker()
        self.proxy = await start_proxy(
            self._store,
            self._owner_for,
            self.controller.controller,
            self.controller.metadata,
            replace(settings.proxy, node_id=settings.node_id),
            clock=self._clock,
            rng=self._rng,
            host=settings.host,
            port=settings.port,
            log_dir=settings.log_dir,
            cluster_configs=settings.cluster_configs,
        )

    async def _start_broker(self) -> None:
        """A store that takes longer than anybody is let wait for it ends no start at once: what was sealed meanwhile
        need not be sealed again.
        """
        for _ in range(REGISTERED_AGAIN_MAX):
            try:
                await self.broker.start()
            except ControllerUnavailable as error:
                log.warning("broker could not be registered, trying again", error=str(error))
            else:
                return
        await self.broker.start()

    async def serve(self, api: AdminApi, *, listen: str) -> None:
        """Starts, and has the API show this node. Raises BmqError, also where it cannot listen at what was given as
        `listen`.
        """
        await bound("--listen", listen, self.start())
        self.serve_admin(api)

    def serve_admin(self, api: AdminApi) -> None:
        """Its pages are of this node, which is the whole cluster, from now on. Once it has started."""
        api.serve(
            self.controller.metadata,
            leading=lambda: None if self.controller.deposed.done() else self.controller.controller,
            owner_for=self._owner_for,
            reader=self.proxy.proxy.reader,
            static_configs=self._settings.cluster_configs,
        )

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """The clean stop, in the order of the data's way: no more requests, everything durable and handed over, no more
        metadata.
        """
        if hasattr(self, "proxy"):
            await self.proxy.stop(grace_s)
        if hasattr(self, "broker"):
            await self.broker.stop()
        if self._guard_task is not None:
            self._guard_task.cancel()
            await asyncio.gather(self._guard_task, return_exceptions=True)
        if hasattr(self, "controller"):
            await self.controller.stop()

    def _owner_for(self, tp: TopicPartition) -> Owner:
        return self.broker.owner

    def _fenced(self, error: BmqError) -> None:
        self._end(
            f"{TAKEN_OVER}: {error}"
            if isinstance(error, Fenced)
            else f"{error}; start it again, nothing acknowledged is lost"
        )

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
