import pyarrow as pa
import pytest

from bmq_spark.values.decoded import SLICE_BYTES, SLICE_BYTES_MIN, slice_bytes, slices

LINE = pa.struct([(f"f{number}", pa.int32()) for number in range(16)])


@pytest.mark.parametrize(
    ("arrow_type", "bytes_max"),
    [
        (pa.binary(), SLICE_BYTES),
        (LINE, SLICE_BYTES),
        (pa.struct([("a", pa.list_(pa.int32()))]), SLICE_BYTES),
        (pa.struct([("a", pa.list_(LINE)), ("b", pa.string())]), SLICE_BYTES // 16),
        (pa.struct([("a", pa.map_(pa.string(), pa.struct([("x", LINE), ("y", LINE)])))]), SLICE_BYTES_MIN * 2),
        (pa.struct([("a", pa.list_(pa.struct([(f"g{number}", LINE) for number in range(100)])))]), SLICE_BYTES_MIN),
    ],
)
def test_a_slice_is_the_shorter_the_more_columns_an_element_has(arrow_type: pa.DataType, bytes_max: int) -> None:
    assert slice_bytes(arrow_type) == bytes_max


def test_slices_have_all_values_in_order_and_no_more_bytes_than_they_may() -> None:
    values = pa.array([b"x" * 100] * 50 + [b"y" * 5000] + [None] * 3, pa.binary())
    pieces = list(slices(values, size_bytes_max=1000))
    assert pa.concat_arrays(pieces) == values
    assert [len(piece) for piece in pieces] == [10, 10, 10, 10, 10, 1, 3]
