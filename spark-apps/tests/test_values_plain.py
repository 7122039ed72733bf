import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from value_cases import decode

from bmq_spark.errors import ConfigurationError
from bmq_spark.values import SchemaFile, decoder
from bmq_spark.values.decoded import SLICE_BYTES, slices


def test_bytes_are_what_they_were() -> None:
    assert decode(decoder("bytes"), [b"\xff\x00", None, b""]) == ([b"\xff\x00", None, b""], [None, None, None])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode), max_size=100))
def test_a_string_is_utf8_or_has_a_reason(values: list[bytes | None]) -> None:
    texts, reasons = decode(decoder("string"), values)
    for value, text, reason in zip(values, texts, reasons, strict=True):
        try:
            expected = None if value is None else value.decode("utf-8")
        except UnicodeDecodeError:
            assert text is None
            assert reason is not None and "UTF-8" in reason
        else:
            assert (text, reason) == (expected, None)


def test_one_bad_string_among_many_spoils_no_other() -> None:
    values: list[bytes | None] = [b"text %d" % number for number in range(20_000)]
    values[12_345] = b"\xc3("
    texts, reasons = decode(decoder("string"), values)
    assert [position for position, reason in enumerate(reasons) if reason is not None] == [12_345]
    assert texts[12_344:12_347] == ["text 12344", None, "text 12346"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.none() | st.sampled_from([0, 10, SLICE_BYTES // 3, SLICE_BYTES + 1]), max_size=12))
def test_slices_hold_no_more_than_they_may_and_leave_nothing_out(sizes: list[int | None]) -> None:
    values = pa.array([None if size is None else bytes(size) for size in sizes], type=pa.binary())
    pieces = list(slices(values))
    assert [value for piece in pieces for value in piece.to_pylist()] == values.to_pylist()
    for piece in pieces:
        filled = [value for value in piece.to_pylist() if value]
        assert len(filled) <= 1 or sum(map(len, filled)) <= SLICE_BYTES


def test_nothing_to_decode_is_an_empty_array_of_the_type() -> None:
    assert decode(decoder("string"), []) == ([], [])
    assert decode(decoder("json", schema=SchemaFile(name="x.ddl", content=b"id int")), []) == ([], [])


@pytest.mark.parametrize("value_format", ["bytes", "string"])
def test_a_schema_for_a_format_without_one_is_refused(value_format: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"x\.ddl: format {value_format} has none"):
        decoder(value_format, schema=SchemaFile(name="x.ddl", content=b"id int"))


def test_an_unknown_format_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        ConfigurationError, match="format 'xml': not known: choose one of bytes, string, json, avro, protobuf"
    ):
        decoder("xml")
