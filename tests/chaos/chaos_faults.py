"""Carries out planned faults on a cluster, and remembers from when to when each was on."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final

from chaos_cluster import Cluster, Node
from chaos_plan import LEADER, OTHER_CONTROLLER, Planned
from chaos_relay import NO_TROUBLE, Kind, Relay, Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A fault as it was: times of CLOCK_MONOTONIC; `node_id` whom it hit."""

    fault: str
    node_id: int
    began_s: float
    ended_s: float


class Faults:
    """Faults of one node come one after the other, those of different nodes may overlap."""

    def __init__(self, cluster: Cluster, done: list[Done]) -> None:
        """`done` gets each fault when it is over."""
        self._cluster = cluster
        self._store_lock = asyncio.Lock()
        self.done = done

    async def run(self, planned: Sequence[Planned]) -> None:
        """All of them, each at its time; returns when the last is over. A fault that cannot be carried out ends the
        run.
        """
        began_s = monotonic()
        async with asyncio.TaskGroup() as group:
            for one in planned:
                group.create_task(self._at(began_s + one.at_s, one))

    async def _at(self, at_s: float, planned: Planned) -> None:
        await asyncio.sleep(max(0.0, at_s - monotonic()))
        if not planned.node_id:
            async with self._store_lock:
                await self._store(planned)
            return
        node = self._cluster.nodes[await self._target(planned.node_id)]
        async with node.lock:
            began_s = monotonic()
            await self._node(node, planned)
            self.done.append(Done(fault=planned.fault, node_id=node.node_id, began_s=began_s, ended_s=monotonic()))

    async def _target(self, node_id: int) -> int:
        if node_id not in (LEADER, OTHER_CONTROLLER):
            return node_id
        leader = await self._cluster.leader()
        others = [node.node_id for node in self._cluster.of_role("controller") if node.node_id != leader]
        return leader if node_id == LEADER or not others else others[0]

    async def _node(self, node: Node, planned: Planned) -> None:
        verb = planned.fault.verb
        match verb:
            case "kill":
                await node.kill()
                await asyncio.sleep(planned.seconds)
                await node.start()
            case "pause":
                node.send_signal(signal.SIGSTOP)
                await asyncio.sleep(planned.seconds)
                node.send_signal(signal.SIGCONT)
            case "restart":
                await node.terminate()
                await asyncio.sleep(planned.seconds)
                await node.start()
            case _:
                relay = {"node": node.internal, "store": node.store, "client": node.kafka}[verb]
                assert relay is not None
                only = frozenset(planned.peers) if planned.peers else None
                kind = Kind(planned.fault.partition("-")[2])
                async with _troubled(relay, Trouble(kind=kind, delay_s=planned.delay_s, only=only)):
                    await asyncio.sleep(planned.seconds)

    async def _store(self, planned: Planned) -> None:
        began_s = monotonic()
        if planned.fault.verb == "store" and planned.fault.endswith("pause"):
            self._cluster.pause_store(True)
            await asyncio.sleep(planned.seconds)
            self._cluster.pause_store(False)
        else:
            self._cluster.kill_store()
            await asyncio.sleep(planned.seconds)
            await self._cluster.start_store()
        self.done.append(Done(fault=planned.fault, node_id=0, began_s=began_s, ended_s=monotonic()))


@asynccontextmanager
async def _troubled(relay: Relay, trouble: Trouble):  # type: ignore[no-untyped-def]
    relay.set(trouble)
    try:
        yield
    finally:
        relay.set(NO_TROUBLE)


AFTER_S: Final = 2.0
"""What is sent so soon after a fault still counts for it."""


class Windows:
    """Which fault was on at a time. Where several were, the one that began last."""

    def __init__(self, done: Sequence[Done]) -> None:
        self._windows = sorted((one.began_s, one.ended_s + AFTER_S, one.fault) for one in done)

    def at(self, time_s: float) -> str:
        """The kind of fault; "none"."""
        found = "none"
        for began_s, ended_s, fault in self._windows:
            if began_s > time_s:
                break
            if time_s < ended_s:
                found = fault
        return found
