"""Watches the leases of all nodes, and fences those that are silent: the leader's part of a node's death.

The order is what makes it safe to be wrong: once `FencingBegun` is committed the node may only register anew, its
stream is sealed, and only then its partitions go to heirs. Whatever a leader leaves undone is in the image, and the
next one completes it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog

from bmq.errors import BmqError
from bmq.fairness.log_limit import RateLimited
from bmq.metadata.image import Image
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import cancelled
from bmq.storage.stream import seal_stream
from bmq.values import NodeId, StreamId
from bmq_controller import metrics
from bmq_controller.leader import ControllerLeader
from bmq_controller.machine.fencing import begin_fencing, complete_fencing
from bmq_controller.machine.leases import Leases
from bmq_controller.machine.placement import Incarnation, living_brokers
from bmq_controller.machine.pools import Heirless

SEALS_AT_ONCE: Final = 16
RETRY_S: Final = 5.0
LOG_INTERVAL_S: Final = 60.0

_log = structlog.get_logger(__name__)


class Fencer:
    """The leader's; lives as long as it leads."""

    def __init__(
        self,
        leader: ControllerLeader,
        *,
        node_id: NodeId,
        store: ObjectStore,
        rng: Rng,
        silent_s: Mapping[NodeId, float],
        avoid: Callable[[], Collection[NodeId]],
    ) -> None:
        """`silent_s`: what an earlier leader let it be known how long nodes have been silent. `avoid`: brokers that
        stop soon, not to be heirs.
        """
        self._leader = leader
        self._node_id = node_id
        self._store = store
        self._rng = rng
        self._silent_s = silent_s
        self._avoid = avoid
        self._tick_s = leader.settings.lease_tick_s
        self._leases = Leases(lease_s=leader.settings.lease_s, lag_s_max=leader.settings.lease_lag_s_max)
        self._silent: frozenset[Incarnation] = frozenset()
        self._heirless = Heirless()
        self._tasks: dict[Incarnation, asyncio.Task[None]] = {}
        self._seals = asyncio.Semaphore(SEALS_AT_ONCE)
        self._limit = RateLimited(interval_s=LOG_INTERVAL_S)

    def heard(self, who: Incarnation) -> None:
        """A sign of life of a registered incarnation."""
        self._leases.heard(who, now_s=asyncio.get_running_loop().time())

    @property
    def silent_s(self) -> dict[NodeId, float]:
        """How long ago each node was heard, but for this process's own."""
        return self._leases.silent_s(now_s=asyncio.get_running_loop().time())

    @property
    def silent(self) -> frozenset[Incarnation]:
        """Whose lease had run out at the last tick: they are being fenced, or spared for want of an heir."""
        return self._silent

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        self._leases.start(self._silent_s, self._watched(self._leader.image), now_s=loop.time())
        try:
            while True:
                await asyncio.sleep(self._tick_s)
                self._tick(loop.time())
        finally:
            await cancelled(self._tasks.values())

    def _tick(self, now_s: float) -> None:
        image = self._leader.image
        self._reap()
        silent = self._leases.tick(self._watched(image), now_s=now_s)
        self._silent = frozenset(silent)
        for begun in image.fencing.items():
            self._start(begun)
        if not silent:
            return
        heirs = frozenset(
            node.pool for node in living_brokers(image) if (node.node_id, node.broker_epoch) not in self._silent
        )
        heirless = self._heirless.among(image, [who for who in silent if "broker" in image.nodes[who[0]].roles], heirs)
        for who in silent:
            if who in heirless:
                self._spare(who, now_s)
            else:
                self._start(who)

    def _watched(self, image: Image) -> list[Incarnation]:
        """All nodes but this process's own."""
        return [(node_id, node.broker_epoch) for node_id, node in image.nodes.items() if node_id != self._node_id]

    def _spare(self, who: Incarnation, now_s: float) -> None:
        """Without an heir nobody would gain by a fencing; and where all are silent at once, it may be this leader that
        nobody reaches.
        """
        if (left_out := self._limit.due("spared", now=now_s)) is not None:
            _log.warning(
                "broker is silent and not fenced: no other broker of its pool is alive to take its partitions",
                node_id=who[0],
                left_out=left_out,
            )

    def _start(self, who: Incarnation) -> None:
        if who not in self._tasks:
            self._tasks[who] = asyncio.get_running_loop().create_task(self._fence(who), name=f"fence node {who[0]}")

    def _reap(self) -> None:
        for who, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[who]
                task.result()

    async def _fence(self, who: Incarnation) -> None:
        """All steps, from where it stands. What fails is tried again: the silence goes on, or its beginning is in the
        image.
        """
        node_id, broker_epoch = who
        try:
            if not await self._leader.operate("fence", lambda image: begin_fencing(image, who), first=True):
                metrics.FENCINGS.labels("unregistered").inc()
                return
            metrics.FENCINGS.labels("begun").inc()
            _log.warning("broker was silent for too long and is fenced", node_id=node_id, broker_epoch=broker_epoch)
            async with self._seals:
                cluster_id = self._leader.image.cluster_id
                end = await seal_stream(
                    self._store, StreamId(node_id, broker_epoch), cluster_id=cluster_id, rng=self._rng
                )
            avoid = self._avoid()
            if await self._leader.operate(
                "fenced",
                lambda image: complete_fencing(image, who, end=end, avoid=avoid),
                first=True,
                gives_away=node_id,
            ):
                metrics.FENCINGS.labels("completed").inc()
                _log.warning(
                    "broker is fenced, its partitions have heirs",
                    node_id=node_id,
                    broker_epoch=broker_epoch,
                    sealed_end=end,
                )
        except BmqError as error:
            _log.error(
                "fencing of a broker is not done, trying again",
                node_id=node_id,
                broker_epoch=broker_epoch,
                error=str(error),
            )
            await asyncio.sleep(RETRY_S)
