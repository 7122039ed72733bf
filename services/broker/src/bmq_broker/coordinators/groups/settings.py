"""What an operator can set about consumer groups, with Kafka's names and defaults where Kafka has them."""

from dataclasses import dataclass

from bmq.config.limits import Limits

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Times in milliseconds, sizes in bytes."""

    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms: how long an empty group waits for more members before its first generation."""
    session_timeout_ms_min: int = 6_000
    """group.min.session.timeout.ms"""
    session_timeout_ms_max: int = 30 * _MINUTE_MS
    """group.max.session.timeout.ms"""
    group_size_max: int = 5_000
    """group.max.size: members of one group, and joins held for it."""
    group_count_max: int = 100_000
    """Groups in one partition of `__consumer_offsets`, also those that only have offsets; clients at one address make
    no more than they leave."""
    group_name_bytes_max: int = 1_024
    """The name of a group that is not there yet; those that are there go on."""
    protocols_max: int = 100
    """Protocols that a member may offer."""
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    """How long the first join of a member is held: it cannot heartbeat yet, so nothing else shows that it is gone."""
    offset_metadata_max: int = 4_096
    """offset.metadata.max.bytes, in characters as Kafka counts it."""
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    """offsets.retention.minutes"""
    offsets_check_interval_ms: int = 10 * _MINUTE_MS
    """offsets.retention.check.interval.ms"""
    record_size_bytes_max: int = 1024 * 1024
    """The largest group metadata record; a larger assignment is refused, and a member that alone says more."""
    append_size_bytes_max: int = 512 * 1024
    """Records are appended in batches of about this size."""
    snapshot_record_interval: int = 10_000
    """A snapshot is taken each time this many records were appended."""
    snapshot_byte_interval: int = 16 * 1024 * 1024
    """... or this many bytes of keys and values."""
    members_bytes_max: int = 256 * 1024 * 1024
    """What members say and are called, of all groups of a broker together; whoever would make it more is told to try
    again."""
    stored_bytes_max: int = 512 * 1024 * 1024
    """Committed offsets and stored generations of all groups of a broker together, as they are in memory; those that
    are there go on above it. Clients at one address store no more than they leave."""
    stored_burst_bytes: int = 128 * 1024 * 1024
    """The same that clients at one address may add at once."""
    stored_per_minute_bytes: int = 8 * 1024 * 1024
    """... and in a minute, after that."""
    rewritten_burst_bytes: int = 64 * 1024 * 1024
    """Stored generations that clients at one address may have written anew at once, by rebalances and by static members
    that come back."""
    rewritten_per_minute_bytes: int = 64 * 1024 * 1024
    """... and in a minute, after that."""
    described_bytes_max: int = 4 * 1024 * 1024
    """Names, metadata and assignments that one answer to DescribeGroups has; the first group comes whole, if it could
    be stored."""
    fetched_bytes_max: int = 4 * 1024 * 1024
    """Offsets and their metadata in one answer to OffsetFetch; the first group comes whole."""
    metadata_bytes_max: int = 8 * 1024 * 1024
    """Metadata of all offsets of one group."""
    waiting_max: int = 20_000
    """Requests of one partition that may wait for an answer; more are told to try again."""
    undurable_bytes_max: int = 16 * 1024 * 1024
    """Records that may wait for the store before requests are told to try again."""

    @classmethod
    def within(cls, limits: Limits) -> "GroupSettings":
        """The defaults with what was set of the limits of a single client."""
        return cls(
            group_count_max=limits.groups_per_partition_max,
            group_name_bytes_max=limits.group_name_bytes_max,
            protocols_max=limits.group_protocols_max,
            members_bytes_max=limits.group_members_bytes_max,
            stored_bytes_max=limits.groups_stored_bytes_max,
            stored_burst_bytes=limits.groups_stored_burst_bytes,
            stored_per_minute_bytes=limits.groups_stored_bytes_per_minute,
            rewritten_burst_bytes=limits.groups_rewritten_burst_bytes,
            rewritten_per_minute_bytes=limits.groups_rewritten_bytes_per_minute,
            described_bytes_max=limits.described_groups_bytes_max,
            fetched_bytes_max=limits.fetched_offsets_bytes_max,
            metadata_bytes_max=limits.group_metadata_bytes_max,
        )
