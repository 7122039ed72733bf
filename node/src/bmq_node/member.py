"""A process among others of a cluster, as `bmq server` runs one: the internal listener, a connection to whoever leads,
and connections to brokers elsewhere.

Every role asks the leading controller as other processes do, be it in this one; a proxy asks the broker of its own
process directly.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

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
from bmq.ports import Clock, ObjectStore, Rng
from bmq.roles.owner import Owner
from bmq.values import NodeId, TopicPartition
from bmq_controller.controller import LeadingController
from bmq_controller.main import StandbyRole, start_standby
from bmq_controller.settings import ControllerSettings
from bmq_node.admin.api import AdminApi
from bmq_node.configuration.addresses import address_of
from bmq_node.configuration.node_settings import advertised
from bmq_node.configuration.server_config import ServerConfig
from bmq_node.configuration.values import Role
from bmq_node.current_owner import CurrentOwner
from bmq_node.membership import until_led
from bmq_node.own_broker import OwnBroker
from bmq_node.owners import Owners
from bmq_node.process.listening import bound
from bmq_node.surroundings import CURRENT_S, Control
from bmq_node.tasks import Tasks
from bmq_proxy.fetch.reader import Reader

_log = structlog.get_logger("bmq.node")


class Member:
    """Implements Surroundings: other processes of the cluster."""

    begins_again = True

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock,
        rng: Rng,
        config: ServerConfig,
        settings: ControllerSettings,
        tasks: Tasks,
        own: OwnBroker,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._config = config
        self._settings = settings
        self._tasks = tasks
        self._own = own
        self._node_id = NodeId(config.node_id)
        self._feed = MetadataFeed()
        self._journal = MetadataJournal(store, rng=rng)
        self._server: InternalServer | None = None
        self._internal = ("", 0)
        self._control: RemoteController | None = None
        self._may_ask = asyncio.Event()
        """Set once there is a cluster, and so a leader to ask."""
        self._controller: StandbyRole | None = None
        self._owners: Owners | None = None
        self._loaded: Position | None = None

    @property
    def metadata(self) -> MetadataFeed:
        return self._feed

    @property
    def control(self) -> Control:
        return self._entered()[1]

    @property
    def internal(self) -> tuple[str, int]:
        return self._internal

    @property
    def leading(self) -> LeadingController | None:
        return self._controller.controller.leading if self._controller is not None else None

    def owner_for(self, tp: TopicPartition) -> Owner:
        assert self._owners is not None, "it was entered"
        return self._owners.owner_for(tp)

    async def enter(self) -> None:
        """Listens, follows the metadata, and waits for the first controller of a new store, however long there is none.

        Raises CannotListen, ConfigurationError for the store of another cluster.
        """
        config = self._config
        self._loaded = loaded = await self._journal.load()
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
            self._tasks.run("follow metadata", follower.run())
        image = await self._until_founded()
        self._check_cluster(image.cluster_id)
        server.me = me = self._identity(image.cluster_id, image.copy)
        self._control = RemoteController(self._feed, me=me)
        self._owners = Owners(self._feed, me=me, own=lambda: self._own.owner)
        self._may_ask.set()

    async def current(self) -> None:
        """The deletion of a topic, say, made again since, is known. Waits CURRENT_S for it at most."""
        assert self._loaded is not None, "it was entered"
        async with asyncio.timeout(CURRENT_S):
            await self._feed.wait_for((await self._journal.newest(self._loaded)).image.position)

    async def registered(self, start: Callable[[], Awaitable[None]]) -> None:
        await until_led(start, rng=self._rng)

    def serve_owner(self) -> None:
        self._serve(self._entered()[0], owner_handlers(CurrentOwner(lambda: self._own.owner)))

    def serve_admin(self, admin: AdminApi, *, reader: Reader | None) -> None:
        server, control, owners = self._entered()
        admin.serve(
            self._feed,
            leading=lambda: self.leading,
            owner_for=owners.owner_for,
            reader=reader,
            static_configs=self._config.cluster_config,
            control=control,
            me=server.me,
        )
        self._serve(server, admin_handlers(admin.front.answer))

    def why_it_ends(self, error: BmqError) -> str:
        return str(error)

    async def leave(self, *, grace_s: float) -> None:
        if self._controller is not None:
            await self._controller.stop()
        if self._server is not None:
            await self._server.stop(grace_s=grace_s)

    async def close(self) -> None:
        if self._owners is not None:
            await self._owners.close()
        if self._control is not None:
            await self._control.close()

    def _entered(self) -> tuple[InternalServer, RemoteController, Owners]:
        assert self._server is not None and self._control is not None and self._owners is not None, "it was entered"
        return self._server, self._control, self._owners

    def _identity(self, cluster_id: str, copy: str) -> Identity:
        key = self._config.cluster_secret
        accepted = tuple(line.encode() for line in self._config.cluster_secrets_accepted.splitlines() if line)
        secret = ClusterSecret(key=key.encode(), nonce=self._rng.nonce, accepted=accepted) if key else None
        return Identity(cluster_id=cluster_id, node_id=self._node_id, secret=secret, copy=copy)

    async def _listen(self, server: InternalServer) -> None:
        _, port = await server.start(*address_of(self._config.internal_listen))
        self._internal = advertised(self._config.internal_listen, self._config.advertised_internal, port=port)

    async def _start_controller(self, server: InternalServer, loaded: Position) -> None:
        self._serve(server, {**controller_handlers(lambda: self.leading), **metadata_handlers(lambda: self.leading)})
        host, port = self._internal
        self._controller = await start_standby(
            self._store,
            node_id=self._node_id,
            clock=self._clock,
            rng=self._rng,
            settings=self._settings,
            poll=self._poll,
            host=host,
            port=port,
            on_ended=lambda reason: self._tasks.end(f"the controller cannot go on: {reason}"),
            loaded=loaded,
        )
        self._feed = self._controller.metadata

    def _serve(self, server: InternalServer, handlers: Handlers) -> None:
        server.handlers = {**server.handlers, **handlers}

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
                ends: list[asyncio.Future[Any]] = [waiting, self._tasks.ended]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if self._tasks.ended.done():
                    raise BmqError(self._tasks.ended.result())
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
