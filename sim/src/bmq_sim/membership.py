"""Being a member of a classic consumer group: joining, shares, heartbeats, offsets. What a member does with its share
is its program's.
"""

import struct
from collections.abc import Sequence

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
from bmq_sim.history import History, Place

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 10_000

_COORDINATOR_MOVED = frozenset({NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS})
_JOIN_AGAIN = frozenset({REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID})


class JoinAgain(Exception):
    """The generation is over."""


class Membership:
    """One member's. Its calls raise ConnectionLost, also where the coordinator is elsewhere: `forget_coordinator`
    then.
    """

    def __init__(
        self,
        client: SimClient,
        history: History,
        *,
        group: str,
        places: Sequence[Place],
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self._client = client
        self._history = history
        self._group = group
        self._places = places
        self._instance_id = instance_id
        self._session_timeout_ms = session_timeout_ms
        self._member_id = ""
        self._generation = -1
        self._coordinator: Address | None = None

    def forget_id(self) -> None:
        """The next to join is a new member, or the same instance in a new process."""
        self._member_id = ""

    def forget_coordinator(self) -> None:
        """The next call asks where it is."""
        self._coordinator = None

    async def join(self) -> list[Place]:
        """Its share in a new generation. Raises JoinAgain."""
        metadata = _encode_subscription(sorted({place.topic for place in self._places}))
        answer = await self._ask(
            JOIN_GROUP,
            {
                "session_timeout_ms": self._session_timeout_ms,
                "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
                "member_id": self._member_id,
                "group_instance_id": self._instance_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": metadata}],
            },
        )
        if answer.error_code == MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            raise JoinAgain
        self.judge(answer.error_code, JOIN_GROUP)
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
        self.judge(answer.error_code, SYNC_GROUP)
        return _decode_assignment(answer.assignment)

    async def leave(self) -> None:
        """Tells the coordinator once."""
        try:
            await self._ask(LEAVE_GROUP, {"members": [{"member_id": self._member_id}]})
        except ConnectionLost:
            return

    async def heartbeat(self) -> int:
        """The error code, which is the caller's to judge."""
        answer = await self._ask(HEARTBEAT, {**self._myself(), "generation_id": self._generation})
        return int(answer.error_code)

    async def committed(self, place: Place) -> int:
        """-1: nothing is. Raises JoinAgain."""
        topics = [{"name": place.name, "partition_indexes": [place.partition]}]
        answer = await self._ask(OFFSET_FETCH, {"groups": [{"group_id": self._group, "topics": topics}]})
        group = answer.groups[0]
        self.judge(group.error_code, OFFSET_FETCH)
        part = group.topics[0].partitions[0]
        self.judge(part.error_code, OFFSET_FETCH)
        return int(part.committed_offset)

    async def commit(self, place: Place, offset: int) -> int:
        """The error code, which is the caller's to judge."""
        part = {"partition_index": place.partition, "committed_offset": offset, "committed_metadata": ""}
        answer = await self._ask(
            OFFSET_COMMIT,
            {
                "generation_id_or_member_epoch": self._generation,
                **self._myself(),
                "topics": [{"name": place.name, "partitions": [part]}],
            },
        )
        return int(answer.topics[0].partitions[0].error_code)

    def judge(self, code: int, api_key: int) -> None:
        """Raises JoinAgain or ConnectionLost, by what a client does after this error code; of any other one the history
        has a line.
        """
        if not code:
            return
        if code in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
            self._member_id = ""
        if code in _JOIN_AGAIN:
            raise JoinAgain
        if code not in _COORDINATOR_MOVED and code not in RETRIABLE:
            self._history.refused.append(
                f"group {self._group}: {self._client.name} asked API {api_key} and was told {code}"
            )
        raise ConnectionLost(f"error {code}")

    def _myself(self) -> dict[str, object]:
        return {"member_id": self._member_id, "group_instance_id": self._instance_id}

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
        self.judge(found.error_code, FIND_COORDINATOR)
        self._coordinator = (found.host, found.port)


def _encode_subscription(topics: list[str]) -> bytes:
    """Version 0 of the consumer protocol: topics, no user data."""
    out = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        out += struct.pack(">h", len(topic)) + topic.encode()
    return out + struct.pack(">i", -1)


def _encode_assignment(places: Sequence[Place]) -> bytes:
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
