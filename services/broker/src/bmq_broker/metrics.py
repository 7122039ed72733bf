"""The broker's metrics."""

from prometheus_client import Counter, Gauge, Histogram

FLUSH_BYTES = Histogram("bmq_flush_bytes", "Size of WAL objects.", buckets=[2**n for n in range(10, 25)])
FLUSH_SECONDS = Histogram(
    "bmq_flush_seconds",
    "Time to make a WAL object durable.",
    buckets=[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60],
)
WAL_BYTES = Gauge("bmq_wal_bytes", "WAL bytes that segments do not cover yet.")
TAIL_BYTES = Gauge(
    "bmq_tail_bytes", "What batches that no segment holds yet take in memory: their bytes and what keeping them costs."
)
BUFFERED_BYTES = Gauge(
    "bmq_buffered_bytes",
    "What batches that are not durable yet take in memory: their bytes and what keeping them costs.",
)
PARTITIONS = Gauge("bmq_partitions", "Partitions by state.", ["state"])
APPENDED_BYTES = Counter("bmq_appended_bytes", "Bytes of record batches that got offsets.")
APPENDED_RECORDS = Counter("bmq_appended_records", "Records that got offsets.")
UNREADABLE_BATCHES = Counter(
    "bmq_unreadable_batches", "Look-ups by time that passed over a batch that cannot be opened."
)
ROLLS = Counter("bmq_rolls", "Segments written, by cause.", ["cause"])
ROLLED_BYTES = Counter("bmq_rolled_bytes", "Bytes of record batches written to segments.")
CARRIED_BYTES = Counter(
    "bmq_carried_bytes", "Bytes of record batches written to the WAL once more, so that older objects may go."
)
MERGES = Counter("bmq_merges", "Small segments merged.")
DELETED_SEGMENTS = Counter("bmq_deleted_segments", "Segments deleted by retention, DeleteRecords or merges.")
RECOVERED_BYTES = Counter("bmq_recovered_bytes", "Bytes of WAL objects read by recovery.")
