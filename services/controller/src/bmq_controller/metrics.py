"""The controller's metrics."""

import contextlib
from collections.abc import Collection, Mapping

from prometheus_client import Counter, Gauge, Histogram

OPERATIONS = Counter("bmq_controller_operations", "Operations answered, by kind and outcome.", ["operation", "outcome"])
ENTRIES = Counter("bmq_metadata_entries", "Metadata log entries committed by this leader.")
RECORDS = Counter("bmq_metadata_records", "Metadata records committed by this leader.")
ENTRY_BYTES = Histogram(
    "bmq_metadata_entry_bytes", "Size of committed entries.", buckets=[2**n for n in range(6, 27, 2)]
)
COMMIT_SECONDS = Histogram(
    "bmq_metadata_commit_seconds",
    "Time to make an entry durable.",
    buckets=[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60],
)
WAITING = Gauge("bmq_controller_operations_waiting", "Operations that wait for an entry.")
LEADING = Gauge("bmq_controller_leading", "1 while this process leads the controllers.")
POSITION = Gauge("bmq_metadata_position", "The number of the newest metadata entry in the image.")
TOPICS = Gauge("bmq_topics", "Topics.")
LANES = Gauge("bmq_lanes", "Lanes.")
PARTITIONS = Gauge("bmq_cluster_partitions", "Partitions, by whether a broker owns them.", ["owned"])
NODES = Gauge("bmq_nodes", "Registered nodes.")
SNAPSHOTS = Counter("bmq_metadata_snapshots", "Snapshots taken.")
SNAPSHOT_BYTES = Gauge("bmq_metadata_snapshot_bytes", "Size of the newest snapshot taken.")
COLLECTED = Counter("bmq_collected_objects", "Objects deleted of dropped streams and deleted topics.", ["kind"])
EPOCH = Gauge("bmq_controller_epoch", "The epoch under which this process leads or has led last.")
TAKEOVERS = Counter(
    "bmq_controller_takeovers", "Times that this process, as a standby, tried to take over, by outcome.", ["outcome"]
)
DEPOSED = Counter("bmq_controller_deposed", "Times that this process was deposed.")
HEARTBEATS = Counter("bmq_controller_heartbeats", "Heartbeats answered, by outcome.", ["outcome"])
FENCINGS = Counter(
    "bmq_controller_fencings",
    "Silent nodes: brokers whose fencing was begun or completed, others that were unregistered.",
    ["step"],
)
for _step in ("begun", "completed", "unregistered"):
    FENCINGS.labels(_step)  # told as 0 from the start: of a series that begins with 1 Prometheus sees no increase
LANE_TOPICS = Gauge(
    "bmq_controller_lane_topics", "Topics that a lane has of its own, as the leading controller knows.", ["lane"]
)
LANE_PARTITIONS = Gauge(
    "bmq_controller_lane_partitions",
    "Partitions of a lane that falls back by whose turn it is (lane, closing, base), as the leading controller knows.",
    ["lane", "turn"],
)
MOVING = Gauge("bmq_partitions_moving", "Partitions under a planned move.")
BALANCED = Counter("bmq_controller_balanced", "Moves begun by the balancer, by what for.", ["kind"])


def tell_turns(lane: str, counts: Mapping[str, int]) -> None:
    """How many partitions of the lane are whose."""
    for turn, count in counts.items():
        LANE_PARTITIONS.labels(lane, turn).set(count)


def forget_lane(lane: str, turns: Collection[str]) -> None:
    """The lane is gone."""
    LANE_TOPICS.remove(lane)
    for turn in turns:
        with contextlib.suppress(KeyError):  # it did not fall back
            LANE_PARTITIONS.remove(lane, turn)
