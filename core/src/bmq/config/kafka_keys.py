"""Keys of Kafka's brokers that have nothing to do here: those that tools set, which are stored and shown, and those
that say what a node is. Pure.
"""

from typing import Final

from bmq.config.config_keys import (
    INT_MAX,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DescribedConfig,
    config_key,
    describe,
)

_STORED: Final = "No effect in bmq: "
_COMPACTION: Final = _STORED + "topics are not compacted."
_THREADS: Final = _STORED + "a process works on one event loop."
_CONNECTIONS: Final = _STORED + "what a proxy takes are settings of its process (connections_max)."
_INT, _LONG, _DOUBLE, _STRING, _BOOLEAN = (
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.STRING,
    ConfigType.BOOLEAN,
)

VOID_KEYS: Final = (
    config_key("background.threads", _INT, 10, _THREADS, minimum=1),
    config_key("log.cleaner.backoff.ms", _LONG, 15000, _COMPACTION, minimum=0),
    config_key("log.cleaner.dedupe.buffer.size", _LONG, 134217728, _COMPACTION),
    config_key("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9, _COMPACTION),
    config_key("log.cleaner.io.buffer.size", _INT, 524288, _COMPACTION, minimum=0),
    config_key("log.cleaner.io.max.bytes.per.second", _STRING, "1.7976931348623157E308", _COMPACTION),
    config_key("log.cleaner.threads", _INT, 1, _COMPACTION, minimum=0),
    config_key("max.connection.creation.rate", _INT, INT_MAX, _CONNECTIONS, minimum=0),
    config_key("max.connections", _INT, INT_MAX, _CONNECTIONS, minimum=0),
    config_key("max.connections.per.ip", _INT, INT_MAX, _CONNECTIONS, minimum=0),
    config_key("max.connections.per.ip.overrides", _STRING, "", _CONNECTIONS),
    config_key("num.io.threads", _INT, 8, _THREADS, minimum=1),
    config_key("num.network.threads", _INT, 3, _THREADS, minimum=1),
    config_key("num.recovery.threads.per.data.dir", _INT, 2, _THREADS, minimum=1),
    config_key("num.replica.fetchers", _INT, 1, _STORED + "there are no followers; the object store replicates."),
    config_key(
        "transaction.partition.verification.enable", _BOOLEAN, "true", _STORED + "there are no transactions yet."
    ),
)
"""Those that Kafka lets be changed while a broker runs, so that whoever sets them for Kafka goes on working."""

_ADVERTISED: Final = "Where clients reach this node, by listener."
_NODE_ID: Final = "The number of this node."


def _node_key(name: str, type: ConfigType, doc: str) -> ConfigKey:
    return ConfigKey(name=name, type=type, default="", doc=doc, read_only=True)


NODE_KEYS: Final = {
    key.name: key
    for key in (
        _node_key("advertised.listeners", ConfigType.STRING, _ADVERTISED),
        _node_key("broker.id", _INT, _NODE_ID),
        _node_key("broker.rack", _STRING, "The zone that this node is in; empty: in none."),
        _node_key("listener.security.protocol.map", _STRING, "The protocol of each listener."),
        _node_key(
            "listeners",
            ConfigType.LIST,
            _ADVERTISED + " On which of its addresses it listens is known to its process alone.",
        ),
        _node_key("log.dirs", _STRING, "The store that everything is kept in."),
        _node_key("node.id", _INT, _NODE_ID),
        _node_key("process.roles", ConfigType.LIST, "What the process does."),
    )
}
"""Those that follow from how a node was started: tools read them, and nobody sets them through the protocol."""


def describe_node(
    *, node_id: int, roles: tuple[str, ...], rack: str, log_dir: str, listeners: dict[str, tuple[str, int]]
) -> list[DescribedConfig]:
    """The rows of one node, by name. `listeners`: (host, port) that clients are told, by the names that people gave
    them.
    """
    named = {name.upper(): address for name, address in listeners.items()}
    advertised = ",".join(f"{name}://{host}:{port}" for name, (host, port) in named.items())
    values = {
        "advertised.listeners": advertised,
        "broker.id": str(node_id),
        "broker.rack": rack,
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in named),
        "listeners": advertised,
        "log.dirs": log_dir,
        "node.id": str(node_id),
        "process.roles": ",".join(roles),
    }
    return [
        describe(key, (ConfigSynonym(name=name, value=values[name], source=ConfigSource.STATIC_BROKER),))
        for name, key in sorted(NODE_KEYS.items())
    ]
