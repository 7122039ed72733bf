"""The operator's own metrics."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

RECONCILES: Final = Counter(
    "bmq_operator_reconciles_total", "Looks at a resource, by kind and by what they came to.", ("kind", "result")
)
RECONCILE_SECONDS: Final = Histogram(
    "bmq_operator_reconcile_seconds",
    "How long one look at a resource took.",
    ("kind",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
WAIT_SECONDS: Final = Histogram(
    "bmq_operator_wait_seconds",
    "How long a resource waited for a worker after it was due.",
    ("kind",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
EVENTS: Final = Counter(
    "bmq_operator_watch_events_total",
    "What the API server told of resources and of what belongs to them, by kind.",
    ("kind",),
)
RESOURCES: Final = Gauge(
    "bmq_operator_resources", "Resources at the last resync, by kind and the status of Ready.", ("kind", "ready")
)
QUEUE_DEPTH: Final = Gauge("bmq_operator_queue_depth", "Resources that are due and wait for a worker.")
LAST_EVENT_AGE: Final = Gauge(
    "bmq_operator_last_event_age_seconds", "How long ago the API server told anything at all; -1: not yet."
)
UNHEARD_SECONDS: Final = Gauge(
    "bmq_operator_unheard_seconds", "For how long a change that a resync found has not been told by a watch; 0: none."
)
LEADER: Final = Gauge("bmq_operator_leader", "1 where this operator leads.")
STATUS_WRITES: Final = Counter("bmq_operator_status_writes_total", "Statuses written, by kind.", ("kind",))
TABLES: Final = Gauge(
    "bmq_operator_tables",
    "Resources with tables at the last resync, by kind and the status of Ready or ParquetReady.",
    ("kind", "ready"),
)
STREAMS_BEGUN_ANEW: Final = Counter(
    "bmq_operator_streams_begun_anew_total",
    "Streams that write tables, ended and were begun anew, by the kind of their resource.",
    ("kind",),
)
DATABUS_PODS: Final = Counter(
    "bmq_operator_databus_pods_total",
    "Pods that asked for a sidecar of Databus, by what came of it: injected, refused, there (it has one), failed.",
    ("result",),
)
DATABUS_CERTIFICATE_SECONDS: Final = Gauge(
    "bmq_operator_databus_certificate_seconds",
    "For how long the certificate of the webhook that injects sidecars is valid yet; it is renewed a month before.",
)


def forget_counted() -> None:
    """Forgets what was counted of what is there, which the one that leads tells alone: another one that still did would
    have the sums twice, and alerts for ever.
    """
    RESOURCES.clear()
    TABLES.clear()
    QUEUE_DEPTH.set(0)
