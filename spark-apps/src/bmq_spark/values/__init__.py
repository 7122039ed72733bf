"""Value formats: records' values and keys as typed Arrow arrays, record by record, so that one that does not fit stops
nothing.

Nothing here knows Spark or tables: arrays in, arrays out. What others use is named here; the modules beside it are this
package's own.
"""

from bmq_spark.values.column_paths import collision
from bmq_spark.values.ddl import read_ddl, write_ddl
from bmq_spark.values.decoded import Decoded, Decoder
from bmq_spark.values.evolution import (
    SchemaBreaks,
    conform,
    iceberg_rules,
    json_rules,
    merge,
    merge_types,
    parquet_rules,
)
from bmq_spark.values.formats import FORMATS, decoder
from bmq_spark.values.inference import infer, observe, settle
from bmq_spark.values.json_seen import Observation
from bmq_spark.values.registered import RegisteredDecoder
from bmq_spark.values.schema_files import SchemaFile, read_schema

__all__ = [
    "FORMATS",
    "Decoded",
    "Decoder",
    "Observation",
    "RegisteredDecoder",
    "SchemaBreaks",
    "SchemaFile",
    "collision",
    "conform",
    "decoder",
    "iceberg_rules",
    "infer",
    "json_rules",
    "merge",
    "merge_types",
    "observe",
    "parquet_rules",
    "read_ddl",
    "read_schema",
    "settle",
    "write_ddl",
]
