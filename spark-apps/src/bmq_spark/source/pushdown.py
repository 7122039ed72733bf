"""What a query's filters say about topics, partitions, offsets and times, so that segments and blocks are passed over.
Pure.

Spark applies every filter again: here it is only decided what need not be read. Upper bounds of time pass over nothing,
because a segment's least timestamp is that of its batches' first records, and others may be older.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from bmq_spark.source.slices import Narrowing

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def narrowed(filters: Iterable[Filter]) -> Narrowing:
    """What all of them together leave."""
    found = Narrowing()
    for each in filters:
        match each:
            case EqualTo((column,), value):
                found = _among(found, column, [value])
            case In((column,), values):
                found = _among(found, column, list(values))
            case GreaterThan((column,), value) | GreaterThanOrEqual((column,), value):
                found = _from(found, column, value, is_exclusive=isinstance(each, GreaterThan))
            case LessThan((column,), value) | LessThanOrEqual((column,), value):
                found = _below(found, column, value, is_inclusive=isinstance(each, LessThanOrEqual))
            case _:
                pass
    return found


def _among(found: Narrowing, column: str, values: Sequence[object]) -> Narrowing:
    if column == "topic":
        names = frozenset(value for value in values if isinstance(value, str))
        return replace(found, topics=names if found.topics is None else found.topics & names)
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    times = [value for value in values if isinstance(value, datetime)]
    if column == "partition":
        chosen = frozenset(numbers)
        return replace(found, partitions=chosen if found.partitions is None else found.partitions & chosen)
    if column == "offset" and numbers:
        found = _from(found, column, min(numbers), is_exclusive=False)
        return _below(found, column, max(numbers), is_inclusive=True)
    if column == "timestamp" and times:
        return _from(found, column, min(times, key=_milliseconds), is_exclusive=False)
    return found


def _from(found: Narrowing, column: str, value: object, *, is_exclusive: bool) -> Narrowing:
    if isinstance(value, datetime) and column == "timestamp":
        least = _milliseconds(value)
        return replace(
            found, min_timestamp_ms=least if found.min_timestamp_ms is None else max(found.min_timestamp_ms, least)
        )
    if not isinstance(value, int):
        return found
    least = value + is_exclusive
    if column == "offset":
        return replace(found, from_offset=max(found.from_offset, least))
    return found


def _below(found: Narrowing, column: str, value: object, *, is_inclusive: bool) -> Narrowing:
    if column == "offset" and isinstance(value, int):
        return replace(found, below_offset=min(found.below_offset, value + is_inclusive))
    return found


def _milliseconds(value: datetime) -> int:
    """Rounded down; a time without a zone is this process's, as everywhere in PySpark."""
    aware = value if value.tzinfo is not None else value.astimezone()
    delta = aware - _EPOCH
    return delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000
