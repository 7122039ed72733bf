"""Dates and times that a calendar of SQL has, the years 1 to 9999: pandas refuses a whole table for one other, and
DuckDB calls it infinity. Pure.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DAYS: Final = (-719_162, 2_932_896)
_MICROSECONDS: Final = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


def require_calendar(array: pa.Array) -> None:
    """Raises ValueError where a date or a time (in microseconds) anywhere in the array is none of these years."""
    for why in beyond_calendar(array).values():
        raise ValueError(why)


def beyond_calendar(array: pa.Array) -> dict[int, str]:
    """The positions of the values that have a date or a time (in microseconds) of none of these years, with the first
    that is.
    """
    found: dict[int, str] = {}
    if not _has_times(array.type):
        return found
    for path, leaf, lists in _leaves(array, "$", ()):
        days = pa.types.is_date(leaf.type)
        low, high = _DAYS if days else _MICROSECONDS
        numbers = leaf.cast(pa.int32() if days else pa.int64())
        most = pc.min_max(numbers)
        if not most["min"].is_valid or (most["min"].as_py() >= low and most["max"].as_py() <= high):
            continue
        # A comparison with null is null, which is no position.
        positions = pc.indices_nonzero(pc.or_(pc.less(numbers, low), pc.greater(numbers, high)))
        for each in reversed(lists):
            positions = _holders(each).take(positions)
        why = f"a {'date' if days else 'time'} beyond the years 1 to 9999 - at `{path}`"
        for position in positions.to_pylist():
            found.setdefault(position, why)
    return found


@lru_cache(maxsize=16)
def _has_times(arrow_type: pa.DataType) -> bool:
    if pa.types.is_struct(arrow_type):
        return any(_has_times(field.type) for field in arrow_type)
    if pa.types.is_map(arrow_type):
        return _has_times(arrow_type.item_type)
    if pa.types.is_list(arrow_type):
        return _has_times(arrow_type.value_type)
    return bool(pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type))


def _leaves(
    array: pa.Array, path: str, lists: tuple[pa.Array, ...]
) -> Iterator[tuple[str, pa.Array, tuple[pa.Array, ...]]]:
    """The parts that hold times, and the lists that they are items of, from the outer to the inner; what is below a
    null is no value.
    """
    if not _has_times(array.type):
        return
    if pa.types.is_struct(array.type):
        for field, part in zip(array.type, array.flatten(), strict=True):
            yield from _leaves(part, f"{path}.{field.name}", lists)
    elif pa.types.is_map(array.type) or pa.types.is_list(array.type):
        held = _items(array) if pa.types.is_map(array.type) else array
        yield from _leaves(held.flatten(), f"{path}[...]", (*lists, held))
    else:
        yield path, array, lists


def _items(maps: pa.Array) -> pa.Array:
    """Lists of what the maps hold."""
    return pa.Array.from_buffers(
        pa.list_(maps.type.item_type), len(maps), maps.buffers()[:2], offset=maps.offset, children=[maps.items]
    )


def _holders(lists: pa.Array) -> pa.Array:
    """In which of the lists each item is, of those that `flatten` gives: a null has none, whatever lies below it."""
    counts = pc.fill_null(pc.list_value_length(lists), 0)
    return pa.array(np.repeat(np.arange(len(lists)), counts.to_numpy(zero_copy_only=False)), type=pa.int64())
