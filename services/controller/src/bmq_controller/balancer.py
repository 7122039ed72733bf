"""Moves partitions, round by round, to where the balance wants them. What is moved and why is `machine.balance`'s to
say.

A round begins moves; owners complete them with their heartbeats. What fails or comes late needs no care: the next round
plans from what came of it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import structlog

from bmq.errors import ControllerUnavailable, RequestError
from bmq.fairness.log_limit import RateLimited
from bmq.metadata.image import Image
from bmq.metadata.records import AnyRecord
from bmq.values import NodeId, TopicPartition
from bmq_controller import metrics
from bmq_controller.leader import ControllerLeader
from bmq_controller.machine.balance import plan
from bmq_controller.machine.balance_input import RecentMoves, cluster_load
from bmq_controller.machine.balance_loads import KnownLoads, merged
from bmq_controller.machine.balance_model import BalanceSettings, Move, Plan
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.moves import move
from bmq_controller.machine.placement import Incarnation

LOG_INTERVAL_S = 300.0
SHARE_MAX = 0.1
"""The largest share of the time that planning takes: in a cluster of 200,000 partitions a round costs tenths of a
second, and shares Python's lock with the leader."""

_log = structlog.get_logger(__name__)


class Balancer:
    """The leader's; lives as long as it leads."""

    def __init__(
        self,
        leader: ControllerLeader,
        *,
        loads: KnownLoads,
        draining: Callable[[], Collection[NodeId]],
        stopping: Callable[[], Collection[NodeId]],
        silent: Callable[[], Collection[Incarnation]],
        interval_s: float,
        settings: BalanceSettings | None = None,
    ) -> None:
        """`draining`: brokers that are to own nothing; `stopping`: those that soon hand everything over at once;
        `silent`: those whose lease has run out, which get nothing and are not waited for.

        `interval_s` 0: nothing is balanced.
        """
        self._leader = leader
        self._loads = loads
        self._draining = draining
        self._stopping = stopping
        self._silent = silent
        self._interval_s = interval_s
        self._settings = settings if settings is not None else BalanceSettings()
        self._recent = RecentMoves(remember_ms=self._settings.rest_ms)
        self._balancing: frozenset[str] = frozenset()
        self._planned_for_s = 0.0
        """How long the last plan took to compute."""
        self._limit = RateLimited(interval_s=LOG_INTERVAL_S)

    def committed(self, records: Sequence[AnyRecord]) -> None:
        """The records of one more entry."""
        self._recent.committed(records, _now_ms())
        self._loads.committed(records, _now_ms())

    async def run(self) -> None:
        """Until it is cancelled."""
        while self._interval_s > 0:
            await asyncio.sleep(max(self._interval_s, self._planned_for_s / SHARE_MAX))
            await self.round()

    def plan_later(self, settings: BalanceSettings) -> Callable[[], Plan]:
        """What gives what the next round would do, with these settings, from what is known now: for any thread, it
        takes a look at every partition.
        """
        now_ms = _now_ms()
        return partial(
            _planned,
            self._leader.image,
            self._loads.snapshot(now_ms),
            now_ms=now_ms,
            since_ms=dict(self._recent.since_ms(now_ms)),
            draining=self._draining(),
            stopping={*self._stopping(), *(node_id for node_id, _ in self._silent())},
            balancing=self._balancing,
            settings=settings,
        )

    async def plan(self) -> Plan:
        """What the next round does. Computed in a thread."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            return await loop.run_in_executor(None, self.plan_later(self._settings))
        finally:
            self._planned_for_s = loop.time() - began_s

    @property
    def knows_loads(self) -> bool:
        """Whether every living broker that is not silent has said to this leader what it takes. Who has not would look
        idle.
        """
        return self._loads.knows(self._leader.image, silent=self._silent())

    async def round(self) -> None:
        """Plans, and begins the moves; not before every living broker that is not silent has said what it takes."""
        if not self.knows_loads:
            return
        try:
            await self.begin(await self.plan())
        except ControllerUnavailable as error:
            _log.info("a round of the balance is left out", reason=str(error))

    async def begin(self, found: Plan) -> list[Move]:
        """Makes a plan this round's: begins its moves, those that are still possible, and gives them. Raises
        ControllerUnavailable.
        """
        self._balancing = found.balancing
        for problem in found.problems:
            if (left_out := self._limit.due(problem, now=asyncio.get_running_loop().time())) is not None:
                _log.warning("the balance has a problem that no move can mend", problem=problem, left_out=left_out)
        if not found.moves:
            return []
        begun = await self._leader.operate("balance", lambda image: begin_moves(image, found.moves))
        for one in begun:
            metrics.BALANCED.labels(str(one.kind)).inc()
            _log.info(
                "partition is moved",
                partition=str(one.tp),
                topic=one.topic,
                source=one.source,
                target=one.target,
                reason=one.reason,
            )
        return begun


def begin_moves(image: Image, moves: Sequence[Move]) -> Decision[list[Move]]:
    """Those of the moves that are still possible: since the plan was made, topics, brokers and owners may have gone."""
    begun: list[Move] = []
    records: list[AnyRecord] = []
    for one in moves:
        meta = image.partition(one.tp)
        if meta is None or meta.node_id != one.source or one.tp in image.moving:
            continue
        try:
            decision = move(image, one.tp, one.target)
        except RequestError:
            continue
        records.extend(decision.records)
        begun.append(one)
    return Decision(begun, tuple(records))


def _planned(
    image: Image,
    loads: Sequence[Mapping[TopicPartition, float]],
    *,
    now_ms: int,
    since_ms: Mapping[TopicPartition, int],
    draining: Collection[NodeId],
    stopping: Collection[NodeId],
    balancing: frozenset[str],
    settings: BalanceSettings,
) -> Plan:
    """Runs in a thread: nothing of what it reads changes."""
    cluster = cluster_load(
        image,
        merged(loads),
        now_ms=now_ms,
        since_ms=since_ms,
        draining=draining,
        stopping=stopping,
        balancing=balancing,
    )
    return plan(cluster, settings)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
