"""What a reader's schema becomes for the records of one writer, so that a field of theirs that a table has as a column
is read though the reader has none of that name. Pure.
"""

import itertools
from typing import Any, Final

import pyarrow as pa

from bmq_spark.values.avro_types import NoColumn, column_of, in_table, named_types, numbered, spelled
from bmq_spark.values.evolution import SchemaBreaks, merge_types

_NAMED: Final = ("record", "enum", "fixed")
_MICROS: Final = {"timestamp-millis": "timestamp-micros", "local-timestamp-millis": "local-timestamp-micros"}
"""As tables have times."""


def reader_with_kept(writer: Any, reader: Any, kept: pa.DataType) -> Any:
    """The reader's schema with the writer's fields that it has not and that are columns of `kept`; itself where there
    are none. Both as parse_avro gives them, the reader's with columns.
    """
    keeping = _Keeping(writer, reader)
    extended = keeping.of(writer, reader, kept)
    return extended if keeping.found else reader


class _Keeping:
    """Named types are spelled out wherever they are used, each under a name of its own: one may get a field in one
    place and not in another.
    """

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer, self._reader = named_types(writer), named_types(reader)
        self._names = itertools.count()
        self.found = False

    def of(self, writer: Any, reader: Any, kept: pa.DataType) -> Any:
        reader = spelled(reader, self._reader)
        if isinstance(reader, list):
            return self._union(writer, reader, kept)
        held = self._held(writer, reader["type"])
        if reader["type"] == "record" and held is not None and pa.types.is_struct(kept):
            return self._record(held, reader, kept)
        if reader["type"] == "array" and held is not None and pa.types.is_list(kept):
            return reader | {"items": self.of(held["items"], reader["items"], kept.value_type)}
        if reader["type"] == "map" and held is not None and pa.types.is_map(kept):
            return reader | {"values": self.of(held["values"], reader["values"], kept.item_type)}
        return self._alone(reader, self._reader)

    def _union(self, writer: Any, reader: list[Any], kept: pa.DataType) -> list[Any]:
        """Null and one other become that other's column; members of other unions are as the reader has them."""
        branches = [spelled(branch, self._reader) for branch in reader]
        held = [branch for branch in branches if branch["type"] != "null"]
        return [
            self.of(writer, branch, kept) if len(held) == 1 and branch is held[0] else self._alone(branch, self._reader)
            for branch in branches
        ]

    def _record(self, writer: Any, reader: Any, kept: pa.DataType) -> Any:
        columns = {field.name: field.type for field in kept}
        theirs = {field["name"]: field["type"] for field in writer["fields"]}
        names = {field["name"].lower() for field in reader["fields"]}
        fields, sources = [], set()
        for field in reader["fields"]:
            source = next((name for name in (field["name"], *field.get("aliases", ())) if name in theirs), None)
            sources.add(source)
            if source is None or field["name"] not in columns:
                fields.append(field | {"type": self._alone(field["type"], self._reader)})
            else:
                fields.append(field | {"type": self.of(theirs[source], field["type"], columns[field["name"]])})
        for name, kind in theirs.items():
            is_new = name in columns and name not in sources and name.lower() not in names
            if is_new and _goes_into(kind, self._writer, columns[name]):
                self.found = True
                fields.append({"name": name, "type": self._alone(kind, self._writer, in_micros=True)})
        return reader | {"name": self._name(reader), "fields": fields}

    def _held(self, writer: Any, kind: str) -> Any:
        """What the writer has of that kind, alone or as the one branch of a union beside null; None: nothing."""
        writer = spelled(writer, self._writer)
        if isinstance(writer, list):
            held = [branch for each in writer if (branch := spelled(each, self._writer))["type"] != "null"]
            writer = held[0] if len(held) == 1 and isinstance(held[0], dict) else {"type": None}
        return writer if writer["type"] == kind else None

    def _alone(
        self, schema: Any, named: dict[str, Any], *, in_micros: bool = False, within: tuple[str, ...] = ()
    ) -> Any:
        """The same without references to names; one within itself stays what no column is."""
        schema = spelled(schema, named)
        if isinstance(schema, list):
            return [self._alone(branch, named, in_micros=in_micros, within=within) for branch in schema]
        kind, name = schema["type"], schema.get("name")
        if kind in _NAMED:
            if name in within:
                return schema["name"]
            schema = schema | {"name": self._name(schema)}
        if kind == "record":
            fields = [
                field | {"type": self._alone(field["type"], named, in_micros=in_micros, within=(*within, name))}
                for field in schema["fields"]
            ]
            return schema | {"fields": fields}
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return schema | {part: self._alone(schema[part], named, in_micros=in_micros, within=within)}
        if in_micros and kind in ("int", "long") and schema.get("logicalType") in _MICROS:
            return {"type": "long", "logicalType": _MICROS[schema["logicalType"]]}
        return kind if list(schema) == ["type"] else schema

    def _name(self, schema: Any) -> str:
        return numbered(schema["name"], next(self._names))


def _goes_into(kind: Any, named: dict[str, Any], column: pa.DataType) -> bool:
    """Asked before it is spelled out: types that refer to each other would be as many as there are ways among them."""
    try:
        return bool(merge_types(column, in_table(column_of(kind, named))) == merge_types(column, column))
    except (NoColumn, SchemaBreaks, KeyError):
        return False
