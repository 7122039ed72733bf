"""Pages of all topics' names, beside what is obvious."""

import asyncio
from functools import partial
from typing import Any
from unittest.mock import patch
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from test_proxy_lane_views import Node, lane, topic

from bmq.metadata.records import TopicDeleted
from bmq.metadata.shared_map import SharedMap, Successor
from bmq.values import TopicId
from bmq_proxy import ordered_names
from bmq_proxy.lanes import by_lane
from bmq_proxy.lanes.by_lane import ByLane
from bmq_proxy.lanes.views import LaneView
from bmq_proxy.ordered_names import ONE_BY_ONE_MAX, OrderedNames, listed_page

names = st.integers(0, 3 * ONE_BY_ONE_MAX).map(lambda number: f"t{number}")
steps = st.lists(st.tuples(st.sets(names), st.sets(names)), min_size=1, max_size=6)


@given(steps, names, st.integers(1, 20))
def test_a_page_is_the_first_names_in_order_whatever_came_and_went(
    steps: list[tuple[set[str], set[str]]], start: str, count: int
) -> None:
    ordered, here = OrderedNames(), SharedMap[str, TopicId]()
    for number, (come, go) in enumerate(steps):
        successor = Successor(here)
        for name in come:
            successor[name] = TopicId(UUID(int=number))
        for name in go:
            successor.pop(name)
        here = successor.version()
        expected = sorted(name for name in here if name >= start)[:count]
        assert list(ordered.page(here, start=start, count=count)) == expected


changes = st.lists(
    st.tuples(st.sampled_from(["base", "dev", "ppe"]), st.booleans(), st.text("ab_", min_size=1, max_size=3)),
    max_size=12,
)
asked = st.tuples(st.integers(0, 3), st.text("ab_", max_size=3), st.integers(1, 6))


@given(
    st.lists(st.tuples(changes, st.lists(asked, max_size=3)), min_size=1, max_size=4),
    st.sampled_from([(), ("*",), ("a*",), ("b", "*a"), ("a*", "*"), ("none*",)]),
    st.sampled_from([0, 10, 500_000]),
    st.integers(1, 5),
)
def test_a_page_of_what_a_lane_sees_is_the_first_of_all_that_it_lists_whatever_comes_and_goes(
    steps: list[tuple[list[tuple[str, bool, str]], list[tuple[int, str, int]]]],
    reads: tuple[str, ...],
    kept: int,
    per_turn: int,
) -> None:
    """Also in images of before, and while others are looked at in between."""
    node = Node(lane("dev", 1, reads=reads), lane("ppe", 2, reads=("b*",)))
    shared = ByLane()
    lanes = [(LaneView(node, name, shared, own_only=False), OrderedNames()) for name in ("dev", "ppe")]
    seen = list[tuple[OrderedNames, Any]]()
    ids = iter(range(1, 1_000))

    async def page(at: int, start: str, count: int) -> tuple[list[str], list[str], int]:
        order, image = seen[at]
        passed = 0

        async def turn() -> None:
            nonlocal passed
            passed += 1
            other, among = seen[(at + passed) % len(seen)]
            await listed_page(other, among.topic_ids, start="", count=2, turn=partial(asyncio.sleep, 0))

        found = await listed_page(order, image.topic_ids, start=start, count=count, turn=turn)
        return found, sorted(name for name in image.topic_ids if name >= start)[:count], passed

    for come, asks in steps:
        for of, comes, name in come:
            stored = name if of == "base" else f"{of}:{name}"
            there = node.image.topic_ids.get(stored)
            if comes and there is None:
                node.then(topic(next(ids), stored))
            elif not comes and there is not None:
                node.then(TopicDeleted(topic_id=there, name=stored, last_leader_epoch=0))
        seen += [(order, view.image) for view, order in lanes]
        with patch.object(by_lane, "NAMES_KEPT_MAX", kept), patch.object(ordered_names, "LOOKED_AT_PER_TURN", per_turn):
            for back, start, count in asks:
                for at in {len(seen) - 1 - back % len(seen), len(seen) - 1}:
                    found, expected, passed = asyncio.run(page(at, start, count))
                    assert found == expected
                    assert passed * per_turn <= len(node.image.topic_ids) + 36


class ComparedName(str):
    """Counts how often names are compared."""

    compared = 0

    def __lt__(self, other: str) -> bool:
        ComparedName.compared += 1
        return str.__lt__(self, other)


def test_a_page_and_one_topic_more_cost_no_look_at_all_names() -> None:
    first = SharedMap({ComparedName(f"t{number}"): TopicId(UUID(int=number)) for number in range(20_000)})
    ordered = OrderedNames()
    ordered.page(first, start="", count=1)
    successor = Successor(first)
    successor[ComparedName("t5x")] = TopicId(UUID(int=1))
    ComparedName.compared = 0
    assert list(ordered.page(successor.version(), start="t5x", count=2)) == ["t5x", "t6"]
    assert ComparedName.compared < 100
