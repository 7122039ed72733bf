"""From a format's name and what is known of its schema to its decoder."""

from typing import Final

import pyarrow as pa

from bmq_spark.errors import ConfigurationError
from bmq_spark.values.decoded import Decoder
from bmq_spark.values.json_inferred import InferredJsonDecoder
from bmq_spark.values.json_records import JsonDecoder
from bmq_spark.values.json_schema import read_json_schema
from bmq_spark.values.plain import BytesDecoder, StringDecoder
from bmq_spark.values.schema_files import SchemaFile

FORMATS: Final = ("bytes", "string", "json", "avro", "protobuf")


def decoder(value_format: str, *, schema: SchemaFile | None = None, columns: pa.DataType | None = None) -> Decoder:
    """`columns` are a struct from inference.settle, for JSON without a schema.

    Raises ConfigurationError, in one line, for a schema that is missing, broken, or of no use to the format."""
    match value_format:
        case "bytes" | "string" if schema is not None:
            raise ConfigurationError(f"schema {schema.name}: format {value_format} has none: leave the schema away, or choose json, avro or protobuf")
        case "bytes":
            return BytesDecoder()
        case "string":
            return StringDecoder()
        case "json" if schema is not None:
            return JsonDecoder(read_json_schema(schema))
        case "json" if columns is not None:
            return InferredJsonDecoder(columns)
        case "json":
            raise ConfigurationError("format json: neither a schema nor inferred columns: give a schema")
    raise ConfigurationError(f"format {value_format!r}: not known: choose one of {', '.join(FORMATS)}")
