"""What was seen in JSON values, as a tree that grows in place: a value costs what it is long, whatever was seen before
it. Pure.

A tree keeps the first names of an object, FIELDS of them: objects whose keys are data do not make it grow without end,
and which names are kept depends neither on the order of values nor on who saw them.
"""

from heapq import nsmallest
from typing import Any, Final, TypeAlias

import pyarrow as pa

from bmq_spark.values.evolution import json_rules

COLUMNS: Final = 1000
"""More columns than this are not made of their own accord: objects whose keys are data would make them without end."""
FIELDS: Final = 2 * COLUMNS
"""So many fields are kept of one object: some tell nothing, or differ by case alone, and become no columns."""
LEVELS: Final = 20
"""What is deeper is JSON text."""

Seen: TypeAlias = "dict[str, Seen] | list[Seen] | pa.DataType | None"
"""An object, a list (of one: what its elements are), a scalar, or nothing told yet."""
_SCALARS: Final = {bool: pa.bool_(), float: pa.float64(), str: pa.string()}


def seen_in(value: Any, level: int = 0) -> Seen:
    """A decoded value as a tree of its own."""
    if value is None:
        return None
    if isinstance(value, dict | list) and value and level == LEVELS:
        return pa.string()
    if isinstance(value, dict):
        return _cut({name: seen_in(part, level + 1) for name, part in value.items()}, FIELDS)
    if isinstance(value, list):
        element: Seen = None
        for part in value:
            element = merged(element, seen_in(part, level + 1))
        return [element]
    if isinstance(value, int) and not isinstance(value, bool):
        return pa.int64() if -(1 << 63) <= value < 1 << 63 else pa.float64()
    return _SCALARS[type(value)]


def merged(one: Seen, other: Seen) -> Seen:
    """Both; `one` grows where it is an object or a list, and parts of `other` become its own. Commutative and
    associative.
    """
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        for name, part in other.items():
            one[name] = merged(one[name], part) if name in one else part
        return _cut(one, 2 * FIELDS)
    if isinstance(one, list) and isinstance(other, list):
        one[0] = merged(one[0], other[0])
        return one
    if isinstance(one, pa.DataType) and isinstance(other, pa.DataType):
        return json_rules(one, other) or pa.string()
    return pa.string()


def tells(seen: Seen) -> bool:
    """Whether there is anything that could be a column."""
    if isinstance(seen, dict):
        return any(map(tells, seen.values()))
    return tells(seen[0]) if isinstance(seen, list) else seen is not None


def arrow_of(seen: Seen) -> pa.DataType:
    """The type, with null for what is not told yet, and fields by name."""
    if isinstance(seen, dict):
        return pa.struct([(name, arrow_of(seen[name])) for name in sorted(_cut(seen, FIELDS))])
    if isinstance(seen, list):
        return pa.list_(arrow_of(seen[0]))
    return pa.null() if seen is None else seen


def seen_of(arrow_type: pa.DataType) -> Seen:
    """The tree of a type that `arrow_of` gave."""
    if pa.types.is_struct(arrow_type):
        return {field.name: seen_of(field.type) for field in arrow_type}
    if pa.types.is_list(arrow_type):
        return [seen_of(arrow_type.value_type)]
    return None if pa.types.is_null(arrow_type) else arrow_type


def _cut(fields: "dict[str, Seen]", most: int) -> "dict[str, Seen]":
    """Where there are more than `most`, in place, those that come after the first FIELDS by name go."""
    if len(fields) > most:
        kept = set(nsmallest(FIELDS, fields))
        for name in [name for name in fields if name not in kept]:
            del fields[name]
    return fields
