"""A member of a classic consumer group in the simulated workload: joins, takes its share, reads, commits, and follows
every rebalance.
"""

import asyncio

from bmq_sim.client import HEARTBEAT, OFFSET_COMMIT, REBALANCE_IN_PROGRESS, ConnectionLost, SimClient
from bmq_sim.consumer import PartitionReader
from bmq_sim.history import CommitSeen, Committed, History, Place
from bmq_sim.membership import JoinAgain, Membership

HEARTBEAT_S = 2.0
RETURNS_SHARE = 0.3
"""The share of a static member's joins that are those of a new process."""


class GroupMember:
    """One member. Its readers are named `group/member/round`: it begins a round with what is committed."""

    def __init__(
        self, client: SimClient, history: History, *, group: str, places: list[Place], instance_id: str | None = None
    ) -> None:
        """`instance_id`: of a static member, which now and then comes back as a new process does, with that alone."""
        self._client = client
        self._membership = Membership(client, history, group=group, places=places, instance_id=instance_id)
        self._is_static = instance_id is not None
        self._history = history
        self._group = group
        self.rounds = 0
        """Generations that it took part in."""

    async def run(self) -> None:
        """Never returns: cancel it, then `leave`."""
        attempt = 0
        rng = self._client.rng
        while True:
            try:
                if self._is_static and rng.random() < RETURNS_SHARE:
                    self._membership.forget_id()
                assignment = await self._membership.join()
                attempt = 0
                self.rounds += 1
                await self._consume(assignment)
            except JoinAgain:
                pass
            except ConnectionLost:
                self._membership.forget_coordinator()
                self._client.forget_leaders()
                attempt += 1
                await self._client.back_off(attempt)

    async def leave(self) -> None:
        """Tells the coordinator once."""
        await self._membership.leave()

    async def _consume(self, assignment: list[Place]) -> None:
        rng = self._client.rng
        loop = asyncio.get_running_loop()
        name = f"{self._group}/{self._client.name}/{self.rounds}"
        readers = []
        for place in assignment:
            position = max(0, await self._committed(place))
            readers.append(PartitionReader(self._client, self._history, place, reader=name, position=position))
        committed = {reader: reader.position for reader in readers}
        next_heartbeat_s = loop.time()
        while True:
            for reader, place in zip(readers, assignment, strict=True):
                await reader.fetch(max_wait_ms=100)
                if reader.position > committed[reader] and rng.random() < 0.5:
                    await self._commit(place, reader.position)
                    committed[reader] = reader.position
            if loop.time() >= next_heartbeat_s:
                code = await self._membership.heartbeat()
                next_heartbeat_s = loop.time() + HEARTBEAT_S
                if code == REBALANCE_IN_PROGRESS:
                    for reader, place in zip(readers, assignment, strict=True):
                        if reader.position > committed[reader]:
                            await self._commit(place, reader.position)
                self._membership.judge(code, HEARTBEAT)
            if self._is_static and rng.random() < RETURNS_SHARE / 10:
                raise JoinAgain  # its process starts again: only the instance is the same
            await asyncio.sleep(rng.random() * 0.3)

    async def _committed(self, place: Place) -> int:
        asked = self._history.turn()
        offset = await self._membership.committed(place)
        self._history.commits_seen.append(
            CommitSeen(asked=asked, told=self._history.turn(), group=self._group, place=place, offset=offset)
        )
        return offset

    async def _commit(self, place: Place, offset: int) -> None:
        sent = self._history.turn()
        self._membership.judge(await self._membership.commit(place, offset), OFFSET_COMMIT)
        self._history.commits.append(
            Committed(sent=sent, acknowledged=self._history.turn(), group=self._group, place=place, offset=offset)
        )
