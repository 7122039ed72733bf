"""The data source `bmq`: topics read from manifests and segments, straight from the bucket or folder, without the brokers."""

from bmq_spark.source.data_source import BmqDataSource, register

__all__ = ["BmqDataSource", "register"]
