"""Records from some places on, by a join: as a filter, thousands of partitions would be more than Spark's planner can
hold.
"""

from typing import TYPE_CHECKING, Final

from bmq_spark.batches.places import Places, each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE: Final = "_bmq_place"
_PLACES: Final = f"topic string, partition int, {_PLACE} bigint"


def from_places(records: "DataFrame", places: Places, *, others: bool) -> "DataFrame":
    """Those at these places and above; of partitions that have none, all or (`others` is false) nothing. `records` has
    the columns topic, partition, offset.
    """
    from pyspark.sql import functions as sql

    listed = list(each(places))
    if not listed:
        return records if others else records.limit(0)
    beside = sql.broadcast(records.sparkSession.createDataFrame(listed, _PLACES))
    if not others:  # what files and folders can be passed over by
        least = min(offset for _, _, offset in listed)
        records = records.where(sql.col("topic").isin(sorted(places)) & (sql.col("offset") >= least))
    joined = records.join(beside, ["topic", "partition"], "left" if others else "inner")
    place = sql.col(_PLACE)
    return joined.where(place.isNull() | (sql.col("offset") >= place)).select(*records.columns)
