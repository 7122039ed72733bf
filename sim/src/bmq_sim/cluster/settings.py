"""Settings of a simulated cluster's nodes: small enough that rolls, merges, snapshots, moves and deletions happen
within a few kilobytes.
"""

from dataclasses import dataclass, replace

from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.settings import BrokerSettings
from bmq_controller.machine.limits import Limits as ControllerLimits
from bmq_controller.settings import ControllerSettings
from bmq_node.configuration.node_settings import NodeSettings, node_settings
from bmq_node.configuration.server_config import ServerConfig
from bmq_node.configuration.values import Role
from bmq_sim.limits import Chance, Draws, limits_of

MIB = 1024 * 1024
KAFKA_PORT = 9092
INTERNAL_PORT = 9190
OUTSIDE_PORT = 9292
OUTSIDE = "outside"
"""A further listener of every proxy, in seeds where listeners change."""
SHIFTS = 3
"""So many ports a node may have for each purpose, from start to start."""


def is_internal(port: int) -> bool:
    """Whether nodes call each other there."""
    return port in range(INTERNAL_PORT, INTERNAL_PORT + SHIFTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node: it keeps its id, host and role over restarts."""

    node_id: int
    role: Role
    rack: str = ""
    where: str = ""
    """What its host's name begins with."""

    @property
    def host(self) -> str:
        """`broker-101`."""
        return f"{self.where}{self.role}-{self.node_id}"


class ClusterSettings:
    """The settings of nodes in one seed. Every start of a node asks for its own: what may differ from release to
    release differs from start to start.

    In half of the seeds the ports of every node do, too, and proxies have a second listener, which is reached by names
    that come and go.
    """

    def __init__(self, chance: Chance, *, balance_interval_s: float = 0.0, deletes_soon: bool = False) -> None:
        """`balance_interval_s` 0: the cluster moves nothing by itself. `deletes_soon`: hardly anything stays in the
        WAL, and hardly for a moment what was given up."""
        self._deletes_soon = deletes_soon
        self._chance = chance
        self._limits = limits_of(chance)
        draws = Draws(chance, "settings")
        self.listeners_change = draws.choice("listeners_change", (False, True))
        """Whether nodes move to other ports when they start again, and proxies to other names."""
        self.size_factor = draws.choice("size_factor", (1, 1, 10))
        """By how much everything is larger than the smallest that works."""
        self.offsets_topic_partitions = draws.choice("offsets_topic_partitions", (1, 3))
        self.controller = ControllerSettings(
            records_per_entry=draws.choice("records_per_entry", (1, 5_000)),
            work_per_entry=draws.choice("work_per_entry", (1, 10_000, 500_000)),
            decided_beside_partitions=draws.choice("decided_beside_partitions", (0, 3, 4_000)),
            snapshot_entries=draws.choice("snapshot_entries", (3, 10, 1_000)),
            leading_check_s=draws.choice("leading_check_s", (1.0, 5.0)),
            collect_delay_s=5.0,
            collect_interval_s=1.0,
            lane_grace_s=draws.choice("lane_grace_s", (3.0, 8.0)),
            stray_interval_s=15.0,
            balance_interval_s=balance_interval_s,
            balance_rest_s=60.0 if self.size_factor > 1 else 2.0,
            limits=ControllerLimits(moves_burst=draws.choice("moves_burst", (1_000, 1_000, 1_000, 2))),
        )
        self.groups = GroupSettings(
            initial_rebalance_delay_ms=draws.choice("initial_rebalance_delay_ms", (0, 1_000)),
            snapshot_record_interval=draws.choice("snapshot_record_interval", (5, 20, 10_000)),
            snapshot_byte_interval=draws.choice("snapshot_byte_interval", (2_000, 16 * MIB, 16 * MIB)),
            offsets_check_interval_ms=5_000,
        )
        if draws.choice("groups' rates", (False, False, True)):
            self.groups = replace(
                self.groups,
                stored_burst_bytes=6_000,
                stored_per_minute_bytes=60_000,
                rewritten_burst_bytes=20_000,
                rewritten_per_minute_bytes=600_000,
            )

    def port(self, spec: NodeSpec, first: int, *, start: int) -> int:
        """Where start `start` of the node listens for what others have from port `first` on."""
        if not self.listeners_change:
            return first
        return first + Draws(self._chance, f"ports of start {start} of {spec.host}").choice(str(first), range(SHIFTS))

    def config(self, spec: NodeSpec, *, start: int) -> ServerConfig:
        """What the node's configuration file says when it starts for the time `start`."""
        has_outside = self.listeners_change and spec.role is Role.PROXY
        return ServerConfig(
            node_id=spec.node_id,
            roles=(spec.role,),
            store="memory://",
            rack=spec.rack,
            listen=f"{spec.host}:{self.port(spec, KAFKA_PORT, start=start)}",
            internal_listen=f"{spec.host}:{self.port(spec, INTERNAL_PORT, start=start)}",
            listeners={OUTSIDE: f"0.0.0.0:{self.port(spec, OUTSIDE_PORT, start=start)}"} if has_outside else {},
            advertised_listeners_file="simulated" if has_outside else "",
            admin="off",
        )

    def of(self, spec: NodeSpec, *, start: int) -> NodeSettings:
        """For a start of the node."""
        made = node_settings(self.config(spec, start=start), one_disk=False, log_dir="simulated")
        draws = Draws(self._chance, f"settings of a proxy at start {start} of {spec.host}")
        proxy = replace(
            made.proxy,
            offsets_topic_partitions=self.offsets_topic_partitions,
            limits=self._limits,
            lane_look_ms=500,
            produce_retry_ms=draws.choice("produce_retry_ms", (100, 30_000, 30_000)),
        )
        return replace(
            made, controller=self.controller, groups=self.groups, broker=self._broker(spec, start), proxy=proxy
        )

    def _broker(self, spec: NodeSpec, start: int) -> BrokerSettings:
        draws, factor = Draws(self._chance, f"settings of start {start} of {spec.host}"), self.size_factor
        made = BrokerSettings(
            linger_ms=draws.choice("linger_ms", (0.0, 5.0, 100.0)),
            eager=draws.choice("eager", (False, True)),
            flush_bytes=draws.choice("flush_bytes", (300, 4_096)) * factor,
            in_flight_max=draws.choice("in_flight_max", (2, 8)),
            tail_budget_bytes=draws.choice("tail_budget_bytes", (2_000, 10_000, 100_000)) * factor,
            tail_limit_bytes=1_000_000 * factor,
            wal_budget_bytes=draws.choice("wal_budget_bytes", (1_000, 5_000, 50_000)) * factor,
            wal_objects_max=draws.choice("wal_objects_max", (3, 20, 1_000)),
            shared_below_bytes=draws.choice("shared_below_bytes", (1, 1_000, MIB)),
            buffer_max_bytes=draws.choice("buffer_max_bytes", (5_000 * factor, 256 * MIB, 256 * MIB)),
            pending_bytes_max=draws.choice("pending_bytes_max", (1_000 * factor, 16 * MIB, 16 * MIB)),
            inherited_roll_ms=draws.choice("inherited_roll_ms", (500, 10_000)),
            roll_concurrency=draws.choice("roll_concurrency", (1, 2)),
            open_concurrency=draws.choice("open_concurrency", (1, 32)),
            ranges_max=draws.choice("ranges_max", (1, 2, 4)),
            stop_roll_bytes=draws.choice("stop_roll_bytes", (1, 1_000)) * factor,
            stop_timeout_ms=draws.choice("stop_timeout_ms", (1_000, 15_000)),
            upkeep_interval_ms=draws.choice("maintenance_interval_ms", (200, 1_000, 5_000)),
            retention_interval_ms=5_000,
            segment_linger_ms=draws.choice("segment_linger_ms", (2_000, 20_000)),
            merge_below_bytes=4_096 * factor,
            merge_count=draws.choice("merge_count", (2, 4)),
            carry_share=draws.choice("carry_share", (0.0, 0.25, 4.0)),
            carry_parts=draws.choice("carry_parts", (1, 4)),
            carry_chunk_bytes=draws.choice("carry_chunk_bytes", (1, 300, 4 * MIB)),
            shared_look_ms=1_000,
            shared_look_ms_max=5_000,
            collect_again_ms=20_000,
            stopped_retry_ms=500,
            manifest_entries_max=draws.choice("manifest_entries_max", (2, 5, 1_024)),
        )
        if not self._deletes_soon:
            return made
        return replace(
            made,
            linger_ms=0.0,
            tail_budget_bytes=1_500,
            wal_budget_bytes=500,
            upkeep_interval_ms=200,
            segment_linger_ms=500,
        )
