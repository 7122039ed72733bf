"""A consumer that is a member of its group: while it is one the turn is the lane's, however slow it is."""

import asyncio
from collections.abc import Sequence
from typing import Final

from bmq_sim.client import HEARTBEAT, ConnectionLost, SimClient
from bmq_sim.history import History, Place
from bmq_sim.membership import JoinAgain, Membership
from bmq_sim.programs.falling.batches import Found
from bmq_sim.programs.falling.commits import commit
from bmq_sim.programs.falling.ledger import PARTITIONS, TOPIC, Ledger
from bmq_sim.programs.falling.reading import LanePosition

GROUP: Final = "members-of-a-lane"
SESSION_TIMEOUT_MS: Final = 6_000
HEARTBEAT_S: Final = 1.5
LIFE_S_MAX: Final = 6.0


class MemberOfLane:
    """One program that is started again and again, each time as a new member."""

    def __init__(self, client: SimClient, history: History, ledger: Ledger) -> None:
        self._client = client
        self._history = history
        self._ledger = ledger

    async def live(self) -> None:
        """For some seconds; then it leaves, or is not heard of any more."""
        rng, loop = self._client.rng, asyncio.get_running_loop()
        places = [Place(TOPIC, index) for index in range(PARTITIONS)]
        membership = Membership(
            self._client, self._history, group=GROUP, places=places, session_timeout_ms=SESSION_TIMEOUT_MS
        )
        until_s = loop.time() + LIFE_S_MAX * rng.random()
        attempt = 0
        while loop.time() < until_s and not self._client.stopped:
            try:
                await self._consume(membership, await membership.join(), until_s)
            except JoinAgain:
                pass
            except ConnectionLost:
                membership.forget_coordinator()
                self._client.forget_leaders()
                attempt += 1
                await self._client.back_off(attempt)
        if rng.random() < 0.7:
            await membership.leave()

    async def _consume(self, membership: Membership, share: Sequence[Place], until_s: float) -> None:
        rng, loop = self._client.rng, asyncio.get_running_loop()
        positions = [LanePosition(self._client, place, max(0, await membership.committed(place))) for place in share]
        heartbeat_s = loop.time()
        while loop.time() < until_s and not self._client.stopped:
            for position in positions:
                if found := await position.fetch(max_wait_ms=200):
                    if rng.random() < 0.1:
                        await self._slowly(membership)
                    await self._handle(membership, position, found)
            if loop.time() >= heartbeat_s:
                heartbeat_s = loop.time() + HEARTBEAT_S
                membership.judge(await membership.heartbeat(), HEARTBEAT)
            await asyncio.sleep(0.3 * rng.random())

    async def _slowly(self, membership: Membership) -> None:
        """It has read something, and takes longer than the grace to handle it."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 12 * self._client.rng.random()
        while loop.time() < until_s and not self._client.stopped:
            await self._client.rest(HEARTBEAT_S)
            membership.judge(await membership.heartbeat(), HEARTBEAT)

    async def _handle(self, membership: Membership, position: LanePosition, found: Sequence[Found]) -> None:
        rng = self._client.rng
        if rng.random() < 0.2:
            found = found[: rng.randint(1, len(found))]  # the rest later
        position.offset = found[-1].offset + 1

        async def send() -> int:
            try:
                return await membership.commit(position.place, position.offset)
            except ConnectionLost:
                membership.forget_coordinator()
                raise

        if not await commit(
            send,
            [one.value for one in found],
            group=GROUP,
            client=self._client,
            ledger=self._ledger,
            history=self._history,
        ):
            membership.forget_coordinator()
            raise JoinAgain
