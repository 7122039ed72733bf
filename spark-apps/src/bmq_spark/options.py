"""The arguments that the jobs share: which records, how they are decoded, and how the job runs. Owns how sizes and
times are written.

Raises ConfigurationError with one line for what argparse cannot see; credentials never come this way.
"""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bmq_spark.errors import ConfigurationError

FORMATS: Final = ("bytes", "string", "json", "avro", "protobuf")
KEY_FORMATS: Final = ("bytes", "string")
SOURCES: Final = ("kafka", "bmq")
STARTS: Final = ("earliest", "latest")
CLIENT_ID: Final = "bmq-spark"
_TIMES_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES: Final = {
    "": 1,
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
}
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OWN_SETTINGS: Final = (
    "bootstrap.servers",
    "group.id",
    "auto.offset.reset",
    "enable.auto.commit",
    "client.id",
    "isolation.level",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What a job that reads topics is told."""

    bootstrap_servers: str
    topics: tuple[str, ...]
    lane: str
    """Empty: none."""
    checkpoint: str | None
    """None: with the table."""
    once: bool
    trigger_ms: int
    format: str
    schema: str | None
    registry: str | None
    message: str | None
    key_format: str
    source: str
    store: str | None
    group: str
    starting_offsets: str
    max_records_per_batch: int
    accept_loss: bool
    consumer_config: Mapping[str, str]
    event_log: str | None

    @property
    def client_id(self) -> str:
        """By which bmq's proxies know the lane."""
        return f"{CLIENT_ID},lane={self.lane}" if self.lane else CLIENT_ID


def add_shared_arguments(parser: argparse.ArgumentParser, *, job: str, topics_required: bool = True) -> None:
    """Everything of JobOptions; `job` is the first part of the default group's name."""
    records = parser.add_argument_group("records")
    records.add_argument(
        "-b",
        "--bootstrap-server",
        "--bootstrap-servers",
        dest="bootstrap_servers",
        metavar="HOST:PORT[,…]",
        default=os.environ.get("BMQ_BOOTSTRAP_SERVER") or "127.0.0.1:9092",
        help="where the cluster is reached (default: $BMQ_BOOTSTRAP_SERVER, else 127.0.0.1:9092)",
    )
    records.add_argument(
        "--topic",
        metavar="NAME",
        action="append",
        required=topics_required,
        help="a topic; repeatable, and all of them go into the one table",
    )
    records.add_argument(
        "--lane", metavar="NAME", default="", help="read this lane's topics, and commit progress in the lane's group"
    )
    records.add_argument(
        "--source",
        choices=SOURCES,
        default="kafka",
        help="kafka: from the brokers. bmq: straight from the bucket (default: %(default)s)",
    )
    records.add_argument(
        "--store", metavar="URL", help="--source bmq: the cluster's store, as `bmq up --store` takes it, or its folder"
    )
    records.add_argument(
        "--starting-offsets",
        choices=STARTS,
        default="earliest",
        help="where a partition begins that the table has nothing of (default: %(default)s)",
    )
    records.add_argument(
        "--consumer-config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="--source kafka: a setting of Kafka's consumer; repeatable",
    )
    values = parser.add_argument_group("values")
    values.add_argument("--format", choices=FORMATS, default="bytes", help="what the values are (default: %(default)s)")
    values.add_argument(
        "--schema",
        metavar="FILE_OR_URI",
        help="the values' schema: DDL or JSON Schema for json, .avsc, .proto or a descriptor set",
    )
    values.add_argument("--registry", metavar="URL", help="a schema registry, for values that carry a schema's id")
    values.add_argument("--message", metavar="NAME", help="--format protobuf: the message's full name")
    values.add_argument(
        "--key-format", choices=KEY_FORMATS, default="bytes", help="what the keys are (default: %(default)s)"
    )
    running = parser.add_argument_group("running")
    once = running.add_mutually_exclusive_group()
    once.add_argument("--once", action="store_true", help="take what is there now, then end")
    once.add_argument(
        "--trigger", metavar="TIME", default="1m", help="go on for ever, with a batch so often (default: %(default)s)"
    )
    running.add_argument(
        "--checkpoint", metavar="URI", help="Spark's notes on the stream, of this job alone (default: with the table)"
    )
    running.add_argument(
        "--max-records-per-batch",
        metavar="N",
        type=int,
        default=500_000,
        help="of all partitions (default: %(default)s)",
    )
    running.add_argument(
        "--group", metavar="NAME", help=f"the consumer group that shows the job's progress (default: {job}-TOPICS)"
    )
    running.add_argument(
        "--accept-loss", action="store_true", help="go on where records are gone from the log; the commit says which"
    )
    running.add_argument(
        "--event-log", metavar="URI", help="keep Spark's event log in this folder, for its history server"
    )


def shared(arguments: argparse.Namespace, *, job: str) -> dict[str, Any]:
    """JobOptions's fields. Raises ConfigurationError."""
    topics = tuple(dict.fromkeys(arguments.topic))
    for topic in topics:
        if not _TOPIC.fullmatch(topic):
            raise ConfigurationError(f"--topic {topic!r}: no topic's name: write one name, and repeat --topic for more")
    if arguments.max_records_per_batch < 1:
        raise ConfigurationError(f"--max-records-per-batch {arguments.max_records_per_batch}: give 1 or more")
    if arguments.source == "bmq" and not arguments.store:
        raise ConfigurationError("--source bmq: needs --store: the URL or folder that bmq keeps its data in")
    if arguments.source == "kafka" and arguments.store:
        raise ConfigurationError(
            f"--store {arguments.store}: only --source bmq reads it: add that, or leave --store out"
        )
    _check_values(arguments)
    return {
        "bootstrap_servers": arguments.bootstrap_servers,
        "topics": topics,
        "lane": arguments.lane,
        "checkpoint": arguments.checkpoint,
        "once": arguments.once,
        "trigger_ms": time_ms("--trigger", arguments.trigger),
        "format": arguments.format,
        "schema": arguments.schema,
        "registry": arguments.registry,
        "message": arguments.message,
        "key_format": arguments.key_format,
        "source": arguments.source,
        "store": arguments.store,
        "group": arguments.group or f"{job}-{'-'.join(sorted(topics))}"[:249],
        "starting_offsets": arguments.starting_offsets,
        "max_records_per_batch": arguments.max_records_per_batch,
        "accept_loss": arguments.accept_loss,
        "consumer_config": settings(arguments.consumer_config),
        "event_log": arguments.event_log,
    }


def _check_values(arguments: argparse.Namespace) -> None:
    chosen = arguments.format
    if chosen in ("bytes", "string"):
        for name in ("schema", "registry", "message"):
            if getattr(arguments, name):
                raise ConfigurationError(
                    f"--{name}: --format {chosen} takes none: choose json, avro or protobuf, or leave it out"
                )
    if chosen in ("avro", "protobuf") and not arguments.schema and not arguments.registry:
        raise ConfigurationError(f"--format {chosen}: needs --schema FILE_OR_URI or --registry URL")
    if arguments.message and chosen != "protobuf":
        raise ConfigurationError(f"--message {arguments.message}: only --format protobuf has messages")


def settings(given: Sequence[str]) -> dict[str, str]:
    """Kafka's settings as a dictionary. Raises ConfigurationError, also for settings that the job makes itself."""
    found = {key.removeprefix("kafka."): value for key, value in pairs("--consumer-config", given).items()}
    for key in found:
        if key in _OWN_SETTINGS:
            raise ConfigurationError(f"--consumer-config {key}: the job sets it itself: leave it out")
    return found


def pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    """Each `KEY=VALUE`. Raises ConfigurationError."""
    found = {}
    for pair in given:
        key, mark, value = pair.partition("=")
        if not mark or not key.strip():
            raise ConfigurationError(f"{flag} {pair!r}: write KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def time_ms(flag: str, text: str) -> int:
    """`500ms`, `30s`, `1m`, `12h`, `30d` in milliseconds, above 0. Raises ConfigurationError."""
    return _amount(flag, text, _TIMES_MS, "a time like 30s, 1m, 12h or 30d")


def size_bytes(flag: str, text: str) -> int:
    """`128MiB`, `1GB`, `4096` in bytes, above 0. Raises ConfigurationError."""
    return _amount(flag, text, _SIZES, "a size like 128MiB or 1GiB")


def _amount(flag: str, text: str, units: Mapping[str, int], example: str) -> int:
    match = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)\s*", text)
    amount = round(float(match[1]) * units.get(match[2], 0)) if match else 0
    if amount < 1:
        raise ConfigurationError(f"{flag} {text!r}: write {example}")
    return amount
