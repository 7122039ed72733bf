"""The data source `bmq`: topics read from manifests and segments, straight from the bucket or folder, without the brokers."""

from bmq_spark.source.data_source import BmqDataSource, register
from bmq_spark.source.stream import end_of, reached

__all__ = ["BmqDataSource", "end_of", "reached", "register"]
