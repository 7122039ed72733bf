"""The keys of `bmq server`, each once: name, type, default, bounds, remedy, documentation.

From the fields of `ServerConfig` come the flags of `bmq server`, the `BMQ_*` variables and the file's keys
(bmq_node.configuration.sources), and docs/server-configuration.md (bmq_node.configuration.server_reference).

No key is called `port` or ends in `_port`: Kubernetes gives each container variables like BMQ_PORT=tcp://… for a
Service named bmq.
"""

from typing import Any, Final, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from bmq.config.topic_config import POOL_NAME, POOL_NAME_REMEDY
from bmq.naming.lanes import LANE_NAME_PATTERN
from bmq.values import NODE_ID_MAX
from bmq_broker.settings import LagMetrics
from bmq_node.configuration.addresses import WILDCARD_HOSTS, address_of
from bmq_node.configuration.listeners import A_LISTENER, Listeners, check_listeners
from bmq_node.configuration.values import (
    GIB,
    KIB,
    MIB,
    OFF,
    Address,
    ClusterConfigs,
    LimitsGiven,
    OptionalAddress,
    Role,
    Roles,
    Secret,
    Secrets,
    Size,
    size_text,
)

PREFIX: Final = "BMQ_"
_TEBIBYTE: Final = 1 << 40
_HOUR_MS: Final = 3_600_000

PROCESS: Final = "The process"
ADDRESSES: Final = "Addresses"
CLUSTER: Final = "The cluster"
CONTROLLERS: Final = "Controllers"
BROKERS: Final = "Brokers"
PROXIES: Final = "Proxies"
GROUPS: Final = (PROCESS, ADDRESSES, CLUSTER, CONTROLLERS, BROKERS, PROXIES)

_AN_ADDRESS: Final = "write HOST:PORT, for example 127.0.0.1:9092"


def _key(group: str, default: Any, doc: str, remedy: str, **bounds: Any) -> Any:
    return Field(default, description=doc, json_schema_extra={"group": group, "remedy": remedy}, **bounds)


def _number(group: str, default: float, doc: str, *, minimum: int, maximum: int) -> Any:
    return _key(group, default, doc, f"set a number from {minimum} to {maximum}", ge=minimum, le=maximum)


def _bytes(group: str, default: int, doc: str, *, minimum: int = MIB, maximum: int = _TEBIBYTE) -> Any:
    remedy = f"set a size such as {size_text(default)}, from {size_text(minimum)} to {size_text(maximum)}"
    return Field(
        default,
        description=doc,
        json_schema_extra={"group": group, "remedy": remedy, "size": True},
        ge=minimum,
        le=maximum,
    )


class ServerConfig(BaseSettings):
    """The configuration of one process. `bmq_node.configuration.sources.read_config` makes it."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        enable_decoding=False,
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
    )

    roles: Roles = _key(
        PROCESS,
        (Role.CONTROLLER, Role.BROKER, Role.PROXY),
        "What this process does, with commas between: controller (owns the metadata: one leads, the others stand by), "
        "broker (owns partitions), proxy (serves Kafka clients).",
        "name one or more of controller, broker, proxy",
    )
    node_id: int = _key(
        PROCESS,
        ...,
        "The number of this node: each process of a cluster has its own, and keeps it over restarts. Or give "
        "node_id_base.",
        f"set a whole number from 0 to {NODE_ID_MAX}, another one for each process of the cluster",
        ge=0,
        le=NODE_ID_MAX,
    )
    node_id_base: int | None = _key(
        PROCESS,
        None,
        "In place of node_id: the node's number is this one plus the number at the end of its host's name, which "
        "is the ordinal of a pod of a StatefulSet: with 1000, bmq-broker-12 is node 1012.",
        f"set a whole number from 0 to {NODE_ID_MAX}, and no node_id",
        ge=0,
        le=NODE_ID_MAX,
    )
    store: str = _key(
        PROCESS,
        ...,
        "Where everything is kept, the same for all nodes (stores.md). Keys to a store come from the environment, "
        "never from here.",
        "name a store, for example s3://bucket?endpoint=http://127.0.0.1:9000",
        min_length=1,
    )
    cluster_id: str = _key(
        PROCESS,
        "",
        "The cluster's id. A new store gets it; over the store of another cluster the process refuses to start. "
        "Empty: what the store says, and a random one for a new store.",
        "use 1 to 64 letters, digits, - and _, not beginning with - or _",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_-]{0,63})?$",
    )
    rack: str = _key(PROCESS, "", "The zone that this node is in.", "use at most 249 characters", max_length=249)
    log_level: str = _key(
        PROCESS,
        "info",
        "The least that is logged: debug, info, warning or error.",
        "set debug, info, warning or error",
        pattern="^(debug|info|warning|error)$",
    )
    log_format: str = _key(
        PROCESS,
        "",
        "console, or json: one object a line. Empty: console on a terminal, json elsewhere.",
        "set console or json",
        pattern="^(console|json)?$",
    )

    limits: LimitsGiven = _key(
        PROCESS,
        {},
        "What a single client may do, where the defaults do not suit: limits.md has them all. In the file a "
        "mapping; as a flag NAME=VALUE, repeatable; as a variable NAME=VALUE with commas between. Give all nodes "
        "the same.",
        "write NAME=VALUE with a limit of limits.md, for example request_elements_max=20000",
    )

    otlp_endpoint: str = _key(
        PROCESS,
        "",
        "An OpenTelemetry collector that takes OTLP over HTTP: it gets spans of Produce and Fetch requests and of "
        "flushes. Needs the optional dependency bmq-core[otel]; OTEL_EXPORTER_OTLP_HEADERS and "
        "OTEL_RESOURCE_ATTRIBUTES count. Empty: no traces.",
        "write http://HOST:PORT, for example http://otel-collector:4318",
        pattern=r"^(https?://[^\s/]+(/[^\s]*)?)?$",
    )
    otlp_sample_ratio: float = _number(
        PROCESS, 0.01, "Which part of the requests and flushes becomes a span: 1 is all of them.", minimum=0, maximum=1
    )

    listen: Address = _key(
        ADDRESSES,
        "127.0.0.1:9092",
        "Proxies: where Kafka clients connect. Host 0.0.0.0: all addresses; port 0: any free one.",
        _AN_ADDRESS,
    )
    advertised_listen: OptionalAddress = _key(
        ADDRESSES,
        "",
        "Proxies: the address that clients are told. {hostname} in it stands for the short name of the host, "
        "{ordinal} for the number at its end. Port 0: the one that is listened on. Empty: what `listen` says.",
        _AN_ADDRESS,
    )
    listeners: Listeners = _key(
        ADDRESSES,
        {},
        "Proxies: further addresses where Kafka clients connect, by names of your own; the one of `listen` is "
        "called internal. A client that comes by one is told the addresses of that one alone, those of all proxies "
        "that have it. In the file a mapping; as a flag repeatable; several with commas between.",
        A_LISTENER,
    )
    advertised_listeners: Listeners = _key(
        ADDRESSES,
        {},
        "Proxies: the addresses of listeners that clients are told. {hostname}, {ordinal} and port 0 as above. "
        "Without one: what `listeners` says, where that is no wildcard.",
        "write NAME=HOST:PORT, for example external=node1.example:31001",
    )
    advertised_listeners_file: str = _key(
        ADDRESSES,
        "",
        "Proxies: a file with a line NAME=HOST:PORT for each listener, which goes before advertised_listeners; a "
        "line NAME.ORDINAL=HOST:PORT is for the host of that number alone. Or a folder with a file NAME or "
        "NAME.ORDINAL for each, and HOST:PORT in it. It is read again while the node runs, every two seconds: "
        "clients are told the new address, and of a listener without one they are not told. {hostname} and "
        "{ordinal} may stand in its path.",
        "name a file of lines NAME=HOST:PORT, or a folder",
    )
    internal_listen: Address = _key(
        ADDRESSES,
        "127.0.0.1:9190",
        "Where the cluster's other nodes connect. Nothing is encrypted there, and without cluster_secret it asks "
        "for no password: let nobody else reach it.",
        _AN_ADDRESS,
    )
    advertised_internal: OptionalAddress = _key(
        ADDRESSES,
        "",
        "The address that other nodes are told. {hostname} and {ordinal} as above. Port 0: the one that is "
        "listened on. Empty: what `internal_listen` says.",
        _AN_ADDRESS,
    )
    admin: OptionalAddress = _key(
        ADDRESSES,
        "127.0.0.1:9080",
        "Health, metrics and the admin REST API (admin-api.md). off: none.",
        "write HOST:PORT, or off",
    )
    admin_token: Secret = _key(
        ADDRESSES,
        "",
        "The admin REST API asks for this token, or one of admin_token_file; give all nodes the same. Better as a "
        "variable or in the file: others on the machine can read flags. Both empty: everybody may look, and only "
        "who is on the node's own machine may change anything.",
        "use 16 to 1024 characters",
        repr=False,
    )
    admin_tokens_accepted: Secrets = _key(
        ADDRESSES,
        "",
        "Further tokens that the admin REST API takes, one a line: the old or the next one, while admin_token is "
        "replaced node by node.",
        "use 16 to 1024 characters for each, one a line",
        repr=False,
    )
    admin_token_file: str = _key(
        ADDRESSES,
        "",
        "More tokens of the admin REST API, one a line. It is read again while the node runs, so that they can be "
        "changed.",
        "name a readable file with a token a line",
    )

    cluster_config: ClusterConfigs = _key(
        CLUSTER,
        {},
        "Settings of the whole cluster by Kafka's names, the same for all nodes. In the file a mapping; as a flag "
        "KEY=VALUE, repeatable; as a variable KEY=VALUE with commas between. What is set while the cluster runs "
        "goes before it.",
        "write KEY=VALUE with a key of Kafka's brokers, for example num.partitions=3",
    )

    cluster_secret: Secret = _key(
        CLUSTER,
        "",
        "What nodes prove to each other that they know, the same for all nodes of the cluster: who does not know "
        "it is refused. Better as a variable or in the file: others on the machine can read flags. Empty: whoever "
        "reaches `internal_listen` is served.",
        "use 16 to 1024 characters",
        repr=False,
    )

    cluster_secrets_accepted: Secrets = _key(
        CLUSTER,
        "",
        "Further secrets that other nodes may prove, one a line: the old or the next one, while cluster_secret is "
        "replaced node by node (operations.md). This node proves by cluster_secret alone.",
        "use 16 to 1024 characters for each, one a line",
        repr=False,
    )

    operation_timeout_ms: int = _number(
        CONTROLLERS,
        30_000,
        "How long an operation on the metadata waits for the store before it is told to try again.",
        minimum=1_000,
        maximum=600_000,
    )
    lease_ms: int = _number(
        CONTROLLERS,
        6_000,
        "How long a node may be silent before its partitions go to others, the same for all nodes. They say three "
        "times as often that they live.",
        minimum=2_000,
        maximum=600_000,
    )
    takeover_ms: int = _number(
        CONTROLLERS,
        2_000,
        "How long the store has to show nothing of the leading controller before a standby leads, the same "
        "for all controllers. The leader shows itself more than twice as often. Below lease_ms. One that is "
        "stopped by SIGTERM resigns at once.",
        minimum=1_000,
        maximum=60_000,
    )
    lane_grace_ms: int = _number(
        CLUSTER,
        30_000,
        "After so long without a consumer in a lane whose fallback is base, what is written there goes on to the base; "
        "the same for all nodes. Proxies look six times as often.",
        minimum=3_000,
        maximum=3_600_000,
    )
    balance_interval_ms: int = _number(
        CONTROLLERS,
        1_000,
        "How often it is looked whether partitions are to move, for even bytes per second, even counts, zones and "
        "pools; a move copies nothing. 0: never.",
        minimum=0,
        maximum=_HOUR_MS,
    )
    balance_rest_ms: int = _number(
        CONTROLLERS,
        60_000,
        "How long a partition stays with the broker that it came to, or was made on, before it may move again for "
        "evenness. A broker that is drained or stops gives all away at once.",
        minimum=0,
        maximum=_HOUR_MS,
    )

    pool: str = _key(
        BROKERS,
        "",
        "The pool that this broker is in: it owns partitions of the topics whose bmq.pool says so, and of no others. "
        "Empty: of all topics that name no pool.",
        POOL_NAME_REMEDY,
        pattern=rf"^({POOL_NAME.pattern})?$",
    )
    linger_ms: float = _number(
        BROKERS,
        5,
        "How long a batch may wait for company before it is made durable; 100 to 250 is cheap on S3.",
        minimum=0,
        maximum=10_000,
    )
    flush_bytes: Size = _bytes(
        BROKERS, 4 * MIB, "A WAL object is sent at this size.", minimum=64 * KIB, maximum=64 * MIB
    )
    in_flight_max: int = _number(
        BROKERS, 8, "WAL objects that are on their way to the store at a time.", minimum=1, maximum=8
    )
    buffer_max_bytes: Size = _bytes(BROKERS, 256 * MIB, "What may wait to become durable; above it producers wait.")
    tail_budget_bytes: Size = _bytes(
        BROKERS,
        128 * MIB,
        "What is not yet in segments, of all partitions, with what keeping it costs; above it the largest tail "
        "becomes one.",
    )
    tail_limit_bytes: Size = _bytes(
        BROKERS,
        256 * MIB,
        "Above it nothing more is made durable until segments have caught up. At least tail_budget_bytes.",
    )
    wal_budget_bytes: Size = _bytes(
        BROKERS, 256 * MIB, "WAL objects kept; above it the partitions that need the oldest are written as segments."
    )
    segment_linger_ms: int = _number(
        BROKERS,
        600_000,
        "How long a segment that nothing names any more is kept for readers.",
        minimum=0,
        maximum=24 * _HOUR_MS,
    )
    lag_metrics: LagMetrics = _key(
        BROKERS,
        "topic",
        "For each of what the lag of consumer groups is a metric of its own: partition, topic or group; off: none "
        "(monitoring.md).",
        "set partition, topic, group or off",
    )
    stop_timeout_ms: int = _number(
        BROKERS,
        15_000,
        "How long a clean stop waits for the store; what it does not manage is recovered by the next owner.",
        minimum=0,
        maximum=600_000,
    )

    lane: str = _key(
        PROXIES,
        "",
        "The lane that this proxy serves alone: whoever connects is in it. Empty: the base, and the lane of "
        "clients that say lane=NAME in their client.id.",
        "use 1 to 32 lower-case letters, digits and -, with a letter or a digit at both ends",
        pattern=rf"^({LANE_NAME_PATTERN})?$",
    )
    connections_max: int = _number(
        PROXIES,
        20_000,
        "Connections of clients. For a further one, another of the address that has most is closed, an idle one if it "
        "can be; one of that address itself is closed at once. Fewer where the process may open few files "
        "(ulimit -n): 768 are left to the store, other nodes and the admin address.",
        minimum=1,
        maximum=1_000_000,
    )
    connection_idle_ms_max: int = _number(
        PROXIES, 600_000, "A connection without a request for so long is closed.", minimum=1_000, maximum=24 * _HOUR_MS
    )
    request_memory_bytes: Size = _bytes(
        PROXIES,
        128 * MIB,
        "Requests held by all connections, until they are answered; above it none is read. Nor is an address that "
        "holds three times what is free; others are read meanwhile.",
    )
    fetch_memory_bytes: Size = _bytes(
        PROXIES,
        128 * MIB,
        "Records on their way to consumers, and half as much again for those on their way from brokers in other "
        "processes.",
    )
    fetch_bytes_max: Size = _bytes(
        PROXIES,
        64 * MIB,
        "The most bytes of one answer to a Fetch, whatever the client asks for.",
        minimum=64 * KIB,
        maximum=GIB,
    )
    tail_cache_bytes: Size = _bytes(
        PROXIES, 32 * MIB, "Blocks of segments kept for readers near the end of a log, who may use what others leave."
    )
    catch_up_cache_bytes: Size = _bytes(
        PROXIES, 64 * MIB, "Blocks of segments kept for readers far behind, who may use what others leave."
    )
    cache_idle_ms: int = _number(
        PROXIES,
        300_000,
        "A block that nobody reads for so long, or up to twice as long, is kept no more.",
        minimum=1_000,
        maximum=24 * _HOUR_MS,
    )
    produce_retry_ms: int = _number(
        PROXIES,
        30_000,
        "A batch that was certainly not applied is sent again for at most so long, within the request's own time.",
        minimum=0,
        maximum=600_000,
    )
    write_timeout_ms_min: int = _number(
        PROXIES,
        10_000,
        "What a broker has of a Produce or a DeleteRecords is waited for at least so long, however short the "
        "request's own time-out: it is written in most cases, and who is told that it timed out sends it again.",
        minimum=0,
        maximum=300_000,
    )

    slow_request_ms: int = _number(
        PROXIES,
        5_000,
        "A request that takes so long is logged, with its request_id (operations.md); not those that wait for "
        "records or for members of a group. 0: none is.",
        minimum=0,
        maximum=_HOUR_MS,
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.has(Role.PROXY) and not self.advertised_listen and address_of(self.listen)[0] in WILDCARD_HOSTS:
            raise ValueError(
                f"listen {self.listen}: it does not say where clients reach this node: set advertised_listen to "
                "HOST:PORT"
            )
        if not self.advertised_internal and address_of(self.internal_listen)[0] in WILDCARD_HOSTS:
            raise ValueError(
                f"internal_listen {self.internal_listen}: it does not say where other nodes reach this one: set "
                "advertised_internal to HOST:PORT"
            )
        for key in ("advertised_listen", "advertised_internal"):
            advertised = getattr(self, key)
            if advertised == "off" or (advertised and address_of(advertised)[0] in WILDCARD_HOSTS):
                raise ValueError(f"{key} {advertised}: nobody can connect to that: set a name or an address, HOST:PORT")
        listens = [("listen", self.listen)] if self.has(Role.PROXY) else []
        listens += [
            (key, address)
            for key, address in (("internal_listen", self.internal_listen), ("admin", self.admin))
            if address not in ("", OFF)
        ]
        check_listeners(self.listeners, self.advertised_listeners, file=self.advertised_listeners_file, others=listens)
        if self.tail_limit_bytes < self.tail_budget_bytes:
            limit, budget = size_text(self.tail_limit_bytes), size_text(self.tail_budget_bytes)
            raise ValueError(
                f"tail_limit_bytes {limit}: it is below tail_budget_bytes {budget}: raise the first or lower the second"
            )
        if self.takeover_ms >= self.lease_ms:
            raise ValueError(
                f"takeover_ms {self.takeover_ms}: it is not below lease_ms {self.lease_ms}, so nodes would be "
                "taken for dead while nobody leads: raise the second or lower the first"
            )
        return self

    def has(self, role: Role) -> bool:
        """Whether this process has the role."""
        return role in self.roles


REPEATABLE: Final = frozenset(("cluster_config", "limits", "listeners", "advertised_listeners"))
"""Keys whose flag may be given several times: each a mapping."""


def flag_of(key: str) -> str:
    """`node_id` → `--node-id`."""
    return f"--{key.replace('_', '-')}"


def variable_of(key: str) -> str:
    """`node_id` → `BMQ_NODE_ID`."""
    return f"{PREFIX}{key.upper()}"


def about(key: str, what: str) -> Any:
    """One of a key's "group", "remedy" and "size"; None where it has none."""
    extra = ServerConfig.model_fields[key].json_schema_extra
    assert isinstance(extra, dict)
    return extra.get(what)
