"""The configuration of a topic: Kafka's names that bmq understands, and what they come to. Pure.

A value is the topic's own, or the cluster's (`synonym`, see `cluster_config`), or the default. Keys whose meaning is
void here are stored and shown, so that what was written for Kafka goes on working; their documentation says so.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from bmq.config.config_keys import (
    LONG_MAX,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DescribedConfig,
    Value,
    config_key,
    describe,
    unknown_key,
)
from bmq.errors import InvalidConfig
from bmq.naming.lane_choice import LaneChoice
from bmq.naming.lanes import matches
from bmq.naming.names import is_internal

CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""No topic takes larger batches: a batch has to fit into one request and one WAL object."""
SEGMENT_BYTES_MIN: Final = 64 * 1024
"""Smaller segments would cost more requests than they save bytes."""
PINNED: Final[Mapping[str, str]] = {"cleanup.policy": "compact", "compression.type": "producer"}
"""What the internal topics have and keep: with `delete` among them, retention would take what coordinators load
from."""
POOL: Final = "bmq.pool"
VALIDATION: Final = "bmq.validation"
FIRST_OFFSET: Final = "bmq.first.offset"
LANE_HEADER: Final = "bmq.lane.header"
READING_LANES_FIRST_OFFSET: Final = 10**15
"""Where the topics of a lane begin that has read the base's of that name: above every offset that the base's will ever
have (at 100,000 records a second in 317 years), and exact as a double. So an offset says by itself which of the two it
is of, whatever else a client sends or does not send."""
POOL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
POOL_NAME_REMEDY: Final = "use 1 to 64 letters, digits, dots, - and _, beginning with a letter or a digit"

_DAY_MS: Final = 24 * 60 * 60 * 1000
_STORED: Final = "No effect in bmq: "


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What a topic's configuration comes to. -1 of a retention: without limit."""

    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    max_message_bytes: int
    timestamp_type: Literal["CreateTime", "LogAppendTime"]
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    delete: bool
    compact: bool
    validation: Literal["header", "lengths", "records"]
    first_offset: int
    """The offset of the first record that each partition ever had."""
    holds_state: bool
    """Whether a coordinator loads from it: what its newest snapshot does not cover never goes, by no rule and at
    nobody's wish."""

    @property
    def log_append_time(self) -> bool:
        """Whether records have the time of their append, and not their producer's."""
        return self.timestamp_type == LOG_APPEND_TIME


_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)

_KEYS: Final = (
    config_key(
        "cleanup.policy",
        _LIST,
        "delete",
        "What happens to old records: delete removes segments by age or size. compact is kept for bmq's internal "
        "topics.",
        choices=("delete", "compact"),
        synonym="log.cleanup.policy",
    ),
    config_key(
        "compression.type",
        _STRING,
        "producer",
        "No effect in bmq: batches are kept as the producer compressed them, whatever is set here, and readers "
        "take every codec. Set compression.type of the producer.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        synonym="compression.type",
    ),
    config_key(
        "max.message.bytes",
        _INT,
        1048588,
        "The largest record batch (after compression) that the topic takes, in bytes.",
        minimum=0,
        maximum=MESSAGE_BYTES_MAX,
        synonym="message.max.bytes",
    ),
    config_key(
        "message.timestamp.after.max.ms",
        _LONG,
        3600000,
        "How far a record's timestamp may lie in the future, in ms. Not checked with LogAppendTime.",
        minimum=0,
        synonym="log.message.timestamp.after.max.ms",
    ),
    config_key(
        "message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "How far a record's timestamp may lie in the past, in ms. Not checked with LogAppendTime.",
        minimum=0,
        synonym="log.message.timestamp.before.max.ms",
    ),
    config_key(
        "message.timestamp.type",
        _STRING,
        CREATE_TIME,
        "CreateTime: records keep the producer's timestamps. LogAppendTime: a batch gets the owner's time when it "
        "is appended.",
        choices=(CREATE_TIME, LOG_APPEND_TIME),
        synonym="log.message.timestamp.type",
    ),
    config_key(
        "min.insync.replicas",
        _INT,
        1,
        _STORED
        + "a batch is acknowledged once the object store has it, whatever the producer's acks. Any number counts "
        "as met.",
        minimum=1,
        synonym="min.insync.replicas",
    ),
    config_key(
        "retention.bytes",
        _LONG,
        -1,
        "How many bytes a partition keeps before its oldest segments are deleted; -1: no limit by size.",
        minimum=-1,
        synonym="log.retention.bytes",
    ),
    config_key(
        "retention.ms",
        _LONG,
        7 * _DAY_MS,
        "How long records are kept, in ms by their timestamps, before their segments are deleted; -1: no limit by "
        "time.",
        minimum=-1,
        synonym="log.retention.ms",
    ),
    config_key(
        "segment.bytes",
        _INT,
        64 * 1024 * 1024,
        "At this size the records in the owner's memory become a segment object. Memory or WAL limits may make it "
        "earlier.",
        minimum=SEGMENT_BYTES_MIN,
        synonym="log.segment.bytes",
    ),
    config_key(
        "segment.ms",
        _LONG,
        7 * _DAY_MS,
        "After this time, in ms, the records in the owner's memory become a segment object even where they are few.",
        minimum=1,
        synonym="log.roll.ms",
    ),
    config_key(
        "compression.gzip.level",
        _INT,
        -1,
        _STORED + "batches are kept as the producer compressed them.",
        minimum=-1,
        maximum=9,
        synonym="compression.gzip.level",
    ),
    config_key(
        "compression.lz4.level",
        _INT,
        9,
        _STORED + "batches are kept as the producer compressed them.",
        minimum=1,
        maximum=17,
        synonym="compression.lz4.level",
    ),
    config_key(
        "compression.zstd.level",
        _INT,
        3,
        _STORED + "batches are kept as the producer compressed them.",
        minimum=-131072,
        maximum=22,
        synonym="compression.zstd.level",
    ),
    config_key(
        "delete.retention.ms",
        _LONG,
        _DAY_MS,
        _STORED + "topics are not compacted.",
        minimum=0,
        synonym="log.cleaner.delete.retention.ms",
    ),
    config_key(
        POOL,
        _STRING,
        "",
        "The pool of brokers that own the topic's partitions, and those of no other pool (a broker's configuration "
        "says which it is in). Empty: the brokers that are in none. A change moves the partitions.",
    ),
    config_key(
        VALIDATION,
        _STRING,
        "lengths",
        "What is proved of a batch before it is acknowledged, beyond its checksum and its header. lengths: that it "
        "can be decompressed, and that the records' lengths add up. records: every field of every record, and "
        "every timestamp, as Kafka does; a wrong largest timestamp is corrected. header: nothing more, for "
        "producers that are trusted.",
        choices=("header", "lengths", "records"),
    ),
    config_key(
        FIRST_OFFSET,
        _LONG,
        0,
        "The offset of the first record of each partition. bmq sets it where it makes the topic of a lane that "
        "reads the base's; it cannot be set or changed.",
        minimum=0,
        maximum=READING_LANES_FIRST_OFFSET,
        read_only=True,
    ),
    config_key(
        LANE_HEADER,
        _STRING,
        "",
        "The header that names the lane of a record that clients of the base write, or a member of it "
        "(baggage:lane): such a record goes to the lane's topic of this name. Empty: none does. It can be set when the "
        "topic is made alone.",
    ),
    config_key(
        "file.delete.delay.ms",
        _LONG,
        60000,
        _STORED + "segment objects live on for a time that is the cluster's.",
        minimum=0,
        synonym="log.segment.delete.delay.ms",
    ),
    config_key(
        "flush.messages",
        _LONG,
        LONG_MAX,
        _STORED + "every acknowledged record is in the object store already.",
        minimum=1,
        synonym="log.flush.interval.messages",
    ),
    config_key(
        "flush.ms",
        _LONG,
        LONG_MAX,
        _STORED + "every acknowledged record is in the object store already.",
        minimum=0,
        synonym="log.flush.interval.ms",
    ),
    config_key(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        _STORED + "there are no followers; the object store replicates.",
    ),
    config_key(
        "index.interval.bytes",
        _INT,
        4096,
        _STORED + "bmq chooses the spacing of a segment's index by itself.",
        minimum=0,
        synonym="log.index.interval.bytes",
    ),
    config_key(
        "leader.replication.throttled.replicas",
        _LIST,
        "",
        _STORED + "there are no followers; the object store replicates.",
    ),
    config_key(
        "local.retention.bytes",
        _LONG,
        -2,
        _STORED + "brokers keep no local segments.",
        minimum=-2,
        synonym="log.local.retention.bytes",
    ),
    config_key(
        "local.retention.ms",
        _LONG,
        -2,
        _STORED + "brokers keep no local segments.",
        minimum=-2,
        synonym="log.local.retention.ms",
    ),
    config_key(
        "max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        _STORED + "topics are not compacted.",
        minimum=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    ),
    config_key(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        0.5,
        _STORED + "topics are not compacted.",
        minimum=0,
        maximum=1,
        synonym="log.cleaner.min.cleanable.ratio",
    ),
    config_key(
        "min.compaction.lag.ms",
        _LONG,
        0,
        _STORED + "topics are not compacted.",
        minimum=0,
        synonym="log.cleaner.min.compaction.lag.ms",
    ),
    config_key(
        "preallocate",
        _BOOLEAN,
        "false",
        _STORED + "segments are objects, not files that grow.",
        synonym="log.preallocate",
    ),
    config_key("remote.storage.enable", _BOOLEAN, "false", _STORED + "every topic is in object storage."),
    config_key(
        "segment.index.bytes",
        _INT,
        10485760,
        _STORED + "a segment's index is as large as it needs to be.",
        minimum=4,
        synonym="log.index.size.max.bytes",
    ),
    config_key(
        "segment.jitter.ms",
        _LONG,
        0,
        _STORED + "rolls are spread by the owner.",
        minimum=0,
        synonym="log.roll.jitter.ms",
    ),
    config_key(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        _STORED + "a new owner always has every acknowledged record.",
        synonym="unclean.leader.election.enable",
    ),
)

TOPIC_KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in _KEYS}


def topic_key(name: str) -> ConfigKey:
    """The key of this name. Raises InvalidConfig."""
    found = TOPIC_KEYS.get(name)
    if found is None:
        raise unknown_key(name, TOPIC_KEYS, kind="topic")
    return found


def validate(configs: Mapping[str, str], *, internal: bool = False) -> dict[str, str]:
    """What is kept of these. Raises InvalidConfig unless somebody may ask for them.

    Internal topics have what is PINNED, whatever is said; others are not compacted yet.
    """
    kept = {}
    for name, text in configs.items():
        text = kept[name] = topic_key(name).accept(text)
        value = topic_key(name).parse(text)
        if name == FIRST_OFFSET and value:
            raise InvalidConfig(
                f"{name}={text[:64]}: a topic's first offset is bmq's to set, when it makes the topic: leave it out"
            )
        if internal and name in PINNED and text.strip() != PINNED[name]:
            raise InvalidConfig(
                f"{name}={text[:64]}: the coordinators' own topics keep {name}={PINNED[name]}: leave it as it is"
            )
        if name == "cleanup.policy" and not internal:
            _check_cleanup(text, value)
        if name == LANE_HEADER and text:
            _check_lane_header(text)
        if name == POOL and text and POOL_NAME.fullmatch(text) is None:
            raise InvalidConfig(f"{POOL}={text[:64]}: {POOL_NAME_REMEDY}")
    return kept


def _check_lane_header(text: str) -> None:
    try:
        LaneChoice.parse(text)
    except InvalidConfig as error:
        raise InvalidConfig(f"{LANE_HEADER}: {error}") from None


def pinned(name: str, configs: Mapping[str, str]) -> Mapping[str, str]:
    """The configuration of the topic `name`, of which `configs` are stored: an internal topic's holds what is PINNED,
    whatever was stored once.
    """
    return {**configs, **PINNED} if is_internal(name) else configs


def pool_of(configs: Mapping[str, str]) -> str:
    """The pool of brokers that a topic with this configuration belongs on; "": those that are in none."""
    return configs.get(POOL, "")


def first_offset_of(configs: Mapping[str, str]) -> int:
    """Where the partitions of a topic with this configuration begin."""
    return int(configs.get(FIRST_OFFSET, "0"))


def overlay_first_offset(base: str, has_read_base: tuple[str, ...]) -> dict[str, str]:
    """What the configuration of a lane's own topic has besides, where the lane's clients may have read the `base` topic
    of that name.
    """
    return {FIRST_OFFSET: str(READING_LANES_FIRST_OFFSET)} if matches(base, has_read_base) else {}


def begins_at(first_offset: int, written: Iterable[int]) -> int:
    """Where a partition without a manifest begins, of which the WAL has runs with these base offsets: earlier versions
    of bmq began at 0.
    """
    return first_offset if all(offset >= first_offset for offset in written) else 0


def resolve(
    configs: Mapping[str, str], defaults: Mapping[str, str] | None = None, *, holds_state: bool = False
) -> TopicConfig:
    """What `configs` of a topic come to. `defaults` are the cluster's values that were set, by their cluster-wide
    names.

    `holds_state`: coordinators load from it.

    Raises InvalidConfig for a value that cannot be read (names that are unknown are passed over: a newer bmq may have
    stored them).
    """
    values = {name: TOPIC_KEYS[name].parse(_text(TOPIC_KEYS[name], configs, defaults or {})) for name in _USED}
    policies = cast(tuple[str, ...], values["cleanup.policy"])
    return TopicConfig(
        retention_ms=cast(int, values["retention.ms"]),
        retention_bytes=cast(int, values["retention.bytes"]),
        segment_bytes=cast(int, values["segment.bytes"]),
        segment_ms=cast(int, values["segment.ms"]),
        max_message_bytes=cast(int, values["max.message.bytes"]),
        timestamp_type=cast(Literal["CreateTime", "LogAppendTime"], values["message.timestamp.type"]),
        timestamp_before_max_ms=cast(int, values["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=cast(int, values["message.timestamp.after.max.ms"]),
        delete="delete" in policies,
        compact="compact" in policies,
        validation=cast(Literal["header", "lengths", "records"], values[VALIDATION]),
        first_offset=cast(int, values[FIRST_OFFSET]),
        holds_state=holds_state,
    )


def describe_topic(
    configs: Mapping[str, str],
    *,
    dynamic_defaults: Mapping[str, str] | None = None,
    static_defaults: Mapping[str, str] | None = None,
) -> list[DescribedConfig]:
    """Every key of a topic with its value and where that comes from, by name.

    `dynamic_defaults` are the cluster's values that were set while it runs, `static_defaults` those of its command line
    or file.
    """
    rows = []
    for name, key in sorted(TOPIC_KEYS.items()):
        found = []
        if name in configs:
            found.append(ConfigSynonym(name=name, value=configs[name], source=ConfigSource.DYNAMIC_TOPIC))
        synonym = key.synonym or name
        if dynamic_defaults and key.synonym in dynamic_defaults:
            found.append(
                ConfigSynonym(name=synonym, value=dynamic_defaults[synonym], source=ConfigSource.DYNAMIC_DEFAULT_BROKER)
            )
        if static_defaults and key.synonym in static_defaults:
            found.append(ConfigSynonym(name=synonym, value=static_defaults[synonym], source=ConfigSource.STATIC_BROKER))
        found.append(ConfigSynonym(name=synonym, value=key.default, source=ConfigSource.DEFAULT))
        rows.append(describe(key, tuple(found)))
    return rows


_USED: Final = (
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "segment.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "cleanup.policy",
    VALIDATION,
    FIRST_OFFSET,
)


def _text(key: ConfigKey, configs: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    own = configs.get(key.name)
    if own is not None:
        return own
    return defaults.get(key.synonym, key.default) if key.synonym is not None else key.default


def _check_cleanup(text: str, value: Value) -> None:
    if value != ("delete",):
        raise InvalidConfig(
            f"cleanup.policy={text}: bmq does not compact topics yet: set delete (with retention.ms=-1 to keep "
            "everything)"
        )
