"""Value formats: records' values and keys as typed Arrow arrays, record by record, so that one that does not fit stops nothing.

Nothing here knows Spark or tables: arrays in, arrays out. What others use is named here; the modules beside it are this package's own.
"""

from bmq_spark.values.decoded import Decoded, Decoder
from bmq_spark.values.formats import FORMATS, decoder
from bmq_spark.values.schema_files import SchemaFile, read_schema

__all__ = ["FORMATS", "Decoded", "Decoder", "SchemaFile", "decoder", "read_schema"]
