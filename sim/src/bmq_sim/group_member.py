"""A member of a classic consumer group in the simulated workload: joins, takes its share, reads, commits, and follows
every rebalance.
"""

import asyncio
import struct

from bmq.wire.messages import Message
from bmq_sim.client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    FIND_COORDINATOR,
    HEARTBEAT,
    ILLEGAL_GENERATION,
    JOIN_GROUP,
    LEAVE_GROUP,
    MEMBER_ID_REQUIRED,
    NOT_COORDINATOR,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    REBALANCE_IN_PROGRESS,
    RETRIABLE,
    SYNC_GROUP,
    UNKNOWN_MEMBER_ID,
    Address,
    ConnectionLost,
    SimClient,
)
from bmq_sim.consumer import PartitionReader
from bmq_sim.history import CommitSeen, Committed, History, Place

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 10_000
HEARTBEAT_S = 2.0
RETURNS_SHARE = 0.3
"""The share of a static member's joins that are those of a new process."""

_COORDINATOR_MOVED = frozenset({NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS})
_JOIN_AGAIN = frozenset({REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID})


class _JoinAgain(Exception):
    """The generation is over."""


class GroupMember:
    """One member. Its readers are named `group/member/round`: it begins a round with what is committed."""

    def __init__(
        self, client: SimClient, history: History, *, group: str, places: list[Place], instance_id: str | None = None
    ) -> None:
        """`instance_id`: of a static member, which now and then comes back as a new process does, with that alone."""
        self._client = client
        self._instance_id = instance_id
        self._history = history
        self._group = group
        self._places = places
        self._member_id = ""
        self._generation = -1
        self._coordinator: Address | None = None
        self.rounds = 0
        """Generations that it took part in."""

    async def run(self) -> None:
        """Never returns: cancel it, then `leave`."""
        attempt = 0
        rng = self._client.rng
        while True:
            try:
                if self._instance_id is not None and rng.random() < RETURNS_SHARE:
                    self._member_id = ""
                assignment = await self._join()
                attempt = 0
                self.rounds += 1
                await self._consume(assignment)
            except _JoinAgain:
                pass
            except ConnectionLost:
                self._coordinator = None
                self._client.forget_leaders()
                attempt += 1
                await self._client.back_off(attempt)

    async def leave(self) -> None:
        """Tells the coordinator once."""
        try:
            await self._ask(LEAVE_GROUP, {"members": [{"member_id": self._member_id}]})
        except (ConnectionLost, _JoinAgain):
            return

    async def _join(self) -> list[Place]:
        metadata = _encode_subscription(sorted({place.topic for place in self._places}))
        answer = await self._ask(
            JOIN_GROUP,
            {
                "session_timeout_ms": SESSION_TIMEOUT_MS,
                "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
                "member_id": self._member_id,
                "group_instance_id": self._instance_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": metadata}],
            },
        )
        if answer.error_code == MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            raise _JoinAgain
        self._judge(answer.error_code, JOIN_GROUP)
        self._member_id, self._generation = answer.member_id, answer.generation_id
        assignments = []
        instances = [member.group_instance_id for member in answer.members if member.group_instance_id is not None]
        if len(set(instances)) < len(instances):
            self._history.refused.append(
                f"group {self._group}: generation {answer.generation_id} has an instance twice: {sorted(instances)}"
            )
        if answer.leader == answer.member_id:
            members = sorted(member.member_id for member in answer.members)
            shares = {member: self._places[index :: len(members)] for index, member in enumerate(members)}
            assignments = [
                {"member_id": member, "assignment": _encode_assignment(share)} for member, share in shares.items()
            ]
        answer = await self._ask(
            SYNC_GROUP,
            {
                "generation_id": self._generation,
                "member_id": self._member_id,
                "group_instance_id": self._instance_id,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": assignments,
            },
        )
        self._judge(answer.error_code, SYNC_GROUP)
        return _decode_assignment(answer.assignment)

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
                answer = await self._ask(HEARTBEAT, {**self._myself(), "generation_id": self._generation})
                next_heartbeat_s = loop.time() + HEARTBEAT_S
                if answer.error_code == REBALANCE_IN_PROGRESS:
                    for reader, place in zip(readers, assignment, strict=True):
                        if reader.position > committed[reader]:
                            await self._commit(place, reader.position)
                self._judge(answer.error_code, HEARTBEAT)
            if self._instance_id is not None and rng.random() < RETURNS_SHARE / 10:
                raise _JoinAgain  # its process starts again: only the instance is the same
            await asyncio.sleep(rng.random() * 0.3)

    def _myself(self) -> dict[str, object]:
        return {"member_id": self._member_id, "group_instance_id": self._instance_id}

    async def _committed(self, place: Place) -> int:
        asked = self._history.turn()
        topics = [{"name": place.name, "partition_indexes": [place.partition]}]
        answer = await self._ask(OFFSET_FETCH, {"groups": [{"group_id": self._group, "topics": topics}]})
        group = answer.groups[0]
        self._judge(group.error_code, OFFSET_FETCH)
        part = group.topics[0].partitions[0]
        self._judge(part.error_code, OFFSET_FETCH)
        offset = int(part.committed_offset)
        self._history.commits_seen.append(
            CommitSeen(asked=asked, told=self._history.turn(), group=self._group, place=place, offset=offset)
        )
        return offset

    async def _commit(self, place: Place, offset: int) -> None:
        sent = self._history.turn()
        part = {"partition_index": place.partition, "committed_offset": offset, "committed_metadata": ""}
        answer = await self._ask(
            OFFSET_COMMIT,
            {
                "generation_id_or_member_epoch": self._generation,
                **self._myself(),
                "topics": [{"name": place.name, "partitions": [part]}],
            },
        )
        self._judge(answer.topics[0].partitions[0].error_code, OFFSET_COMMIT)
        self._history.commits.append(
            Committed(sent=sent, acknowledged=self._history.turn(), group=self._group, place=place, offset=offset)
        )

    async def _ask(self, api_key: int, fields: dict[str, object]) -> Message:
        if self._coordinator is None:
            await self._find_coordinator()
        connection = await self._client.connection(self._coordinator)
        if api_key != OFFSET_FETCH:
            fields = {"group_id": self._group, **fields}
        return await connection.send(api_key, fields)

    async def _find_coordinator(self) -> None:
        answer = await self._client.call(FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [self._group]})
        found = answer.coordinators[0]
        self._judge(found.error_code, FIND_COORDINATOR)
        self._coordinator = (found.host, found.port)

    def _judge(self, code: int, api_key: int) -> None:
        if not code:
            return
        if code in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
            self._member_id = ""
        if code in _JOIN_AGAIN:
            raise _JoinAgain
        if code not in _COORDINATOR_MOVED and code not in RETRIABLE:
            self._history.refused.append(
                f"group {self._group}: {self._client.name} asked API {api_key} and was told {code}"
            )
        raise ConnectionLost(f"error {code}")


def _encode_subscription(topics: list[str]) -> bytes:
    """Version 0 of the consumer protocol: topics, no user data."""
    out = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        out += struct.pack(">h", len(topic)) + topic.encode()
    return out + struct.pack(">i", -1)


def _encode_assignment(places: list[Place]) -> bytes:
    """Version 0 of the consumer protocol: one entry for each partition."""
    out = struct.pack(">hi", 0, len(places))
    for place in places:
        out += struct.pack(">h", len(place.topic)) + place.topic.encode() + struct.pack(">ii", 1, place.partition)
    return out + struct.pack(">i", -1)


def _decode_assignment(data: bytes) -> list[Place]:
    if not data:
        return []
    _, count = struct.unpack_from(">hi", data)
    position = 6
    places = []
    for _ in range(count):
        (length,) = struct.unpack_from(">h", data, position)
        topic = data[position + 2 : position + 2 + length].decode()
        position += 2 + length
        _, partition = struct.unpack_from(">ii", data, position)
        position += 8
        places.append(Place(topic, partition))
    return places
