"""Columns of JSON values that nobody wrote a schema for: what a batch has beyond what is known, and what the table's
columns become by it.

The lattice: integer (64 bits) → double → string, boolean → string, and an object or a list that meets something else →
string. A string column holds the JSON text of what is not a string. null, [] and {} tell nothing: a field that was
never anything else has no column yet.

The lattice holds within a batch. Columns that are known have files already, and widen as `rules` allow: by default as
Spark reads old files and new ones together. One odd record does not turn a table's column into text; it gets a reason.

`observe` runs where the records are and `settle` once for a batch. Both are deterministic: new fields come in the order
of their names.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa

from bmq_spark.values.column_paths import TOP, Path, Paths, Room
from bmq_spark.values.decoded import slices
from bmq_spark.values.evolution import Rules, json_rules, parquet_rules
from bmq_spark.values.json_records import JSON_REFUSES, python_type
from bmq_spark.values.json_seen import COLUMNS, Seen, arrow_of, merged, seen_in, seen_of, tells
from bmq_spark.values.made_values import may_be_many, widest_item

NOTHING: Final = pa.struct([])
_ODD_NAME: Final = re.compile(r'[\x00-\x1f"\\]')
"""What msgspec takes no field's name with, where it refuses the fields that it is not told of."""
_PIECE: Final = 256
"""Records after which what was seen becomes what is known, so that only what is new is looked at closely."""


def infer(known: pa.DataType | None, values: pa.Array, *, rules: Rules = parquet_rules) -> pa.DataType:
    """`known` with what `values` (JSON, binary) add to it."""
    return settle(known, [observe(values, known=known)], rules=rules)


def observe(values: pa.Array, *, known: pa.DataType | None = None) -> pa.DataType:
    """What the values have that `known` does not: a struct, with null for what is not told yet. Values that are not
    JSON objects tell nothing.
    """
    seen: Seen = {}
    check = _checker(known if known is not None else NOTHING, NOTHING)
    for piece in slices(values):
        objects = piece.to_pylist()
        for start in range(0, len(objects), _PIECE):
            if _see(objects[start : start + _PIECE], known, check, seen):
                check = _checker(known if known is not None else NOTHING, arrow_of(seen))
    return arrow_of(seen)


def settle(
    known: pa.DataType | None,
    observations: Iterable[pa.DataType],
    *,
    rules: Rules = parquet_rules,
    by_path: bool = False,
) -> pa.DataType:
    """The columns after a batch: those known, wider where `rules` let them, and new ones by name, COLUMNS in all.

    What does not become a column or a wider one stays out, and the decoder gives such records a reason. `by_path`: the
    table knows columns by their names from the top with dots between (Iceberg), where a name with dots may be the path
    of another.
    """
    seen = NOTHING
    for observation in observations:
        seen = union(seen, observation)
    start = known if known is not None else NOTHING
    return _settled(start, seen, rules, Room(COLUMNS - _columns(start), Paths.of(start) if by_path else None))


def union(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The least type that holds both, of what `observe` gives; commutative and associative."""
    return one if one == other else arrow_of(merged(seen_of(one), seen_of(other)))


def fields_beyond(value: Any, arrow_type: pa.DataType, path: str = "$") -> str | None:
    """The path of a part that says something and has no column; None where there is none."""
    if pa.types.is_struct(arrow_type) and isinstance(value, dict):
        types = {field.name: field.type for field in arrow_type}
        for name, part in value.items():
            if name not in types and tells(seen_in(part)):
                return f"{path}.{name}"
        inner = ((part, types[name], f"{path}.{name}") for name, part in value.items() if name in types)
        return next((found for each in inner if (found := fields_beyond(*each)) is not None), None)
    if pa.types.is_list(arrow_type) and isinstance(value, list):
        return next(
            (found for part in value if (found := fields_beyond(part, arrow_type.value_type, f"{path}[]")) is not None),
            None,
        )
    if pa.types.is_map(arrow_type) and isinstance(value, dict):
        return next(
            (
                found
                for part in value.values()
                if (found := fields_beyond(part, arrow_type.item_type, f"{path}[...]")) is not None
            ),
            None,
        )
    return None


def strict_type(arrow_type: pa.DataType) -> Any:
    """As json_records.python_type, and a field that the type does not have is refused, or whose name is odd. For
    checking alone: what is refused is looked at more closely.
    """
    if pa.types.is_struct(arrow_type):
        plain = [field for field in arrow_type if not _ODD_NAME.search(field.name)]
        fields = [(f"f{index}", strict_type(field.type) | None, None) for index, field in enumerate(plain)]
        names = {f"f{index}": field.name for index, field in enumerate(plain)}
        return msgspec.defstruct("Fields", fields, rename=names, forbid_unknown_fields=True, gc=False)
    if pa.types.is_list(arrow_type):
        return list[strict_type(arrow_type.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(arrow_type):
        return dict[str, strict_type(arrow_type.item_type) | None]  # type: ignore[misc]
    return python_type(arrow_type)


def _possible(known: pa.DataType | None, told: Seen) -> Seen:
    """`told` without what is of another kind than a known object or list: it becomes no column, nor may it hide what
    others add there.
    """
    if known is not None and pa.types.is_struct(known):
        if not isinstance(told, dict):
            return None
        types = {field.name: field.type for field in known}
        return {name: _possible(types.get(name), part) for name, part in told.items()}
    if known is not None and pa.types.is_list(known):
        return [_possible(known.value_type, told[0])] if isinstance(told, list) else None
    return told


def _see(objects: Sequence[bytes | None], known: pa.DataType | None, check: Callable[[bytes], Any], seen: Seen) -> bool:
    """Adds what these have to `seen`; whether that was anything. What fits the known columns and those seen so far as
    they stand costs one check.
    """
    adds = False
    for value in objects:
        if value is None:
            continue
        try:
            check(value)
        except JSON_REFUSES:
            try:
                told = msgspec.json.decode(value)
            except JSON_REFUSES:
                continue
            if isinstance(told, dict):
                merged(seen, _possible(known, seen_in(told)))
                adds = True
    return adds


@lru_cache(maxsize=4)
def _checker(known: pa.DataType, seen: pa.DataType) -> Callable[[bytes], Any]:
    columns = _settled(known, seen, json_rules, Room(COLUMNS))
    decode, widest = msgspec.json.Decoder(strict_type(columns)).decode, widest_item(columns)

    def check(value: bytes) -> Any:
        if may_be_many(widest, len(value)):
            raise ValueError("all fields of all its objects would be made: to be looked at more closely")
        return decode(value)

    return check


def _tells_nothing(arrow_type: pa.DataType) -> bool:
    if pa.types.is_struct(arrow_type):
        return all(_tells_nothing(field.type) for field in arrow_type)
    if pa.types.is_list(arrow_type):
        return _tells_nothing(arrow_type.value_type)
    return bool(pa.types.is_null(arrow_type))


def _settled(known: pa.DataType, seen: pa.DataType, rules: Rules, room: Room, at: Path = TOP) -> pa.DataType:
    """`known` and `seen` are of one kind here, or anything else that `rules` decide. `room` gets less."""
    if _tells_nothing(seen):
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(seen):
        types = {field.name: field.type for field in known}
        spellings = {name.lower() for name in types}
        for field in seen:
            if field.name in types:
                types[field.name] = _settled(types[field.name], field.type, rules, room, at.field(field.name))
            elif (
                field.name
                and not _ODD_NAME.search(field.name)
                and field.name.lower() not in spellings
                and room.has(at.field(field.name))
            ):
                added = _settled(pa.null(), field.type, rules, room, at.field(field.name))
                if not _tells_nothing(added):
                    room.take(at.field(field.name))
                    spellings.add(field.name.lower())
                    types[field.name] = added
        return pa.struct([pa.field(name, arrow_type) for name, arrow_type in types.items()])
    if pa.types.is_null(known):
        if pa.types.is_struct(seen):
            return _settled(NOTHING, seen, rules, room, at)
        if pa.types.is_list(seen):
            inner = at.element(seen.value_type)
            if not room.has(inner):
                return known
            element = _settled(pa.null(), seen.value_type, rules, room, inner)
            if not _tells_nothing(element):
                room.take(inner)
            return pa.list_(element)
        room.columns -= 1
        return seen
    if pa.types.is_list(known) and pa.types.is_list(seen):
        return pa.list_(_settled(known.value_type, seen.value_type, rules, room, at.element(known.value_type)))
    return known if pa.types.is_nested(known) else rules(known, seen) or known


def _columns(arrow_type: pa.DataType) -> int:
    if pa.types.is_struct(arrow_type):
        return sum(_columns(field.type) for field in arrow_type)
    return _columns(arrow_type.value_type) if pa.types.is_list(arrow_type) else 1
