"""Records as a table's columns: keys and values decoded, and for those that do not fit the reason. Arrow in, Arrow out;
Spark only carries it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bmq_spark.table.layout import HEADERS, TIMESTAMP
from bmq_spark.values import Decoder, Observation, RegisteredDecoder, conform, observe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE: Final = [
    pa.field("headers", HEADERS),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("lane", pa.string()),
]
ADDRESS: Final = ("topic", "partition", "offset")
"""Unique together."""
REASON: Final = pa.field("reason", pa.string())
DEAD_LETTERS: Final = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary()), *PLACE, REASON])


@dataclass(frozen=True, slots=True, kw_only=True)
class Typing:
    """How records become rows; it is sent to the workers."""

    key: Decoder
    value: Decoder
    columns: pa.DataType
    """The type of the column `value`: the decoder's, or a wider one that the table has."""

    @property
    def schema(self) -> pa.Schema:
        """A row's columns. An object without fields is none: Parquet does not know it."""
        value = [] if self.columns == pa.struct([]) else [pa.field("value", self.columns)]
        return pa.schema([pa.field("key", self.key.arrow_type), *value, *PLACE])

    @property
    def follows(self) -> bool:
        """Whether the columns are those of a registry's subject, which may have newer versions."""
        return isinstance(self.value, RegisteredDecoder) and self.value.version is not None

    def writers(self, records: pa.RecordBatch) -> pa.Array:
        """The ids of the schemas of records that `rows` was given, as RegisteredDecoder.writers; where columns follow
        none, null.
        """
        if isinstance(self.value, RegisteredDecoder) and self.follows:
            return self.value.writers(records.column("value"))
        return pa.nulls(records.num_rows, pa.int32())

    def rows(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """The rows, as many as there are records, and the reasons of those that do not fit (else null)."""
        keys, values = self.key.decode(records.column("key")), self.value.decode(records.column("value"))
        reasons = _either(keys.reasons, values.reasons)
        value = [] if self.columns == pa.struct([]) else [conform(values.values, self.columns)]
        rows = pa.RecordBatch.from_arrays([keys.values, *value, *place_columns(records)], schema=self.schema)
        return rows, reasons


def place_columns(records: pa.RecordBatch) -> list[pa.Array]:
    """The columns PLACE of records in any order of columns."""
    return [_headers(records.column("headers")), *(records.column(field.name).cast(field.type) for field in PLACE[1:])]


def dead_letters(records: pa.RecordBatch, reasons: pa.Array, which: pa.Array) -> pa.RecordBatch:
    """Those `which` do not fit, as bytes, with the reason."""
    columns = [
        records.column("key").cast(pa.binary()),
        records.column("value").cast(pa.binary()),
        *place_columns(records),
        reasons,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTERS).filter(which)


def observed(records: pa.RecordBatch, reasons: pa.Array) -> Observation:
    """What the values that do not fit have that could become columns."""
    import pyarrow.compute as pc

    unfit = records.select(["value", *ADDRESS]).filter(reasons.is_valid())
    return observe(
        unfit.column("value"),
        pc.binary_join_element_wise(*(unfit.column(name).cast(pa.string()) for name in ADDRESS), "/"),
    )


def typed(records: "DataFrame", how: Typing) -> "DataFrame":
    """Table columns and `reason`, which is null where a record fits; where it does not, `key` and `value` are null."""

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows, reasons = how.rows(batch)
            yield pa.RecordBatch.from_arrays([*rows.columns, reasons], schema=rows.schema.append(REASON))

    from pyspark.sql.pandas.types import from_arrow_schema

    return records.mapInArrow(decode, from_arrow_schema(how.schema.append(REASON)))


def _either(first: pa.Array, second: pa.Array) -> pa.Array:
    if first.null_count == len(first):
        return second
    import pyarrow.compute as pc

    return pc.coalesce(second, first)


def _headers(headers: pa.Array) -> pa.Array:
    """No headers are an empty list, whichever source it came from."""
    if not headers.null_count and headers.type == HEADERS:
        return headers
    if headers.null_count == len(headers):
        return pa.ListArray.from_arrays(
            pa.array([0] * (len(headers) + 1), type=pa.int32()), pa.array([], type=HEADERS.value_type)
        )
    return pa.array([found or [] for found in headers.to_pylist()], type=HEADERS)
