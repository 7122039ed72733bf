"""From a format's name and what is known of its schema to its decoder.

Avro, Protobuf and the registry's client are imported where they are asked for: half a second of CPU that each worker of
another format saves.
"""

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bmq_spark.errors import ConfigurationError
from bmq_spark.values.decoded import Decoder
from bmq_spark.values.json_inferred import InferredJsonDecoder
from bmq_spark.values.json_records import JsonDecoder
from bmq_spark.values.json_schema import read_json_schema
from bmq_spark.values.plain import BytesDecoder, StringDecoder
from bmq_spark.values.schema_files import SchemaFile

if TYPE_CHECKING:
    from bmq_spark.values.registry import RegisteredSchema, Registry

FORMATS: Final = ("bytes", "string", "json", "avro", "protobuf")


def decoder(
    value_format: str,
    *,
    schema: SchemaFile | None = None,
    columns: pa.DataType | None = None,
    registry: str | None = None,
    subject: str | None = None,
    message: str | None = None,
) -> Decoder:
    """`columns` are a struct: from inference.settle, for JSON without a schema; of the table, with `subject`: what
    records have of these is read though the newest version has it no more. `message` names one of a Protobuf schema
    that has several.

    With `registry` (a URL), Avro and Protobuf are in the wire format; `subject`'s newest version makes the columns
    unless `schema` does.

    Raises ConfigurationError, in one line, for a schema that is missing, broken, or of no use to the format;
    RegistryUnavailable, SchemaUnknown.
    """
    made = _decoder(
        value_format, schema=schema, columns=columns, found=_registry(registry), subject=subject, message=message
    )
    check_names(made.arrow_type, schema.name if schema is not None else f"{registry} {subject}")
    return made


def check_names(arrow_type: pa.DataType, name: str, path: str = "") -> None:
    """Spark and DuckDB do not tell columns apart by case, and Parquet has no object without fields within another.
    Raises ConfigurationError.
    """
    if pa.types.is_struct(arrow_type):
        if path and not arrow_type.num_fields:
            raise ConfigurationError(
                f"schema {name}: {path.rstrip('.')} is an object without fields, which no column can be: leave it out"
            )
        seen: dict[str, str] = {}
        for field in arrow_type:
            first = seen.get(field.name.lower())
            if first is not None:
                alike = "differ by case alone" if first != field.name else "have one name"
                raise ConfigurationError(
                    f"schema {name}: fields {path}{first} and {path}{field.name} {alike}: rename one, or use "
                    "format bytes"
                )
            seen[field.name.lower()] = field.name
            check_names(field.type, name, f"{path}{field.name}.")
    elif pa.types.is_list(arrow_type):
        check_names(arrow_type.value_type, name, path)
    elif pa.types.is_map(arrow_type):
        check_names(arrow_type.item_type, name, path)


def _decoder(
    value_format: str,
    *,
    schema: SchemaFile | None,
    columns: pa.DataType | None,
    found: "Registry | None",
    subject: str | None,
    message: str | None,
) -> Decoder:
    match value_format:
        case "bytes" | "string" | "json" if found is not None:
            raise ConfigurationError(
                f"registry {found.url}: format {value_format} does not use one: leave it away, or choose avro or "
                "protobuf"
            )
        case "bytes" | "string" if schema is not None:
            raise ConfigurationError(
                f"schema {schema.name}: format {value_format} has none: leave the schema away, or choose json, "
                "avro or protobuf"
            )
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
        case "avro":
            return _avro(schema, found, subject, columns)
        case "protobuf":
            return _protobuf(schema, found, subject, message, columns)
    raise ConfigurationError(f"format {value_format!r}: not known: choose one of {', '.join(FORMATS)}")


def _registry(url: str | None) -> "Registry | None":
    if url is None:
        return None
    from bmq_spark.values.registry import Registry

    return Registry.parse(url)


def _avro(
    schema: SchemaFile | None, registry: "Registry | None", subject: str | None, kept: pa.DataType | None
) -> Decoder:
    from bmq_spark.values.avro_records import AvroDecoder, read_avro_schema, registered_reader

    if schema is not None:
        return AvroDecoder(read_avro_schema(schema), registry)
    registry, registered, name = _newest("avro", registry, subject)
    return AvroDecoder(registered_reader(registry, registered, name), registry, registered.id, kept)


def _protobuf(
    schema: SchemaFile | None,
    registry: "Registry | None",
    subject: str | None,
    message: str | None,
    kept: pa.DataType | None,
) -> Decoder:
    from bmq_spark.values.protobuf_files import read_protobuf_schema
    from bmq_spark.values.protobuf_records import protobuf_decoder, registered_protobuf

    if schema is not None:
        return protobuf_decoder(*read_protobuf_schema(schema, message), registry, schema.name)
    registry, registered, name = _newest("protobuf", registry, subject)
    return protobuf_decoder(
        *registered_protobuf(registry, registered, message, name), registry, name, version=registered.id, kept=kept
    )


def _newest(
    value_format: str, registry: "Registry | None", subject: str | None
) -> "tuple[Registry, RegisteredSchema, str]":
    """The registry, the subject's newest schema, and what to call it."""
    if registry is None or subject is None:
        raise ConfigurationError(f"format {value_format}: neither a schema nor a registry: give one of them")
    registered = registry.latest(subject)
    if registered.kind != value_format.upper():
        raise ConfigurationError(
            f"registry {registry.url}: subject {subject} is {registered.kind}: choose that format, or another subject"
        )
    return registry, registered, f"{registry.url} subject {subject}"
