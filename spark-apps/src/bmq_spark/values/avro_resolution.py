"""How records of a writer's schema become values of the reader's columns, as Avro's specification resolves the two.
Pure.

fastavro reads bytes by `wire`, the writer's schema with everything laid out as the columns are; `convert` does what is
left. fastavro's own resolution is not used: it knows nothing of what logical types mean, takes the first branch that it
can, and defaults as JSON has them. A field of one record is stored as its value alone is: so a branch of a union is
spelled as a record of one field, whose name tells the branch. What does not resolve is refused where a value of it is
met, as Java's does: an empty list of another type is an empty list.
"""

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from bmq_spark.values.avro_defaults import NO_DEFAULT, Defaults
from bmq_spark.values.avro_meanings import Convert, Unlike, meant
from bmq_spark.values.avro_types import PARTS_MAX, NoColumn, column_of, members, named_as, named_types, spelled
from bmq_spark.values.decoded import Unfit

_NAMED: Final = ("record", "enum", "fixed")
_WITH_PARTS: Final = ("record", "enum", "array", "map")
_PROMOTED: Final = {
    ("int", "long"): 2, ("int", "double"): 3, ("float", "double"): 2, ("string", "bytes"): 2, ("bytes", "string"): 2,
    ("int", "float"): 4, ("long", "double"): 4, ("long", "float"): 5,
}  # fmt: skip
"""Promotions; of a reader's union that branch is taken whose number is the lowest: types as they are (0, 1) before
those that lose no digit."""


class Resolved(NamedTuple):
    """`convert` gets every value that was read by `wire`, null too; None: there is nothing to do."""

    wire: Any
    convert: Convert | None
    leaves_out: bool = False
    """Whether the writer has fields that the reader has not; told of the whole alone."""
    refuses: str = ""
    """Why some of the writer's values are refused; empty: none are. Told of the whole alone."""


def resolved(writer: Any, reader: Any) -> Resolved:
    """Both as parse_avro gives them, the reader's with columns, the writer's readable. Raises NoColumn for too many
    parts.
    """
    resolution = _Resolution(writer, reader)
    made = resolution.of(writer, reader, "value")
    return made._replace(leaves_out=resolution.leaves_out, refuses=resolution.refuses)


class _Resolution:
    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer, self._reader = named_types(writer), named_types(reader)
        self._defaults = Defaults(reader)
        self._names = itertools.count()
        self._parts = 0
        self.leaves_out = False
        self.refuses = ""

    def of(self, writer: Any, reader: Any, path: str) -> Resolved:
        self._count()
        writer, reader = spelled(writer, self._writer), spelled(reader, self._reader)
        if isinstance(writer, dict) and writer["type"] not in _WITH_PARTS:
            try:
                column_of(writer, path=path)
            except NoColumn as error:
                return self._refused(writer, str(error))
        if isinstance(writer, list):
            return self._union(writer, reader, path)
        if isinstance(reader, list):
            return self._branch_for(writer, reader, path)
        if _rank(writer, reader) is None:
            return self._refused(writer, f"{path}: {_called(writer)} is not {_called(reader)}")
        match writer["type"]:
            case "record":
                return self._record(writer, reader, path)
            case "enum":
                return self._enum(writer, reader, path)
            case "array":
                return self._array(self.of(writer["items"], reader["items"], f"{path}[]"))
            case "map":
                return self._map(self.of(writer["values"], reader["values"], f"{path}.value"))
        try:
            convert = meant(writer, reader, path)
        except Unlike as error:
            return self._refused(writer, f"{path}: {error}")
        if writer["type"] == "fixed":
            return Resolved(self._fixed(writer), convert)
        texts = ("bytes", "string")
        return Resolved(reader["type"] if writer["type"] in texts else writer["type"], convert)

    def _union(self, writer: list[Any], reader: Any, path: str) -> Resolved:
        parts = [self.of(branch, reader, path) for branch in writer]
        nulls = [
            part.convert
            for branch, part in zip(writer, parts, strict=True)
            if spelled(branch, self._writer)["type"] == "null"
        ]
        null = nulls[0] if nulls else None
        if len(parts) - len(nulls) <= 1:
            held = next((part.convert for part in parts if part.wire != "null"), None)
            return Resolved(
                [part.wire for part in parts], None if held is None and null is None else _nullable(held, null)
            )
        if all(part.convert is None for part in parts):
            return Resolved([part.wire for part in parts], None)
        converts: dict[str, Convert | None] = {}
        wires = []
        for index, part in enumerate(parts):
            if part.wire == "null":
                wires.append("null")
                continue
            converts[f"b{index}"] = part.convert
            wires.append(self._one_field(f"b{index}", part.wire))

        def convert(value: Any) -> Any:
            if value is None:
                return None if null is None else null(value)
            ((name, inner),) = value.items()
            each = converts[name]
            return inner if each is None else each(inner)

        return Resolved(wires, convert)

    def _branch_for(self, writer: Any, reader: list[Any], path: str) -> Resolved:
        """The reader's branch for values of the writer's type, and the member that it is."""
        ranked = []
        for index, branch in enumerate(reader):
            candidate = spelled(branch, self._reader)
            rank = _rank(writer, candidate)
            if rank is not None and _meaning(writer, candidate, path):
                ranked.append((rank, index))
        if not ranked:
            called = ", ".join(_called(spelled(branch, self._reader)) for branch in reader)
            return self._refused(writer, f"{path}: {_called(writer)} is no branch of [{called}]")
        _, index = min(ranked)
        part, member = self.of(writer, reader[index], path), members(reader, path)[index]
        if member is None or writer["type"] == "null":
            return part
        convert = part.convert
        if convert is None:
            return Resolved(self._one_field(member, part.wire), None)
        return Resolved(part.wire, lambda value: {member: convert(value)})

    def _record(self, writer: Any, reader: Any, path: str) -> Resolved:
        ours = {field["name"]: field for field in reader["fields"]}
        theirs = {field["name"] for field in writer["fields"]}
        source = {name: name for name in ours if name in theirs}
        for name, field in ours.items():
            if name not in source:
                alias = next(
                    (alias for alias in field.get("aliases", ()) if alias in theirs and alias not in source.values()),
                    None,
                )
                if alias is not None:
                    source[name] = alias
        goes_to = {theirs: name for name, theirs in source.items()}
        wire, converts = [], []
        for field in writer["fields"]:
            name = goes_to.get(field["name"])
            if name is None:
                self.leaves_out = True
                wire.append({"name": self._unused(ours), "type": self._skipped(field["type"])})
                continue
            part = self.of(field["type"], ours[name]["type"], f"{path}.{name}")
            wire.append({"name": name, "type": part.wire})
            if part.convert is not None:
                converts.append((name, part.convert))
        missing = {}
        for name, field in ours.items():
            if name not in source:
                default = self._defaults.of(field, f"{path}.{name}")
                if default is NO_DEFAULT:
                    return self._refused(writer, f"{path}: no field {name}, and it has no default")
                missing[name] = default
        return Resolved({"type": "record", "name": self._name(), "fields": wire}, _in_record(converts, missing))

    def _enum(self, writer: Any, reader: Any, path: str) -> Resolved:
        wire = {"type": "enum", "name": self._name(), "symbols": writer["symbols"]}
        known = set(reader["symbols"])
        if known.issuperset(writer["symbols"]):
            return Resolved(wire, None)
        default = reader.get("default")
        if default is None:
            missing = next(symbol for symbol in writer["symbols"] if symbol not in known)
            self.refuses = self.refuses or f"{path}: enum {_called(reader)} has no symbol {missing}"

        def convert(symbol: str) -> str:
            if symbol in known:
                return symbol
            if default is None:
                raise Unfit(_message(f"{path}: enum {_called(reader)} has no symbol {symbol}"))
            return str(default)

        return Resolved(wire, convert)

    def _array(self, items: Resolved) -> Resolved:
        each = items.convert
        return Resolved(
            {"type": "array", "items": items.wire},
            None if each is None else lambda values: [each(value) for value in values],
        )

    def _map(self, values: Resolved) -> Resolved:
        each = values.convert
        convert = None if each is None else lambda pairs: {key: each(value) for key, value in pairs.items()}
        return Resolved({"type": "map", "values": values.wire}, convert)

    def _refused(self, writer: Any, why: str) -> Resolved:
        self.refuses = self.refuses or why
        message = _message(why)

        def refuse(_: Any) -> Any:
            raise Unfit(message)

        return Resolved(self._skipped(writer), refuse)

    def _skipped(self, writer: Any, around: Mapping[str, str] = MappingProxyType({})) -> Any:
        """What reads over it: no text is looked at. `around`: the records that it is within, and their names there."""
        self._count()
        writer = spelled(writer, self._writer)
        if isinstance(writer, list):
            parts = [self._skipped(branch, around) for branch in writer]
            return [part if part == "null" else self._one_field("skipped", part) for part in parts]
        match writer["type"]:
            case "record":
                if writer["name"] in around:
                    return around[writer["name"]]
                name = self._name()
                within = {**around, writer["name"]: name}
                fields = [
                    {"name": f"f{index}", "type": self._skipped(field["type"], within)}
                    for index, field in enumerate(writer["fields"])
                ]
                return {"type": "record", "name": name, "fields": fields}
            case "array":
                return {"type": "array", "items": self._skipped(writer["items"], around)}
            case "map":
                return {"type": "map", "values": self._skipped(writer["values"], around)}
            case "fixed":
                return self._fixed(writer)
        return {"enum": "int", "string": "bytes"}.get(writer["type"], writer["type"])

    def _count(self) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise NoColumn(f"more than {PARTS_MAX} parts, each as often as it is read")

    def _fixed(self, writer: Any) -> Any:
        return {"type": "fixed", "name": self._name(), "size": writer["size"]}

    def _one_field(self, name: str, wire: Any) -> Any:
        return {"type": "record", "name": self._name(), "fields": [{"name": name, "type": wire}]}

    def _name(self) -> str:
        return f"t{next(self._names)}"

    def _unused(self, ours: dict[str, Any]) -> str:
        """No column of a table is called so: what is passed over is in none."""
        return next(name for name in map("_bmq_passed_over{}".format, self._names) if name not in ours)


def _message(why: str) -> str:
    return f"the writer's schema does not resolve: {why}"


def _called(schema: Any) -> str:
    """A spelled schema for people."""
    if isinstance(schema, list):
        return "a union"
    return str(named_as(schema.get("name", "")) or schema.get("logicalType") or schema["type"])


def _rank(writer: Any, reader: Any) -> int | None:
    """None where the types do not resolve; both spelled, the writer's no union."""
    if isinstance(reader, list):
        return 0
    kind = writer["type"]
    if kind != reader["type"]:
        return _PROMOTED.get((kind, reader["type"]))
    if kind not in _NAMED:
        return 0
    if kind == "fixed" and writer["size"] != reader["size"]:
        return None
    name, short = writer["name"], writer["name"].rpartition(".")[2]
    ours = named_as(reader["name"])
    if name == ours:
        return 0
    if short == ours.rpartition(".")[2]:
        return 1
    aliases = reader.get("aliases", ())
    return 2 if name in aliases or short in aliases else None


def _meaning(writer: Any, reader: Any, path: str) -> bool:
    """Whether a value of the one is one of the other also by what their logical types say."""
    if reader["type"] in ("record", "enum", "array", "map", "null"):
        return True
    try:
        meant(writer, reader, path)
    except Unlike:
        return False
    return True


def _nullable(held: Convert | None, null: Convert | None) -> Convert:
    if null is not None:
        return lambda value: null(value) if value is None else (value if held is None else held(value))
    assert held is not None
    return lambda value: None if value is None else held(value)


def _in_record(converts: list[tuple[str, Convert]], missing: dict[str, Any]) -> Callable[[Any], Any] | None:
    if not converts and not missing:
        return None

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        record.update(missing)
        for name, each in converts:
            record[name] = each(record[name])
        return record

    return convert
