"""Columns of JSON values that nobody wrote a schema for: what a batch has beyond what is known, and what the table's
columns become by it.

The lattice: integer (64 bits) → double → string, boolean → string, and an object or a list that meets something else →
string. A string column holds the JSON text of what is not a string. null, [] and {} tell nothing: a field that was
never anything else has no column yet.

The lattice holds within a batch. Columns that are known have files already, and widen as `rules` allow: by default as
Spark reads old files and new ones together. One odd record does not turn a table's column into text; it gets a reason.

`observe` runs where the records are and `settle` once for a batch. Both are deterministic: of names that differ by case
alone that becomes a column which more records have, and of too many fields, or of too long names, those do; else the
first by name. New fields come in the order of their names.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from bmq_spark.values.column_paths import TOP, Path, Paths
from bmq_spark.values.decoded import slices
from bmq_spark.values.evolution import Rules, parquet_rules
from bmq_spark.values.json_records import python_type
from bmq_spark.values.json_seen import COLUMNS, FRACTION, INTEGER, LIST, OBJECT, Observation, Part, tells

NOTHING: Final = pa.struct([])
_ODD_NAME: Final = re.compile(r'[\x00-\x1f"\\]')
"""What msgspec takes no field's name with, where it refuses the fields that it is not told of."""
NAME_BYTES: Final = 255
"""A longer name, in UTF-8, is no column: keys that are data (URLs, tokens) have such."""
NAMES_BYTES: Final = 256 << 10
"""What the names of a table have together, objects' included. They are in each of its files and versions, and never go
away."""
_ELEMENT: Final = "[]"

Names = tuple[str, ...]
"""Where a column is, from the top, with _ELEMENT for a list's elements."""


def infer(known: pa.DataType | None, values: pa.Array, *, rules: Rules = parquet_rules) -> pa.DataType:
    """`known` with what `values` (JSON, binary) add to it."""
    return settle(known, [observe(values, pa.array(range(len(values))).cast(pa.string()))], rules=rules)


def observe(values: pa.Array, addresses: pa.Array) -> Observation:
    """What the values have. Those that are not JSON objects tell nothing. `addresses`: where the record of each is, as
    texts of which no two are alike.
    """
    seen, start = Observation(), 0
    for piece in slices(values):
        seen.add(piece.to_pylist(), addresses.slice(start, len(piece)).to_pylist())
        start += len(piece)
    return seen


def settle(
    known: pa.DataType | None,
    observations: Iterable[Observation],
    *,
    rules: Rules = parquet_rules,
    by_path: bool = False,
) -> pa.DataType:
    """The columns after a batch: those known, wider where `rules` let them, and new ones by name, COLUMNS in all, with
    names of NAMES_BYTES.

    What does not become a column or a wider one stays out, and the decoder gives such records a reason. `by_path`: the
    table knows columns as Iceberg does, by their names from the top with dots between, where a name with dots may be
    the path of another, and in files by other names, of which two may be alike.
    """
    observed = Observation()
    for each in observations:
        observed.take(each)
    start, seen = known if known is not None else NOTHING, observed.seen()
    settled = _settled(start, seen, rules, Paths.of(start) if by_path else None, TOP)
    added = list(_added(start, settled, seen, ()))
    taken = _taken(start, added)
    if len(added) == len(taken):
        return settled
    return _without(settled, {names for _, names in added} - taken, ())


def fields_beyond(value: Any, arrow_type: pa.DataType, path: str = "$") -> str | None:
    """The path of a part that says something and has no column; None where there is none."""
    if pa.types.is_struct(arrow_type) and isinstance(value, dict):
        types = {field.name: field.type for field in arrow_type}
        for name, part in value.items():
            if name not in types and tells(part):
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


def _tells_nothing(arrow_type: pa.DataType) -> bool:
    if pa.types.is_struct(arrow_type):
        return all(_tells_nothing(field.type) for field in arrow_type)
    if pa.types.is_list(arrow_type):
        return _tells_nothing(arrow_type.value_type)
    return bool(pa.types.is_null(arrow_type))


def _settled(known: pa.DataType, seen: Part, rules: Rules, paths: Paths | None, at: Path) -> pa.DataType:
    """`known` with all that was seen there, however many columns that is. What is of another kind than a known object
    or list becomes no column, nor does it hide what others add there. `paths` get those that are taken.
    """
    if pa.types.is_null(known):
        return _new(seen, rules, paths, at)
    if pa.types.is_struct(known):
        return _object(known, seen, rules, paths, at)
    if pa.types.is_list(known):
        if seen.element is None:
            return known
        return pa.list_(_settled(known.value_type, seen.element, rules, paths, at.element(known.value_type)))
    return known if pa.types.is_nested(known) else _wider(known, seen, rules)


def _new(seen: Part, rules: Rules, paths: Paths | None, at: Path) -> pa.DataType:
    """The type of what has no column yet; null, or one whose parts are null, where nothing tells it."""
    if seen.kinds == OBJECT:
        return _object(NOTHING, seen, rules, paths, at)
    if seen.kinds != LIST:
        return seen.scalar() if seen.kinds else pa.null()
    if seen.element is None:
        return pa.list_(pa.null())
    inner = at.element(NOTHING if seen.element.kinds == OBJECT else pa.null())
    if paths is not None and not paths.free(inner):
        return pa.null()
    element = _new(seen.element, rules, paths, inner)
    if paths is not None and not _tells_nothing(element):
        paths.take(inner)
    return pa.list_(element)


def _object(known: pa.DataType, seen: Part, rules: Rules, paths: Paths | None, at: Path) -> pa.DataType:
    types = {
        field.name: _settled(field.type, seen.fields[field.name], rules, paths, at.field(field.name))
        if field.name in seen.fields
        else field.type
        for field in known
    }
    spellings = {name.lower() for name in types}
    added: dict[str, pa.DataType] = {}
    for name, part in sorted(seen.fields.items(), key=lambda field: (-field[1].records, field[0])):
        inner = at.field(name)
        if not _may_be_column(name) or name.lower() in spellings or (paths and not paths.free(inner)):
            continue
        arrow_type = _new(part, rules, paths, inner)
        if not _tells_nothing(arrow_type):
            if paths is not None:
                paths.take(inner)
            spellings.add(name.lower())
            added[name] = arrow_type
    return pa.struct([*types.items(), *sorted(added.items())])


def _may_be_column(name: str) -> bool:
    return 0 < len(name) <= NAME_BYTES and len(name.encode()) <= NAME_BYTES and not _ODD_NAME.search(name)


def _wider(known: pa.DataType, seen: Part, rules: Rules) -> pa.DataType:
    """As wide as what was seen, or as the numbers among it, or the integers, where `rules` do not let it."""
    ways = [seen.scalar(among) for among in (-1, INTEGER | FRACTION, INTEGER) if seen.kinds & among]
    return next((wider for way in ways if (wider := rules(known, way)) is not None), known)


def _columns(arrow_type: pa.DataType) -> int:
    if pa.types.is_struct(arrow_type):
        return sum(_columns(field.type) for field in arrow_type)
    return _columns(arrow_type.value_type) if pa.types.is_list(arrow_type) else 1


def _added(known: pa.DataType | None, settled: pa.DataType, seen: Part, names: Names) -> Iterator[tuple[int, Names]]:
    """The columns without parts that are not known, those first that most records have."""
    if pa.types.is_struct(settled):
        types = {} if known is None else {field.name: field.type for field in known}
        for field in settled:
            if field.name in seen.fields:
                yield from _added(types.get(field.name), field.type, seen.fields[field.name], (*names, field.name))
    elif pa.types.is_list(settled):
        if seen.element is not None:
            inner = None if known is None else known.value_type
            yield from _added(inner, settled.value_type, seen.element, (*names, _ELEMENT))
    elif known is None:
        yield -seen.records, names


def _taken(known: pa.DataType, added: Iterable[tuple[int, Names]]) -> set[Names]:
    """Those of the added for which there is room: for columns, and for the names that they bring, each counted once."""
    room = max(0, COLUMNS - _columns(known))
    there = set(_named(known, ()))
    left = NAMES_BYTES - sum(_bytes(names) for names in there)
    taken: set[Names] = set()
    for _, names in sorted(added):
        brought = {names[:length] for length in range(1, len(names) + 1)} - there
        size_bytes = sum(map(_bytes, brought))
        if len(taken) < room and size_bytes <= left:
            taken.add(names)
            there |= brought
            left -= size_bytes
    return taken


def _named(arrow_type: pa.DataType, at: Names) -> Iterator[Names]:
    """All that have a name, objects and lists included."""
    if pa.types.is_struct(arrow_type):
        for field in arrow_type:
            yield (*at, field.name)
            yield from _named(field.type, (*at, field.name))
    elif pa.types.is_list(arrow_type) or pa.types.is_map(arrow_type):
        inner = arrow_type.value_type if pa.types.is_list(arrow_type) else arrow_type.item_type
        yield (*at, _ELEMENT)
        yield from _named(inner, (*at, _ELEMENT))


def _bytes(names: Names) -> int:
    """The last one's, in UTF-8; a list's elements have a name in files, too."""
    return len(names[-1].encode())


def _without(settled: pa.DataType, names: set[Names], at: Names) -> pa.DataType:
    """null for the columns of these names; no object has a field of which nothing is left."""
    if at in names:
        return pa.null()
    if pa.types.is_struct(settled):
        parts = [(field.name, _without(field.type, names, (*at, field.name))) for field in settled]
        return pa.struct([part for part in parts if not _tells_nothing(part[1])])
    if pa.types.is_list(settled):
        return pa.list_(_without(settled.value_type, names, (*at, _ELEMENT)))
    return settled
