"""What very many lanes cost a proxy that sees very many topics: one lane is no measure of it, and what a look costs is
not stored for each.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

import pytest
from proxy_in_memory import Client, Running, batch, fetch_request
from test_proxy_lane_produce import Gate, codes, in_lane
from test_proxy_lane_views import Node, lane, topic

from bmq.metadata.image import HAS_READ_MAX, Lane, PartitionMeta, Topic
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.values import NodeId, TopicId
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.bulk import TURN_ELEMENTS
from bmq_proxy.handlers.k03_metadata import AnswerCache
from bmq_proxy.lanes import by_lane, views
from bmq_proxy.lanes.by_lane import ByLane
from bmq_proxy.lanes.views import BaseView, LaneView

TOPICS: Final = 4_000
LANES: Final = 40
TRIES: Final = 5
UNKNOWN: Final = TopicId(UUID(int=99 << 64))
KIB: Final = 1 << 10


def node_of(*, reads: tuple[str, ...] = ()) -> Node:
    """Many lanes over many topics."""
    topics = [topic(number + 1, f"topic-{number}") for number in range(TOPICS)]
    return Node(*topics, *(lane(f"l{number}", number + 1, reads=reads) for number in range(LANES)))


def views_of(node: Node) -> list[LaneView]:
    """As a proxy has them."""
    by_lane = BaseView(node).by_lane
    return [LaneView(node, f"l{number}", by_lane, own_only=False) for number in range(LANES)]


def spent_s(work: Callable[[], object]) -> float:
    """Of the processor."""
    before_s = time.thread_time()
    work()
    return time.thread_time() - before_s


def more(node: Node) -> None:
    """One topic more."""
    number = len(node.image.topics) + 1
    node.then(topic(number, f"topic-{number}"))


def test_one_topic_more_or_changed_costs_a_look_at_no_other_name() -> None:
    node = node_of(reads=("topic-7*",))
    node.then(topic(TOPICS + 1, "l0:own"))
    base, view = BaseView(node), LaneView(node, "l0", ByLane(), own_only=False)
    assert len(base.image.topics) == TOPICS
    assert len(view.image.topics) == 112
    view = LaneView(node, "l0", base.by_lane, own_only=False)
    assert len(view.image.topics) == 112
    with (
        patch.object(by_lane, "lane_of", side_effect=by_lane.lane_of) as named,
        patch.object(views, "lane_of", side_effect=views.lane_of) as seen,
        patch.object(by_lane, "matches", side_effect=by_lane.matches) as matched,
    ):
        more(node)
        assert len(base.image.topics) == TOPICS + 1
        assert f"topic-{TOPICS + 2}" in base.image.topic_ids
        assert len(view.image.topics) == 112
        assert named.call_count + seen.call_count + matched.call_count < 10


def test_lanes_whose_clients_ask_for_ids_that_nobody_told_hold_nothing_for_each_topic() -> None:
    node = node_of()
    views = views_of(node)
    assert UNKNOWN not in views[0].image.topics
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for view in views[1:]:
            assert UNKNOWN not in view.image.topics
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held - before < LANES * 16 * KIB


def test_lanes_that_nobody_asks_any_more_hold_nothing_of_when_they_were_asked_last() -> None:
    node = node_of(reads=("topic-*",))
    views, caches = views_of(node), [AnswerCache(1 << 20) for _ in range(LANES)]
    for view, cache in zip(views, caches, strict=True):
        cache.find(view.image, 12, b"")
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for view, cache in zip(views, caches, strict=True):
            more(node)
            assert UNKNOWN not in view.image.topics
            cache.find(view.image, 12, b"")
        more(node)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    one = TOPICS * 200
    assert held - before < 6 * one, "all topics of one moment, and not of as many as there are lanes"


def test_after_a_change_the_looks_of_all_lanes_cost_little_more_than_the_first() -> None:
    node = node_of()
    views = views_of(node)

    def ratio() -> float:
        more(node)
        first_s = spent_s(lambda: UNKNOWN in views[0].image.topics)
        return spent_s(lambda: [UNKNOWN in view.image.topics for view in views[1:]]) / first_s

    assert min(ratio() for _ in range(TRIES)) < 5, f"{LANES - 1} looks"


@pytest.mark.parametrize(
    "look", [lambda view: len(view.image.topics), lambda view: "topic-7" in view.image.topic_ids], ids=["all", "one"]
)
def test_after_a_change_only_what_is_new_is_matched_with_patterns(look: Callable[[LaneView], object]) -> None:
    patterns = tuple(f"t*p{number}*c" for number in range(HAS_READ_MAX))
    plain, matching = node_of(), node_of(reads=patterns)
    views = LaneView(plain, "l1", ByLane(), own_only=False), LaneView(matching, "l1", ByLane(), own_only=False)
    for view in views:
        look(view)

    def ratio() -> float:
        for node in (plain, matching):
            more(node)
        plain_s, matching_s = (spent_s(lambda view=view: look(view)) for view in views)  # type: ignore[misc]
        return matching_s / plain_s

    assert min(ratio() for _ in range(TRIES)) < 3


def test_what_patterns_cover_is_the_same_whether_it_was_looked_for_before_or_not() -> None:
    node = node_of(reads=("topic-1*", "*9"))
    before = views_of(node)[0]
    for step in range(3):
        assert dict(before.image.topic_ids) == dict(LaneView(node, "l0", ByLane(), own_only=False).image.topic_ids)
        image = before.image
        names = list(image.topic_ids)
        more(node)
        assert len(before.image.topic_ids) == len(names) + (
            f"topic-{TOPICS + 1 + step}".endswith("9") or f"{TOPICS + 1 + step}".startswith("1")
        )
        assert list(image.topic_ids) == names, "as long as somebody looks at an image, it stays"


def test_a_look_at_a_partition_of_a_wide_topic_that_nobody_wrote_to_costs_little_more_than_at_one_of_a_narrow() -> None:
    """A request may name each of its partitions, and looks at the topic for each."""
    node = Node(topic(1, "narrow"), topic(2, "wide", 10_000), lane("l1", 1))
    image = LaneView(node, "l1", ByLane(), own_only=False).image

    def ratio() -> float:
        narrow_s, wide_s = (
            spent_s(lambda name=name: [image.topic(name) for _ in range(100)]) for name in ("narrow", "wide")
        )  # type: ignore[misc]
        return wide_s / narrow_s

    assert min(ratio() for _ in range(TRIES)) < 8


class Looks:
    """How often a lane's view was asked by name or id, in all and at most in one turn of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.count = self.most = self._before = 0
        looked = getattr(LaneView, name)

        def look(view: LaneView, key: object) -> object:
            self.count += 1
            return looked(view, key)

        monkeypatch.setattr(LaneView, name, look)

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            before = self.count
            await asyncio.sleep(0)
            self.most = max(self.most, self.count - before)


def add_topics(proxy: Running, count: int) -> list[str]:
    """Of the base, `more-0` and on."""
    metas = (PartitionMeta(),)
    more = [
        Topic(topic_id=TopicId(UUID(int=1_000 + number)), name=f"more-{number}", partitions=metas)
        for number in range(count)
    ]
    image = proxy.metadata.image
    proxy.metadata.change(
        topics={**image.topics, **{one.topic_id: one for one in more}},
        topic_ids={**image.topic_ids, **{one.name: one.topic_id for one in more}},
    )
    return [one.name for one in more]


def test_a_fetch_of_thousands_of_topics_that_nobody_wrote_to_is_worked_on_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        looks = Looks(monkeypatch, "first_offset")
        watching = asyncio.ensure_future(looks.watch())
        one = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        topics = [{"topic": name, "partitions": [one]} for name in add_topics(proxy, 2_000)]
        topics.append({"topic": "orders", "partitions": [one, {**one, "partition": 1}]})
        answer = await client.ask(1, 11, {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics})
        watching.cancel()
        assert [part.error_code for found in answer.responses for part in found.partitions] == [0] * 2_002
        assert (looks.count, looks.most <= TURN_ELEMENTS) == (2_001, True), "one for each topic, in turns"

    in_lane(test)


def test_a_produce_to_thousands_of_topics_that_nobody_wrote_to_is_worked_on_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        looks = Looks(monkeypatch, "base_name_of")
        watching = asyncio.ensure_future(looks.watch())
        names = [*add_topics(proxy, 2_000), *["orders"] * 1_000]
        topics = [{"name": name, "partition_data": [{"index": 0, "records": batch(b"v")}]} for name in names]
        client.send(0, 9, {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": topics})
        answer = (await client.receive())[1]
        watching.cancel()
        assert codes(answer) == [0] * 2_001 + [ErrorCode.invalid_request] * 999
        assert (looks.count, looks.most <= TURN_ELEMENTS) == (2_001, True), "one for each topic, in turns"

    in_lane(test)


def test_a_commit_for_thousands_of_topics_is_worked_on_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        proxy.metadata.change(lanes={"dev": Lane(name="dev", number=1, created_ms=0, reads_base=("more-*",))})
        names = add_topics(proxy, 2_000)
        image = proxy.metadata.image
        offsets = Topic(
            topic_id=TopicId(UUID(int=99)), name=CONSUMER_OFFSETS, partitions=(PartitionMeta(node_id=NodeId(1)),)
        )
        proxy.metadata.change(
            topics={**image.topics, offsets.topic_id: offsets},
            topic_ids={**image.topic_ids, CONSUMER_OFFSETS: offsets.topic_id},
        )
        proxy.owner.on_group_call = lambda _, __, request, ___: {
            "throttle_time_ms": 0,
            "topics": [committed(topic.name) for topic in request.topics],
        }
        looks = Looks(monkeypatch, "stored_name")
        watching = asyncio.ensure_future(looks.watch())
        one = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": name, "partitions": [one]} for name in (*names, "orders")]
        asked = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics,
        }
        answer = await client.ask(8, 8, asked)
        watching.cancel()
        assert [(topic.name, topic.partitions[0].error_code) for topic in answer.topics] == [
            (name, 0) for name in (*names, "orders")
        ]
        [(_, _, passed_on, _)] = proxy.owner.group_calls
        assert [topic.name for topic in passed_on.topics] == [*names, "dev:orders"]
        assert looks.count == 3 * 2_001, "what is to be made, what it is called, and what it was"
        assert looks.most <= TURN_ELEMENTS

    in_lane(test)


def committed(name: str) -> dict[str, Any]:
    """What is answered for a topic."""
    return {"name": name, "partitions": [{"partition_index": 0, "error_code": 0}]}


def test_a_fetch_session_in_a_lane_is_one_of_the_proxys() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        response = await client.ask(1, 12, fetch_request("orders", 0, 0, session_epoch=0))
        assert response.session_id > 0
        assert len(proxy.role.proxy.sessions) == 1

    in_lane(test)
