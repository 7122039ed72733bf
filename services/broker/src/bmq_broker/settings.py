"""A broker's settings. Sizes in bytes, times in milliseconds."""

from dataclasses import dataclass
from typing import Literal

from bmq.clocks.clock_guard import SETTLE_MS

MIB = 1024 * 1024

LagMetrics = Literal["partition", "topic", "group", "off"]
"""For each of what a group's lag is a series of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The defaults suit one process over a local folder."""

    linger_ms: float = 5.0
    """How long a batch may wait for company before its WAL object is sent; 100 to 250 is the cheap profile on S3."""
    eager: bool = True
    """Whether a batch that finds nothing in flight waits only for those just answered; False: WAL objects are at least
    `linger_ms` apart."""
    flush_bytes: int = 4 * MIB
    """A WAL object is sent at this size."""
    flush_runs_max: int = 10_000
    """A WAL object holds runs of at most this many partitions."""
    buffer_max_bytes: int = 256 * MIB
    """What batches that wait to become durable may take in memory; above it they are refused until the store has
    written some."""
    in_flight_max: int = 8
    """WAL creates in flight."""
    hedge_creates: bool = True
    """Whether a WAL create that is slower than usual is sent a second time; of no use where the store is one disk."""
    tail_budget_bytes: int = 128 * MIB
    """What the batches of all partitions take in memory that are not yet in segments; above it the largest tail is
    rolled."""
    tail_limit_bytes: int = 256 * MIB
    """Above it nothing more is sent to the WAL until rolls have caught up."""
    wal_budget_bytes: int = 256 * MIB
    """WAL objects kept; above it the partitions that pin the oldest are carried forward or rolled."""
    wal_objects_max: int = 1_000
    """WAL objects kept, however small: an heir reads them one by one, and nothing is written to their partitions
    meanwhile."""
    stopped_retry_ms: int = 10_000
    """A partition that stopped for what is missing or damaged in the store is looked at again after so long: its roll
    is tried, or its WAL read. What cannot be read is looked at less often the longer it lasts."""
    carry_bytes_max: int = 128 * 1024
    """Tails of at most this size are carried forward: written to the WAL once more instead of rolled."""
    carry_share: float = 0.25
    """How many bytes may be carried for each byte appended. A quarter keeps 64 MiB of quiet tails out of segments."""
    carry_parts: int = 512
    """A tail is carried if it is at most this part of what may be carried now: so the smaller ones still are when that
    becomes short."""
    carry_chunk_bytes: int = 4 * MIB
    """What is carried of one tail at a time; the next part goes when that is durable, for a slow store takes no larger
    object in a create's time."""
    shared_below_bytes: int = 1 * MIB
    """Tails below this size that are rolled at the same time share a segment."""
    pending_bytes_max: int = 16 * MIB
    """What may wait for partitions that are being opened: not more than a proxy's connection has room for, or what
    waits there would keep it from sending to partitions that are open."""
    roll_concurrency: int = 2
    """Rolls at a time."""
    open_concurrency: int = 32
    """Partitions opened at a time."""
    inherited_roll_ms: int = 10_000
    """What was inherited of a living broker's WAL is rolled this long after: until then that broker cannot delete
    it."""
    clock_settle_ms: int = SETTLE_MS
    """Nothing is deleted by age for so long after the machine's clock jumped, and the store's with it."""
    loads_max: int = 1_000
    """A heartbeat tells the bytes per second of so many partitions, the busiest."""
    ranges_max: int = 4
    """A partition that names this many earlier streams is rolled, so that its image and its recovery stay short."""
    stop_roll_bytes: int = 1 * MIB
    """A clean stop, and a planned move, roll tails of this size and more first."""
    stop_timeout_ms: int = 15_000
    """How long a clean stop waits for the store; what it does not manage the next start recovers."""
    producer_expiry_ms: int = 86_400_000
    """An idempotent producer that wrote nothing for this long is forgotten."""
    producers_per_partition: int = 10_000
    """Idempotent producers that a partition remembers for longer than an upkeep interval; those seen last. Of batches
    beyond the last few of each (producers.KEPT_BATCHES) it may have that many times as many."""
    producers_per_broker: int = 300_000
    """The same of all partitions together."""
    false_batches_per_look_up: int = 8
    """Batches without the time that their headers say, which one look-up by time opens before it believes headers."""
    upkeep_interval_ms: int = 5_000
    """How often age, retention, merges and reports are looked at."""
    retention_interval_ms: int = 60_000
    """How often retention by time and size is applied."""
    segment_linger_ms: int = 600_000
    """How long a segment that no manifest names any more is kept for readers."""
    merge_below_bytes: int = 32 * MIB
    """Segments of this size and more are never merged."""
    merge_target_bytes: int = 64 * MIB
    """What one merge makes at most; it holds as much in memory."""
    merge_count: int = 8
    """So many small segments in a row are merged into one."""
    manifest_entries_max: int = 1_024
    """So many segments stand in a manifest itself, at least 2 and at most 1024; with one more, the older half moves to
    a page."""
    shared_look_ms: int = 600_000
    """How often it is looked which shared segments may go."""
    shared_look_ms_max: int = 21_600_000
    """How rarely, where the store has to be asked for it: because the partitions are other brokers' now."""
    collect_again_ms: int = 86_400_000
    """How often a partition's objects are listed for what nobody names: what was on its way when they were listed
    before."""
    lag_metrics: LagMetrics = "topic"
    """For each of what the lag of consumer groups is told as metrics."""
    lease_ms: int = 6_000
    """An idle owner checks at most this often that it is not sealed. Heartbeats come three times as often, until the
    controller says otherwise."""
