import pyarrow as pa
import pytest

from bmq_spark.values import SchemaBreaks, SchemaFile, conform, iceberg_rules, merge, parquet_rules
from bmq_spark.values.ddl import read_ddl, write_ddl
from bmq_spark.values.evolution import FieldMissing, Rules


def schema(ddl: str) -> pa.Schema:
    return pa.schema(list(read_ddl(SchemaFile(name="x", content=ddl.encode()))))


@pytest.mark.parametrize(
    ("known", "new", "merged"),
    [
        ("a int", "b string not null, a int", "a int, b string"),
        ("a int, b string", "b string", "a int, b string"),
        ("a int", "a bigint", "a bigint"),
        ("a bigint", "a tinyint", "a bigint"),
        ("a float", "a double", "a double"),
        ("a decimal(5,2)", "a decimal(9,2)", "a decimal(9,2)"),
        ("a struct<b: int>", "a struct<c: string, b: bigint>", "a struct<b: bigint, c: string>"),
        ("a array<struct<b: int>>", "a array<struct<b: int, c: int>>", "a array<struct<b: int, c: int>>"),
        ("a map<string, int>", "a map<string, bigint>", "a map<string, bigint>"),
    ],
)
@pytest.mark.parametrize("rules", [parquet_rules, iceberg_rules])
def test_fields_are_added_and_types_widen(known: str, new: str, merged: str, rules: Rules) -> None:
    result = merge(schema(known), schema(new), rules=rules)
    assert write_ddl(pa.struct(list(result))) == merged
    assert merge(result, schema(new), rules=rules) == result


@pytest.mark.parametrize(
    ("known", "new", "says"),
    [
        ("a int", "a string", "field a: the table has int and the new schema string"),
        (
            "a struct<b: array<int>>",
            "a struct<b: array<boolean>>",
            r"field a\.b\[\]: the table has int and the new schema boolean",
        ),
        ("a struct<b: int>", "a int", "field a: the table has struct<b int> and the new schema int"),
        ("a timestamp", "a timestamp_ntz", "field a: the table has timestamp and the new schema timestamp_ntz"),
        ("a decimal(5,2)", "a decimal(5,3)", r"field a: the table has decimal\(5,2\)"),
        (
            "a map<int, string>",
            "a map<bigint, string>",
            "field a: the table has it as a map by int and the new schema by bigint",
        ),
        (
            "a array<map<struct<x: int>, int>>",
            "a array<map<struct<x: int, y: int>, int>>",
            r"field a\[\]: the table has it as a map by struct",
        ),
        ("a int", "A int", "field A: the table has it as a"),
    ],
)
@pytest.mark.parametrize("rules", [parquet_rules, iceberg_rules])
def test_what_would_break_readers_is_refused_with_field_and_types(
    known: str, new: str, says: str, rules: Rules
) -> None:
    with pytest.raises(SchemaBreaks, match=says):
        merge(schema(known), schema(new), rules=rules)


def test_iceberg_knows_fewer_promotions_than_parquet() -> None:
    assert merge(schema("a int"), schema("a double")) == schema("a double")
    with pytest.raises(SchemaBreaks, match="the table has int and the new schema double"):
        merge(schema("a int"), schema("a double"), rules=iceberg_rules)


def test_values_of_an_older_schema_conform_to_the_merged_one() -> None:
    known, new = (
        schema("v struct<a: int, l: array<struct<k: int>>>"),
        schema("v struct<a: bigint, b: string, l: array<struct<j: date, k: int>>>"),
    )
    merged = merge(known, new).field("v").type
    values = pa.array([{"a": 1, "l": [{"k": 1}]}, None, {"a": None, "l": None}], type=known.field("v").type)
    conformed = conform(values.slice(0), merged)
    conformed.validate(full=True)
    assert conformed.to_pylist() == [
        {"a": 1, "l": [{"k": 1, "j": None}], "b": None},
        None,
        {"a": None, "l": None, "b": None},
    ]
    assert conform(values.slice(1), merged).to_pylist() == conformed.to_pylist()[1:]


@pytest.mark.parametrize(
    ("have", "want", "missing"),
    [
        ("v struct<a: int, b: string>", "v struct<a: bigint>", "v.b"),
        ("v array<struct<a: int>>", "v array<struct<b: int>>", "v[].a"),
        ("v map<string, struct<a: int>>", "v map<string, struct<b: int>>", "v.value.a"),
    ],
)
def test_a_field_without_a_column_is_not_dropped_silently(have: str, want: str, missing: str) -> None:
    values = pa.nulls(1, type=pa.struct(list(schema(have))))
    with pytest.raises(FieldMissing) as raised:
        conform(values, pa.struct(list(schema(want))))
    assert str(raised.value).startswith(f"field {missing}: the rows have it and the table does not")


@pytest.mark.parametrize(("value", "want"), [(4_294_967_303, "a int"), ([(4_294_967_303, 1)], "a map<int, int>")])
def test_no_value_wraps(value: object, want: str) -> None:
    kind = pa.int64() if isinstance(value, int) else pa.map_(pa.int64(), pa.int64())
    with pytest.raises(pa.ArrowInvalid):
        conform(pa.array([value], type=kind), schema(want).field("a").type)
