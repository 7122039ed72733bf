"""Schemas for JSON values as three kinds of text: Spark's DDL, Spark's schema as JSON, and JSON Schema. All become one
Arrow struct.

Of JSON Schema the types, `required`, `format` (date-time, date) and `$ref` within the file are followed. Bounds,
patterns and enumerations are not checked: whether a record fits is a question of types here.
"""

import json
from typing import Any, Final

import pyarrow as pa

from bmq_spark.values.ddl import DEPTH, SIMPLE, UTC_TIMESTAMP, read_ddl
from bmq_spark.values.schema_files import SchemaFile

JSON_TEXT: Final = pa.json_()
"""A part without a type of its own: a string column that holds the part's JSON text, strings as they are."""
_SCALARS: Final[dict[str, pa.DataType]] = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64()}
_FORMS: Final[dict[str, tuple[type, str]]] = {
    "$ref": (str, "a text"),
    "oneOf": (list, "a list of schemas"),
    "anyOf": (list, "a list of schemas"),
    "properties": (dict, "an object"),
    "required": (list, "a list of names"),
    "format": (str, "a text"),
}
"""The words that are followed, each with the form that it has to have and what messages call that."""
_REMEDY: Final = "write Spark's DDL (id bigint, name string), Spark's schema as JSON, or a JSON Schema of an object"


def read_json_schema(source: SchemaFile) -> pa.DataType:
    """The struct of the values; fields that have to be there are not nullable. Raises ConfigurationError."""
    struct = _read(source)
    if (path := _keyed_by_others(struct, "value")) is not None:
        raise source.broken(
            f"{path}: a map whose keys are no strings: a JSON object has no others", "write map<string, …>"
        )
    return struct


def _keyed_by_others(arrow_type: pa.DataType, path: str) -> str | None:
    """Where a map is whose keys are no strings; None where there is none."""
    if pa.types.is_map(arrow_type):
        return path if arrow_type.key_type != pa.string() else _keyed_by_others(arrow_type.item_type, f"{path}[]")
    if pa.types.is_list(arrow_type):
        return _keyed_by_others(arrow_type.value_type, f"{path}[]")
    parts = arrow_type if pa.types.is_struct(arrow_type) else ()
    return next(
        (found for field in parts if (found := _keyed_by_others(field.type, f"{path}.{field.name}")) is not None), None
    )


def _read(source: SchemaFile) -> pa.DataType:
    text = source.text
    if not text.lstrip().startswith("{"):
        return read_ddl(source)
    try:
        schema = json.loads(text)
    except ValueError as error:
        position = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise source.broken(f"not JSON ({str(error).partition(': line')[0]})", _REMEDY, position=position) from error
    except RecursionError as error:
        raise source.broken("nested too deep", _REMEDY) from error
    if schema.get("type") == "struct" and isinstance(schema.get("fields"), list):
        return _spark_type(source, schema, "value", 0)
    struct = _JsonSchema(source, schema).type_of(schema, "#", 0)
    if not pa.types.is_struct(struct):
        raise source.broken('the schema is not of an object with "properties"', _REMEDY)
    return struct


def _spark_type(source: SchemaFile, written: Any, path: str, depth: int) -> pa.DataType:
    """Spark's StructType.json()."""
    try:
        match written:
            case str():
                return (
                    SIMPLE[written]
                    if written in SIMPLE
                    else read_ddl(SchemaFile(name=source.name, content=f"x {written}".encode())).field(0).type
                )
            case _ if depth > DEPTH:
                raise source.broken(f"{path}: more than {DEPTH} types within one another", _REMEDY)
            case {"type": "struct", "fields": fields}:
                return pa.struct(
                    [
                        pa.field(
                            field["name"],
                            _spark_type(source, field["type"], f"{path}.{field['name']}", depth + 1),
                            nullable=field.get("nullable", True),
                        )
                        for field in fields
                    ]
                )
            case {"type": "array", "elementType": element}:
                return pa.list_(_spark_type(source, element, f"{path}[]", depth + 1))
            case {"type": "map", "keyType": key, "valueType": value}:
                return pa.map_(
                    _spark_type(source, key, f"{path}.key", depth + 1),
                    _spark_type(source, value, f"{path}.value", depth + 1),
                )
    except (KeyError, TypeError, AttributeError) as error:
        raise source.broken(f"{path}: not a type as Spark writes it ({error!r})", _REMEDY) from error
    raise source.broken(f"{path}: type {json.dumps(written)[:80]} is not known", _REMEDY)


class _JsonSchema:
    """One document; a part that is within itself by `$ref` becomes a string that holds the JSON text."""

    def __init__(self, source: SchemaFile, root: dict[str, Any]) -> None:
        self._source = source
        self._root = root
        self._open: list[str] = []

    def type_of(self, schema: Any, path: str, depth: int) -> pa.DataType:
        if depth > DEPTH:
            raise self._source.broken(f"{path}: more than {DEPTH} types within one another", _REMEDY)
        if schema is True or schema == {}:
            return JSON_TEXT
        if not isinstance(schema, dict):
            raise self._source.broken(f"{path}: {json.dumps(schema)[:80]} is not a schema", _REMEDY)
        self._require_words(schema, path)
        if "$ref" in schema:
            return self._referred(schema["$ref"], path, depth)
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self._one_of(
                    [each for each in schema[word] if not (isinstance(each, dict) and each.get("type") == "null")],
                    path,
                    depth,
                )
        kinds = schema.get("type", "object" if "properties" in schema else None)
        kinds = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
        for kind in kinds:
            if kind is not None and not isinstance(kind, str):
                raise self._source.broken(f"{path}: type {json.dumps(kind)[:80]} is not known", _REMEDY)
        if set(kinds) == {"integer", "number"}:
            return pa.float64()
        return self._kind(schema, kinds[0], path, depth) if len(kinds) == 1 else JSON_TEXT

    def _require_words(self, schema: dict[str, Any], path: str) -> None:
        """Raises ConfigurationError where what is followed is not of the form that JSON Schema gives it."""
        for word, (form, called) in _FORMS.items():
            if word in schema and not (
                isinstance(schema[word], form)
                and (word != "required" or all(isinstance(name, str) for name in schema[word]))
            ):
                raise self._source.broken(f'{path}: "{word}" is {json.dumps(schema[word])[:80]}, not {called}', _REMEDY)

    def _kind(self, schema: dict[str, Any], kind: str | None, path: str, depth: int) -> pa.DataType:
        match kind:
            case "object" if schema.get("properties"):
                required = schema.get("required", [])
                return pa.struct(
                    [
                        pa.field(
                            name,
                            self.type_of(part, f"{path}/{name}", depth + 1),
                            nullable=name not in required or self._may_be_null(part, frozenset()),
                        )
                        for name, part in schema["properties"].items()
                    ]
                )
            case "object" if isinstance(schema.get("additionalProperties"), dict):
                return pa.map_(pa.string(), self.type_of(schema["additionalProperties"], f"{path}/*", depth + 1))
            case "object" | None:
                return JSON_TEXT
            case "array":
                return pa.list_(self.type_of(schema.get("items", {}), f"{path}[]", depth + 1))
            case "string" if schema.get("contentEncoding") == "base64":
                return pa.binary()
            case "string":
                return {"date-time": UTC_TIMESTAMP, "date": pa.date32()}.get(schema.get("format", ""), pa.string())
            case scalar if scalar in _SCALARS:
                return _SCALARS[scalar]
        raise self._source.broken(f"{path}: type {kind!r} is not known", _REMEDY)

    def _one_of(self, choices: list[Any], path: str, depth: int) -> pa.DataType:
        types = {self.type_of(choice, path, depth + 1) for choice in choices}
        return types.pop() if len(types) == 1 else JSON_TEXT

    def _referred(self, reference: str, path: str, depth: int) -> pa.DataType:
        if reference in self._open:
            return JSON_TEXT
        try:
            target = self._target(reference)
        except (KeyError, TypeError) as error:
            raise self._source.broken(
                f"{path}: $ref {reference} is not in this file", "put what it refers to under $defs"
            ) from error
        self._open.append(reference)
        try:
            return self.type_of(target, path, depth + 1)
        finally:
            self._open.pop()

    def _target(self, reference: str) -> Any:
        """Raises KeyError, TypeError."""
        target: Any = self._root
        if not reference.startswith("#"):
            raise KeyError(reference)
        for part in reference.lstrip("#/").split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")] if part else target
        return target

    def _may_be_null(self, schema: Any, within: frozenset[str]) -> bool:
        """Whether null is among what a part allows that `type_of` took; `within` are the references that led there."""
        if not isinstance(schema, dict):
            return True
        if "$ref" in schema:
            reference = schema["$ref"]
            return reference not in within and self._may_be_null(self._target(reference), within | {reference})
        kinds = schema.get("type")
        choices = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
        return (
            kinds == "null"
            or (isinstance(kinds, list) and "null" in kinds)
            or any(self._may_be_null(choice, within) for choice in choices)
        )
