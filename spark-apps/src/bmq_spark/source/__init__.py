"""The data source `bmq`: topics read from manifests and segments, straight from the bucket or folder, without the
brokers.
"""

from collections.abc import Mapping
from typing import Any

from bmq_spark.source.data_source import BmqDataSource, register

__all__ = ["BmqDataSource", "end_of", "reached", "register"]


def end_of(options: Mapping[str, str]) -> dict[str, Any]:
    """Where the topics end now, for the options of a stream, as its offsets' JSON: what a run that is to end has to
    read.

    Raises ConfigurationError, SourceFailed.
    """
    from bmq_spark.source import stream  # not needed in the processes that Spark starts: see data_source

    return stream.end_of(options)


def reached(offsets: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Whether a stream with these offsets has read everything below `end`."""
    from bmq_spark.source import positions

    return positions.reached(dict(offsets), dict(end))
