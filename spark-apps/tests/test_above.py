"""What lies above places, of many more partitions than a filter can name."""

from pyspark.sql import SparkSession

from bmq_spark.batches.above import from_places
from bmq_spark.batches.buried import Buried

PARTITIONS = 3000
ROWS = [("t", 1, 4, b"a"), ("t", 1, 5, b"b"), ("t", 2999, 9, b"c"), ("t", PARTITIONS, 0, b"d"), ("u", 1, 0, b"e")]
COLUMNS = "topic string, partition int, offset bigint, value binary"


def places(offset: int) -> dict[str, dict[int, int]]:
    return {"t": dict.fromkeys(range(PARTITIONS), offset)}


def test_what_is_buried_is_found_in_thousands_of_partitions(spark: SparkSession) -> None:
    letters = spark.createDataFrame(ROWS, COLUMNS)
    buried = Buried.read(lambda: letters, theirs=places(10), table=places(5))
    assert buried.places == places(10)
    assert buried.offsets == {("t", 1): frozenset({5}), ("t", 2999): frozenset({9})}


def test_what_a_table_has_of_thousands_of_partitions_is_cut_off(spark: SparkSession) -> None:
    records = spark.createDataFrame(ROWS, COLUMNS)
    left = from_places(records, places(5), others=True)
    assert left.columns == records.columns
    assert sorted(bytes(row["value"]) for row in left.collect()) == [b"b", b"c", b"d", b"e"]
    assert from_places(records, {}, others=True).count() == len(ROWS)
    assert from_places(records, {}, others=False).count() == 0
