"""Answers that say more than what asks for them, and are not wide: many are asked for at once, and few are held."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from one_connection import run
from proxy_in_memory import Client, Running

from bmq.config.limits import limits_of
from bmq.metadata.image import PartitionMeta
from bmq.values import LeaderEpoch, NodeId, TopicPartition
from bmq.wire.apis import ApiKey
from bmq_proxy import api
from bmq_proxy.handlers import k32_describe_configs, k43_elect_leaders
from bmq_proxy.handlers import k46_list_partition_reassignments as k46_reassignments
from bmq_proxy.settings import ProxySettings

TOPICS = 24
PARTITIONS = 20
ASKING = 20
ELEMENTS_AT_ONCE = 3_000
"""1,000 in the room of narrow answers, at most half of which one address has, and 1,000 admitted as wide ones are; one
answer more, which is being encoded."""
SMALL_ROOM = ProxySettings(
    limits=limits_of(
        {
            "wide_answer_elements": 1_000,
            "answer_memory_bytes": TOPICS * k32_describe_configs.RESOURCE_BYTES + (1 << 20),
        }
    )
)
"""Of descriptions one request's, with the room that it has for long values, counts as half."""
AT_ONCE = 3
"""Such requests: each keeps what it has said."""

CONFIGS: dict[str, Any] = {
    "resources": [
        {"resource_type": 2, "resource_name": f"t{number}", "configuration_keys": None} for number in range(TOPICS)
    ],
    "include_synonyms": True,
    "include_documentation": True,
}
ELECTION: dict[str, Any] = {"election_type": 0, "topic_partitions": None, "timeout_ms": 1_000}
MOVES: dict[str, Any] = {"topics": None, "timeout_ms": 1_000}


class Held:
    """Pieces of answers that were put together and are not encoded yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
        self.most = 0
        self._now = 0
        self._each = 0
        described, encode = getattr(module, name), api.encode

        def counted(*args: Any, **options: Any) -> Any:
            self._now += 1
            self.most = max(self.most, self._now)
            return described(*args, **options)

        def let_go(*args: Any, **options: Any) -> Any:
            self._now -= self._each
            return encode(*args, **options)

        monkeypatch.setattr(module, name, counted)
        monkeypatch.setattr(api, "encode", let_go)

    async def ask(self, proxy: Running, key: ApiKey, version: int, request: dict[str, Any], *, each: int) -> None:
        """All at once, each over a connection of its own; `each` is what one answer has."""
        self._each = each
        clients = [await proxy.connect() for _ in range(ASKING)]
        for one in clients:
            one.send(key, version, request)
        await asyncio.gather(*(one.receive_frame() for one in clients))
        assert self._now == 0
        assert proxy.role.proxy.bulk._building_narrow.left == SMALL_ROOM.limits.wide_answer_elements


def having_topics(proxy: Running) -> list[TopicPartition]:
    topics = [proxy.metadata.add_topic(f"t{number}", PARTITIONS) for number in range(TOPICS)]
    return [TopicPartition(topic.topic_id, index) for topic in topics for index in range(PARTITIONS)]


def without_owner(proxy: Running, tps: list[TopicPartition]) -> None:
    nobody, topics = PartitionMeta(node_id=NodeId(-1), leader_epoch=LeaderEpoch(3)), proxy.metadata.image.topics
    left = {tp.topic_id: replace(topics[tp.topic_id], partitions=(nobody,) * PARTITIONS) for tp in tps}
    proxy.metadata.change(topics={**topics, **left})


def on_the_move(proxy: Running, tps: list[TopicPartition]) -> None:
    for tp in tps:
        proxy.metadata.move(tp, NodeId(2))


def test_few_descriptions_of_topics_are_held_however_many_ask_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, k32_describe_configs, "_describe")

    async def test(proxy: Running, client: Client) -> None:
        having_topics(proxy)
        await held.ask(proxy, ApiKey.DESCRIBE_CONFIGS, 4, CONFIGS, each=TOPICS)
        assert TOPICS <= held.most <= AT_ONCE * TOPICS

    run(test, SMALL_ROOM)


def test_the_answer_says_of_each_topic_what_it_says_alone() -> None:
    async def test(proxy: Running, client: Client) -> None:
        having_topics(proxy)
        unknown = {"resource_type": 2, "resource_name": "nowhere", "configuration_keys": None}
        asked = [*CONFIGS["resources"], unknown]
        together = (await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {**CONFIGS, "resources": asked})).results
        for one, told in zip(asked, together, strict=True):
            alone = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {**CONFIGS, "resources": [one]})
            assert alone.results[0] == told
        assert [told.error_code for told in together] == [0] * TOPICS + [3]
        assert len(together[0].configs) > 20

    run(test)


@pytest.mark.parametrize(
    ("asked", "change", "name"),
    [
        ((ApiKey.ELECT_LEADERS, 2, ELECTION), without_owner, (k43_elect_leaders, "_outcome")),
        (
            (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, MOVES),
            on_the_move,
            (k46_reassignments, "_described"),
        ),
    ],
    ids=["partitions without an owner", "partitions on the move"],
)
def test_few_lists_of_partitions_are_held_however_many_ask_for_them(
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[ApiKey, int, dict[str, Any]],
    change: Callable[[Running, list[TopicPartition]], None],
    name: tuple[ModuleType, str],
) -> None:
    held = Held(monkeypatch, *name)

    async def test(proxy: Running, client: Client) -> None:
        change(proxy, having_topics(proxy))
        await held.ask(proxy, *asked, each=TOPICS * PARTITIONS)
        assert TOPICS * PARTITIONS <= held.most <= ELEMENTS_AT_ONCE

    run(test, SMALL_ROOM)
