"""Pages of all topics' names, beside what is obvious."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from bmq.metadata.shared_map import SharedMap, Successor
from bmq.values import TopicId
from bmq_proxy.ordered_names import ONE_BY_ONE_MAX, OrderedNames

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
        assert list(ordered.page(dict(here), start=start, count=count)) == expected, "a lane's"


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
