"""What an operator may set of a proxy. Defaults work; a value that cannot is refused with its key and a remedy."""

from dataclasses import dataclass, field, fields

from bmq.config.limits import Limits
from bmq.errors import ConfigurationError, InvalidRequest
from bmq.naming.lanes import check_lane_name

MIB = 1 << 20
MAY_BE_0 = (
    "node_id",
    "advertised_port",
    "read_ahead_blocks",
    "produce_retry_ms",
    "slow_request_ms",
    "write_timeout_ms_min",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Sizes in bytes, times in ms, as their names say."""

    node_id: int = 1
    """The id under which Metadata names this proxy."""
    advertised_host: str = "127.0.0.1"
    """Where clients reach this proxy; Metadata hands it to them."""
    advertised_port: int = 0
    """0: the port that it listens on."""
    lane: str = ""
    """The lane that this proxy serves alone; empty: the base, and the lane of whoever names one in its client.id."""
    auto_create_topics: bool = True
    """Whether asking Metadata for a topic that does not exist makes it."""
    offsets_topic_partitions: int = 16
    """Partitions of `__consumer_offsets` when it is first needed. It cannot be changed afterwards."""
    connections_max: int = 20_000
    """For a further connection one of the address that has most is closed, or itself."""
    connection_idle_ms_max: int = 600_000
    """A connection without a request for so long is closed (connections.max.idle.ms)."""
    slow_request_ms: int = 5_000
    """A request that takes so long is logged; 0: none is."""
    write_stall_ms_max: int = 600_000
    """A connection whose peer does not read its responses for so long is closed: a consumer may work on what it has
    while its next records are on their way. Where memory is short, who takes nothing is cut off in seconds."""
    requests_in_flight_max: int = 64
    """Requests of one connection that were read and not answered; further ones are not read."""
    request_memory_bytes: int = 128 * MIB
    """Request frames held by all connections; above it none is read, and none of an address that holds three times what
    is free."""
    fetch_memory_bytes: int = 128 * MIB
    """Records on their way to consumers, from being read until the client's socket took them."""
    fetch_bytes_max: int = 64 * MIB
    """Most bytes of one Fetch response, whatever the client asks for."""
    fetch_sessions_max: int = 1_000
    """Incremental fetch sessions (max.incremental.fetch.session.cache.slots)."""
    fetch_session_partitions_max: int = 500_000
    """Partitions of all fetch sessions together."""
    fetch_session_eviction_ms: int = 120_000
    """A fetch session unused for so long makes room for a new one."""
    tail_cache_bytes: int = 32 * MIB
    """Segment blocks kept for readers near the end of the log; they may use what those far behind do not, and the other
    way round."""
    catch_up_cache_bytes: int = 64 * MIB
    """Segment blocks kept for readers far behind."""
    cache_idle_ms: int = 300_000
    """A segment block that nobody reads goes after this time, and before twice of it."""
    read_ahead_blocks: int = 8
    """1 MiB blocks that are read before a sequential reader asks for them."""
    catch_up_gets_at_once: int = 16
    """Requests to the store for readers far behind; few where the store is one disk, which writes wait for too."""
    index_cache_bytes: int = 16 * MIB
    """Offset indexes of segments."""
    manifest_cache_entries: int = 50_000
    """Segments named by the manifests that are kept."""
    metadata_cache_bytes: int = 16 * MIB
    """Encoded Metadata responses."""
    produce_retry_ms: int = 30_000
    """A batch that was certainly not applied is sent again for at most so long, within the request's own time."""

    lane_look_ms: int = 5_000
    """How often a lane that falls back is looked at: whether anybody consumes there."""
    store_wait_ms: int = 10_000
    """What owners and coordinators need of the store is waited for so long; then the client is told to ask again."""
    write_timeout_ms_min: int = 10_000
    """What an owner has of a Produce or a DeleteRecords is waited for at least so long, however short the request's own
    time."""

    limits: Limits = field(default_factory=Limits)
    """What a single client may ask for."""

    def __post_init__(self) -> None:
        """Raises ConfigurationError."""
        for one in fields(self):
            value = getattr(self, one.name)
            minimum = 0 if one.name in MAY_BE_0 else 1
            if isinstance(value, int) and not isinstance(value, bool) and value < minimum:
                raise ConfigurationError(f"{one.name} = {value}: set it to {minimum} or more")
        if self.lane:
            try:
                check_lane_name(self.lane)
            except InvalidRequest as error:
                raise ConfigurationError(f"lane = {self.lane!r}: {error}") from None
        if not self.advertised_host:
            raise ConfigurationError(
                "advertised_host is empty: set it to the name or address under which clients reach this proxy"
            )
