"""The options of `format("bmq")`, checked before anything is opened. Names are not case-sensitive, as Spark's never
are.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from bmq.wire.special_timestamps import EARLIEST, LATEST
from bmq_spark.errors import ConfigurationError
from bmq_spark.source.columns import ALL, parse_columns

if TYPE_CHECKING:
    from bmq_spark.source.tail import Brokers

"""As Kafka's clients write them."""
OFFSET_MAX: Final = (1 << 63) - 1
MIB: Final = 1 << 20
TARGET_PARTITION_BYTES: Final = 128 * MIB
KNOWN: Final = (
    *(
        "store",
        "cluster_id",
        "topic",
        "lane",
        "columns",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
    ),
    *(
        "tail",
        "kafka.bootstrap.servers",
        "maxBytesPerTrigger",
        "maxRecordsPerTrigger",
        "targetPartitionBytes",
        "minPartitions",
        "failOnDataLoss",
    ),
    "trustBatchTimes",
)
_SIZE: Final = re.compile(r"([0-9]+)\s*(|b|kib|mib|gib|k|m|g)", re.IGNORECASE)
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": MIB, "mib": MIB, "g": 1 << 30, "gib": 1 << 30}

Bound = int | Mapping[str, Mapping[int, int]]
"""EARLIEST, LATEST, or an offset by topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, from where, and how much at a time. Times are ms since 1970."""

    store: str
    topics: tuple[str, ...]
    cluster_id: str | None = None
    lane: str = ""
    columns: tuple[str, ...] = ALL
    starting: Bound = EARLIEST
    ending: Bound = LATEST
    starting_ms: int | None = None
    ending_ms: int | None = None
    tail: Literal["none", "protocol"] = "none"
    kafka: Mapping[str, str]
    bytes_per_trigger: int | None = None
    records_per_trigger: int | None = None
    target_partition_bytes: int = TARGET_PARTITION_BYTES
    partitions_min: int = 1
    fail_on_data_loss: bool = True
    trusts_batch_times: bool = False
    """Whether filters of time may pass over batches by the largest time that their producers said they have."""

    @property
    def brokers(self) -> "Brokers":
        """Where the tail is fetched."""
        from bmq_spark.source.tail import Brokers  # a Kafka client, which is seldom needed

        return Brokers(settings=self.kafka, lane=self.lane)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises ConfigurationError: one line that names option, value and remedy."""
    options = {name.lower(): value for name, value in given.items()}
    known = {name.lower() for name in KNOWN}
    for name in options:
        if name not in known and not name.startswith("kafka."):
            raise ConfigurationError(f"option {name}: there is no such option: use {', '.join(KNOWN)}")
    if not options.get("store"):
        raise ConfigurationError(
            "option store: missing: name the cluster's store as bmq's --store does, file:///… or s3://…"
        )
    topics = tuple(dict.fromkeys(part.strip() for part in options.get("topic", "").split(",") if part.strip()))
    if not topics:
        raise ConfigurationError("option topic: missing: name a topic, or several with commas between")
    kafka = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    tail = options.get("tail", "none")
    if tail not in ("none", "protocol"):
        raise ConfigurationError(f"option tail={tail}: write none or protocol")
    if tail == "protocol" and not kafka.get("bootstrap.servers"):
        raise ConfigurationError(
            "option tail=protocol: needs kafka.bootstrap.servers, where the newest records are fetched"
        )
    _exclusive(options, "startingoffsets", "startingtimestamp")
    _exclusive(options, "endingoffsets", "endingtimestamp")
    return SourceOptions(
        store=_store(options["store"]),
        topics=topics,
        cluster_id=options.get("cluster_id"),
        lane=options.get("lane", ""),
        columns=parse_columns(options["columns"]) if "columns" in options else ALL,
        starting=_bound(options, "startingoffsets", EARLIEST),
        ending=_bound(options, "endingoffsets", LATEST),
        starting_ms=_number(options, "startingtimestamp"),
        ending_ms=_number(options, "endingtimestamp"),
        tail="protocol" if tail == "protocol" else "none",
        kafka=kafka,
        bytes_per_trigger=_size(options, "maxbytespertrigger"),
        records_per_trigger=_number(options, "maxrecordspertrigger", least=1),
        target_partition_bytes=_size(options, "targetpartitionbytes") or TARGET_PARTITION_BYTES,
        partitions_min=_number(options, "minpartitions", least=1) or os.cpu_count() or 1,
        fail_on_data_loss=_switch(options, "failondataloss", default=True),
        trusts_batch_times=_switch(options, "trustbatchtimes", default=False),
    )


def _store(text: str) -> str:
    """A URL, or a folder as a person writes it."""
    return text if "://" in text else Path(text).absolute().as_uri()


def parse_offsets(text: str, *, name: str) -> Bound:
    """earliest, latest, or JSON {topic: {partition: offset}} with -2 and -1 for the same. Raises ConfigurationError."""
    match text.strip().lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
    try:
        decoded = _object(json.loads(text, object_pairs_hook=_once))
        return {
            topic: {_partition(number): _offset(offset) for number, offset in _partitions(found).items()}
            for topic, found in decoded.items()
        }
    except (ValueError, RecursionError) as error:
        remedy = 'write earliest, latest or {"topic": {"0": 23, "1": -2}}'
        raise ConfigurationError(f"option {name}={text[:200]}: {remedy}") from error


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Raises ValueError where something is said twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _object(found: object) -> Mapping[str, object]:
    if not isinstance(found, dict):
        raise ValueError
    return found


def _partitions(found: object) -> Mapping[str, object]:
    """The partitions of one topic, also as a checkpoint and `end_of` write it: with the topic's id beside."""
    named = _object(found)
    return _object(named["partitions"]) if "partitions" in named else named


def _partition(text: str) -> int:
    if _PARTITION.fullmatch(text) is None:
        raise ValueError
    return int(text)


def _offset(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not EARLIEST <= found <= OFFSET_MAX:
        raise ValueError
    return found


def _bound(options: Mapping[str, str], name: str, default: int) -> Bound:
    return parse_offsets(options[name], name=name) if name in options else default


def _exclusive(options: Mapping[str, str], one: str, other: str) -> None:
    if one in options and other in options:
        raise ConfigurationError(f"option {one} and {other} are both given: give one of them")


def _number(options: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    if name not in options:
        return None
    text = options[name]
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ConfigurationError(f"option {name}={text}: write a whole number of at least {least}")
    return int(text)


def _size(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    found = _SIZE.fullmatch(options[name].strip())
    if found is None or int(found[1]) == 0:
        raise ConfigurationError(f"option {name}={options[name]}: write a number of bytes, like 67108864 or 64MiB")
    return int(found[1]) * _UNITS[found[2].lower()]


def _switch(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    match options.get(name, "").lower():
        case "":
            return default
        case "true":
            return True
        case "false":
            return False
        case value:
            raise ConfigurationError(f"option {name}={value}: write true or false")
