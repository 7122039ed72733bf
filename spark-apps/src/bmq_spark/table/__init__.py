"""A Parquet table with a log of commits: exactly the committed files, whoever was killed while writing.

A job: `table = Table.create(location, properties)`, `table.begin(query_id)` once, then for each batch: skip it where
`table.snapshot().has_batch(query_id, batch_id)`; else `records.mapInArrow(partial(write_batches, layout=…,
name=FileName(query_id=…, batch_id=…)), FILE_COLUMNS)`, `data_files(frame.toArrow())` and `table.commit_batch((query_id,
batch_id), added=…, offsets=[Covered(…)], schema=…)`. Readers: `files(uri)`, `read(spark, uri)`, `dataset(uri)`.
docs/formats/parquet-table.md says what lies where.
"""

from bmq_spark.table.layout import DEAD_LETTERS_FOLDER, TARGET_BYTES, FileName, Layout, PartitionBy, record_schema
from bmq_spark.table.log import Table
from bmq_spark.table.reading import arrow, dataset, files, frame, read
from bmq_spark.table.state import Commit, Covered, DataFile, Gap, Snapshot
from bmq_spark.table.writing import FILE_COLUMNS, FILE_SCHEMA, data_files, write_batches

__all__ = [
    "DEAD_LETTERS_FOLDER",
    "FILE_COLUMNS",
    "FILE_SCHEMA",
    "TARGET_BYTES",
    "Commit",
    "Covered",
    "DataFile",
    "FileName",
    "Gap",
    "Layout",
    "PartitionBy",
    "Snapshot",
    "Table",
    "arrow",
    "data_files",
    "dataset",
    "files",
    "frame",
    "read",
    "record_schema",
    "write_batches",
]
