"""From a job's options to the decoders of its keys and values."""

import pyarrow as pa

from bmq_spark.jobs.records import Typing
from bmq_spark.options import JobOptions
from bmq_spark.values import decoder, read_schema


def is_inferred(options: JobOptions) -> bool:
    """Whether the columns of the values come from the values."""
    return options.format == "json" and options.schema is None


def typing_of(options: JobOptions, columns: pa.DataType | None = None) -> Typing:
    """Reads the schema; `columns` are those of JSON without one, none yet where it is None.

    A registry's subject is that of the first topic. Raises ConfigurationError.
    """
    value = decoder(
        options.format,
        schema=read_schema(options.schema) if options.schema else None,
        columns=(columns if columns is not None else pa.struct([])) if is_inferred(options) else None,
        registry=options.registry,
        subject=f"{options.topics[0]}-value" if options.registry and options.schema is None else None,
        message=options.message,
    )
    return Typing(key=decoder(options.key_format), value=value)
