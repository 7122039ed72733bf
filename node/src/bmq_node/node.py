"""A process of bmq with all roles or some, put together: the one composition. `bmq up` runs it alone, `bmq server`
among others.

Only composition: the store, the clock and randomness come from outside and the network from the event loop, so that the
simulator runs these nodes as they are.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.naming.listeners import ListenerAddresses
from bmq.ports import Clock, ObjectStore, Rng, Tracer
from bmq.roles.controller import Registration
from bmq.roles.owner import Owner
from bmq.storage.durable import cancelled
from bmq.values import NodeId, TopicPartition
from bmq_broker.incarnations import Incarnations
from bmq_broker.main import BrokerRole
from bmq_controller.api.sources import Tokens
from bmq_controller.controller import LeadingController
from bmq_node.admin.api import AdminApi
from bmq_node.alone import Alone
from bmq_node.configuration.addresses import address_of
from bmq_node.configuration.listeners import advertised_listeners
from bmq_node.configuration.node_settings import NodeSettings, advertised
from bmq_node.configuration.server_config import ServerConfig
from bmq_node.configuration.values import Role
from bmq_node.member import Member
from bmq_node.membership import Membership
from bmq_node.own_broker import OwnBroker
from bmq_node.process.listening import bound
from bmq_node.surroundings import Surroundings
from bmq_node.tasks import Tasks
from bmq_proxy.main import ProxyRole, start_proxy

GRACE_S: Final = 5.0
JOIN_S: Final = 5.0
"""How long a node without a broker waits to be registered before it says that it serves."""

_log = structlog.get_logger("bmq.node")


class Node:
    """A process's whole life: start, serve until stopped or until it cannot go on, stop."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock,
        rng: Rng,
        settings: NodeSettings,
        config: ServerConfig | None = None,
        tracer: Tracer | None = None,
        describe: Callable[[], Mapping[str, Any]] | None = None,
        named: Callable[[str], str] = str,
        tokens: Tokens | None = None,
    ) -> None:
        """`config`: how it meets other processes of its cluster; None: it is the whole cluster. `settings` are those
        that this makes (bmq_node.configuration.node_settings), or smaller ones to simulate with. `describe` gives the
        admin API what is told of the configuration, where there is no `config`; `named` what a key is called to whoever
        set it. `tokens`: who may ask its admin API.
        """
        self._store = store
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._tracer = tracer
        self._named = named
        self._node_id = NodeId(settings.node_id)
        self._tasks = Tasks()
        self._own = OwnBroker()
        self._cluster: Surroundings = (
            Alone(
                store,
                clock=clock,
                rng=rng,
                node_id=self._node_id,
                settings=settings.controller,
                cluster_configs=settings.cluster_configs,
                tasks=self._tasks,
                own=self._own,
            )
            if config is None
            else Member(
                store,
                clock=clock,
                rng=rng,
                config=config,
                settings=settings.controller,
                tasks=self._tasks,
                own=self._own,
            )
        )
        self._membership: Membership | None = None
        self._beating: asyncio.Task[None] | None = None
        self._told: Mapping[str, str] = settings.advertised_listeners
        self.proxy: ProxyRole | None = None
        if describe is None:
            describe = dict if config is None else partial(config.model_dump, mode="json")
        self.admin = AdminApi(store, node_id=self._node_id, clock=clock, rng=rng, describe=describe, tokens=tokens)

    @property
    def ended(self) -> "asyncio.Future[str]":
        """Resolves with the reason once this process may only end."""
        return self._tasks.ended

    @property
    def internal(self) -> tuple[str, int]:
        """(host, port) that other processes are told."""
        return self._cluster.internal

    @property
    def image(self) -> Image:
        """The cluster as this node knows it."""
        return self._cluster.metadata.image

    @property
    def leading(self) -> LeadingController | None:
        """Its controller while it leads, as far as it knows."""
        return self._cluster.leading

    @property
    def broker(self) -> BrokerRole | None:
        """The broker of the moment, where this node is one and has begun."""
        return self._own.role

    @property
    def lags(self) -> OwnBroker | None:
        """Metrics of the consumer groups of the broker, where there is one."""
        return self._own if self._own.incarnations is not None else None

    async def start(self) -> None:
        """Knows the cluster, and takes up its roles, however long there is no controller. May be cancelled; then
        `stop`.

        Raises BmqError; CannotListen, ConfigurationError for the store of another cluster.
        """
        settings, cluster = self._settings, self._cluster
        await cluster.enter()
        if settings.has(Role.PROXY):
            await bound(self._named("listen"), settings.listen, self._start_proxy())
            await self._start_listeners()
            self._tasks.run("catch up", self._catch_up())
        registration = self._registration()
        if settings.has(Role.BROKER):
            await self._start_broker(registration)
        else:
            self._membership = Membership(cluster.control, registration, rng=self._rng, listeners=self._listeners)
            self._beating = self._tasks.run("membership", self._membership.run())
            await self._until_joined(self._membership)
        cluster.serve_admin(self.admin, reader=self.proxy.proxy.reader if self.proxy is not None else None)

    def advertise(self, addresses: Mapping[str, str]) -> None:
        """HOST:PORT of listeners, by name, from now on: clients of this node are told them at once, those of others
        after its next heartbeat.
        """
        self._told = {**self._settings.advertised_listeners, **addresses}
        self._tell_listeners()

    def run_beside(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs it until this node stops; where it fails, this node ends."""
        self._tasks.run(name, work)

    async def stop(self, *, grace_s: float = GRACE_S) -> None:
        """The clean stop, in the order of the data's way: no more clients, everything handed over, no more metadata, no
        more calls.

        `grace_s` 0: at once, as a crash would, for a process that cannot go on.
        """
        broker = self._own.incarnations
        if self._beating is not None:
            await cancelled([self._beating])
        if self._membership is not None and grace_s > 0:
            await self._membership.leave()
        if self.proxy is not None:
            await self.proxy.stop(grace_s)
        if broker is not None and grace_s > 0:
            await broker.hand_over()
        await self._cluster.leave(grace_s=grace_s)
        if broker is not None:
            await broker.kill()  # nothing is left to hand over
        await self.admin.stop()
        await self._cluster.close()
        await self._tasks.close()

    def _owner_for(self, tp: TopicPartition) -> Owner:
        return self._cluster.owner_for(tp)

    async def _start_proxy(self) -> None:
        host, port = address_of(self._settings.listen)
        self.proxy = await start_proxy(
            self._store,
            self._owner_for,
            self._cluster.control,
            self._cluster.metadata,
            self._settings.proxy,
            lane_control=self._cluster.control,
            clock=self._clock,
            rng=self._rng,
            host=host,
            port=port,
            log_dir=self._settings.log_dir,
            cluster_configs=self._settings.cluster_configs,
            tracer=self._tracer,
            held=True,
        )

    async def _catch_up(self) -> None:
        """What was acknowledged before anybody could ask this proxy is known to it when it answers. Without the store
        it answers from what it knows.
        """
        assert self.proxy is not None
        try:
            await self._cluster.current()
        except (BmqError, TimeoutError) as error:
            _log.warning(
                "proxy serves without having caught up with the store", error=str(error) or "no answer for too long"
            )
        self.proxy.server.endpoint.release()

    async def _start_listeners(self) -> None:
        assert self.proxy is not None
        for name, address in self._settings.listeners.items():
            host, port = address_of(address)
            await bound(self._named("listeners"), f"{name}={address}", self.proxy.listen(name, host, port))
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        if self.proxy is not None:
            self.proxy.proxy.listeners = advertised_listeners(
                self._settings.listeners, self.proxy.listening, told=self._told
            )

    def _listeners(self) -> ListenerAddresses | None:
        return self.proxy.proxy.listeners if self.proxy is not None and self._settings.listeners else None

    async def _start_broker(self, registration: Registration) -> None:
        settings, cluster = self._settings, self._cluster
        guard = ClockGuard(
            self._store, self._clock, self._rng, node_id=self._node_id, settle_ms=settings.broker.clock_settle_ms
        )
        self._tasks.run("clock guard", guard.run())
        self._own.incarnations = incarnations = Incarnations(
            lambda on_fenced: BrokerRole(
                store=self._store,
                control=cluster.control,
                metadata=cluster.metadata,
                registration=replace(registration, listeners=self._listeners() or {}),
                listeners=self._listeners,
                tracer=self._tracer,
                rng=self._rng,
                clock_guard=guard,
                settings=settings.broker,
                group_settings=settings.groups,
                cluster_configs=settings.cluster_configs,
                on_fenced=on_fenced,
                owner_for=cluster.owner_for,
            ),
            rng=self._rng,
            begins_again=cluster.begins_again,
            on_lost=lambda error: self._tasks.end(cluster.why_it_ends(error)),
        )
        cluster.serve_owner()
        await cluster.registered(incarnations.start)
        self._own.serves.set()

    async def _until_joined(self, membership: Membership) -> None:
        """Without a controller a proxy serves all the same: those who know its address."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(JOIN_S):
                await membership.joined.wait()

    def _registration(self) -> Registration:
        settings, (internal_host, internal_port) = self._settings, self._cluster.internal
        host, port = "", 0
        if self.proxy is not None:
            host, port = advertised(settings.listen, settings.advertised_listen, port=self.proxy.port)
        return Registration(
            node_id=self._node_id,
            boot=self._rng.uuid(),
            roles=tuple(str(role) for role in settings.roles),
            host=host,
            port=port,
            rack=settings.rack,
            internal_host=internal_host,
            internal_port=internal_port,
            pool=settings.pool,
            lane=settings.lane,
            listeners=self._listeners() or {},
        )
