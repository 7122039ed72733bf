"""How many values a record's lists and maps become as columns, and how many they may. Pure.

Two bytes may be an element, and all of its columns are made. A record that becomes more than VALUES_FREE values, and
more than VALUES_PER_BYTE for each of its bytes, does not fit, in every format. It is counted before what would hold the
values is made.
"""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from bmq_spark.values.decoded import Unfit

Counter = Callable[[Any], int]
VALUES_FREE: Final = 1_000_000
"""So many values the items of one record may always become,"""
VALUES_PER_BYTE: Final = 8
"""and so many for each of its bytes."""
SLICE_VALUES: Final = 1_000_000
"""After so many values those that were read become columns before others are."""
ITEM_BYTES_MIN: Final = 2
"""An item has at least so many bytes: in JSON (`1,`), and as a message within a list in Protobuf (its number and its
length)."""


def require_few(values: int, size_bytes: int) -> None:
    """Raises Unfit."""
    most = values_max(size_bytes)
    if values > most:
        raise Unfit(f"its items would become {values} values or more: {most} at most from so many bytes")


def values_max(size_bytes: int) -> int:
    """What the items of a record of that size may become."""
    return max(VALUES_FREE, VALUES_PER_BYTE * size_bytes)


def width(arrow_type: pa.DataType) -> int:
    """How many values one value of the type is, without the items of lists and maps in it."""
    return 1 + sum(width(field.type) for field in arrow_type) if pa.types.is_struct(arrow_type) else 1


def widest_item(arrow_type: pa.DataType) -> int:
    """The greatest `width` among the items of lists and maps of the type; 0 where it has none."""
    if pa.types.is_struct(arrow_type):
        return max((widest_item(field.type) for field in arrow_type), default=0)
    if pa.types.is_list(arrow_type):
        return max(width(arrow_type.value_type), widest_item(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return max(1 + width(arrow_type.item_type), widest_item(arrow_type.item_type))
    return 0


def made_by(arrow_type: pa.DataType) -> tuple[int, Counter | None]:
    """What each record becomes, and how what its items become is counted; None where these are so narrow that they
    never become too many.
    """
    return width(arrow_type), None if are_narrow(widest_item(arrow_type)) else counter(arrow_type)


def are_narrow(widest: int) -> bool:
    """Whether items, of which the widest is so wide, never become too many, however many of them are in a record's
    bytes.
    """
    return widest <= ITEM_BYTES_MIN * VALUES_PER_BYTE


def may_be_many(widest: int, size_bytes: int) -> bool:
    """Whether a record of that size may become too many values, of items of which the widest is so wide."""
    return widest * (size_bytes // ITEM_BYTES_MIN) > values_max(size_bytes)


def counter(arrow_type: pa.DataType) -> Counter | None:
    """How many values the items in an object of Python become: dicts, lists, and dicts or lists of pairs for maps. What
    is of another type counts nothing. None where the type has no items.
    """
    if pa.types.is_struct(arrow_type):
        parts = [(field.name, count) for field in arrow_type if (count := counter(field.type)) is not None]
        return None if not parts else lambda found: _of_fields(found, parts)
    if pa.types.is_list(arrow_type):
        each, within = width(arrow_type.value_type), counter(arrow_type.value_type)
        return lambda found: _of_items(found, each, within) if isinstance(found, list) else 0
    if pa.types.is_map(arrow_type):
        each, within = 1 + width(arrow_type.item_type), counter(arrow_type.item_type)
        return lambda found: _of_items(
            [item for _, item in (found.items() if isinstance(found, dict) else found)], each, within
        )
    return None


def _of_fields(found: Any, parts: list[tuple[str, Counter]]) -> int:
    return (
        sum(count(found[name]) for name, count in parts if found.get(name) is not None)
        if isinstance(found, dict)
        else 0
    )


def _of_items(items: list[Any], each: int, within: Counter | None) -> int:
    return each * len(items) + (sum(within(item) for item in items if item is not None) if within is not None else 0)
