"""A process that is the whole cluster, as `bmq up` runs one: it leads at once, and deposes whoever led its store."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from bmq.errors import BmqError, ControllerUnavailable, Fenced, NotReady
from bmq.metadata.feed import MetadataFeed
from bmq.ports import Clock, ObjectStore, Rng
from bmq.roles.owner import Owner
from bmq.values import NodeId, TopicPartition
from bmq_controller.controller import LeadingController
from bmq_controller.main import ControllerRole, start_controller
from bmq_controller.settings import ControllerSettings
from bmq_node.admin.api import AdminApi
from bmq_node.own_broker import OwnBroker
from bmq_node.surroundings import CURRENT_S, Control
from bmq_node.tasks import Tasks
from bmq_proxy.fetch.reader import Reader

log = structlog.get_logger("bmq.node")

REGISTERED_AGAIN_MAX: Final = 5
"""Each takes half a minute at most."""
TAKEN_OVER: Final = "another bmq has taken over this store"


class Alone:
    """Implements Surroundings: there is nobody else. Where its broker is fenced, another process has the store."""

    begins_again = False
    internal = ("", 0)

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock,
        rng: Rng,
        node_id: NodeId,
        settings: ControllerSettings,
        cluster_configs: Mapping[str, str],
        tasks: Tasks,
        own: OwnBroker,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._node_id = node_id
        self._settings = replace(settings, cluster_configs=cluster_configs)
        self._tasks = tasks
        self._own = own
        self._controller: ControllerRole | None = None

    @property
    def metadata(self) -> MetadataFeed:
        return self._role.metadata

    @property
    def control(self) -> Control:
        return self._role.controller

    @property
    def leading(self) -> LeadingController | None:
        role = self._controller
        return None if role is None or role.deposed.done() else role.controller

    @property
    def _role(self) -> ControllerRole:
        assert self._controller is not None, "it was entered"
        return self._controller

    def owner_for(self, tp: TopicPartition) -> Owner:
        owner = self._own.owner
        if owner is None:
            raise NotReady(f"{tp}: this broker is starting")
        return owner

    async def enter(self) -> None:
        self._controller = await start_controller(
            self._store,
            node_id=self._node_id,
            clock=self._clock,
            rng=self._rng,
            settings=self._settings,
            on_deposed=self._tasks.end,
        )

    async def current(self) -> None:
        """Nothing is acknowledged elsewhere: clients wait for the broker alone, CURRENT_S at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CURRENT_S):
                await self._own.serves.wait()

    async def registered(self, start: Callable[[], Awaitable[None]]) -> None:
        """A store that takes longer than anybody is let wait for it ends no start at once: what was sealed meanwhile
        need not be sealed again.
        """
        for _ in range(REGISTERED_AGAIN_MAX):
            try:
                await start()
            except ControllerUnavailable as error:
                log.warning("broker could not be registered, trying again", error=str(error))
            else:
                return
        await start()

    def serve_owner(self) -> None:
        """Nobody else asks."""

    def serve_admin(self, admin: AdminApi, *, reader: Reader | None) -> None:
        admin.serve(
            self.metadata,
            leading=lambda: self.leading,
            owner_for=self.owner_for,
            reader=reader,
            static_configs=self._settings.cluster_configs,
        )

    def why_it_ends(self, error: BmqError) -> str:
        return (
            f"{TAKEN_OVER}: {error}"
            if isinstance(error, Fenced)
            else f"{error}; start it again, nothing acknowledged is lost"
        )

    async def leave(self, *, grace_s: float) -> None:
        if self._controller is not None:
            await self._controller.stop()

    async def close(self) -> None:
        """There is nobody to ask."""
