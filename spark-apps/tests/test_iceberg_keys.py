import pyarrow as pa
import pytest
from iceberg_batches import RECORDS, typing

from bmq_spark.errors import ConfigurationError
from bmq_spark.iceberg.upsert import keyed, merge_statement


def _records(*pairs: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    rows = [
        {"key": key, "value": value, "headers": [], "topic": "t", "partition": 0, "offset": n}
        for n, (key, value) in enumerate(pairs)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORDS)


def test_records_without_a_key_do_not_fit() -> None:
    _, reasons = keyed(typing(), "key").rows(_records((b"k", b"v"), (None, b"v"), (b"k", None)))
    assert reasons.to_pylist() == [None, "no key: rows are found by it", None]


def test_a_reason_of_the_value_goes_first() -> None:
    _, reasons = keyed(typing("json", "id int"), "id").rows(
        _records((b"k", b"{"), (b"k", b'{"id": 1}'), (b"k", b"{}"), (b"k", None))
    )
    first, fits, null, tombstone = reasons.to_pylist()
    assert first.startswith("not the JSON") and fits is None
    assert (
        null == "field id is null: rows are found by it" and "only --upsert-key key lets tombstones delete" in tombstone
    )


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("no", "--upsert-key no: the values have id, tags: name one of these, or key"),
        ("tags", "--upsert-key tags: it is a list<item: int32>: name a field with a single value, or key"),
    ],
)
def test_rows_are_found_by_a_field_of_one_value(field: str, line: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        keyed(typing("json", "id int, tags array<int>"), field)
    assert str(raised.value).replace("element", "item") == line


def test_a_row_is_replaced_by_what_is_newer_alone() -> None:
    statement = merge_statement("c.db.t", "batch", "id", columns=["key", "value"], own=["key", "value"])
    assert "ON t.`value`.`id` = s.`value`.`id`" in statement
    assert statement.count("s.`offset` > t.`offset`") == 2


def test_a_column_that_others_added_is_inserted_and_never_set() -> None:
    statement = merge_statement("c.db.t", "batch", "id", columns=["key", "value", "theirs"], own=["key", "value"])
    assert "INSERT (`key`, `value`, `theirs`)" in statement and "t.`key` = s.`key`" in statement
    assert "t.`theirs`" not in statement
