"""What a process and its roles are told, and how a server's configuration becomes it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bmq.config.limits import limits_of
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.settings import BrokerSettings
from bmq_controller.machine.limits import Limits as ControllerLimits
from bmq_controller.settings import ControllerSettings
from bmq_node.configuration.addresses import address_of
from bmq_node.configuration.server_config import ServerConfig
from bmq_node.configuration.values import OFF, Role
from bmq_proxy.settings import ProxySettings

ONE_DISK_CATCH_UP_GETS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What one process is told, and each of its roles. Addresses are HOST:PORT."""

    node_id: int = 1
    roles: tuple[Role, ...] = (Role.CONTROLLER, Role.BROKER, Role.PROXY)
    listen: str = "127.0.0.1:9092"
    advertised_listen: str = ""
    listeners: Mapping[str, str] = field(default_factory=dict)
    advertised_listeners: Mapping[str, str] = field(default_factory=dict)
    rack: str = ""
    pool: str = ""
    lane: str = ""
    cluster_configs: Mapping[str, str] = field(default_factory=dict)
    """By Kafka's names."""
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    """Where the cluster's configuration says nothing else."""
    proxy: ProxySettings = field(default_factory=ProxySettings)
    log_dir: str = "object-store"
    """What DescribeLogDirs calls the store."""

    def has(self, role: Role) -> bool:
        """Whether this process has the role."""
        return role in self.roles


def node_settings(config: ServerConfig, *, one_disk: bool, log_dir: str) -> NodeSettings:
    """`one_disk`: the store is a folder of this machine. `log_dir`: what DescribeLogDirs calls it."""
    return NodeSettings(
        node_id=config.node_id,
        roles=config.roles,
        listen=config.listen,
        advertised_listen=config.advertised_listen,
        listeners=config.listeners,
        advertised_listeners=config.advertised_listeners,
        rack=config.rack,
        pool=config.pool,
        lane=config.lane,
        cluster_configs=config.cluster_config,
        controller=_controller_settings(config),
        broker=_broker_settings(config, one_disk=one_disk),
        groups=GroupSettings.within(limits_of(config.limits)),
        proxy=_proxy_settings(config, one_disk=one_disk),
        log_dir=log_dir,
    )


def _controller_settings(config: ServerConfig) -> ControllerSettings:
    takeover_s = config.takeover_ms / 1000
    return ControllerSettings(
        operation_timeout_s=config.operation_timeout_ms / 1000,
        lease_s=config.lease_ms / 1000,
        takeover_s=takeover_s,
        # Of two signs of life that are due before a standby loses patience one may be late; a standby looks several
        # times meanwhile.
        sign_of_life_s=takeover_s * 0.4,
        standby_quiet_s=takeover_s / 2,
        standby_look_s=takeover_s / 8,
        balance_interval_s=config.balance_interval_ms / 1000,
        lane_grace_s=config.lane_grace_ms / 1000,
        balance_rest_s=config.balance_rest_ms / 1000,
        cluster_id=config.cluster_id,
        cluster_configs=config.cluster_config,
        limits=ControllerLimits.within(limits_of(config.limits)),
    )


def _broker_settings(config: ServerConfig, *, one_disk: bool) -> BrokerSettings:
    limits = limits_of(config.limits)
    return BrokerSettings(
        producers_per_partition=limits.producers_per_partition,
        producers_per_broker=limits.producers_per_broker,
        false_batches_per_look_up=limits.false_batches_per_look_up,
        linger_ms=config.linger_ms,
        eager=one_disk,  # a create on a disk costs nothing but its time
        hedge_creates=not one_disk,
        flush_bytes=config.flush_bytes,
        in_flight_max=config.in_flight_max,
        buffer_max_bytes=config.buffer_max_bytes,
        tail_budget_bytes=config.tail_budget_bytes,
        tail_limit_bytes=config.tail_limit_bytes,
        wal_budget_bytes=config.wal_budget_bytes,
        segment_linger_ms=config.segment_linger_ms,
        lag_metrics=config.lag_metrics,
        lease_ms=config.lease_ms,
        stop_timeout_ms=config.stop_timeout_ms,
    )


def _proxy_settings(config: ServerConfig, *, one_disk: bool) -> ProxySettings:
    settings = ProxySettings(
        node_id=config.node_id,
        advertised_host=advertised(config.listen, config.advertised_listen)[0],
        advertised_port=advertised(config.listen, config.advertised_listen)[1],
        lane=config.lane,
        connections_max=config.connections_max,
        connection_idle_ms_max=config.connection_idle_ms_max,
        request_memory_bytes=config.request_memory_bytes,
        fetch_memory_bytes=config.fetch_memory_bytes,
        fetch_bytes_max=config.fetch_bytes_max,
        tail_cache_bytes=config.tail_cache_bytes,
        catch_up_cache_bytes=config.catch_up_cache_bytes,
        cache_idle_ms=config.cache_idle_ms,
        produce_retry_ms=config.produce_retry_ms,
        lane_look_ms=config.lane_grace_ms // 6,
        write_timeout_ms_min=config.write_timeout_ms_min,
        slow_request_ms=config.slow_request_ms,
        limits=limits_of(config.limits),
    )
    return replace(settings, catch_up_gets_at_once=ONE_DISK_CATCH_UP_GETS) if one_disk else settings


def exposed_limits(config: ServerConfig) -> dict[str, int]:
    """Limits of its roles by their keys, so that alerts need not be told what was configured."""
    limits: dict[str, int] = {}
    if config.has(Role.BROKER):
        limits |= {
            key: getattr(config, key)
            for key in ("buffer_max_bytes", "tail_budget_bytes", "tail_limit_bytes", "wal_budget_bytes")
        }
    if config.has(Role.PROXY):
        limits |= {
            key: getattr(config, key) for key in ("connections_max", "request_memory_bytes", "fetch_memory_bytes")
        }
    return limits


def advertised(listen: str, given: str, *, port: int = 0) -> tuple[str, int]:
    """(host, port) that others are told: what was given for them, else where it listens. `port` stands for 0: the one
    that 0 became.
    """
    host, told = address_of(given or listen)
    return host, told or port


def listens(address: str) -> tuple[str, int] | None:
    """(host, port); None for off."""
    return None if address in ("", OFF) else address_of(address)
