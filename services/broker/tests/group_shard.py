"""A group coordinator's shell on virtual time, over a log that is durable late, and a client of it: through the same
way in that the broker uses.
"""

from contextlib import asynccontextmanager
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from group_log import Disk, LateLog

from bmq.errors import Fenced
from bmq.roles.owner import Caller
from bmq.values import TopicId
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.messages import decode_request, decode_response, encode_request, encode_response
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.handlers.group_calls import handle_group_call
from bmq_sim.clock import SimClock, SimRng

COMMIT, FETCH, JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, OFFSET_DELETE = 8, 9, 11, 12, 13, 14, 15, 16, 42, 47
NEWEST = {8: 10, 9: 10, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 42: 3, 47: 0}


class Topics:
    """An image with these topics."""

    def __init__(self, *names: str) -> None:
        self.partitions = 1_000
        self.ids = {name: TopicId(uuid5(NAMESPACE_OID, name)) for name in names}

    def id_of(self, name: str) -> TopicId | None:
        return self.ids.get(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        return next((name for name, other in self.ids.items() if other == topic_id), None)

    def partitions_of(self, topic_id: TopicId) -> int:
        return 0 if self.name_of(topic_id) is None else self.partitions


class Coordinator:
    """A shard with a client that speaks every version, through the wire's bytes both ways."""

    def __init__(self, disk: Disk, topics: Topics, **settings: int) -> None:
        self.log = LateLog(disk)
        self.topics = topics
        self.host = "10.0.0.1"
        """Of the client."""
        self.failures: list[BaseException] = []
        self.is_replaced = False
        self.clock_is_good = True
        self.abandoned: set[str] = set()
        self.shard = GroupCoordinatorShard(
            self.log,
            3,
            clock=SimClock(),
            rng=SimRng(1),
            settings=GroupSettings(**({"initial_rebalance_delay_ms": 0} | settings)),
            topics=topics,
            fence_check=self.fence_check,
            expiry_allowed=lambda: self.clock_is_good,
            is_abandoned=lambda group_id: group_id in self.abandoned,
            failed=self.failures.append,
        )

    async def fence_check(self) -> None:
        if self.is_replaced:
            raise Fenced("sealed")

    async def ask(self, api_key: int, version: int = -1, **fields: Any) -> Message:
        version = NEWEST[api_key] if version < 0 else version
        request = decode_request(api_key, version, encode_request(api_key, version, fields))
        caller = Caller(client_id="app", client_host=f"/{self.host}", api_version=version)
        reply = await handle_group_call(self.shard, api_key, request, caller)
        return decode_response(api_key, version, encode_response(api_key, version, reply))

    async def join(self, member_id: str = "", version: int = 3, **fields: Any) -> Message:
        return await self.ask(
            JOIN,
            version,
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\0"}],
            **fields,
        )

    async def sync(self, member_id: str, generation: int, **assignments: bytes) -> Message:
        given = [{"member_id": name.replace("_", "-"), "assignment": data} for name, data in assignments.items()]
        return await self.ask(SYNC, 3, group_id="g", generation_id=generation, member_id=member_id, assignments=given)

    async def beat(self, member_id: str, generation: int) -> ErrorCode:
        return ErrorCode((await self.ask(BEAT, group_id="g", generation_id=generation, member_id=member_id)).error_code)

    async def commit(self, offset: int, *, topic: str = "t", group_id: str = "g", **fields: Any) -> ErrorCode:
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        topics = [{"name": topic, "topic_id": self.topics.id_of(topic), "partitions": partitions}]
        reply = await self.ask(COMMIT, group_id=group_id, topics=topics, **fields)
        return ErrorCode(reply.topics[0].partitions[0].error_code)

    async def fetch(self, topic: str = "t", *, group_id: str = "g") -> int:
        topics = [{"name": topic, "partition_indexes": [0]}]
        reply = await self.ask(FETCH, 9, groups=[{"group_id": group_id, "topics": topics}])
        found = reply.groups[0].topics[0].partitions[0]
        assert found.error_code == 0
        return int(found.committed_offset)

    async def single_member(self) -> str:
        """Somebody who has everything, generation 1."""
        member_id = str((await self.join()).member_id)
        reply = await self.ask(
            SYNC,
            group_id="g",
            generation_id=1,
            member_id=member_id,
            assignments=[{"member_id": member_id, "assignment": b"all"}],
        )
        assert reply.assignment == b"all"
        return member_id


@asynccontextmanager
async def coordinator(disk: Disk | None = None, topics: Topics | None = None, **settings: int) -> Any:
    one = Coordinator(disk or Disk(), topics or Topics("t", "u"), **settings)
    await one.shard.load()
    yield one
    await one.shard.close()
