import json
import random
from collections.abc import Iterable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from value_cases import decode

from bmq_spark.values import collision, decoder, iceberg_rules, infer, json_rules, parquet_rules, settle
from bmq_spark.values import observe as observe_at
from bmq_spark.values.ddl import write_ddl
from bmq_spark.values.inference import NAME_BYTES, NAMES_BYTES
from bmq_spark.values.json_seen import COLUMNS, NAME_SIZE, SIZE_MAX, Observation


def encoded(*documents: Any) -> pa.Array:
    return pa.array([json.dumps(document).encode() for document in documents], type=pa.binary())


def observe(values: pa.Array) -> Observation:
    return observe_at(values, pa.array(map(str, range(len(values))), pa.string()))


def columns(*documents: Any, known: pa.DataType | None = None) -> str:
    return write_ddl(infer(known, encoded(*documents)))


@pytest.mark.parametrize(
    ("values", "becomes"),
    [
        ([1, 2], "a bigint"),
        ([1, 1.5], "a double"),
        ([1, 2**64], "a double"),
        ([True, None], "a boolean"),
        ([True, 1], "a string"),
        ([True, 1.5], "a string"),
        ([1.5, "x"], "a string"),
        (["2026-11-22T00:00:00Z"], "a string"),
        ([[1], [2.5], []], "a array<double>"),
        ([[1], 1], "a string"),
        ([{"b": 1}, {"c": "x"}], "a struct<b: bigint, c: string>"),
        ([{"b": 1}, [1]], "a string"),
        ([{}, 1], "a string"),
        ([None, [], {}][:1], ""),
        ([[]], ""),
        ([{}], ""),
        ([[None, {}]], ""),
    ],
)
def test_types_widen_by_the_lattice(values: list[Any], becomes: str) -> None:
    assert columns(*({"a": value} for value in values)) == becomes
    assert columns(*({"a": value} for value in reversed(values))) == becomes


def test_new_fields_come_after_the_known_by_name_and_known_ones_widen() -> None:
    known = infer(None, encoded({"z": 1, "m": {"y": 1}}))
    assert write_ddl(known) == "m struct<y: bigint>, z bigint"
    later = encoded({"b": 1, "a": "x", "z": 1.5, "m": {"x": True}})
    assert (
        write_ddl(infer(known, later, rules=json_rules))
        == "m struct<y: bigint, x: boolean>, z double, a string, b bigint"
    )


def test_nothing_narrows_and_no_column_goes_away() -> None:
    known = infer(None, encoded({"a": "x", "b": 1.5, "c": [1]}))
    assert infer(known, encoded({"a": 1, "b": 2}, {}, {"c": []})) == known


def test_a_known_object_stays_one_and_the_odd_record_gets_a_reason() -> None:
    known = infer(None, encoded({"a": {"b": 1}}))
    odd = encoded({"a": "text"})
    assert infer(known, odd) == known
    values, reasons = decode(decoder("json", columns=known), odd.to_pylist())
    assert values == [None]
    assert "$.a" in (reasons[0] or "")


def test_an_odd_record_does_not_hide_what_others_add_to_the_object_or_list_that_it_breaks() -> None:
    known = infer(None, encoded({"a": {"b": 1}, "l": [{"c": 1}]}))
    grown = encoded({"a": {"b": 2, "new": "x"}, "l": [{"c": 1, "more": True}]})
    odd = encoded({"a": [1], "l": "text"}, {"a": "text", "l": {"c": 1}}, {"l": ["text"]})
    values = pa.concat_arrays([odd, grown])
    assert infer(known, values) == infer(known, grown) != known
    assert settle(known, [observe(odd), observe(grown)]) == infer(known, grown)


def test_where_rules_do_not_let_a_column_widen_the_record_gets_a_reason() -> None:
    known = infer(None, encoded({"a": 1}))
    for rules in (parquet_rules, iceberg_rules):
        assert infer(known, encoded({"a": 1.5, "b": 1}), rules=rules) == pa.struct(
            [("a", pa.int64()), ("b", pa.int64())]
        )
    assert decode(decoder("json", columns=known), [b'{"a":1.5}'])[1] == [
        "not the JSON of the columns: Expected `int | null`, got `float` - at `$.a`"
    ]


def test_a_string_column_holds_the_text_of_what_is_no_string() -> None:
    made = decoder("json", columns=pa.struct([("a", pa.string()), ("l", pa.list_(pa.string()))]))
    values, reasons = decode(
        made, [b'{"a":1.10}', b'{"a":{"x": [1]}}', b'{"a":"\\u00e4","l":["x",true,null]}', b'{"a":true}', b'{"a":null}']
    )
    assert reasons == [None] * 5
    assert [row["a"] for row in values] == ["1.10", '{"x": [1]}', "ä", "true", None]
    assert values[2]["l"] == ["x", "true", None]


def test_a_field_without_a_column_is_a_reason_unless_it_says_nothing() -> None:
    made = decoder("json", columns=infer(None, encoded({"id": 1, "ID": 2, "in": {"x": 1}})))
    assert made.arrow_type.get_field_index("id") == -1, (
        "names that differ by case alone make one column, of as many records the first by name"
    )
    values, reasons = decode(
        made, [b'{"ID":1,"unknown":null,"more":[],"other":{"a":null}}', b'{"id":1}', b'{"in":{"x":1,"y":{"z":1}}}']
    )
    assert values[0] == {"ID": 1, "in": None}
    assert "$.id has no column" in (reasons[1] or "")
    assert "$.in.y has no column" in (reasons[2] or "")


def test_columns_that_came_from_a_schema_hold_as_strictly() -> None:
    made = decoder("json", columns=pa.struct([("price", pa.decimal128(5, 2)), ("at", pa.timestamp("us"))]))
    values, reasons = decode(made, [b'{"price":1.5}', b'{"price":1e-999999999}', b'{"at":"2026-01-01T00:00:00Z"}'])
    assert str(values[0]["price"]) == "1.50"
    assert "$.price" in (reasons[1] or "")
    assert "time zone" in (reasons[2] or "")


def test_objects_whose_keys_are_data_do_not_make_columns_without_end() -> None:
    users = [{"users": {f"user{number}": 1}, "id": 1} for number in range(COLUMNS + 50)]
    known = infer(None, encoded(*users))
    assert known.field("users").type.num_fields == COLUMNS - 1
    assert infer(known, encoded({"one more": 1})) == known


def test_one_odd_record_decides_nothing_for_all_others() -> None:
    others = [{"id": number, "in": {"amount": 1.5}, "rows": [{"sku": "x"}]} for number in range(20)]
    odd = [
        {"ID": 1, "IN": {"amount": 2.5}, "Rows": [{"sku": "x"}]},
        {"in": {"AMOUNT": 2.5}, "rows": [{"SKU": "y"}, {"SKU": "y"}] * 30},
        {f"a{number:05}": number for number in range(COLUMNS + 200)},
        {"in": {f"a{number:05}": {"x": [1]} for number in range(COLUMNS + 200)}},
    ]
    expected = "id bigint, in struct<amount: double>, rows array<struct<sku: string>>"
    assert columns(*odd, *others) == columns(*others) == expected
    known = infer(None, encoded(*odd, *others))
    assert decode(decoder("json", columns=known), encoded(*others).to_pylist())[1] == [None] * 20


def test_of_too_many_fields_those_become_columns_that_more_records_have() -> None:
    wide = {f"a{number:05}": 1 for number in range(COLUMNS)}
    inner = {"in": wide, "zip": "x"}
    assert [field.name for field in infer(None, encoded(wide, {"z": 1, "l": [1]}, {"z": 1, "l": [2]}))] == [
        *list(wide)[: COLUMNS - 2],
        "l",
        "z",
    ]
    known = infer(None, encoded({"old": 1}))
    grown = infer(known, encoded({"in": wide}, {"in": {"b": 1}, "zip": "x"}, {"in": {"b": 1}, "zip": "x"}))
    assert [field.name for field in grown] == ["old", "in", "zip"]
    assert [field.name for field in grown.field("in").type] == [*list(wide)[: COLUMNS - 3], "b"]
    assert infer(None, encoded(inner)) == pa.struct([]), "a record that would fit no table tells nothing"


def test_a_column_widens_by_the_numbers_though_another_record_has_text_there() -> None:
    known = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    told = encoded({"a": 2**40, "b": 1.5}, {"a": "text", "b": True})
    assert infer(known, told) == pa.struct([("a", pa.int64()), ("b", pa.float64())])
    assert infer(known, told, rules=iceberg_rules) == pa.struct([("a", pa.int64()), ("b", pa.int32())])


def test_deep_objects_become_text() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = {"a": deep}
    made = decoder("json", columns=infer(None, encoded(deep)))
    values, reasons = decode(made, encoded(deep).to_pylist())
    assert reasons == [None]
    for _ in range(20):
        values = [values[0]["a"]]
    assert json.loads(values[0])["a"]


def shared_out(batch: list[Any], workers: int, random: Random) -> list[tuple[list[str], list[Any]]]:
    """The records with their addresses, in any order, by who sees them."""
    shuffled = [(str(number), document) for number, document in enumerate(batch)]
    random.shuffle(shuffled)
    return [
        ([address for address, _ in share], [document for _, document in share])
        for share in (shuffled[worker::workers] for worker in range(workers))
    ]


def all_of(parts: Iterable[Observation]) -> Observation:
    whole = Observation()
    for part in parts:
        whole.take(part)
    return whole


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)


def records_of(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    keys = st.sampled_from(names)
    documents = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )
    return st.dictionaries(keys, documents, max_size=3)


records = records_of("a", "größe", "价格")


@settings(max_examples=50, deadline=None)
@given(st.lists(records_of("a", "A", "größe"), max_size=6), st.randoms(use_true_random=False), st.integers(1, 3))
def test_columns_do_not_depend_on_the_order_of_records_nor_on_who_saw_them(
    batch: list[Any], random: Any, workers: int
) -> None:
    together = infer(None, encoded(*batch))
    shares = shared_out(batch, workers, random)
    parts = [observe_at(encoded(*values), pa.array(addresses, pa.string())) for addresses, values in shares]
    random.shuffle(parts)
    assert settle(None, parts) == together
    assert all_of(parts) == all_of(reversed(parts)) == observe(encoded(*batch))


@settings(max_examples=40, deadline=None)
@given(st.lists(records, min_size=1, max_size=5), st.lists(records, min_size=1, max_size=5))
def test_every_record_of_a_first_batch_fits_its_columns_and_says_what_json_says(
    first: list[Any], second: list[Any]
) -> None:
    known = infer(None, encoded(*first))
    values, reasons = decode(decoder("json", columns=known), encoded(*first).to_pylist())
    assert reasons == [None] * len(first)
    for told, row in zip(first, values, strict=True):
        _agree(row, told)
    wider = infer(known, encoded(*second))
    assert infer(wider, encoded(*second)) == wider
    assert {field.name for field in known} <= {field.name for field in wider}


def _agree(column: Any, told: Any) -> None:
    if isinstance(told, dict) and not isinstance(column, str):
        for name, part in told.items():
            _agree((column or {}).get(name), part)
    elif isinstance(told, list) and not isinstance(column, str):
        assert column is None or len(column) == len(told)
        for one, other in zip(column or [None] * len(told), told, strict=True):
            _agree(one, other)
    elif isinstance(column, str) and not isinstance(told, str):
        assert json.loads(column) == told
    elif isinstance(told, int) and isinstance(column, float):
        assert column == float(told)
    else:
        assert column == told
        assert type(column) is type(told)


def test_a_list_whose_objects_have_ever_new_keys_takes_no_longer_than_others_of_its_length() -> None:
    # Work that grew with the square of the keys took minutes for a tenth of these, hours for all: the test would run
    # into its timeout.
    keyed = [{f"k{number:05}": 1} for number in range(50_000)]
    assert infer(None, encoded({"l": keyed}, {"l": keyed[:3]})).field("l").type.value_type.num_fields == 3


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_keys_that_are_data_neither_fill_memory_nor_depend_on_who_saw_them(workers: int) -> None:
    """Nor do they hide what many records have."""
    ordinary = {"zone": "x", "in": {"zone": 1}}
    batch = [
        {f"k{number:06}{part}": 1 for part in range(10)} | {"in": {f"k{number:06}": 1}, "seq": 1}
        if number % 4
        else ordinary | {"in": {"zone": number}, "Zone": 1}
        for number in range(9_000)
    ] + [ordinary] * 1_000
    shares = shared_out(batch, workers, random.Random(workers))
    parts = [observe_at(encoded(*values), pa.array(addresses, pa.string())) for addresses, values in shares]
    backwards = all_of(Observation.unpacked(part.packed()) for part in reversed(parts))
    assert backwards == all_of(parts) == observe(encoded(*batch))
    assert all(part.size <= SIZE_MAX for part in (*parts, backwards)) and backwards.halved
    known = settle(None, parts)
    assert known == settle(None, [backwards]) == infer(None, encoded(*batch))
    assert sum(1 for _ in paths(known, "")) == COLUMNS + 2, "with the object and the whole"
    assert known.field("zone").type == pa.string() and known.field("seq").type == pa.int64()
    assert known.field("in").type.field("zone").type == pa.int64()


def test_names_without_end_do_not_fill_memory() -> None:
    long = [{f"{number}" * 100_000: 1, "id": 1} for number in range(100)]
    seen = observe(encoded(*long))
    assert seen.size <= SIZE_MAX and seen.halved and len(seen.packed()) < (SIZE_MAX + 1) * NAME_SIZE
    assert infer(None, encoded({"n" * 10_000_000: 1}, {"id": 1})) == pa.struct([("id", pa.int64())])


ODD_NAMES = ['a"b', "C:\\temp", "a\nb", "\x00", "\x1f"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_with_a_quote_a_backslash_or_a_control_character_makes_no_column_and_is_a_reason(name: str) -> None:
    documents = [{"id": 1}, {name: 1}, {"o": {name: {"x": 1}}}, {"l": [{name: 1, "y": 1}]}, {"id": 2, name: None}]
    known = infer(None, encoded(*documents))
    assert write_ddl(known) == "id bigint, l array<struct<y: bigint>>"
    assert infer(known, encoded(*documents, {"new": 1})) == pa.struct([*known, ("new", pa.int64())])
    values, reasons = decode(decoder("json", columns=known), encoded(*documents).to_pylist())
    assert [row and row["id"] for row in values] == [1, None, None, None, 2]
    assert [why is None or "has no column: its name" in why for why in reasons] == [True] * 5


@pytest.mark.parametrize("name", ODD_NAMES)
def test_columns_of_any_name_that_came_from_a_schema_are_filled(name: str) -> None:
    known = pa.struct([("id", pa.int64()), (name, pa.struct([(name, pa.int64()), ("text", pa.string())]))])
    documents = [{"id": 1, name: {name: 2, "text": "x"}}, {"id": 1}, {name: {"text": 1.5}}]
    assert infer(known, encoded(*documents)) == known
    values, reasons = decode(decoder("json", columns=known), encoded(*documents).to_pylist())
    assert reasons == [None] * 3
    assert values == [documents[0], {"id": 1, name: None}, {"id": None, name: {name: None, "text": "1.5"}}]


@pytest.mark.parametrize("longest", ["n" * NAME_BYTES, "ä" * (NAME_BYTES // 2)])
def test_a_name_of_more_bytes_than_names_have_makes_no_column_and_is_a_reason(longest: str) -> None:
    longer = longest + "äx"
    documents = [{"id": 1}, {longer: 1}, {"o": {longer: {"x": 1}}}, {"l": [{longer: 1, "y": 1}]}, {longest: 2}]
    known = infer(None, encoded(*documents))
    assert known == pa.struct([*infer(None, encoded({"id": 1, "l": [{"y": 1}]})), (longest, pa.int64())])
    values, reasons = decode(decoder("json", columns=known), encoded(*documents).to_pylist())
    assert [why is None for why in reasons] == [True, False, False, False, True] and values[4][longest] == 2
    for why in (reasons[1], *decode(decoder("json", columns=known), [b'{"%s": 1}' % (b"n" * 100_000)])[1]):
        assert f"or is longer than {NAME_BYTES} bytes" in (why or "")


def test_names_of_a_table_have_no_more_bytes_together_than_fit_and_those_that_most_records_have_come_first() -> None:
    many = NAMES_BYTES // 400 - 1
    wide = {f"a{number:05}".ljust(200, "x"): {f"b{number:05}".ljust(200, "y"): 1} for number in range(many // 2)}
    more = {f"z{number:05}".ljust(200, "x"): [{f"b{number:05}".ljust(200, "y"): 1}] for number in range(many)}
    known = infer(None, encoded(wide, wide, more, {"id": 1, "in": {"amount": 1.5}}))
    assert names_bytes(known) <= NAMES_BYTES < names_bytes(known) + 400
    assert {"id", "in", *wide} < {field.name for field in known} and known.field("in").type.num_fields == 1
    values, reasons = decode(decoder("json", columns=known), encoded(wide, more).to_pylist())
    assert reasons[0] is None and values[1] is None and "too many columns, or names" in (reasons[1] or "")
    assert infer(known, encoded(more)) == known, "the objects and lists that a name is within cost, too"
    grown = infer(known, encoded(*[{next(iter(wide)): {"n": 1}, "on": 1}] * 2))
    assert "n" in [field.name for field in grown.field(next(iter(wide))).type]
    assert "on" in [field.name for field in grown], "while there is room"


def test_a_table_that_has_longer_names_goes_on_with_them() -> None:
    long = "n" * 100_000
    known = pa.struct([(f"{long}{number}", pa.struct([(long, pa.int32())])) for number in range(3)])
    document = {f"{long}1": {long: 2**40, "x": 1}, "new": 1}
    assert infer(known, encoded({f"{long}1": {long: 2**40}, "new": 1})) == pa.struct(
        [known.field(0), (f"{long}1", pa.struct([(long, pa.int64())])), known.field(2)]
    )
    values, reasons = decode(decoder("json", columns=known), encoded({f"{long}1": {long: 7}}, document).to_pylist())
    assert values[0][f"{long}1"] == {long: 7} and reasons[0] is None and "has no column" in (reasons[1] or "")


def names_bytes(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(len(field.name.encode()) + names_bytes(field.type) for field in kind)
    return 2 + names_bytes(kind.value_type) if pa.types.is_list(kind) else 0


dotted_keys = st.sampled_from(["x", "y", "x.y", "X.Y", "x.element", "x.element.y", "element", "x_x2Ey", "1", "_1"])
dotted_records = st.dictionaries(
    dotted_keys,
    st.recursive(
        st.just(1),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(dotted_keys, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(dotted_records, max_size=3), max_size=3))
def test_where_columns_are_known_by_their_paths_no_two_have_the_same(batches: list[list[Any]]) -> None:
    known = pa.struct([])
    for batch in batches:
        before, known = known, settle(known, [observe(encoded(*batch))], rules=iceberg_rules, by_path=True)
        assert paths(known, "") and set(paths(before, "")) <= set(paths(known, ""))
    every = paths(known, "")
    assert len(every) == len(set(every))
    assert collision(known) is None


def test_a_name_with_dots_that_is_the_path_of_another_column_makes_none_and_its_record_gets_a_reason() -> None:
    told = [
        {"x": {"y": 1}, "x.y": 2},
        {"tags": [1], "tags.element": 2},
        {"rows": [{"id": 1}], "rows.id": 2},
        {"free.name": 1},
    ]
    columns = settle(None, [observe(encoded(*told))], rules=iceberg_rules, by_path=True)
    assert (
        write_ddl(columns)
        == "`free.name` bigint, rows array<struct<id: bigint>>, tags array<bigint>, x struct<y: bigint>"
    )
    _, reasons = decode(decoder("json", columns=columns), encoded(*told).to_pylist())
    assert [reason is None for reason in reasons] == [False, False, False, True]
    assert (
        "$.x.y has no column: its name differs from another's by case alone, or with its dots is the path of another"
        in (reasons[0] or "")
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", "_1"), ("a-b", "a_x2Db"), ("a b", "a_x20b"), ("é.", "é_x2E"), ("😀", "_xD83D_xDE00"), ("٣", "_٣")],
)
def test_of_two_names_that_are_one_in_icebergs_files_one_becomes_a_column_and_the_other_is_a_reason(
    one: str, other: str
) -> None:
    told = [{one: 1}, {other: 1}, {one: 1}, {"in": [{other: {"n": 1}, "id": 1}]}, {"in": [{one: 1}]}, {"o": {one: 1}}]
    told += [{"in": [{other: {"n": 2}}]}]
    columns = settle(None, [observe(encoded(*told))], rules=iceberg_rules, by_path=True)
    assert columns == infer(None, encoded(told[0], told[3], told[5]))
    assert settle(columns, [observe(encoded(*told[1::-1]))], rules=iceberg_rules, by_path=True) == columns
    _, reasons = decode(decoder("json", columns=columns), encoded(*told).to_pylist())
    assert [reason is None for reason in reasons] == [True, False, True, True, False, True, True]
    assert "is written as another in Iceberg's files" in (reasons[1] or "")
    assert {one, other} < {field.name for field in settle(None, [observe(encoded(*told))])}, "but in Parquet tables"


def paths(kind: pa.DataType, at: str) -> list[str]:
    """Of every column, as Iceberg joins them."""
    if pa.types.is_struct(kind):
        return [at.lower(), *(path for field in kind for path in paths(field.type, f"{at}.{field.name}"))]
    if pa.types.is_list(kind):
        return [at.lower(), *paths(kind.value_type, f"{at}.element")]
    return [at.lower()]


def test_a_field_within_a_map_that_a_schema_once_made_has_no_column_and_is_not_lost() -> None:
    item = pa.struct([("q", pa.string()), ("price", pa.decimal128(5, 2))])
    known = pa.struct([("m", pa.map_(pa.string(), item)), ("l", pa.list_(pa.map_(pa.string(), pa.list_(item))))])
    fits = [
        b'{"m":{"k":{"q":"v","price":1.25},"n":null}}',
        b'{"l":[{"k":[{"q":"v"},null]},null]}',
        b'{"m":{"k":{"z":null}}}',
        b'{"m":{}}',
    ]
    beyond = [b'{"m":{"k":{"q":"v","z":5}}}', b'{"l":[{"k":[{"q":"v"},{"z":{"y":1}}]}]}', b'{"m":{"z":{"Q":"v"}}}']
    columns = infer(known, pa.array(fits + beyond, pa.binary()))
    assert columns == known
    values, reasons = decode(decoder("json", columns=columns), fits + beyond)
    assert reasons[:4] == [None] * 4 and values[0]["m"] == [("k", {"q": "v", "price": Decimal("1.25")}), ("n", None)]
    assert [str(each).partition(" has no column")[0].rpartition(" ")[2] for each in reasons[4:]] == [
        "$.m[...].z",
        "$.l[][...][].z",
        "$.m[...].Q",
    ]
