"""Long lists in parts: as many items at a time as are worked on at once, or in one turn of the loop."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_groups(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """So many at a time, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def in_weighed_groups(
    items: Iterable[T], weight_of: Callable[[T], int], *, count_max: int, weight_max: int
) -> Iterator[list[T]]:
    """In order, as many at a time as have no more than this together; what alone weighs more is alone."""
    group: list[T] = []
    weight = 0
    for item in items:
        item_weight = weight_of(item)
        if group and (len(group) >= count_max or weight + item_weight > weight_max):
            yield group
            group, weight = [], 0
        group.append(item)
        weight += item_weight
    if group:
        yield group
