"""A small Kafka client over the simulated network: connections, metadata, and calls that try again as real clients do.

It encodes and decodes with the generic codec of bmq.wire.messages, not with the hand-written ones of the hot paths, and
checks what it reads.
"""

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, cast

from bmq.wire.messages import Message, decode_response, encode_request
from bmq.wire.schemas import api_schema
from bmq_sim.history import Place

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_TOPIC_PARTITIONS: Final = 75

VERSIONS: Final = {
    PRODUCE: 10,
    FETCH: 12,
    LIST_OFFSETS: 7,
    METADATA: 12,
    OFFSET_COMMIT: 8,
    OFFSET_FETCH: 8,
    FIND_COORDINATOR: 4,
    JOIN_GROUP: 7,
    HEARTBEAT: 4,
    LEAVE_GROUP: 5,
    SYNC_GROUP: 5,
    DESCRIBE_GROUPS: 5,
    LIST_GROUPS: 4,
    API_VERSIONS: 2,
    CREATE_TOPICS: 7,
    DELETE_TOPICS: 6,
    DELETE_RECORDS: 2,
    INIT_PRODUCER_ID: 4,
    OFFSET_FOR_LEADER_EPOCH: 4,
    DESCRIBE_CONFIGS: 4,
    ALTER_CONFIGS: 2,
    DESCRIBE_LOG_DIRS: 4,
    CREATE_PARTITIONS: 3,
    DELETE_GROUPS: 2,
    ELECT_LEADERS: 2,
    INCREMENTAL_ALTER_CONFIGS: 1,
    ALTER_PARTITION_REASSIGNMENTS: 0,
    LIST_PARTITION_REASSIGNMENTS: 0,
    OFFSET_DELETE: 0,
    DESCRIBE_CLUSTER: 0,
    DESCRIBE_TOPIC_PARTITIONS: 0,
}
"""Those that are asked with where nothing else is said."""
PRODUCE_BY_ID: Final = 13
"""The first version of Produce that names topics by id."""
OFFSET_COMMIT_WITH_RETENTION: Final = 4
"""The last version of OffsetCommit that says how long an offset is to be kept."""

OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
TOPIC_ALREADY_EXISTS: Final = 36
INVALID_PARTITIONS: Final = 37
INVALID_REPLICA_ASSIGNMENT: Final = 39
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
DUPLICATE_SEQUENCE_NUMBER: Final = 46
INVALID_PRODUCER_EPOCH: Final = 47
THROTTLING_QUOTA_EXCEEDED: Final = 89
GROUP_ID_NOT_FOUND: Final = 69
FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
UNKNOWN_TOPIC_ID: Final = 100
MEMBER_ID_REQUIRED: Final = 79
FENCED_INSTANCE_ID: Final = 82

RETRIABLE: Final = frozenset(
    {2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 84, 86, 88, 89, 100, 103}
)
"""Error codes after which Kafka's clients send the request again."""

REQUEST_TIMEOUT_S: Final = 40.0
CONNECT_TIMEOUT_S: Final = 10.0
BACKOFF_S_MIN: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
FRAME_BYTES_MAX: Final = 64 << 20

Address = tuple[str, int]


class ConnectionLost(Exception):
    """The connection ended, or could not be made, or a request on it timed out: what was sent may or may not have been
    done.
    """


class NobodyListens(ConnectionLost):
    """No process of that address is there: one that comes loads what is newest first."""


class Failed(Exception):
    """An error code that no client tries again after."""

    def __init__(self, api_key: int, code: int) -> None:
        super().__init__(f"API {api_key}: error {code}")
        self.code = code


class KafkaConnection(asyncio.Protocol):
    """One connection: requests go out in the order of the calls, answers come in the same order."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._unsent: list[bytes] = []
        """What is written in one go at the end of this turn of the loop."""
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Message]]] = deque()
        self._next_id = 0
        self.number = 0
        """Among those of its client, from 1."""
        self.lost = False

    def send(
        self, api_key: int, fields: dict[str, Any], *, timeout_s: float = REQUEST_TIMEOUT_S, version: int | None = None
    ) -> "asyncio.Future[Message]":
        """Sends in this turn of the loop, in one write with what else is sent in it; the future is the answer's body,
        or raises ConnectionLost.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Message] = loop.create_future()
        if self.lost or self._transport is None:
            answer.set_exception(ConnectionLost("not connected"))
            return answer
        self._next_id += 1
        version = VERSIONS[api_key] if version is None else version
        head = struct.pack(">hhih", api_key, version, self._next_id, len(self._client_id)) + self._client_id
        if _is_flexible(api_key, version):
            head += b"\x00"
        body = encode_request(api_key, version, fields)
        self._waiting.append((api_key, version, self._next_id, answer))
        if not self._unsent:
            loop.call_soon(self._write)
        self._unsent.append(struct.pack(">i", len(head) + len(body)) + head + body)
        timer = loop.call_later(timeout_s, self.close)
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    def _write(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None:
            self._transport.write(b"".join(unsent))

    def close(self) -> None:
        """Whoever waits gets ConnectionLost."""
        if self._transport is not None:
            self._transport.abort()
        self._fail()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size_bytes = int.from_bytes(self._buffer[:4], "big", signed=True)
            assert 0 < size_bytes <= FRAME_BYTES_MAX, f"a frame of {size_bytes} bytes"
            if len(self._buffer) < 4 + size_bytes:
                return
            frame = bytes(self._buffer[4 : 4 + size_bytes])
            del self._buffer[: 4 + size_bytes]
            self._answered(frame)

    def _answered(self, frame: bytes) -> None:
        assert self._waiting, "an answer that nobody asked for"
        api_key, version, expected_id, answer = self._waiting.popleft()
        found_id = int.from_bytes(frame[:4], "big", signed=True)
        assert found_id == expected_id, f"answer {found_id} came where {expected_id} was due"
        body = frame[4:]
        if _is_flexible(api_key, version):
            assert body[0] == 0, "tagged fields in a response header"
            body = body[1:]
        if not answer.done():
            answer.set_result(decode_response(api_key, version, body))

    def _fail(self) -> None:
        self.lost = True
        waiting, self._waiting = self._waiting, deque()
        for _, _, _, answer in waiting:
            if not answer.done():
                answer.set_exception(ConnectionLost("the connection ended"))


def _is_flexible(api_key: int, version: int) -> bool:
    """Request header 2 and response header 1; else 1 and 0."""
    return version >= api_schema(api_key).flexible_from


@dataclass(frozen=True, slots=True)
class Cluster:
    """What Metadata said: where nodes are and who leads which partition."""

    nodes: dict[int, Address]
    leaders: dict[Place, int]
    """By place as it is named on the wire."""


class SimClient:
    """One client program: a connection per node, the cluster's metadata, and calls that go on until they have an
    answer.
    """

    def __init__(
        self,
        name: str,
        bootstrap: Sequence[Address],
        *,
        rng: Random,
        resolve: Callable[[], Sequence[Address]] = lambda: (),
    ) -> None:
        """`resolve` says where the cluster is reached now, as a name in the DNS does: those that it was reached at
        first may all have gone.
        """
        self.name = name
        self.rng = rng
        self._bootstrap = list(bootstrap)
        self._resolve = resolve
        self._connections: dict[Address, KafkaConnection] = {}
        self._cluster = Cluster({}, {})
        self._connections_made = 0
        self.stopped = False
        """Whether its program is to begin nothing new."""

    async def connection(self, address: Address | None = None) -> KafkaConnection:
        """Open, or opened anew (to a bootstrap address by default). Raises ConnectionLost."""
        if address is None:
            address = self._bootstrap[0]
        found = self._connections.get(address)
        if found is not None and not found.lost:
            return found
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: KafkaConnection(self.name), *address
                )
        except (OSError, TimeoutError) as error:
            self._bootstrap.append(self._bootstrap.pop(0))
            self._bootstrap += [found for found in self._resolve() if found not in self._bootstrap]
            kind = NobodyListens if isinstance(error, ConnectionRefusedError) else ConnectionLost
            raise kind(f"cannot connect to {address[0]}:{address[1]}: {error}") from error
        self._connections_made += 1
        made.number = self._connections_made
        self._connections[address] = made
        return made

    async def leader(self, place: Place) -> KafkaConnection:
        """A connection to the partition's leader. Raises ConnectionLost, also where nobody leads at present."""
        found = place.on_the_wire
        if found not in self._cluster.leaders:
            await self.refresh(place.name)
        if found not in self._cluster.leaders:
            raise ConnectionLost(f"nobody leads {place}")
        return await self.connection(self._cluster.nodes[self._cluster.leaders[found]])

    def led_with(self, place: Place, others: Sequence[Place]) -> list[Place]:
        """Those of the others that `place`'s leader is known to lead, too."""
        leaders = self._cluster.leaders
        return [other for other in others if leaders.get(other.on_the_wire) == leaders.get(place.on_the_wire, -1)]

    def forget_leaders(self) -> None:
        """The next `leader` asks again."""
        self._cluster = Cluster({}, {})

    async def refresh(self, topic: str) -> None:
        """Asks for a topic's leaders. Raises ConnectionLost, also where there are none yet."""
        connection = await self.connection()
        answer = await connection.send(METADATA, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
        nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        leaders = dict(self._cluster.leaders)
        for found in answer.topics:
            for part in found.partitions:
                if not found.error_code and not part.error_code and part.leader_id in nodes:
                    leaders[Place(found.name, part.partition_index)] = part.leader_id
        self._cluster = Cluster(nodes, leaders)
        if not any(place.topic == topic for place in leaders):
            raise ConnectionLost(f"nobody leads {topic}")

    async def refresh_until_known(self, place: Place) -> None:
        """Returns once somebody is known to lead the partition."""
        attempt = 0
        while place.on_the_wire not in self._cluster.leaders:
            with contextlib.suppress(ConnectionLost):
                await self.refresh(place.name)
            if place.on_the_wire not in self._cluster.leaders:
                attempt += 1
                await self.back_off(attempt)

    async def call(self, api_key: int, fields: dict[str, Any]) -> Message:
        """One answer of the bootstrap node, however many connections it takes. Error codes are the caller's to
        judge.
        """
        attempt = 0
        while True:
            try:
                return await (await self.connection()).send(api_key, fields)
            except ConnectionLost:
                attempt += 1
                await self.back_off(attempt)

    async def back_off(self, attempt: int) -> None:
        """Sleeps longer with each attempt, with jitter."""
        longest_s = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(attempt, 10))
        await asyncio.sleep(longest_s * (0.5 + 0.5 * self.rng.random()))

    async def create_topic(self, name: str, *, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Returns once the topic exists. Raises Failed."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": -1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        attempt = 0
        while True:
            answer = await self.call(CREATE_TOPICS, {"topics": [topic], "timeout_ms": 30_000})
            code = answer.topics[0].error_code
            if code in (0, TOPIC_ALREADY_EXISTS):
                return
            if code not in RETRIABLE:
                raise Failed(CREATE_TOPICS, code)
            attempt += 1
            await self.back_off(attempt)

    async def delete_topic(self, name: str) -> None:
        """Returns once the topic is gone. Raises Failed."""
        attempt = 0
        while True:
            answer = await self.call(
                DELETE_TOPICS, {"topics": [{"name": name, "topic_id": None}], "timeout_ms": 30_000}
            )
            code = answer.responses[0].error_code
            if code in (0, UNKNOWN_TOPIC_OR_PARTITION):
                return
            if code not in RETRIABLE:
                raise Failed(DELETE_TOPICS, code)
            attempt += 1
            await self.back_off(attempt)

    async def list_offset(self, place: Place, timestamp: int) -> int:
        """-1 latest, -2 earliest. Tries until there is an answer."""
        attempt = 0
        while True:
            part = {"partition_index": place.partition, "timestamp": timestamp}
            fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": place.name, "partitions": [part]}]}
            try:
                answer = await (await self.leader(place)).send(LIST_OFFSETS, fields)
            except ConnectionLost:
                code = -1
            else:
                found = answer.topics[0].partitions[0]
                code = found.error_code
                if code == 0:
                    return int(found.offset)
                if code not in RETRIABLE:
                    raise Failed(LIST_OFFSETS, code)
            self.forget_leaders()
            attempt += 1
            await self.back_off(attempt)

    async def rest(self, duration_s: float) -> None:
        """Does nothing for a while, or until its program is to stop."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + duration_s
        while not self.stopped and loop.time() < until_s:
            await asyncio.sleep(min(1.0, until_s - loop.time()))

    async def everywhere(self, is_so_at: Callable[[KafkaConnection], Awaitable[bool]]) -> None:
        """Returns when it was so at every proxy that there is: none of them tells anything older from then on."""
        asked: set[Address] = set()
        attempt = 0
        while missing := [address for address in self.addresses() if address not in asked]:
            try:
                is_so = await is_so_at(await self.connection(missing[0]))
            except NobodyListens:
                is_so = True
            except ConnectionLost:
                is_so = False
            if is_so:
                asked.add(missing[0])
                continue
            attempt += 1
            await self.back_off(attempt)

    def addresses(self) -> Sequence[Address]:
        """Where the cluster is reached now."""
        return self._resolve() or tuple(self._bootstrap)

    def close(self) -> None:
        """Drops every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
