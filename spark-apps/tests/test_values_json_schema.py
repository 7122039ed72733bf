"""JSON Schemas whose fields are not all under one "properties"."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from value_cases import decode

from bmq_spark.errors import ConfigurationError
from bmq_spark.values import Decoder, SchemaFile, decoder
from bmq_spark.values.ddl import write_ddl
from bmq_spark.values.json_schema_types import PARTS_MAX

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
ID, NAME = {"properties": {"id": INTEGER}}, {"properties": {"name": TEXT}, "required": ["name"]}
DEFS = {"id": ID, "name": NAME, "loop": {"properties": {"next": {"allOf": [{"$ref": "#/$defs/loop"}]}}}}


def by_schema(schema: dict[str, Any]) -> Decoder:
    return decoder("json", schema=SchemaFile(name="orders.json", content=json.dumps(schema).encode()))


@pytest.mark.parametrize(
    ("schema", "columns", "required"),
    [
        ({**ID, "allOf": [NAME]}, "id bigint, name string", ["name"]),
        ({"allOf": [{"$ref": "#/$defs/id"}, NAME], "required": ["id"]}, "id bigint, name string", ["id", "name"]),
        ({**ID, "$ref": "#/$defs/name"}, "id bigint, name string", ["name"]),
        ({"allOf": [{"allOf": [ID, NAME]}, {"$ref": "#/$defs/id"}]}, "id bigint, name string", ["name"]),
        ({**ID, "allOf": [{"required": ["id"]}, {"not": {"required": ["name"]}}]}, "id bigint", ["id"]),
        ({**ID, "required": ["name"]}, "id bigint, name string", ["name"]),
        ({**ID, "$ref": "#/$defs/loop"}, "id bigint, next string", []),
        ({**ID, "$ref": "#"}, "id bigint", []),
        ({"$ref": "#/allOf/1", "allOf": [ID, NAME]}, "name string, id bigint", ["name"]),
        ({**ID, "anyOf": [NAME, {"type": "null"}]}, "id bigint, name string", ["name"]),
        ({**ID, "oneOf": [NAME, {"type": "array"}], "type": "object"}, "id bigint, name string", ["name"]),
        ({**ID, "allOf": [NAME], "oneOf": [{"required": ["id"]}, {"required": ["name"]}]}, "id bigint, name string", ["name"]),
        ({**ID, "oneOf": [{"required": ["id"]}, {}]}, "id bigint", []),
        ({**ID, "if": {"required": ["id"]}, "then": ID, "else": {"required": ["id"]}}, "id bigint", ["id"]),
        ({**ID, "allOf": [NAME], "dependentSchemas": {"id": {"required": ["name", "id"]}}}, "id bigint, name string", ["name"]),
        ({**ID, "dependencies": {"id": ["x"], "x": True}}, "id bigint", []),
        ({**ID, "additionalProperties": {}}, "id bigint", []),
        ({**ID, "additionalProperties": False, "patternProperties": {"^x": False}}, "id bigint", []),
        ({"properties": {"a": {"type": ["number", "null"]}}, "allOf": [{"properties": {"a": INTEGER}}]}, "a bigint", []),
        ({"properties": {"a": INTEGER}, "allOf": [{"properties": {"a": TEXT}}]}, "a string", []),
        ({"properties": {"a": TEXT}, "allOf": [{"properties": {"a": {"format": "date"}}}]}, "a date", []),
        ({"properties": {"a": {"allOf": [ID]}}, "allOf": [{"properties": {"a": NAME}}]}, "a struct<id: bigint, name: string>", []),
        ({"properties": {"a": {**ID, "anyOf": [ID, NAME]}}}, "a string", []),
        ({"properties": {"a": {**ID, "if": ID, "then": NAME}}}, "a string", []),
        ({"properties": {"a": {**ID, "dependentSchemas": {"id": NAME}}}}, "a string", []),
        ({"properties": {"a": {**ID, "additionalProperties": TEXT}}}, "a string", []),
        ({"properties": {"a": {**ID, "allOf": [{"patternProperties": {"^x": {}}}]}}}, "a string", []),
        ({"properties": {"a": {**ID, "unevaluatedProperties": TEXT}}}, "a string", []),
        ({"properties": {"a": {**ID, "$dynamicRef": "#node"}}}, "a string", []),
        ({"properties": {"a": {"type": "object", "additionalProperties": TEXT, "patternProperties": {"^x": INTEGER}}}}, "a string", []),
        ({"properties": {"a": {"type": "array", "items": [INTEGER, TEXT]}}}, "a array<string>", []),
        ({"properties": {"a": {"type": "array", "prefixItems": [INTEGER], "items": False}, "b": False}}, "a array<bigint>, b string", []),
        ({"properties": {"a": {"type": "integer", "oneOf": [{"const": 1}, {"const": 2}]}}}, "a bigint", []),
    ],
)  # fmt: skip
def test_what_a_schema_adds_to_its_properties_becomes_columns(
    schema: dict[str, Any], columns: str, required: list[str]
) -> None:
    made = by_schema({"type": "object", "$defs": DEFS, **schema})
    assert write_ddl(made.arrow_type) == columns
    (reason,) = decode(made, [b"{}"])[1]
    assert (reason is None) == (not required)
    full = {name: 1 if name == "id" else "x" for name in required}
    assert decode(made, [json.dumps(full).encode()])[1] == [None]
    for name in required:
        (reason,) = decode(made, [json.dumps({**full, name: None}).encode()])[1]
        assert reason is None or f"$.{name}" in reason
        (reason,) = decode(made, [json.dumps({key: full[key] for key in full if key != name}).encode()])[1]
        assert reason is not None and f"missing required field `{name}`" in reason


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"patternProperties": {"^x": TEXT}}, '#: "patternProperties" declares fields beside "properties"'),
        ({"additionalProperties": TEXT}, '#: "additionalProperties" declares fields beside "properties"'),
        ({"allOf": [{"unevaluatedProperties": TEXT}]}, '#: "unevaluatedProperties" declares fields'),
        ({"oneOf": [{}, NAME]}, '#: the choices of "oneOf" have different fields, or fields of different types: name each'),
        ({"allOf": [{"anyOf": [ID, {"properties": {"id": TEXT}}]}]}, '#: the choices of "anyOf" have different fields'),
        ({"if": {"required": ["id"]}, "then": NAME}, '#: the choices of "if" have different fields'),
        ({"anyOf": [NAME], "oneOf": [ID]}, '#: "anyOf" and "oneOf" have different fields'),
        ({"anyOf": [{"type": "array"}]}, '#: "anyOf" leaves no choice'),
        ({"allOf": {}}, '#: "allOf" is {}, not a list of schemas'),
        ({"allOf": [5]}, "#: 5 is not a schema"),
    ],
)  # fmt: skip
def test_a_whole_schema_with_fields_that_would_have_no_column_is_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(says)) as raised:
        by_schema({"type": "object", **ID, **more})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("version", ["draft-04", "draft-06", "draft-07"])
def test_before_2019_nothing_beside_a_reference_counts(version: str) -> None:
    schema = {"$schema": f"http://json-schema.org/{version}/schema#", "$ref": "#/$defs/name", "$defs": DEFS, **ID}
    assert write_ddl(by_schema(schema).arrow_type) == "name string"


def test_a_schema_that_refers_to_very_many_parts_is_refused() -> None:
    defs = {f"d{at}": {"properties": {each: {"$ref": f"#/$defs/d{at + 1}"} for each in "ab"}} for at in range(40)}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**defs, "d40": INTEGER}}
    with pytest.raises(ConfigurationError, match=f"more than {PARTS_MAX} parts"):
        by_schema(schema)


NAMES = st.sampled_from("ab")
LEAVES = st.sampled_from([INTEGER, TEXT, {"type": ["string", "null"]}, {}, True])
PLAIN = st.fixed_dictionaries(
    {"properties": st.dictionaries(NAMES, LEAVES, min_size=1)},
    optional={"type": st.just("object"), "required": st.lists(NAMES, max_size=1), "additionalProperties": LEAVES},
)


def with_more(inner: st.SearchStrategy[Any], **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("object"),
            "properties": st.dictionaries(NAMES, LEAVES | inner, min_size=1),
            "required": st.lists(NAMES, max_size=1),
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentSchemas": st.dictionaries(NAMES, inner, max_size=1),
            "additionalProperties": LEAVES | inner,
            **more,
        },
    )


PARTS = st.recursive(PLAIN, with_more, max_leaves=4)
WHOLE = st.builds(
    lambda definition, **fields: {"type": "object", "$defs": {"d": definition}, "properties": fields},
    PARTS,
    a=with_more(PLAIN, **{"$ref": st.just("#/$defs/d")}),
    b=PARTS,
)
PARTS_OF_RECORDS = [{}, *({name: part} for name in "ab" for part in (1, "x", {"a": 1}, {"a": "x", "b": 2}))]
RECORDS = [{name: one | other} for name in "ab" for one in PARTS_OF_RECORDS for other in PARTS_OF_RECORDS]


@settings(max_examples=100, deadline=None)
@given(WHOLE)
def test_no_field_that_a_schema_declares_is_missing_from_the_row_of_a_valid_record(schema: dict[str, Any]) -> None:
    rows, _ = decode(by_schema(schema), [json.dumps(each).encode() for each in RECORDS])
    for record, row in zip(RECORDS, rows, strict=True):
        for path in declared(schema, record, schema) or ():
            assert row is None or at(row, path) == at(record, path)


def declared(schema: Any, value: Any, root: dict[str, Any]) -> set[tuple[str, ...]] | None:
    """The paths in a value that a schema declares; None where the value is not valid. By the specification, and for the
    words of these tests alone.
    """
    if not isinstance(schema, dict):
        return set() if schema else None
    kinds = {dict: "object", str: "string", int: "integer", type(None): "null"}
    said = schema.get("type", kinds[type(value)])
    if kinds[type(value)] not in (said if isinstance(said, list) else [said]):
        return None
    every = [*schema.get("allOf", ()), *([root["$defs"]["d"]] if "$ref" in schema else ())]
    if "if" in schema:
        holds = declared(schema["if"], value, root) is not None
        every += [schema["if"], schema.get("then", True)] if holds else [schema.get("else", True)]
    found = [declared(each, value, root) for each in every]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            holding = [each for each in (declared(each, value, root) for each in schema[word]) if each is not None]
            found += holding if holding and (word == "anyOf" or len(holding) == 1) else [None]
    if isinstance(value, dict):
        if any(name not in value for name in schema.get("required", ())):
            return None
        found += [
            declared(each, value, root) for name, each in schema.get("dependentSchemas", {}).items() if name in value
        ]
        for name, part in value.items():
            told = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
            within = declared(told, part, root)
            if within is None:
                return None
            if name in schema.get("properties", {}) or (isinstance(told, dict) and told):
                found.append({(name,), *((name, *path) for path in within)})
    paths: set[tuple[str, ...]] = set()
    for each in found:
        if each is None:
            return None
        paths |= each
    return paths


def at(value: Any, path: tuple[str, ...]) -> Any:
    """What is at the path of a record or a row: objects are there or not, scalars what they are."""
    for name in path:
        if isinstance(value, str):
            value = json.loads(value)
        value = (dict(value) if isinstance(value, list) else value)[name]
    return (
        "an object"
        if isinstance(value, dict | list) or str(value)[:1] == "{"
        else value
        if value is None
        else str(value)
    )
