"""From a job's options, and from what a table has already, to the decoders of keys and values."""

from dataclasses import replace
from typing import Final

import pyarrow as pa

from bmq_spark.batches.records import Typing
from bmq_spark.errors import ConfigurationError, JobStopped
from bmq_spark.options import JobOptions
from bmq_spark.values import SchemaBreaks, decoder, merge_types, read_schema

NO_COLUMNS = pa.struct([])
_OTHER: Final = "give the option the value that the table was made with, or name another table"


def is_inferred(options: JobOptions) -> bool:
    """Whether the columns of the values come from the values."""
    return options.format == "json" and options.schema is None


def typing_of(options: JobOptions, known: pa.Schema | None = None) -> Typing:
    """How records become rows of a table whose schema is `known`. Reads the schema; a registry's subject is that of the
    first topic.

    Raises ConfigurationError where --schema takes something away from what the table has, JobStopped where the
    registry's newest schema does.
    """
    have = None if known is None or "value" not in known.names else known.field("value").type
    if is_inferred(options):
        if have is not None and not pa.types.is_struct(have):
            raise ConfigurationError(
                f"--format json: the table has {have} values, which were made with another --format: {_OTHER}"
            )
        return inferred(
            Typing(key=decoder(options.key_format), value=decoder("bytes"), columns=NO_COLUMNS), have or NO_COLUMNS
        )
    value = decoder(
        options.format,
        schema=read_schema(options.schema) if options.schema else None,
        registry=options.registry,
        subject=f"{options.topics[0]}-value" if options.registry and options.schema is None else None,
        message=options.message,
        columns=have if have is not None and pa.types.is_struct(have) else None,
    )
    try:
        columns = value.arrow_type if have is None else merge_types(have, value.arrow_type)
    except SchemaBreaks as error:
        if options.schema:
            raise ConfigurationError(f"--schema {options.schema}: {error}") from error
        if not options.registry:
            raise ConfigurationError(
                f"--format {options.format}: {str(error).partition(', which')[0]}: {_OTHER}"
            ) from error
        raise JobStopped(
            f"registry {options.registry}, subject {options.topics[0]}-value: {error}; or keep the columns by the "
            "former schema as --schema FILE_OR_URI: then what does not fit goes to the dead letters"
        ) from error
    return Typing(key=decoder(options.key_format), value=value, columns=columns)


def inferred(typing: Typing, columns: pa.DataType) -> Typing:
    """The same with these columns for JSON values without a schema."""
    return replace(typing, value=decoder("json", columns=columns), columns=columns)
