"""Node ids of lanes: each lane has a slot of its own (decision 22). Pure."""

from collections.abc import Iterable
from typing import Final

FIRST: Final = 20_000
WIDTH: Final = 200
BROKERS_ABOVE: Final = 100
"""Proxies have the first ids of a slot, brokers those from here on."""
SLOTS: Final = 100_000


def is_slot(node_ids_from: int) -> bool:
    """Whether a slot begins with it. What a status says else would have a lane's nodes take the ids of others, the
    base's too.
    """
    number, beside = divmod(node_ids_from - FIRST, WIDTH)
    return not beside and 0 <= number < SLOTS


def free_from(used: Iterable[int]) -> int:
    """The first node id of the lowest slot that is not used. Whoever gets it keeps it in its status."""
    taken = {(first - FIRST) // WIDTH for first in used if first >= FIRST}
    slot = next(number for number in range(len(taken) + 1) if number not in taken)
    assert slot < SLOTS, "more lanes than node ids"
    return FIRST + WIDTH * slot


def brokers_from(node_ids_from: int) -> int:
    """The first node id of the lane's brokers."""
    return node_ids_from + BROKERS_ABOVE
