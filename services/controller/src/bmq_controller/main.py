"""Starts the controller role. A process that runs several roles hands `ControllerRole`'s parts to the others."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bmq.metadata.feed import MetadataFeed
from bmq.ports import Clock, ObjectStore, Rng
from bmq.values import NodeId
from bmq_controller.controller import LeadingController
from bmq_controller.leader import ControllerLeader
from bmq_controller.settings import ControllerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRole:
    """A leading controller. `metadata` is the node's image; `deposed` resolves with the reason once it leads no more (not by `stop`)."""

    controller: LeadingController
    metadata: MetadataFeed
    leader: ControllerLeader
    deposed: "asyncio.Future[str]"

    async def stop(self) -> None:
        """Commits what is under way and ends. Idempotent."""
        await self.leader.stop()


async def start_controller(
    store: ObjectStore,
    *,
    node_id: NodeId,
    clock: Clock,
    rng: Rng,
    settings: ControllerSettings | None = None,
    on_deposed: Callable[[str], None] | None = None,
) -> ControllerRole:
    """Reads the metadata and claims leadership: any other controller of the store is deposed. Waits out a store that is down.

    Raises FormatError where the metadata cannot be read, Fenced where others claim leadership again and again.
    """
    deposed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    feed = MetadataFeed()

    def lost(reason: str) -> None:
        if not deposed.done():
            deposed.set_result(reason)
        if on_deposed is not None:
            on_deposed(reason)

    leader = ControllerLeader(store, node_id, rng=rng, feed=feed, on_deposed=lost, settings=settings)
    await leader.start()
    controller = LeadingController(leader, store=store, clock=clock, rng=rng)
    return ControllerRole(controller=controller, metadata=feed, leader=leader, deposed=deposed)
