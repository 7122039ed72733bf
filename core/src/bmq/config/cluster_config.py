"""The configuration of the whole cluster under the names of Kafka's brokers: defaults of topics, auto-creation, group
limits. Pure.

Set while the cluster runs (a metadata record), or by the command line or a file (static), or the default; in this order
of precedence. Every key is cluster-wide: nodes of bmq hold nothing that one of them could configure apart.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from bmq.config.config_keys import (
    LONG_MAX,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DescribedConfig,
    config_key,
    describe,
    unknown_key,
)
from bmq.config.kafka_keys import NODE_KEYS, VOID_KEYS
from bmq.config.topic_config import TOPIC_KEYS
from bmq.errors import InvalidConfig

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
_HOUR_MS: Final = 60 * 60 * 1000
_NO_THROTTLE: Final = "No effect in bmq: a move of a partition copies nothing."


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """What the cluster's configuration comes to for controllers and proxies (for brokers:
    bmq_broker.cluster_values).
    """

    num_partitions: int
    auto_create_topics: bool
    delete_topics: bool
    offsets_topic_partitions: int


def _default_of_topics(key: ConfigKey) -> ConfigKey:
    """The cluster-wide key that gives topics their default of `key`."""
    assert key.synonym is not None
    return ConfigKey(
        name=key.synonym,
        type=key.type,
        default=key.default,
        doc=f"The default of topics' {key.name}. {key.doc}",
        minimum=key.minimum,
        maximum=key.maximum,
        choices=("delete",) if key.name == "cleanup.policy" else key.choices,
        refused={"compact": "bmq does not compact topics yet: set delete"}
        if key.name == "cleanup.policy"
        else key.refused,
    )


GROUP_SIZE_MAX: Final = 10_000
"""A generation begins in one turn of the event loop, some 6 us for each member; who may set this is any client."""

_OWN_KEYS: Final = (
    config_key(
        "auto.create.topics.enable",
        ConfigType.BOOLEAN,
        "true",
        "A topic that a client asks for or writes to is created.",
    ),
    config_key(
        "default.replication.factor",
        ConfigType.INT,
        1,
        "No effect in bmq: the object store replicates.",
        minimum=1,
        maximum=32767,
    ),
    config_key("delete.topic.enable", ConfigType.BOOLEAN, "true", "Topics may be deleted."),
    config_key("follower.replication.throttled.rate", ConfigType.LONG, LONG_MAX, _NO_THROTTLE, minimum=0),
    config_key(
        "group.initial.rebalance.delay.ms",
        ConfigType.INT,
        3000,
        "How long a new group waits for more members, in ms; bmq up sets 0.",
        minimum=0,
    ),
    config_key(
        "group.max.session.timeout.ms",
        ConfigType.INT,
        1800000,
        "The longest session timeout a member may ask for, in ms; no less than group.min.session.timeout.ms.",
        minimum=1,
    ),
    config_key(
        "group.max.size",
        ConfigType.INT,
        5000,
        "The most members that a group may have.",
        minimum=1,
        maximum=GROUP_SIZE_MAX,
    ),
    config_key(
        "group.min.session.timeout.ms",
        ConfigType.INT,
        6000,
        "The shortest session timeout a member may ask for, in ms; no more than group.max.session.timeout.ms.",
        minimum=1,
    ),
    config_key("leader.replication.throttled.rate", ConfigType.LONG, LONG_MAX, _NO_THROTTLE, minimum=0),
    config_key(
        "log.retention.check.interval.ms",
        ConfigType.LONG,
        60_000,
        "How often it is looked for data to be deleted, in ms.",
        minimum=1000,
    ),
    config_key(
        "num.partitions",
        ConfigType.INT,
        1,
        "Partitions of a topic that is created without a number.",
        minimum=1,
        maximum=PARTITIONS_PER_TOPIC_MAX,
    ),
    config_key(
        "offsets.retention.minutes",
        ConfigType.INT,
        10080,
        "How long offsets live on after their group is empty, in minutes.",
        minimum=1,
    ),
    config_key(
        "offsets.topic.num.partitions",
        ConfigType.INT,
        16,
        "Partitions of __consumer_offsets; used when it is created.",
        minimum=1,
        maximum=PARTITIONS_PER_TOPIC_MAX,
    ),
    config_key(
        "producer.id.expiration.ms",
        ConfigType.INT,
        24 * _HOUR_MS,
        "How long a partition remembers an idempotent producer that is silent, in ms.",
        minimum=1,
    ),
    config_key("replica.alter.log.dirs.io.max.bytes.per.second", ConfigType.LONG, LONG_MAX, _NO_THROTTLE, minimum=0),
)

_LOW_AND_HIGH: Final = (("group.min.session.timeout.ms", "group.max.session.timeout.ms"),)
"""Keys of a minimum and of its maximum. Of topics there is such a pair, too (min.compaction.lag.ms and
max.compaction.lag.ms), without effect here."""

CLUSTER_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in (
        *_OWN_KEYS,
        *VOID_KEYS,
        *(_default_of_topics(key) for key in TOPIC_KEYS.values() if key.synonym is not None),
    )
}


def cluster_key(name: str) -> ConfigKey:
    """The key of this name. Raises InvalidConfig."""
    found = CLUSTER_KEYS.get(name)
    if name in NODE_KEYS:
        raise InvalidConfig(
            f"{name}: it is each process's own, and follows from how it was started (bmq server --help): it cannot "
            "be set here"
        )
    if found is None:
        raise unknown_key(name, CLUSTER_KEYS, kind="broker")
    return found


def validate_cluster(configs: Mapping[str, str]) -> dict[str, str]:
    """What is kept of these, which a command line or a file sets. Raises InvalidConfig unless the cluster may have
    them.
    """
    kept = validate_values(configs)
    check_together(configs, configs)
    return kept


def validate_values(configs: Mapping[str, str]) -> dict[str, str]:
    """What is kept of these, each by itself. Raises InvalidConfig."""
    kept = {}
    for name, text in configs.items():
        kept[name] = cluster_key(name).accept(text)
        value = cluster_key(name).parse(text)
        if name == "log.cleanup.policy" and value != ("delete",):
            raise InvalidConfig(f"log.cleanup.policy={text}: set delete")
    return kept


def check_together(configs: Mapping[str, str], changed: Container[str]) -> None:
    """Raises InvalidConfig where a minimum and a maximum of `configs` (all that are set) leave nothing between them,
    and one of the two is `changed`.
    """
    for low, high in _contradictory(configs):
        if low in changed or high in changed:
            raise InvalidConfig(
                f"{_said(high, configs)} is below {_said(low, configs)}, which leaves nothing that is allowed: set "
                f"{high} to no less than {low}; one change may set both"
            )


def without_contradictions(configs: Mapping[str, str], static: Mapping[str, str]) -> dict[str, str]:
    """`configs` (all that are set), but for minima above their maxima, which an earlier version took: what `static`
    (those of the command line or file) says in place of both, and their defaults where it says nothing.
    """
    left = dict(configs)
    at_odds = frozenset(_contradictory(static))
    for pair in _contradictory(configs):
        for name in pair:
            left.pop(name, None)
            if name in static and pair not in at_odds:
                left[name] = static[name]
    return left


def resolve_cluster(configs: Mapping[str, str]) -> ClusterConfig:
    """What the values that were set come to. Raises InvalidConfig for a value that cannot be read."""

    def number(name: str) -> int:
        return cast(int, CLUSTER_KEYS[name].parse(configs.get(name, CLUSTER_KEYS[name].default)))

    def switch(name: str) -> bool:
        return cast(bool, CLUSTER_KEYS[name].parse(configs.get(name, CLUSTER_KEYS[name].default)))

    return ClusterConfig(
        num_partitions=number("num.partitions"),
        auto_create_topics=switch("auto.create.topics.enable"),
        delete_topics=switch("delete.topic.enable"),
        offsets_topic_partitions=number("offsets.topic.num.partitions"),
    )


def describe_cluster(
    *, dynamic: Mapping[str, str] | None = None, static: Mapping[str, str] | None = None
) -> list[DescribedConfig]:
    """Every key of the cluster with its value and where that comes from, by name."""
    rows = []
    for name, key in sorted(CLUSTER_KEYS.items()):
        found = []
        if dynamic and name in dynamic:
            found.append(ConfigSynonym(name=name, value=dynamic[name], source=ConfigSource.DYNAMIC_DEFAULT_BROKER))
        if static and name in static:
            found.append(ConfigSynonym(name=name, value=static[name], source=ConfigSource.STATIC_BROKER))
        found.append(ConfigSynonym(name=name, value=key.default, source=ConfigSource.DEFAULT))
        rows.append(describe(key, tuple(found)))
    return rows


def _contradictory(configs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The pairs whose maximum is below their minimum."""
    for low, high in _LOW_AND_HIGH:
        if _number(high, configs) < _number(low, configs):
            yield low, high


def _number(name: str, configs: Mapping[str, str]) -> int:
    """The default where nothing is set, or what a newer version set cannot be read."""
    key = CLUSTER_KEYS[name]
    try:
        return cast(int, key.parse(configs.get(name, key.default)))
    except InvalidConfig:
        return cast(int, key.parse(key.default))


def _said(name: str, configs: Mapping[str, str]) -> str:
    return f"{name}={_number(name, configs)}" + ("" if name in configs else " (its default)")
