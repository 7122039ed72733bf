"""Who runs the cluster by its APIs: leads partitions elsewhere, cordons, drains and uncordons brokers, balances, sets
what holds for all.
"""

from collections.abc import Sequence
from typing import Any, Final

from bmq_sim.client import (
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLUSTER,
    ELECT_LEADERS,
    INVALID_REPLICA_ASSIGNMENT,
    LIST_PARTITION_REASSIGNMENTS,
    RETRIABLE,
    ConnectionLost,
    SimClient,
)
from bmq_sim.history import History, Place
from bmq_sim.programs.asking import codes_of
from bmq_sim.rest import Rest

TIMEOUT_MS: Final = 20_000
TOPIC_RESOURCE: Final = 2
PREFERRED: Final = 0
NO_SUCH: Final = frozenset((39, 84, 85, 89))
"""INVALID_REPLICA_ASSIGNMENT: that broker is about to start again. ELECTION_NOT_NEEDED, NO_REASSIGNMENT_IN_PROGRESS: it
is as it was to be. THROTTLING_QUOTA_EXCEEDED: it was moved a moment ago."""
NO_LEADER: Final = frozenset((80,))
"""PREFERRED_LEADER_NOT_AVAILABLE: no broker is there at the moment."""
FINE: Final = (400, 404, 409, 412, 429)
"""What a node of now is not at all, or not any more, is told so; so is who has a partition moved too often."""


class Operating:
    """One thing after the other."""

    def __init__(
        self, client: SimClient, history: History, rest: Rest, places: Sequence[Place], *, topic: str, pause_s: float
    ) -> None:
        """`topic`: one whose configuration nobody else sets."""
        self._client = client
        self._history = history
        self._rest = rest
        self._places = places
        self._topic = topic
        self._pause_s = pause_s

    async def run(self) -> None:
        """Until its client is stopped; every broker takes partitions then."""
        rng = self._client.rng
        operations = (
            self._reassign,
            self._reassign,
            self._move,
            self._empty,
            self._balance,
            self._elect,
            self._configure,
            self._configure_all,
        )
        while not self._client.stopped:
            await self._client.rest(self._pause_s * rng.random())
            try:
                await rng.choice(operations)()
            except ConnectionLost:
                continue

    async def _brokers(self) -> list[int]:
        answer = await (await self._client.connection()).send(
            DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False}
        )
        return sorted(broker.broker_id for broker in answer.brokers)

    async def _owners(self) -> list[int]:
        nodes = (await self._rest.until_told("GET", "/v1/nodes")).document["items"]
        return sorted(node["node_id"] for node in nodes if "broker" in node["roles"])

    async def _reassign(self) -> None:
        place, rng = self._client.rng.choice(self._places), self._client.rng
        owners = await self._owners()
        for replicas in ([rng.choice(owners)] if owners else None, None):  # begun, and now and then taken back
            part = {"partition_index": place.partition, "replicas": replicas}
            fields = {"timeout_ms": TIMEOUT_MS, "topics": [{"name": place.name, "partitions": [part]}]}
            # a broker may go meanwhile
            await self._ask(ALTER_PARTITION_REASSIGNMENTS, fields, fine=frozenset({INVALID_REPLICA_ASSIGNMENT}))
            await self._ask(
                LIST_PARTITION_REASSIGNMENTS, {"topics": [{"name": place.name, "partition_indexes": [place.partition]}]}
            )
            if rng.random() < 0.7:
                return

    async def _move(self) -> None:
        place, owners = self._client.rng.choice(self._places), await self._owners()
        if owners:
            to = {"to": self._client.rng.choice(owners)}
            await self._rest.until_told("POST", f"/v1/placement/{place.topic}/{place.partition}/move", to, fine=FINE)

    async def _empty(self) -> None:
        rng, owners = self._client.rng, await self._owners()
        if not owners:
            return
        node = rng.choice(owners)
        await self._rest.until_told("POST", f"/v1/nodes/{node}/{rng.choice(('cordon', 'drain'))}", fine=FINE)
        await self._client.rest(self._pause_s * rng.random())
        await self._rest.until_told("POST", f"/v1/nodes/{node}/uncordon", fine=FINE)

    async def _balance(self) -> None:
        await self._rest.until_told("POST", "/v1/balance", {"moves_max": self._client.rng.choice((1, 10))}, fine=FINE)

    async def _elect(self) -> None:
        place = self._client.rng.choice(self._places)
        fields = {
            "election_type": PREFERRED,
            "topic_partitions": [{"topic": place.name, "partitions": [place.partition]}],
            "timeout_ms": TIMEOUT_MS,
        }
        await self._ask(ELECT_LEADERS, fields, fine=NO_LEADER)

    async def _configure(self) -> None:
        value = self._client.rng.choice(("1209600000", "604800000"))
        resource = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": self._topic,
            "configs": [{"name": "retention.ms", "value": value}],
        }
        await self._ask(ALTER_CONFIGS, {"resources": [resource], "validate_only": self._client.rng.random() < 0.3})

    async def _configure_all(self) -> None:
        """What holds for the cluster, set and taken back."""
        for value in ("16384", None):
            await self._rest.until_told("PATCH", "/v1/configs", {"offset.metadata.max.bytes": value}, fine=FINE)

    async def _ask(self, api_key: int, fields: dict[str, Any], *, fine: frozenset[int] = frozenset()) -> None:
        answer = await (await self._client.connection()).send(api_key, fields)
        codes = set(codes_of(answer))
        if wrong := codes - RETRIABLE - NO_SUCH - fine - {0}:
            self._history.refused.append(
                f"{self._client.name}: API {api_key} was told {sorted(wrong)} for {fields}: {answer}"
            )
