"""A compacted topic as a table with one row for each key: which record of a batch counts, and how it meets the row that
is there.

A key's order within a partition is that of the offsets. Between partitions (a topic that got more of them, or several
topics in one table) time decides: E of a partition is the greatest timestamp of all its records of that key so far, and
the last record of the partition with the greatest (E, topic, partition) is what is left of the key. E never falls, so
who has lost needs not be kept: to win later a partition has to tell a greater time, which then is its E. One state for
each key is enough, then: a row with E in `key_timestamp`, or, where the winner is a tombstone, a row of a table beside
it, which is written first. `tests/upsert_model.py` shows that no division into batches matters, nor a kill between the
two tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from bmq_spark.batches.records import Typing
from bmq_spark.errors import ConfigurationError
from bmq_spark.table.layout import TIMESTAMP
from bmq_spark.values import RegisteredDecoder

RECORD_KEY: Final = "key"
KEY_TIMESTAMP: Final = "key_timestamp"
"""The column of E. Null in rows that an older version of the job wrote: their own time counts then."""
_RANK, _KEY, _SOURCE, _OWN = "_bmq_rank", "_bmq_key", "_bmq_source", "_bmq_own"
_TOMBSTONE, _ROW, _BATCH = 0, 1, 2
"""Where an entry is from. Of two with the same offset, which are one record, the batch's counts."""
_PLACE: Final = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedTyping(Typing):
    """Rows that are to be found by their key: records without one do not fit. Sent to the workers."""

    field: str
    """RECORD_KEY, or the name of a field of the value."""

    @property
    def row_schema(self) -> pa.Schema:
        """The columns of the table: a row's columns, and E."""
        return self.schema.append(pa.field(KEY_TIMESTAMP, TIMESTAMP))

    def rows(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """The rows, as many as there are records, and the reasons of those that do not fit (else null); those without a
        key do not.
        """
        rows, reasons = Typing.rows(self, records)
        keys = rows.column("key") if self.field == RECORD_KEY else _field(rows.column("value"), self.field)
        if not keys.null_count:
            return rows, reasons
        missing = [
            (None if key else self._reason(tombstone)) if said is None else said
            for key, tombstone, said in zip(
                keys.is_valid().to_pylist(),
                rows.column("value").is_null().to_pylist(),
                reasons.to_pylist(),
                strict=True,
            )
        ]
        return rows, pa.array(missing, type=pa.string())

    def _reason(self, tombstone: bool) -> str:
        if self.field == RECORD_KEY:
            return "no key: rows are found by it"
        if tombstone:
            return (
                f"a tombstone has no field {self.field}, by which rows are found: only --upsert-key key lets "
                "tombstones delete"
            )
        return f"field {self.field} is null: rows are found by it"


def keyed(typing: Typing, field: str) -> KeyedTyping:
    """Raises ConfigurationError where the values have no such field, or one that nothing can be found by."""
    if field != RECORD_KEY:
        # A field that the newest version has no more is none to find rows by, though the table has it.
        value = typing.value
        kind = value.own_type if isinstance(value, RegisteredDecoder) else value.arrow_type
        names = [part.name for part in kind] if pa.types.is_struct(kind) else []
        if field not in names:
            raise ConfigurationError(
                f"--upsert-key {field}: the values have {', '.join(names) or 'no fields'}: name one of these, or key"
            )
        if pa.types.is_nested(kind.field(field).type):
            raise ConfigurationError(
                f"--upsert-key {field}: it is a {kind.field(field).type}: name a field with a single value, or key"
            )
    return KeyedTyping(**{part.name: getattr(typing, part.name) for part in fields(typing)}, field=field)


def key_path(field: str) -> str:
    """As Spark's SQL names the column."""
    return "`key`" if field == RECORD_KEY else f"`value`.`{field.replace('`', '``')}`"


def found_by(field: str) -> Sequence[tuple[str, ...]]:
    """The columns by which rows are found and compared: without one of them nothing can be merged."""
    return [(RECORD_KEY,) if field == RECORD_KEY else ("value", field), *((name,) for name in _PLACE)]


def last_of_each_partition(rows: DataFrame, field: str) -> DataFrame:
    """One row for each key and partition of the batch, the last by offset, with the greatest time of these."""
    key: Column = sql.expr(key_path(field))
    within = Window.partitionBy(key, "topic", "partition").orderBy(sql.desc("offset"))
    all_of_it = within.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    ranked = (
        rows.repartition(key)
        .withColumn(KEY_TIMESTAMP, sql.max("timestamp").over(all_of_it))
        .withColumn(_RANK, sql.row_number().over(within))
    )
    return ranked.filter(sql.col(_RANK) == 1).drop(_RANK)


def are_alone(last: DataFrame, field: str) -> bool:
    """Whether MERGE itself can compare these with the table's rows: each key comes from one partition, and none is
    deleted.
    """
    counted = last.groupBy(sql.expr(key_path(field)).alias(_KEY)).agg(
        sql.count("*").alias("n"), sql.max(sql.col("value").isNull()).alias("gone")
    )
    return not counted.filter("n > 1 OR gone").limit(1).count()


def winners(last: DataFrame, table: DataFrame, tombstones: DataFrame | None, field: str) -> DataFrame:
    """What is left of each key of the batch: one row, also where it is a tombstone; nothing where the table's row
    stays.

    Everything that is known of a key comes together first: for E of a partition, which may be the row's, and since a
    tombstone leaves no row to compare with. `_bmq_own` is E as the entry knew it before.
    """
    key: Column = sql.expr(key_path(field))
    asked = last.withColumn(_KEY, key).withColumn(_SOURCE, sql.lit(_BATCH))
    keys = asked.select(_KEY).distinct()
    entries = asked.unionByName(_entries(table, key, _ROW).join(keys, _KEY, "left_semi"), allowMissingColumns=True)
    if tombstones is not None:
        entries = entries.unionByName(
            _entries(tombstones, sql.col(RECORD_KEY), _TOMBSTONE).join(keys, _KEY, "left_semi"),
            allowMissingColumns=True,
        )
    within = Window.partitionBy(_KEY, "topic", "partition").orderBy(sql.desc("offset"), sql.desc(_SOURCE))
    all_of_it = within.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    among = Window.partitionBy(_KEY).orderBy(sql.desc(KEY_TIMESTAMP), sql.desc("topic"), sql.desc("partition"))
    found = entries.repartition(_KEY).withColumn(_OWN, sql.col(KEY_TIMESTAMP))
    found = found.withColumn(_RANK, sql.row_number().over(within)).withColumn(
        KEY_TIMESTAMP, sql.max(KEY_TIMESTAMP).over(all_of_it)
    )
    found = (
        found.filter(sql.col(_RANK) == 1).withColumn(_RANK, sql.row_number().over(among)).filter(sql.col(_RANK) == 1)
    )
    return found.filter(sql.col(_SOURCE) != _ROW).drop(_RANK)


def deletions(won: DataFrame) -> DataFrame:
    """Those of the winners that are to be kept in the table of tombstones: what it does not say already."""
    new = (sql.col(_SOURCE) == _BATCH) | (sql.col(KEY_TIMESTAMP) > sql.col(_OWN))
    return won.filter(sql.col("value").isNull() & new).select(sql.col(_KEY).alias(RECORD_KEY), *_PLACE, KEY_TIMESTAMP)


def merge_statement(table_sql: str, source: str, field: str, *, columns: Sequence[str], own: Sequence[str]) -> str:
    """Rows of the view `source`, one for each key: a null value deletes, another replaces or is new; nothing that the
    row wins over counts.

    `columns` are the table's. What is not among the job's `own` somebody else has added: a row that is there keeps it.
    """
    key = key_path(field)
    same = "s.topic = t.topic AND s.partition = t.partition"
    time = f"coalesce(t.`{KEY_TIMESTAMP}`, t.`timestamp`)"
    newer = (
        f"CASE WHEN {same} THEN s.`offset` > t.`offset` ELSE s.`{KEY_TIMESTAMP}` > {time} OR "
        f"(s.`{KEY_TIMESTAMP}` = {time} AND (s.topic, s.partition) > (t.topic, t.partition)) END"
    )
    names = [f"`{name}`" for name in columns]
    sets = [f"t.`{name}` = s.`{name}`" for name in columns if name in own and name != KEY_TIMESTAMP]
    sets.append(
        f"t.`{KEY_TIMESTAMP}` = CASE WHEN {same} THEN greatest(s.`{KEY_TIMESTAMP}`, {time}) ELSE "
        f"s.`{KEY_TIMESTAMP}` END"
    )
    return (
        f"MERGE INTO {table_sql} t USING {source} s ON t.{key} = s.{key} WHEN MATCHED AND s.`value` IS NULL AND "
        f"{newer} THEN DELETE WHEN MATCHED AND {newer} THEN UPDATE SET {', '.join(sets)} WHEN NOT MATCHED AND "
        f"s.`value` IS NOT NULL THEN INSERT ({', '.join(names)}) VALUES "
        f"({', '.join(f's.{name}' for name in names)})"
    )


def tombstone_columns(key: pa.DataType) -> pa.Schema:
    """The columns of the table that remembers deletions."""
    where = [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        (KEY_TIMESTAMP, TIMESTAMP),
    ]
    return pa.schema([(RECORD_KEY, key), *where])


def remember_statement(tombstones_sql: str, source: str) -> str:
    """The last tombstone of each key and partition. Whatever is written twice, or by two jobs, it ends the same."""
    names = (RECORD_KEY, *_PLACE, KEY_TIMESTAMP)
    same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in names[:3])
    later = (
        f"s.`offset` > t.`offset` OR (s.`offset` = t.`offset` AND s.`{KEY_TIMESTAMP}` > "
        f"coalesce(t.`{KEY_TIMESTAMP}`, t.`timestamp`))"
    )
    newer = ", ".join(f"t.`{name}` = s.`{name}`" for name in names[3:])
    listed = ", ".join(f"`{name}`" for name in names)
    given = ", ".join(f"s.`{name}`" for name in names)
    return (
        f"MERGE INTO {tombstones_sql} t USING {source} s ON {same} "
        f"WHEN MATCHED AND ({later}) THEN UPDATE SET {newer} WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({given})"
    )


def _entries(table: DataFrame, key: Column, source: int) -> DataFrame:
    """What a table knows of its keys."""
    known = sql.coalesce(sql.col(KEY_TIMESTAMP), sql.col("timestamp")).alias(KEY_TIMESTAMP)
    # A tombstone that wins is merged as if the batch had it, so it has its key where a record has it.
    its_key = [RECORD_KEY] if source == _TOMBSTONE else []
    return table.select(key.alias(_KEY), *its_key, *_PLACE, known, sql.lit(source).alias(_SOURCE))


def _field(values: pa.Array, name: str) -> pa.Array:
    """Null where the struct is."""
    import pyarrow.compute as pc

    return pc.struct_field(values, name)
