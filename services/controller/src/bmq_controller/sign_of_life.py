"""The leader's sign of life in the metadata log, which standbys watch: they depose a leader whose log stands still."""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from bmq.errors import ControllerUnavailable
from bmq.metadata.image import Image
from bmq.metadata.records import LeaderAlive
from bmq.values import NodeId
from bmq_controller.leader import ControllerLeader
from bmq_controller.machine.decision import Decision

NAME: Final = "alive"

_log = structlog.get_logger(__name__)


def has_standbys(image: Image, leader_id: NodeId) -> bool:
    """Whether any other controller is registered."""
    return any("controller" in node.roles for node_id, node in image.nodes.items() if node_id != leader_id)


class SignOfLife:
    """The leader's; lives as long as it leads."""

    def __init__(self, leader: ControllerLeader, *, node_id: NodeId, interval_s: float) -> None:
        self._leader = leader
        self._node_id = node_id
        self._interval_s = interval_s
        self._heard: set[NodeId] = set()

    def heard(self, node_id: NodeId) -> None:
        """A node lives: standbys are to know, should one of them lead soon."""
        self._heard.add(node_id)

    def farewell(self) -> Decision[None] | None:
        """The leader's last word, so that a standby need not wait for its silence; None where there is no standby."""
        return self._alive(resigns=True) if has_standbys(self._leader.image, self._node_id) else None

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            if has_standbys(self._leader.image, self._node_id):
                await self._say()
            else:
                self._heard.clear()
            # Paced by when it began, so that the store's latency does not stretch the interval.
            due_s = max(due_s + self._interval_s, loop.time())
            await asyncio.sleep(due_s - loop.time())

    async def _say(self) -> None:
        heard, self._heard = self._heard, set()
        alive = self._alive(heard)
        try:
            await self._leader.operate(NAME, lambda image: alive, first=True, neutral=True)
        except ControllerUnavailable as error:
            self._heard |= heard
            _log.warning("the leader's sign of life is late: a standby may lead", error=str(error))

    def _alive(self, heard: Iterable[NodeId] = (), *, resigns: bool = False) -> Decision[None]:
        return Decision(
            None, (LeaderAlive(heard=tuple(sorted({*self._heard, *heard, self._node_id})), resigns=resigns),)
        )
