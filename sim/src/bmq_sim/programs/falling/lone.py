"""A consumer that is no member of its group: it chooses its partition, and commits."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from bmq_sim.client import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH, Address, ConnectionLost, SimClient
from bmq_sim.history import History, Place
from bmq_sim.programs.falling.commits import commit
from bmq_sim.programs.falling.ledger import PARTITIONS, TOPIC, Ledger
from bmq_sim.programs.falling.reading import LanePosition

GROUP: Final = "consumers-of-a-lane"
CERTAIN_S: Final = 1.5
"""So long after a Fetch what it brought is still the lane's: half of the shortest grace of any run."""


class LoneConsumer:
    """One program that is started again and again."""

    def __init__(self, client: SimClient, history: History, ledger: Ledger, *, group: str = GROUP) -> None:
        self._client = client
        self._group_id = group
        self._history = history
        self._ledger = ledger
        self._coordinator: Address | None = None
        self._left: dict[int, LanePosition] = {}
        """Where it was when it paused: it goes on there without asking its group."""

    async def live(self) -> None:
        """For some fetches."""
        rng = self._client.rng
        partition = rng.randrange(PARTITIONS)
        position = self._left.pop(partition, None)
        try:
            place = Place(TOPIC, partition)
            if position is None:
                position = LanePosition(self._client, place, await self._committed(place))
            if rng.random() < 0.3 and position.offset and await self._commit(position, []):
                return  # it only says where it is
            for _ in range(rng.randint(1, 12)):
                if not await self._step(position):
                    return
        except ConnectionLost:
            self._coordinator = None
            self._client.forget_leaders()
            return
        if rng.random() < 0.3:
            self._left[partition] = position

    async def peek(self) -> None:
        """Reads from the beginning and commits nothing: so it handles nothing."""
        rng = self._client.rng
        position = LanePosition(self._client, Place(TOPIC, rng.randrange(PARTITIONS)), 0)
        try:
            for _ in range(rng.randint(1, 4)):
                if found := await position.fetch(max_wait_ms=500):
                    position.offset = found[-1].offset + 1
        except ConnectionLost:
            self._client.forget_leaders()

    async def _step(self, position: LanePosition) -> bool:
        """Whether its life goes on."""
        rng, loop = self._client.rng, asyncio.get_running_loop()
        found = await position.fetch(max_wait_ms=500)
        if not found:
            return True
        if rng.random() < 0.1:
            return False  # it ends before it has handled them
        fetched_s = loop.time()
        if rng.random() < 0.4:
            found = found[: rng.randint(1, len(found))]  # it ends in the middle of a batch
        if rng.random() < 0.1:
            await self._client.rest(10 * rng.random())  # it is slow with them
        position.offset = found[-1].offset + 1
        return await self._commit(
            position, [one.value for one in found], is_certain=lambda: loop.time() - fetched_s < CERTAIN_S
        )

    async def _commit(
        self, position: LanePosition, values: Sequence[bytes], is_certain: Callable[[], bool] = lambda: True
    ) -> bool:
        return await commit(
            lambda: self._send(position),
            values,
            group=self._group_id,
            client=self._client,
            ledger=self._ledger,
            history=self._history,
            is_certain=is_certain,
        )

    async def _send(self, position: LanePosition) -> int:
        part = {
            "partition_index": position.place.partition,
            "committed_offset": position.offset,
            "committed_metadata": "",
        }
        fields = {
            "group_id": self._group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": TOPIC, "partitions": [part]}],
        }
        try:
            answer = await (await self._group()).send(OFFSET_COMMIT, fields)
        except ConnectionLost:
            self._coordinator = None
            raise
        if code := int(answer.topics[0].partitions[0].error_code):
            self._coordinator = None
        return code

    async def _committed(self, place: Place) -> int:
        """Raises ConnectionLost."""
        topics = [{"name": TOPIC, "partition_indexes": [place.partition]}]
        group = (
            await (await self._group()).send(OFFSET_FETCH, {"groups": [{"group_id": self._group_id, "topics": topics}]})
        ).groups[0]
        code = group.error_code or group.topics[0].partitions[0].error_code
        if code:
            raise ConnectionLost(f"error {code}")
        return max(0, int(group.topics[0].partitions[0].committed_offset))

    async def _group(self) -> Any:
        if self._coordinator is None:
            answer = await (await self._client.connection()).send(
                FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [self._group_id]}
            )
            found = answer.coordinators[0]
            if found.error_code:
                raise ConnectionLost(f"error {found.error_code}")
            self._coordinator = (found.host, found.port)
        return await self._client.connection(self._coordinator)
