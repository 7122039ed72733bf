"""Dates and times that a calendar of SQL has, the years 1 to 9999: pandas refuses a whole table for one other, and
DuckDB calls it infinity. Pure.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_DAYS: Final = (-719_162, 2_932_896)
_MICROSECONDS: Final = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


def require_calendar(array: pa.Array) -> None:
    """Raises ValueError where a date or a time (in microseconds) anywhere in the array is none of these years."""
    if not _has_times(array.type):
        return
    for path, leaf in _leaves(array, "$"):
        days = pa.types.is_date(leaf.type)
        low, high = _DAYS if days else _MICROSECONDS
        found = pc.min_max(leaf.cast(pa.int32() if days else pa.int64()))
        if found["min"].is_valid and (found["min"].as_py() < low or found["max"].as_py() > high):
            raise ValueError(f"a {'date' if days else 'time'} beyond the years 1 to 9999 - at `{path}`")


@lru_cache(maxsize=16)
def _has_times(arrow_type: pa.DataType) -> bool:
    if pa.types.is_struct(arrow_type):
        return any(_has_times(field.type) for field in arrow_type)
    if pa.types.is_map(arrow_type):
        return _has_times(arrow_type.item_type)
    if pa.types.is_list(arrow_type):
        return _has_times(arrow_type.value_type)
    return bool(pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type))


def _leaves(array: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    """The parts that hold times; what is below a null is no value."""
    if not _has_times(array.type):
        return
    if pa.types.is_struct(array.type):
        for field, part in zip(array.type, array.flatten(), strict=True):
            yield from _leaves(part, f"{path}.{field.name}")
    elif pa.types.is_map(array.type) or pa.types.is_list(array.type):
        inner = array.items if pa.types.is_map(array.type) else array.flatten()
        yield from _leaves(inner, f"{path}[...]")
    else:
        yield path, array
