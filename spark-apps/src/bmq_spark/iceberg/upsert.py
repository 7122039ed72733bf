"""A compacted topic as a table with one row for each key: which record of a batch counts, and how it meets the row that is there.

A key's order is that of its partition's offsets. Records of one key in several partitions (a topic that got more of them, or several topics in one
table) have no common order but time: there the later timestamp wins. A tombstone leaves no row to compare with, so the last of each key and partition
is kept in a table of its own: an older record that another partition gives later is not to bring the row back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from bmq_spark.errors import ConfigurationError
from bmq_spark.jobs.records import Typing
from bmq_spark.table.layout import TIMESTAMP

RECORD_KEY: Final = "key"
_RANK: Final = "_bmq_rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedTyping(Typing):
    """Rows that are to be found by their key: records without one do not fit. Sent to the workers."""

    field: str
    """RECORD_KEY, or the name of a field of the value."""

    def rows(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """See Typing."""
        rows, reasons = Typing.rows(self, records)
        keys = rows.column("key") if self.field == RECORD_KEY else _field(rows.column("value"), self.field)
        if not keys.null_count:
            return rows, reasons
        missing = [
            (None if key else self._reason(tombstone)) if said is None else said
            for key, tombstone, said in zip(keys.is_valid().to_pylist(), rows.column("value").is_null().to_pylist(), reasons.to_pylist(), strict=True)
        ]
        return rows, pa.array(missing, type=pa.string())

    def _reason(self, tombstone: bool) -> str:
        if self.field == RECORD_KEY:
            return "no key: rows are found by it"
        if tombstone:
            return f"a tombstone has no field {self.field}, by which rows are found: only --upsert-key key lets tombstones delete"
        return f"field {self.field} is null: rows are found by it"


def keyed(typing: Typing, field: str) -> KeyedTyping:
    """Raises ConfigurationError where the values have no such field, or one that nothing can be found by."""
    if field != RECORD_KEY:
        kind = typing.value.arrow_type
        names = [part.name for part in kind] if pa.types.is_struct(kind) else []
        if field not in names:
            raise ConfigurationError(f"--upsert-key {field}: the values have {', '.join(names) or 'no fields'}: name one of these, or key")
        if pa.types.is_nested(kind.field(field).type):
            raise ConfigurationError(f"--upsert-key {field}: it is a {kind.field(field).type}: name a field with a single value, or key")
    return KeyedTyping(**{part.name: getattr(typing, part.name) for part in fields(typing)}, field=field)


def key_path(field: str) -> str:
    """As Spark's SQL names the column."""
    return "`key`" if field == RECORD_KEY else f"`value`.`{field.replace('`', '``')}`"


def found_by(field: str) -> Sequence[tuple[str, ...]]:
    """The columns by which rows are found and compared: without one of them nothing can be merged."""
    return [(RECORD_KEY,) if field == RECORD_KEY else ("value", field), ("topic",), ("partition",), ("offset",), ("timestamp",)]


def last_of_each_key(rows: DataFrame, field: str) -> DataFrame:
    """One row for each key: first the last by offset within each partition, then of these the latest."""
    key: Column = sql.expr(key_path(field))
    within = Window.partitionBy(key, "topic", "partition").orderBy(sql.desc("offset"))
    among = Window.partitionBy(key).orderBy(sql.desc("timestamp"), sql.desc("topic"), sql.desc("partition"))
    spread = rows.repartition(key)
    last = spread.withColumn(_RANK, sql.row_number().over(within)).filter(sql.col(_RANK) == 1)
    return last.withColumn(_RANK, sql.row_number().over(among)).filter(sql.col(_RANK) == 1).drop(_RANK)


def merge_statement(table_sql: str, source: str, field: str, columns: Sequence[str]) -> str:
    """Rows of the view `source`, one for each key: a null value deletes, another replaces or is new; nothing that is older than the row counts."""
    key = key_path(field)
    newer = (
        "CASE WHEN s.topic = t.topic AND s.partition = t.partition THEN s.`offset` > t.`offset` "
        "ELSE s.`timestamp` > t.`timestamp` OR (s.`timestamp` = t.`timestamp` AND (s.topic, s.partition) > (t.topic, t.partition)) END"
    )
    names = [f"`{name}`" for name in columns]
    return (
        f"MERGE INTO {table_sql} t USING {source} s ON t.{key} = s.{key} "
        f"WHEN MATCHED AND s.`value` IS NULL AND {newer} THEN DELETE "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)} "
        f"WHEN NOT MATCHED AND s.`value` IS NOT NULL THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
    )


def tombstone_columns(key: pa.DataType) -> pa.Schema:
    """Of the table that remembers deletions."""
    where = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", TIMESTAMP)]
    return pa.schema([(RECORD_KEY, key), *where])


def remember_statement(tombstones_sql: str, source: str) -> str:
    """The last tombstone of each key and partition. Whatever is written twice, or by two jobs, it ends the same."""
    names = (RECORD_KEY, "topic", "partition", "offset", "timestamp")
    same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in names[:3])
    newer = ", ".join(f"t.`{name}` = s.`{name}`" for name in names[3:])
    listed = ", ".join(f"`{name}`" for name in names)
    given = ", ".join(f"s.`{name}`" for name in names)
    return (
        f"MERGE INTO {tombstones_sql} t USING {source} s ON {same} "
        f"WHEN MATCHED AND s.`offset` > t.`offset` THEN UPDATE SET {newer} WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({given})"
    )


def last_tombstones(rows: DataFrame) -> DataFrame:
    """The last of each key and partition."""
    within = Window.partitionBy(RECORD_KEY, "topic", "partition").orderBy(sql.desc("offset"))
    found = rows.filter(sql.col("value").isNull()).withColumn(_RANK, sql.row_number().over(within))
    return found.filter(sql.col(_RANK) == 1).select(RECORD_KEY, "topic", "partition", "offset", "timestamp")


def not_deleted(rows: DataFrame, tombstones: DataFrame) -> DataFrame:
    """Without the records that are older than a tombstone of their key in another partition."""
    r, t = rows.alias("r"), tombstones.alias("t")
    later = (
        "r.`key` = t.`key` AND (r.topic, r.`partition`) != (t.topic, t.`partition`) AND (t.`timestamp` > r.`timestamp` OR "
        "(t.`timestamp` = r.`timestamp` AND (t.topic, t.`partition`) > (r.topic, r.`partition`)))"
    )
    return r.join(t, sql.expr(later), "left_anti")


def _field(values: pa.Array, name: str) -> pa.Array:
    """Null where the struct is."""
    import pyarrow.compute as pc

    return pc.struct_field(values, name)
