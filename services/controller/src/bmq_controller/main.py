"""Starts the controller role: one that leads at once, for a process that is the whole cluster, or one among several.

A process that runs several roles hands the parts to the others.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bmq.clocks.clock_guard import ClockGuard
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.follower import Poll
from bmq.metadata.journal import Position
from bmq.ports import Clock, ObjectStore, Rng
from bmq.values import NodeId
from bmq_controller.controller import LeadingController
from bmq_controller.current import CurrentController
from bmq_controller.leader import ControllerLeader
from bmq_controller.settings import ControllerSettings
from bmq_controller.standby import Standby


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRole:
    """A leading controller. `metadata` is the node's image; `deposed` resolves with the reason once it leads no more
    (not by `stop`).
    """

    controller: LeadingController
    metadata: MetadataFeed
    leader: ControllerLeader
    deposed: "asyncio.Future[str]"

    async def stop(self) -> None:
        """Commits what is under way and ends. Idempotent."""
        await self.controller.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRole:
    """A controller among several, leading or not. `metadata` is the node's image at all times; `ended` resolves where
    it can do neither.
    """

    controller: CurrentController
    metadata: MetadataFeed
    standby: Standby
    ended: "asyncio.Future[str]"

    @property
    def leading(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.controller.leading is not None

    async def stop(self) -> None:
        """Commits what is under way and ends. Idempotent."""
        await self.standby.stop()


async def start_controller(
    store: ObjectStore,
    *,
    node_id: NodeId,
    clock: Clock,
    rng: Rng,
    settings: ControllerSettings | None = None,
    on_deposed: Callable[[str], None] | None = None,
    host: str = "",
    port: int = 0,
) -> ControllerRole:
    """Reads the metadata and claims leadership: any other controller of the store is deposed. Waits out a store that is
    down.

    `host` and `port`: where other nodes reach it. Raises FormatError where the metadata cannot be read, Fenced where
    others claim leadership again and again.
    """
    deposed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    feed = MetadataFeed()

    def lost(reason: str) -> None:
        if not deposed.done():
            deposed.set_result(reason)
        if on_deposed is not None:
            on_deposed(reason)

    leader = ControllerLeader(
        store, node_id, rng=rng, feed=feed, on_deposed=lost, settings=settings, host=host, port=port
    )
    guard = ClockGuard(store, clock, rng, node_id=node_id)
    controller = LeadingController(leader, node_id=node_id, store=store, guard=guard, rng=rng, silent_s={})
    await leader.start(beside=controller.beside)
    return ControllerRole(controller=controller, metadata=feed, leader=leader, deposed=deposed)


async def start_standby(
    store: ObjectStore,
    *,
    node_id: NodeId,
    clock: Clock,
    rng: Rng,
    settings: ControllerSettings | None = None,
    poll: Poll | None = None,
    host: str = "",
    port: int = 0,
    on_ended: Callable[[str], None] | None = None,
    loaded: Position | None = None,
) -> StandbyRole:
    """A controller that follows while another one leads, and leads when none does, in turns for ever. Waits out a store
    that is down.

    `poll` asks the leader for entries (`MetadataSource.metadata_poll`); without it they come from the store. `host` and
    `port`: where other nodes reach this one when it leads. `loaded`: what was read of the metadata before. For the
    leader to know of it, the node has to be registered with the role "controller". Raises FormatError where the
    metadata cannot be read.
    """
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    feed = MetadataFeed()

    def lost(reason: str) -> None:
        if not ended.done():
            ended.set_result(reason)
        if on_ended is not None:
            on_ended(reason)

    standby = Standby(
        store,
        node_id=node_id,
        clock=clock,
        rng=rng,
        settings=settings if settings is not None else ControllerSettings(),
        feed=feed,
        poll=poll,
        host=host,
        port=port,
        on_ended=lost,
        loaded=loaded,
    )
    await standby.start()
    return StandbyRole(controller=standby.controller, metadata=feed, standby=standby, ended=ended)
