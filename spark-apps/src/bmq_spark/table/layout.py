"""Where a table's records go: folders by time, names of files, the columns and how each is encoded."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from bmq_spark.errors import ConfigurationError
from bmq_spark.locations import Location

MIB: Final = 1 << 20
TARGET_BYTES: Final = 128 * MIB
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
DEAD_LETTERS_FOLDER: Final = "_dead_letters"
"""Below a table: the table of the records that did not fit."""
DEAD_LETTERS_OF: Final = "of"
"""The property of such a table that has the id of the one beside which it lies."""
SORTED_BY: Final = ("topic", "partition", "offset")
NO_TIME: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and others call the value of a folder that says nothing: its column is null."""
APART: Final = int(np.iinfo(np.int64).min)
"""The number of the folder for records whose own folder is not among those of `Layout.only`."""
_DELTA_COLUMNS: Final = ("offset", "timestamp")
_NAME: Final = re.compile(r"bmq-([0-9a-f]{12})-([0-9]{10})-([0-9]{5})-([0-9]{5})-([0-9a-f]{16})\.parquet")
_MERGED_NAME: Final = re.compile(r"bmq-merged-([0-9]{20})-([0-9a-f]{16})-([0-9]{5})\.parquet")
_FOLDERS: Final = re.compile(r"((date=[^/]+/)(hour=[^/]+/)?)?")
"""Those in which a table's own files lie. What is below others may be another table's, whose folder somebody has put
into this one's."""
_NOTES: Final = ("_bmq", "_delta_log")


class PartitionBy(StrEnum):
    """What a folder of a table holds: an hour or a day (UTC, by the records' timestamps), or everything."""

    HOUR = "hour"
    DATE = "date"
    NONE = "none"

    @property
    def unit(self) -> str:
        """numpy's name of that span of time."""
        return {"hour": "h", "date": "D", "none": "Y"}[self.value]

    @property
    def micros(self) -> int:
        """How long that span is, in microseconds; 0: it has no end."""
        return {"hour": 3_600_000_000, "date": 86_400_000_000, "none": 0}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a table is written. A value: it goes to Spark's workers."""

    location: Location
    schema: pa.Schema
    """The columns of the files, in their order; `topic`, `partition`, `offset` and `timestamp` are among them."""
    partition_by: PartitionBy = PartitionBy.HOUR
    target_bytes: int = TARGET_BYTES
    buffer_bytes: int = 64 * MIB
    """How much a task holds in memory before it writes to its temporary folder."""
    only: frozenset[int] | None = None
    """The numbers of the folders that there may be, beside the one of what is of none of them (APART). None: any."""

    def __post_init__(self) -> None:
        """Raises ConfigurationError."""
        for name in (*SORTED_BY, "timestamp"):
            if name not in self.schema.names:
                raise ConfigurationError(f"columns {', '.join(self.schema.names)}: a table needs {name}")
        if self.target_bytes < 1:
            raise ConfigurationError(f"target file size {self.target_bytes}: give at least one byte")


def record_schema(value: pa.DataType | None = None, key: pa.DataType | None = None) -> pa.Schema:
    """The columns of a topic's table, in their order; values and keys are bytes unless another type is given."""
    return pa.schema(
        [
            ("key", key or pa.binary()),
            ("value", value or pa.binary()),
            ("headers", HEADERS),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", TIMESTAMP),
            ("lane", pa.string()),
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """Whose files these are. A file's whole name has its content's digest too, so that no attempt ever replaces what
    another one wrote.
    """

    query_id: str
    batch_id: int
    task: int | None = None
    """The number of the Spark task; None: the one in which it is asked for."""

    def name(self, number: int, digest: str) -> str:
        """The name of this task's file number `number`; `digest` is the hex SHA-256 of its bytes."""
        task = self.task
        if task is None:
            from pyspark import TaskContext

            context = TaskContext.get()
            task = 0 if context is None else context.partitionId()
        return f"bmq-{query_mark(self.query_id)}-{self.batch_id:010}-{task:05}-{number:05}-{digest[:16]}.parquet"


@dataclass(frozen=True, slots=True)
class NamedBatch:
    """What a data file's name says of its batch."""

    query_mark: str
    batch_id: int


def query_mark(query_id: str) -> str:
    """Twelve digits that stand for a query in names of files."""
    return hashlib.sha256(query_id.encode()).hexdigest()[:12]


def batch_of_name(key: str) -> NamedBatch | None:
    """The batch that a file was written for; None where it is no batch's of this table."""
    found = _named(key, _NAME)
    return None if found is None else NamedBatch(found[1], int(found[2]))


def folder_and_task(key: str) -> tuple[str, str]:
    """Where a batch's file lies, and the number of the task that wrote it."""
    folder, _, name = key.rpartition("/")
    return folder, name.split("-")[3]


def merged_name(base: int, nonce: str, number: int) -> str:
    """The name of a file that takes the place of others; the work began at version `base`."""
    return f"bmq-merged-{base:020}-{nonce}-{number:05}.parquet"


def base_of_name(key: str) -> int | None:
    """The version from which a merge began; None where the file is none of a merge of this table."""
    found = _named(key, _MERGED_NAME)
    return None if found is None else int(found[1])


def is_own_folder(path: str) -> bool:
    """Whether a folder below a table's location (`` for that itself) is one that the table writes to; others may be
    another table's.
    """
    return path.partition("/")[0] in _NOTES or _FOLDERS.fullmatch(f"{path}/" if path else "") is not None


def _named(key: str, names: re.Pattern[str]) -> re.Match[str] | None:
    folder, slash, name = key.rpartition("/")
    return names.fullmatch(name) if _FOLDERS.fullmatch(folder + slash) else None


def folder_numbers(timestamps: pa.Array, by: PartitionBy, only: frozenset[int] | None = None) -> npt.NDArray[np.int64]:
    """The hour or day since 1970 of each timestamp; zeros where there are no folders. A record without one is in the
    first hour of 1970.

    APART where it is not one of `only`.
    """
    if by is PartitionBy.NONE:
        return np.zeros(len(timestamps), dtype=np.int64)
    micros: npt.NDArray[np.int64]
    micros = (
        timestamps.cast(pa.timestamp("us", tz="UTC"), safe=False)
        .cast(pa.int64())
        .fill_null(0)
        .to_numpy(zero_copy_only=False)
    )
    numbers = micros // by.micros
    return numbers if only is None else np.where(np.isin(numbers, np.fromiter(only, dtype=np.int64)), numbers, APART)


def folder_name(number: int, by: PartitionBy) -> str:
    """`date=2026-01-01/hour=03`, `date=2026-01-01`, or ''; NO_TIME in the place of each value where the number is
    APART.
    """
    if by is PartitionBy.NONE:
        return ""
    if number == APART:
        return f"date={NO_TIME}/hour={NO_TIME}" if by is PartitionBy.HOUR else f"date={NO_TIME}"
    day, hour = divmod(number, 24) if by is PartitionBy.HOUR else (number, 0)
    date = f"date={np.datetime64(day, 'D')}"
    return f"{date}/hour={hour:02}" if by is PartitionBy.HOUR else date


def is_apart(folder: str) -> bool:
    """Whether it is the folder of APART."""
    return f"={NO_TIME}" in folder


def folder_end_ms(values: "dict[str, str]") -> int | None:
    """When the span of a folder with these partition values ends, in ms since 1970; None where they name no span."""
    try:
        day = np.datetime64(values["date"], "D").astype(np.int64)
        hours = int(day) * 24 + (int(values["hour"]) + 1 if "hour" in values else 24)
    except (KeyError, ValueError):
        return None
    return hours * 3_600_000


@dataclass(frozen=True, slots=True)
class Encoding:
    """What pyarrow's writer is told of a schema's leaf columns."""

    dictionary: list[str]
    delta: dict[str, str]
    statistics: list[str]
    sorted_leaves: tuple[int, ...]
    """The numbers of SORTED_BY among the leaves."""


@lru_cache(maxsize=64)
def encoding(schema: pa.Schema) -> Encoding:
    """Dictionaries for what repeats, deltas for what rises, no statistics for payloads and floats."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    leaves = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    paths = [leaves.column(index).path for index in range(len(leaves))]
    delta = [path for path in paths if path in _DELTA_COLUMNS]
    payload = [path for path in ("value",) if path in paths and types.is_binary(schema.field(path).type)]
    # Parquet's least and greatest leave NaN out, which is above all numbers for DuckDB and Spark: they would pass over
    # it.
    floats = [path for index, path in enumerate(paths) if leaves.column(index).physical_type in ("FLOAT", "DOUBLE")]
    return Encoding(
        dictionary=[path for path in paths if path not in (*delta, *payload)],
        delta=dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        sorted_leaves=tuple(paths.index(column) for column in SORTED_BY),
        statistics=[path for path in paths if path not in (*payload, *floats) and not path.startswith("headers.")],
    )
