"""A controller's settings. Sizes in bytes, times in seconds of the event loop."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bmq_controller.machine.limits import Limits

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The defaults suit every size of cluster."""

    operation_timeout_s: float = 30.0
    """How long an operation waits for its records to be durable before it is told to try again."""
    operations_waiting_max: int = 10_000
    """Beyond it operations are refused at once."""
    records_per_entry: int = 5_000
    """One entry takes waiting operations until it has so many records; a single operation may have more."""
    work_per_entry: int = 500_000
    """Nor does it take more of them than are so much work, which is one turn of the loop (a unit is some 30 ns)."""
    decided_beside_partitions: int = 4_000
    """What becomes of the partitions of a broker that goes is decided in a thread, as an entry of its own, where those
    are more: a hundred thousand take a second."""
    lease_s: float = 6.0
    """How long a node may be silent before it is fenced."""
    lease_tick_s: float = 0.5
    """How often it is looked who is silent."""
    lease_lag_s_max: float = 1.5
    """Where two such looks were further apart, this process did not run: all leases start anew."""
    sign_of_life_s: float = 0.8
    """How often a leader with standbys appends to the log."""
    takeover_s: float = 2.0
    """How long the store has to show nothing new before a standby leads."""
    standby_look_s: float = 0.25
    """How often a standby asks the store."""
    balance_interval_s: float = 0.0
    """How often it is looked whether partitions are to move, to even out the brokers; 0: never, as where there is one
    broker. `bmq server` looks once a second, whatever the size."""
    balance_rest_s: float = 60.0
    """How long a partition stays where it came to, unless it has to go."""
    standby_quiet_s: float = 1.0
    """While news come from the leader and are not older than this, a standby does not ask the store."""
    leading_check_s: float = 5.0
    """How often an idle leader looks whether another one leads."""
    start_attempts_max: int = 1_000
    """How often a start tries to claim leadership while another leader writes or others claim it too. A standby tries
    once."""
    snapshot_entries: int = 1_000
    """After so many entries a snapshot is taken."""
    snapshot_bytes: int = 4 * MIB
    """After entries of so many bytes a snapshot is taken."""
    collect_delay_s: float = 60.0
    """How long a deleted topic's objects live on, for owners and readers that have yet to hear of it."""
    collect_interval_s: float = 10.0
    """How often it is looked what is to be collected."""
    stray_interval_s: float = 21_600.0
    """How often it is looked what has landed in streams and topics that were collected: a page of a listing for each
    topic."""
    lane_grace_s: float = 30.0
    """After so long without a consumer in a lane that falls back, what is written there goes on to the base. Who lets
    consume may do so for a third of it without asking again."""
    stop_timeout_s: float = 5.0
    """How long a clean stop waits for the operations that are under way."""
    limits: Limits = field(default_factory=Limits)
    cluster_id: str = ""
    """What a new cluster is called; empty: a random id."""
    cluster_configs: Mapping[str, str] = field(default_factory=dict)
    """The cluster's configuration from the command line or a file; what was set while it runs comes before it."""
