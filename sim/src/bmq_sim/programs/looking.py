"""Who looks at everything: partitions by time and by leader epoch, groups, nodes, placements, by Kafka's APIs and by
REST. Changes nothing.
"""

from collections.abc import Sequence
from typing import Any, Final

from bmq.wire.messages import Message
from bmq.wire.special_timestamps import MAX_TIMESTAMP
from bmq_sim.client import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    RETRIABLE,
    ConnectionLost,
    SimClient,
)
from bmq_sim.clock import true_now_ms
from bmq_sim.history import EpochEnd, FoundByTime, History, Place
from bmq_sim.programs.asking import codes_of
from bmq_sim.rest import Rest

BROKER_RESOURCE: Final = 4
ALL_PAGES: Final = (
    "/v1/load",
    "/v1/debug/image",
    "/v1/debug/log?limit=1",
    "/v1/debug/store",
    "/v1/balance",
    "/metrics",
    "/healthz",
    "/readyz",
    "/v1/topics/no-such-topic",
    "/v1/no-such-page",
)
GROUPS: Final = ("group", "statics", "keeper", "nobody")


class Looker:
    """Asks one thing after the other. What it is told of partitions is compared with the logs in the end."""

    def __init__(
        self, client: SimClient, history: History, rest: Rest, places: Sequence[Place], *, pause_s: float
    ) -> None:
        self._client = client
        self._history = history
        self._rest = rest
        self._places = places
        self._pause_s = pause_s

    async def run(self) -> None:
        """Until its client is stopped."""
        rng = self._client.rng
        looks = (self._by_time, self._by_time, self._by_epoch, self._groups, self._cluster, self._pages, self._of_one)
        while not self._client.stopped:
            await self._client.rest(self._pause_s * rng.random())
            try:
                await rng.choice(looks)()
            except ConnectionLost:
                self._client.forget_leaders()

    async def _by_time(self) -> None:
        rng, place = self._client.rng, self._client.rng.choice(self._places)
        asked, wanted = self._history.turn(), rng.choice((MAX_TIMESTAMP, true_now_ms() - rng.randrange(60_000)))
        part = {"partition_index": place.partition, "timestamp": wanted}
        fields = {
            "replica_id": -1,
            "isolation_level": rng.choice((0, 1)),
            "topics": [{"name": place.name, "partitions": [part]}],
        }
        found = (await self._of_leader(place, LIST_OFFSETS, fields)).topics[0].partitions[0]
        if not found.error_code:
            told = FoundByTime(
                asked=asked, place=place, wanted_ms=wanted, offset=found.offset, timestamp_ms=found.timestamp
            )
            self._history.found_by_time.append(told)

    async def _by_epoch(self) -> None:
        rng, place, asked = self._client.rng, self._client.rng.choice(self._places), self._history.turn()
        epoch = rng.choice((0, *(record.leader_epoch for record in self._history.seen[-20:] if record.place == place)))
        part = {"partition": place.partition, "leader_epoch": epoch}
        fields = {"replica_id": -1, "topics": [{"topic": place.name, "partitions": [part]}]}
        found = (await self._of_leader(place, OFFSET_FOR_LEADER_EPOCH, fields)).topics[0].partitions[0]
        if not found.error_code and found.end_offset >= 0:
            told = EpochEnd(asked=asked, place=place, leader_epoch=epoch, end_offset=found.end_offset)
            self._history.epoch_ends.append(told)

    async def _groups(self) -> None:
        group = self._client.rng.choice(GROUPS)
        await self._ask(LIST_GROUPS, {"states_filter": []})
        found = (await self._ask(FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [group]})).coordinators[0]
        if found.error_code:
            return
        at = (found.host, found.port)
        await self._ask(DESCRIBE_GROUPS, {"groups": [group], "include_authorized_operations": True}, at=at)
        await self._ask(OFFSET_FETCH, {"groups": [{"group_id": group, "topics": None}]}, at=at)
        await self._rest.until_told("GET", f"/v1/groups/{group}", fine=(404,))

    async def _cluster(self) -> None:
        topic = self._places[0].topic
        broker = {"resource_type": BROKER_RESOURCE, "resource_name": "", "configuration_keys": None}
        await self._ask(API_VERSIONS, {})
        await self._ask(DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True})
        await self._ask(METADATA, {"topics": None, "allow_auto_topic_creation": False})
        await self._ask(DESCRIBE_LOG_DIRS, {"topics": None})
        await self._ask(
            DESCRIBE_TOPIC_PARTITIONS, {"topics": [{"name": topic}], "response_partition_limit": 1, "cursor": None}
        )
        await self._ask(LIST_PARTITION_REASSIGNMENTS, {"topics": None})
        await self._ask(
            DESCRIBE_CONFIGS, {"resources": [broker], "include_synonyms": True, "include_documentation": False}
        )

    async def _pages(self) -> None:
        await self._rest.until_told("GET", self._client.rng.choice(ALL_PAGES), fine=(404, 406))

    async def _of_one(self) -> None:
        """Pages of a node, a topic, a partition."""
        rest, place, rng = self._rest, self._client.rng.choice(self._places), self._client.rng
        nodes = (await rest.until_told("GET", "/v1/nodes")).document["items"]
        node = rng.choice(nodes)["node_id"] if nodes else 1
        of_node = rng.choice((f"/v1/nodes/{node}", f"/v1/nodes/{node}/self", f"/v1/nodes/{node}/metrics"))
        await rest.until_told("GET", of_node, fine=(404, 409, 502))
        topic = rng.choice((f"/v1/topics/{place.topic}/configs", f"/v1/topics/{place.topic}/partitions"))
        await rest.until_told("GET", topic)
        await rest.until_told("GET", f"/v1/placement/{place.topic}/{place.partition}")

    async def _of_leader(self, place: Place, api_key: int, fields: dict[str, Any]) -> Message:
        answer = await (await self._client.leader(place)).send(api_key, fields)
        if any(code in RETRIABLE for code in self._judged(api_key, fields, answer)):
            self._client.forget_leaders()
        return answer

    async def _ask(self, api_key: int, fields: dict[str, Any], *, at: tuple[str, int] | None = None) -> Message:
        answer = await (await self._client.connection(at)).send(api_key, fields)
        self._judged(api_key, fields, answer)
        return answer

    def _judged(self, api_key: int, fields: dict[str, Any], answer: Message) -> set[int]:
        """The error codes of an answer; those that no correct server gives are kept."""
        codes = {code for code in codes_of(answer) if code}
        if wrong := codes - RETRIABLE:
            self._history.refused.append(f"{self._client.name}: API {api_key} was told {sorted(wrong)} for {fields}")
        return codes
