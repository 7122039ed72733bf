"""Settings of a simulated cluster's nodes: small enough that rolls, merges, snapshots, moves and deletions happen within a few kilobytes."""

from dataclasses import dataclass, replace
from random import Random

from bmq.limits import Limits
from bmq_broker.groups.settings import GroupSettings
from bmq_broker.settings import BrokerSettings
from bmq_cli.role_settings import RoleSettings, role_settings
from bmq_cli.server_config import ServerConfig
from bmq_cli.server_values import Role
from bmq_controller.settings import ControllerSettings

KAFKA_PORT = 9092
INTERNAL_PORT = 9190


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node: it keeps its id, host and role over restarts."""

    node_id: int
    role: Role
    rack: str = ""

    @property
    def host(self) -> str:
        """`broker-101`."""
        return f"{self.role}-{self.node_id}"


class ClusterSettings:
    """Of one seed. Every start of a node asks for its own: what may differ from release to release differs from start to start."""

    def __init__(self, rng: Random, limits: Limits, *, balance_interval_s: float = 0.0, deletes_soon: bool = False) -> None:
        """`limits`: of all proxies. `balance_interval_s` 0: the cluster moves nothing by itself. `deletes_soon`: hardly anything stays in the
        WAL, and hardly for a moment what was given up."""
        self._deletes_soon = deletes_soon
        self._rng = rng
        self._limits = limits
        self.size_factor = rng.choice((1, 1, 10))
        """By how much everything is larger than the smallest that works."""
        self.offsets_topic_partitions = rng.choice((1, 3))
        self.controller = ControllerSettings(
            snapshot_entries=rng.choice((3, 10, 1_000)),
            leading_check_s=rng.choice((1.0, 5.0)),
            collect_delay_s=5.0,
            collect_interval_s=1.0,
            stray_interval_s=15.0,
            balance_interval_s=balance_interval_s,
            balance_rest_s=60.0 if self.size_factor > 1 else 2.0,
        )
        self.groups = GroupSettings(
            initial_rebalance_delay_ms=rng.choice((0, 1_000)),
            snapshot_record_interval=rng.choice((5, 20, 10_000)),
            offsets_check_interval_ms=5_000,
        )
        if self.groups.snapshot_record_interval == 5:  # no draw of its own: seeds keep what they have
            self.groups = replace(
                self.groups,
                stored_burst_bytes=6_000,
                stored_per_minute_bytes=60_000,
                rewritten_burst_bytes=20_000,
                rewritten_per_minute_bytes=600_000,
            )

    def config(self, spec: NodeSpec) -> ServerConfig:
        """What the node's configuration file says."""
        return ServerConfig(
            node_id=spec.node_id,
            roles=(spec.role,),
            store="memory://",
            rack=spec.rack,
            listen=f"{spec.host}:{KAFKA_PORT}",
            internal_listen=f"{spec.host}:{INTERNAL_PORT}",
            admin="off",
        )

    def of(self, spec: NodeSpec) -> RoleSettings:
        """For one more start of the node."""
        made = role_settings(self.config(spec), one_disk=False, log_dir="simulated")
        proxy = replace(made.proxy, offsets_topic_partitions=self.offsets_topic_partitions, limits=self._limits)
        return replace(made, controller=self.controller, groups=self.groups, broker=self._broker(), proxy=proxy)

    def _broker(self) -> BrokerSettings:
        rng, factor = self._rng, self.size_factor
        made = BrokerSettings(
            linger_ms=rng.choice((0.0, 5.0, 100.0)),
            eager=rng.random() < 0.5,
            flush_bytes=rng.choice((300, 4_096)) * factor,
            in_flight_max=rng.choice((2, 8)),
            tail_budget_bytes=rng.choice((500, 2_000, 20_000)) * factor,
            tail_limit_bytes=1_000_000 * factor,
            wal_budget_bytes=rng.choice((1_000, 5_000, 50_000)) * factor,
            inherited_roll_ms=rng.choice((500, 10_000)),
            ranges_max=rng.choice((1, 2, 4)),
            stop_roll_bytes=rng.choice((1, 1_000)) * factor,
            stop_timeout_ms=rng.choice((1_000, 15_000)),
            maintenance_interval_ms=rng.choice((200, 1_000, 5_000)),
            retention_interval_ms=5_000,
            segment_linger_ms=rng.choice((2_000, 20_000)),
            merge_below_bytes=4_096 * factor,
            merge_count=rng.choice((2, 4)),
            carry_share=rng.choice((0.0, 0.25, 4.0)),
            carry_parts=rng.choice((1, 4)),
            shared_look_ms=1_000,
            shared_look_ms_max=5_000,
            collect_again_ms=20_000,
            stopped_retry_ms=500,
            manifest_entries_max=rng.choice((2, 5, 1_024)),
        )
        if not self._deletes_soon:
            return made
        return replace(made, linger_ms=0.0, tail_budget_bytes=300, wal_budget_bytes=500, maintenance_interval_ms=200, segment_linger_ms=500)
