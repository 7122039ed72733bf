"""A program that keeps its places as a group without members: OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups."""

from collections.abc import Callable
from typing import Any

from bmq.wire.messages import Message
from bmq_sim.client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    DELETE_GROUPS,
    FIND_COORDINATOR,
    GROUP_ID_NOT_FOUND,
    NOT_COORDINATOR,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    RETRIABLE,
    THROTTLING_QUOTA_EXCEEDED,
    Address,
    ConnectionLost,
    SimClient,
)
from bmq_sim.history import History, Place, Told, Written

NONE = "-1"
_GOES_ON = frozenset(
    {*RETRIABLE, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, THROTTLING_QUOTA_EXCEEDED}
)


class OffsetKeeper:
    """One group's offsets, each of which is a register: nobody else writes to it."""

    def __init__(self, client: SimClient, history: History, *, group: str) -> None:
        self._client = client
        self._history = history
        self._group = group
        self._coordinator: Address | None = None

    def register(self, place: Place) -> str:
        """A topic made again under its name goes on with the register of its predecessor: its deletion is one more
        write.
        """
        return f"the offset of {self._group} in {place.on_the_wire}"

    async def commit(self, place: Place, offset: int) -> None:
        """Returns when it is acknowledged."""
        await self._commit(place, offset, [(place, str(offset))])

    async def commit_as_nothing(self, place: Place, offset: int) -> None:
        """Commits an offset that is none of this topic's: acknowledged, and the register is as it was."""
        await self._commit(place, offset, [])

    async def _commit(self, place: Place, offset: int, writes: list[tuple[Place, str]]) -> None:
        part = {"partition_index": place.partition, "committed_offset": offset, "committed_metadata": ""}
        fields = {
            "group_id": self._group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": place.name, "partitions": [part]}],
        }
        await self._set(OFFSET_COMMIT, fields, lambda answer: int(answer.topics[0].partitions[0].error_code), writes)

    async def forget(self, place: Place) -> None:
        """OffsetDelete. Returns when it is acknowledged."""
        fields = {
            "group_id": self._group,
            "topics": [{"name": place.name, "partitions": [{"partition_index": place.partition}]}],
        }

        def code_of(answer: Message) -> int:
            return int(answer.error_code or answer.topics[0].partitions[0].error_code)

        await self._set(OFFSET_DELETE, fields, code_of, [(place, NONE)])

    async def delete_group(self, places: list[Place]) -> None:
        """DeleteGroups. Returns when it is acknowledged; `places` are all in which it has committed."""
        fields = {"groups_names": [self._group]}
        await self._set(
            DELETE_GROUPS, fields, lambda answer: int(answer.results[0].error_code), [(place, NONE) for place in places]
        )

    async def look(self, place: Place) -> None:
        """OffsetFetch, until there is an answer."""
        self._history.initial.setdefault(self.register(place), NONE)
        fields = {
            "groups": [
                {"group_id": self._group, "topics": [{"name": place.name, "partition_indexes": [place.partition]}]}
            ]
        }
        attempt = 0
        while True:
            asked = self._history.turn()
            try:
                found = (await (await self._connection()).send(OFFSET_FETCH, fields)).groups[0]
            except ConnectionLost:
                code = None
            else:
                code = found.error_code or found.topics[0].partitions[0].error_code
                if not code:
                    offset = str(found.topics[0].partitions[0].committed_offset)
                    self._history.told.append(
                        Told(register=self.register(place), value=offset, asked=asked, told=self._history.turn())
                    )
                    return
                if code not in _GOES_ON:
                    self._history.refused.append(f"{self._group}: OffsetFetch of {place} was told {code}")
                    return
            self._coordinator = None
            attempt += 1
            await self._client.back_off(attempt)

    async def _set(
        self, api_key: int, fields: dict[str, Any], code_of: Callable[[Message], int], writes: list[tuple[Place, str]]
    ) -> None:
        attempt = 0
        for place, _ in writes:
            self._history.initial.setdefault(self.register(place), NONE)
        while True:
            try:
                connection = await self._connection()
            except ConnectionLost:
                code = None
            else:
                tries: list[Written] = [self._history.write(self.register(place), value) for place, value in writes]
                try:
                    code = code_of(await connection.send(api_key, fields))
                except ConnectionLost:
                    code = None
                else:
                    if code in (0, GROUP_ID_NOT_FOUND):
                        turn = self._history.turn()
                        for one in tries:
                            one.acknowledged = turn
                        return
                    if code not in _GOES_ON:
                        self._history.refused.append(f"{self._group}: API {api_key} was told {code} for {fields}")
                        return
            self._coordinator = None
            attempt += 1
            await self._client.back_off(attempt)

    async def _connection(self) -> Any:
        if self._coordinator is None:
            answer = await (await self._client.connection()).send(
                FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [self._group]}
            )
            found = answer.coordinators[0]
            if found.error_code:
                raise ConnectionLost(f"error {found.error_code}")
            self._coordinator = (found.host, found.port)
        return await self._client.connection(self._coordinator)


class OffsetWriter:
    """Commits, looks, deletes offsets and the whole group, in an order of the seed's."""

    def __init__(self, client: SimClient, history: History, places: list[Place], *, pause_s: float) -> None:
        self.keeper = OffsetKeeper(client, history, group=client.name)
        self._client = client
        self._places = places
        self._pause_s = pause_s
        self._next = 0

    async def run(self) -> None:
        """Until its client is stopped."""
        rng = self._client.rng
        while not self._client.stopped:
            await self._client.rest(self._pause_s * rng.random())
            place = rng.choice(self._places)
            match rng.choice(("commit", "commit", "commit", "look", "forget", "delete")):
                case "commit":
                    self._next += 1
                    await self.keeper.commit(place, self._next)
                case "forget":
                    await self.keeper.forget(place)
                case "delete" if rng.random() < 0.5:
                    await self.keeper.delete_group(self._places)
                case _:
                    pass
            await self.keeper.look(place)

    async def look(self) -> None:
        """Keeps what is committed everywhere; for when all is well."""
        for place in self._places:
            await self.keeper.look(place)
