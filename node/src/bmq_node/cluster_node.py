"""One process of a cluster: its roles, put together with the internal listener and a connection to whoever leads.

Only composition, as in bmq_node.single: the store, the clock and randomness come from outside and the network from the
event loop, so the simulator runs these nodes as they are. Every role asks the leading controller as other nodes do, be
it in this process; a proxy asks the broker of its own process directly.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import structlog
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from bmq.clocks.clock_guard import ClockGuard
from bmq.config.limits import limits_of
from bmq.errors import BmqError, ConfigurationError
from bmq.internal import (
    Identity,
    InternalServer,
    RemoteController,
    admin_handlers,
    controller_handlers,
    metadata_handlers,
    owner_handlers,
)
from bmq.internal.framing.routes import Handlers
from bmq.internal.framing.secret import ClusterSecret
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.follower import MetadataFollower
from bmq.metadata.image import Image
from bmq.metadata.journal import MetadataJournal, Position
from bmq.naming.listeners import ListenerAddresses
from bmq.ports import Clock, ObjectStore, Rng, Tracer
from bmq.roles.controller import Registration
from bmq.roles.owner import OwnerHere
from bmq.storage.durable import cancelled
from bmq.values import NodeId
from bmq_broker.incarnations import Incarnations
from bmq_broker.main import BrokerRole
from bmq_controller.controller import LeadingController
from bmq_controller.main import StandbyRole, start_standby
from bmq_node.admin.api import AdminApi
from bmq_node.admin.exposition import Lags
from bmq_node.configuration.addresses import address_of
from bmq_node.configuration.listeners import advertised_listeners
from bmq_node.configuration.role_settings import RoleSettings, advertised
from bmq_node.configuration.server_config import ServerConfig
from bmq_node.configuration.values import Role
from bmq_node.current_owner import CurrentOwner
from bmq_node.membership import Membership, until_led
from bmq_node.owners import Owners
from bmq_node.process.listening import bound
from bmq_proxy.main import ProxyRole, start_proxy

GRACE_S: Final = 5.0
JOIN_S: Final = 5.0
"""How long a node without a broker waits to be registered before it says that it serves."""
CURRENT_S: Final = 5.0
"""How long clients of a proxy that starts wait for the store's word of what the cluster is now."""

_log = structlog.get_logger("bmq.node")


class ClusterNode:
    """A process's whole life: start, serve until stopped or until it cannot go on, stop."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock,
        rng: Rng,
        config: ServerConfig,
        settings: RoleSettings,
        tracer: Tracer | None = None,
    ) -> None:
        """`settings` are those that the configuration makes (bmq_node.configuration.role_settings), or smaller ones to
        simulate with.
        """
        self._store = store
        self._clock = clock
        self._rng = rng
        self._config = config
        self._settings = settings
        self._tracer = tracer
        self._node_id = NodeId(config.node_id)
        self._tasks: list[asyncio.Task[None]] = []
        self._feed = MetadataFeed()
        self._journal = MetadataJournal(store, rng=rng)
        self._server: InternalServer | None = None
        self._internal = ("", 0)
        self._control: RemoteController | None = None
        self._may_ask = asyncio.Event()
        """Set once there is a cluster, and so a leader to ask."""
        self._controller: StandbyRole | None = None
        self._broker: Incarnations | None = None
        self._owners: Owners | None = None
        self._membership: Membership | None = None
        self._beating: asyncio.Task[None] | None = None
        self._told: Mapping[str, str] = config.advertised_listeners
        self.proxy: ProxyRole | None = None
        self.admin = AdminApi(
            store, node_id=self._node_id, clock=clock, rng=rng, describe=lambda: config.model_dump(mode="json")
        )
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves with the reason once this process may only end."""

    @property
    def internal(self) -> tuple[str, int]:
        """(host, port) that other nodes are told."""
        return self._internal

    @property
    def image(self) -> Image:
        """The cluster as this node knows it."""
        return self._feed.image

    @property
    def lags(self) -> Lags | None:
        """Metrics of the consumer groups of the broker, where there is one."""
        return _CurrentLags(self._broker) if self._broker is not None else None

    async def start(self) -> None:
        """Listens, follows the metadata, and takes up its roles, however long there is no controller. May be cancelled;
        then `stop`.

        Raises BmqError; CannotListen, ConfigurationError for the store of another cluster.
        """
        config = self._config
        loaded = await self._journal.load()
        known = loaded.image.cluster_id
        self._check_cluster(known)
        self._server = server = InternalServer(
            {},
            self._identity(known or config.cluster_id, loaded.image.copy),
            strangers_max=limits_of(config.limits).internal_strangers_max,
        )
        await bound("internal_listen", config.internal_listen, self._listen(server))
        if config.has(Role.CONTROLLER):
            await self._start_controller(server, loaded)
        else:
            follower = MetadataFollower(self._store, rng=self._rng, feed=self._feed, poll=self._poll)
            await follower.load(loaded)
            self._run("follow metadata", follower.run())
        image = await self._until_founded()
        self._check_cluster(image.cluster_id)
        server.me = me = self._identity(image.cluster_id, image.copy)
        self._control = control = RemoteController(self._feed, me=me)
        self._owners = Owners(self._feed, me=me, own=self._own_broker)
        self._may_ask.set()
        if config.has(Role.PROXY):
            await bound("listen", config.listen, self._start_proxy(self._owners, control))
            await self._start_listeners()
            self._run("catch up", self._catch_up(loaded))
        registration = self._registration()
        if config.has(Role.BROKER):
            await self._start_broker(server, control, registration, self._owners)
        else:
            self._membership = Membership(control, registration, rng=self._rng, listeners=self._listeners)
            self._beating = self._run("membership", self._membership.run())
            await self._until_joined(self._membership)
        self._serve_admin(server, me, control, self._owners)

    def advertise(self, addresses: Mapping[str, str]) -> None:
        """HOST:PORT of listeners, by name, from now on: clients of this node are told them at once, those of others
        after its next heartbeat.
        """
        self._told = {**self._config.advertised_listeners, **addresses}
        self._tell_listeners()

    def run_beside(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs it until this node stops; where it fails, this node ends."""
        self._run(name, work)

    async def stop(self, *, grace_s: float = GRACE_S) -> None:
        """The clean stop, in the order of the data's way: no more clients, everything handed over, no more metadata, no
        more calls.

        `grace_s` 0: at once, as a crash would, for a process that cannot go on.
        """
        if self._beating is not None:
            await cancelled([self._beating])
        if self._membership is not None and grace_s > 0:
            await self._membership.leave()
        if self.proxy is not None:
            await self.proxy.stop(grace_s)
        if self._broker is not None and grace_s > 0:
            await self._broker.drain()
        if self._controller is not None:
            await self._controller.stop()
        if self._server is not None:
            await self._server.stop(grace_s=grace_s)
        if self._broker is not None:
            await self._broker.kill()  # nothing is left to hand over
        await self.admin.stop()
        if self._owners is not None:
            await self._owners.close()
        if self._control is not None:
            await self._control.close()
        await cancelled(self._tasks)

    def _identity(self, cluster_id: str, copy: str) -> Identity:
        key = self._config.cluster_secret
        accepted = tuple(line.encode() for line in self._config.cluster_secrets_accepted.splitlines() if line)
        secret = ClusterSecret(key=key.encode(), nonce=self._rng.nonce, accepted=accepted) if key else None
        return Identity(cluster_id=cluster_id, node_id=self._node_id, secret=secret, copy=copy)

    # --- roles ---

    async def _listen(self, server: InternalServer) -> None:
        _, port = await server.start(*address_of(self._config.internal_listen))
        self._internal = advertised(self._config.internal_listen, self._config.advertised_internal, port=port)

    async def _start_controller(self, server: InternalServer, loaded: Position) -> None:
        self._serve(server, {**controller_handlers(self._leading), **metadata_handlers(self._leading)})
        host, port = self._internal
        self._controller = await start_standby(
            self._store,
            node_id=self._node_id,
            clock=self._clock,
            rng=self._rng,
            settings=self._settings.controller,
            poll=self._poll,
            host=host,
            port=port,
            on_ended=lambda reason: self._end(f"the controller cannot go on: {reason}"),
            loaded=loaded,
        )
        self._feed = self._controller.metadata

    async def _start_proxy(self, owners: Owners, control: RemoteController) -> None:
        host, port = address_of(self._config.listen)
        self.proxy = await start_proxy(
            self._store,
            owners.owner_for,
            control,
            self._feed,
            self._settings.proxy,
            clock=self._clock,
            rng=self._rng,
            host=host,
            port=port,
            log_dir=self._settings.log_dir,
            cluster_configs=self._config.cluster_config,
            tracer=self._tracer,
            held=True,
        )

    async def _catch_up(self, loaded: Position) -> None:
        """What was acknowledged before anybody could ask this proxy is known to it when it answers: the deletion of a
        topic, say, made again since.

        Without the store it answers from what it knows.
        """
        assert self.proxy is not None
        try:
            async with asyncio.timeout(CURRENT_S):
                await self._feed.wait_for((await self._journal.newest(loaded)).image.position)
        except (BmqError, TimeoutError) as error:
            _log.warning(
                "proxy serves without having caught up with the store",
                error=str(error) or f"no answer within {CURRENT_S:g} s",
            )
        self.proxy.server.endpoint.release()

    async def _start_listeners(self) -> None:
        assert self.proxy is not None
        for name, address in self._config.listeners.items():
            host, port = address_of(address)
            await bound("listeners", f"{name}={address}", self.proxy.listen(name, host, port))
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        if self.proxy is not None:
            self.proxy.proxy.listeners = advertised_listeners(
                self._config.listeners, self.proxy.listening, told=self._told
            )

    def _listeners(self) -> ListenerAddresses | None:
        return self.proxy.proxy.listeners if self.proxy is not None and self._config.listeners else None

    async def _start_broker(
        self, server: InternalServer, control: RemoteController, registration: Registration, owners: Owners
    ) -> None:
        guard = ClockGuard(
            self._store, self._clock, self._rng, node_id=self._node_id, settle_ms=self._settings.broker.clock_settle_ms
        )
        self._run("clock guard", guard.run())
        self._broker = broker = Incarnations(
            lambda on_fenced: BrokerRole(
                store=self._store,
                control=control,
                metadata=self._feed,
                registration=replace(registration, listeners=self._listeners() or {}),
                listeners=self._listeners,
                tracer=self._tracer,
                rng=self._rng,
                clock_guard=guard,
                settings=self._settings.broker,
                group_settings=self._settings.groups,
                cluster_configs=self._config.cluster_config,
                on_fenced=on_fenced,
                owner_for=owners.owner_for,
            ),
            rng=self._rng,
            on_lost=lambda error: self._end(str(error)),
        )
        self._serve(server, owner_handlers(CurrentOwner(self._own_broker)))
        await until_led(broker.start, rng=self._rng)

    def _serve_admin(self, server: InternalServer, me: Identity, control: RemoteController, owners: Owners) -> None:
        self.admin.serve(
            self._feed,
            leading=self._leading,
            owner_for=owners.owner_for,
            reader=self.proxy.proxy.reader if self.proxy is not None else None,
            static_configs=self._config.cluster_config,
            control=control,
            me=me,
        )
        self._serve(server, admin_handlers(self.admin.front.answer))

    def _leading(self) -> LeadingController | None:
        return self._controller.controller.leading if self._controller is not None else None

    async def _until_joined(self, membership: Membership) -> None:
        """Without a controller a proxy serves all the same: those who know its address."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(JOIN_S):
                await membership.joined.wait()

    @property
    def broker(self) -> BrokerRole | None:
        """The broker of the moment, where this node is one and has begun."""
        return self._broker.role if self._broker is not None and hasattr(self._broker, "role") else None

    def _own_broker(self) -> OwnerHere | None:
        return self._broker.owner if self._broker is not None and hasattr(self._broker, "role") else None

    def _registration(self) -> Registration:
        host, port = "", 0
        if self.proxy is not None:
            host, port = advertised(self._config.listen, self._config.advertised_listen, port=self.proxy.port)
        return Registration(
            node_id=self._node_id,
            boot=self._rng.uuid(),
            roles=tuple(str(role) for role in self._config.roles),
            host=host,
            port=port,
            rack=self._config.rack,
            internal_host=self._internal[0],
            internal_port=self._internal[1],
            pool=self._config.pool,
            lane=self._config.lane,
            listeners=self._listeners() or {},
        )

    # --- metadata ---

    async def _poll(self, after_position: int, wait_ms: int) -> list[bytes]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._may_ask.wait()
        if self._control is None:
            return []
        return await self._control.metadata_poll(after_position, max(0, round((until_s - loop.time()) * 1000)))

    async def _until_founded(self) -> Image:
        """The image once the cluster has its id: over a new store, once a controller has led. Raises BmqError where the
        log cannot be read.
        """
        changed = asyncio.Event()
        unsubscribe = self._feed.subscribe(lambda _, __: changed.set())
        if not self._feed.image.cluster_id:
            _log.info("waits for the first controller of this cluster", node_id=self._node_id)
        try:
            while not self._feed.image.cluster_id:
                changed.clear()
                waiting = asyncio.ensure_future(changed.wait())
                ends: list[asyncio.Future[Any]] = [waiting, self.ended]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if self.ended.done():
                    raise BmqError(self.ended.result())
        finally:
            unsubscribe()
        return self._feed.image

    def _check_cluster(self, cluster_id: str) -> None:
        wanted = self._config.cluster_id
        if wanted and cluster_id and wanted != cluster_id:
            raise ConfigurationError(
                f"cluster_id {wanted!r}: the store {self._config.store.partition('?')[0]} belongs to cluster "
                f"{cluster_id!r}: name that cluster's own store, or its id"
            )

    # --- the rest ---

    def _serve(self, server: InternalServer, handlers: Handlers) -> None:
        server.handlers = {**server.handlers, **handlers}

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task that ends with this node; one that fails ends this node."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ran)
        self._tasks.append(task)
        return task

    def _ran(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._end(
            f"{task.get_name()}: {error}"
            if isinstance(error, BmqError)
            else f"{task.get_name()} failed, a bug: {error!r}"
        )

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)


class _CurrentLags(Collector):
    """The metrics of the consumer groups of the incarnation of the moment; none while there is none."""

    def __init__(self, broker: Incarnations) -> None:
        self._broker = broker

    async def refresh(self) -> None:
        """Has the incarnation of the moment, if there is one, ask for what `collect` tells from then on."""
        if hasattr(self._broker, "role") and hasattr(self._broker.role, "lags"):
            await self._broker.role.lags.refresh()

    def collect(self) -> Iterator[Metric]:
        """What the incarnation of the moment tells, if there is one; for prometheus_client."""
        if hasattr(self._broker, "role") and hasattr(self._broker.role, "lags"):
            yield from self._broker.role.lags.collect()
