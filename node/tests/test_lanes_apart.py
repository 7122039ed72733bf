"""The base and its lanes: by no API can a client of the base change what a lane has, or learn whether it has it."""

import asyncio
from collections.abc import Mapping
from itertools import product
from typing import Any
from uuid import UUID

from admin_api_asked import ask
from nodes_in_one_loop import Cluster, run
from tests.bare_client import AsyncBareClient
from tests.waiting import until_async

from bmq.metadata.image import Image
from bmq.wire import messages
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.message import Message
from bmq.wire.records import Record, build_batch
from bmq.wire.schemas import Field, api_schema
from bmq_node.node import Node
from bmq_proxy.lanes.names import APART, Apart
from bmq_proxy.lanes.tables import _WRITES

TOPIC, NO_TOPIC = "dev:orders", "dev:norder"
GROUP, NO_GROUP = ":dev#1:g", ":dev#1:n"
NO_ID = UUID(int=1 << 90)
_TOPIC_FIELDS = ("name", "topic", "topic_name", "topic_names", "resource_name")
_GROUP_FIELDS = ("group_id", "groups", "groups_names", "key", "coordinator_keys")
_TOPICS_OF_GROUPS = (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE)
_NUMBERS = {
    "resource_type": 2,
    "count": 9,
    "num_partitions": 1,
    "replication_factor": 1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 1_000,
    "timeout_ms": 2_000,
    "replica_id": -1,
    "session_epoch": -1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "acks": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "retention_time_ms": -1,
    "committed_offset": 3,
    "response_partition_limit": 100,
    "timestamp": -1,
}
_EMPTY = (
    "assignments",
    "broker_ids",
    "replicas",
    "forgotten_topics_data",
    "transactional_id",
    "group_instance_id",
    "cursor",
    "value",
    "rack_id",
)


def request_of(key: int, version: int, *, topic: str, topic_id: UUID, group: str) -> dict[str, Any]:
    """A request with everything in it once, and these names wherever there is one."""

    def single(field: Field) -> Any:
        match field.type:
            case "struct":
                return struct(field.fields)
            case "string" if field.name in _TOPIC_FIELDS:
                return topic
            case "string" if field.name in _GROUP_FIELDS:
                return group
            case "string":
                return "range"
            case "bytes" | "records":
                return build_batch([Record(0, 1_700_000_000_000, None, b"x", ())])
            case "uuid":
                return topic_id
            case "bool":
                return False
            case _:
                return _NUMBERS.get(field.name, 0)

    def value(field: Field) -> Any:
        if field.name in _EMPTY:
            return None if field.nullable_in(version) else [] if field.array else ""
        return [single(field)] if field.array else single(field)

    def struct(fields: tuple[Field, ...]) -> dict[str, Any]:
        return {field.name: value(field) for field in fields if field.in_version(version)}

    return struct(api_schema(key).request)


class Client:
    """A connection for each request."""

    def __init__(self, node: Node, client_id: str = "app") -> None:
        self._port = node.proxy.port
        self._client_id = client_id

    async def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> bytes:
        """The answer's body; empty where the connection was closed."""
        client = await AsyncBareClient.connect("127.0.0.1", self._port)
        client.client_id = self._client_id
        try:
            client.send(key, version, fields)
            return (await client.receive_raw())[1]
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        finally:
            client.close()

    async def answer(self, key: int, version: int, **fields: Any) -> Message:
        return messages.decode_response(key, version, await self.ask(key, version, fields))


def masked(body: bytes, *pairs: tuple[bytes, bytes]) -> bytes:
    for given, other in pairs:
        assert len(given) == len(other)
        body = body.replace(given, other)
    return body


def commit_of(group: str, topic: str, offset: int) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {
                "name": topic,
                "partitions": [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}],
            }
        ],
    }


async def fetched(client: Client, group: str, topic: str) -> int:
    topics = [{"name": topic, "partition_indexes": [0]}]
    reply = await client.answer(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": group, "topics": topics}])
    return int(reply.groups[0].topics[0].partitions[0].committed_offset)


async def lane_with_a_topic_and_a_group(cluster: Cluster) -> tuple[Node, Client, UUID]:
    node = await cluster.start(1, "controller,broker,proxy")
    for path, body in (
        ("topics", {"name": "orders", "partitions": 4}),
        ("lanes", {"name": "dev"}),
        ("topics", {"name": "orders", "lane": "dev"}),
    ):
        assert (await ask(node, "POST", f"/v1/{path}", body)).status == 201
    inside = Client(node, "lane=dev")
    await until_async(
        lambda: inside.answer(ApiKey.OFFSET_COMMIT, 8, **commit_of("g", "orders", 7)),
        "a commit to be taken",
        holds=lambda answer: not answer.topics[0].partitions[0].error_code,
        every_s=0.05,
    )
    return node, inside, UUID((await ask(node, "GET", f"/v1/topics/{TOPIC}")).body["topic_id"])


def test_every_api_that_is_served_says_how_it_keeps_lanes_apart() -> None:
    assert set(APART) == set(SERVED)
    assert set(_WRITES) | {ApiKey.PRODUCE} == {key for key, apart in APART.items() if Apart.WRITES in apart}
    for key in SERVED:
        named = {field.name for field in fields_of(api_schema(key).request)} & {
            *_TOPIC_FIELDS,
            *_GROUP_FIELDS,
            "topic_id",
        }
        if key not in (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.INIT_PRODUCER_ID):
            assert bool(named) is bool(APART[key]) or key == ApiKey.LIST_GROUPS, (ApiKey(key), named)


def fields_of(fields: tuple[Field, ...]) -> list[Field]:
    return [found for field in fields for found in (field, *fields_of(field.fields))]


def test_the_base_is_told_the_same_of_what_a_lane_has_and_of_what_nobody_has_by_every_api() -> None:
    async def test(cluster: Cluster) -> None:
        node, inside, topic_id = await lane_with_a_topic_and_a_group(cluster)
        before = (await ask(node, "GET", f"/v1/topics/{TOPIC}")).body
        outside = Client(node)
        texts = ((TOPIC, NO_TOPIC), (GROUP, NO_GROUP), (str(topic_id), str(NO_ID)))
        swapped = (*((given.encode(), other.encode()) for given, other in texts), (topic_id.bytes, NO_ID.bytes))
        for key, apart in APART.items():
            if not apart:
                continue
            api = SERVED[key]
            groups = [(GROUP, NO_GROUP), ("base", "base")] if key in _TOPICS_OF_GROUPS else [(GROUP, NO_GROUP)]
            for version, (group, no_group) in product(range(api.version_min, api.version_max + 1), groups):
                there = await outside.ask(
                    key, version, request_of(key, version, topic=TOPIC, topic_id=topic_id, group=group)
                )
                nowhere = await outside.ask(
                    key, version, request_of(key, version, topic=NO_TOPIC, topic_id=NO_ID, group=no_group)
                )
                assert masked(there, *swapped) == nowhere, (ApiKey(key).name, version)
                assert there or key == ApiKey.PRODUCE, (ApiKey(key).name, version)
        assert (await ask(node, "GET", f"/v1/topics/{TOPIC}")).body == before, "nothing of it was changed"
        assert await fetched(inside, "g", "orders") == 7
        image: Image = node.admin.front.state.sources.metadata.image  # type: ignore[union-attr]
        assert {topic.name for topic in image.topics.values()} == {"orders", TOPIC, "__consumer_offsets"}

    run(test)


def test_a_group_of_the_base_commits_nothing_for_a_lanes_topic_and_has_its_own_beside_it() -> None:
    async def test(cluster: Cluster) -> None:
        node, _, _ = await lane_with_a_topic_and_a_group(cluster)
        outside = Client(node)
        asked = commit_of("base-group", TOPIC, 42)
        asked["topics"] += commit_of("base-group", "orders", 5)["topics"]
        reply = await outside.answer(ApiKey.OFFSET_COMMIT, 8, **asked)
        assert [(topic.name, topic.partitions[0].error_code) for topic in reply.topics] == [(TOPIC, 3), ("orders", 0)]
        assert await fetched(outside, "base-group", "orders") == 5
        assert await fetched(outside, "base-group", TOPIC) == -1
        grown = await outside.answer(
            ApiKey.CREATE_PARTITIONS, 2, topics=[{"name": TOPIC, "count": 7, "assignments": None}], timeout_ms=2_000
        )
        assert [result.error_code for result in grown.results] == [3]

    run(test)
