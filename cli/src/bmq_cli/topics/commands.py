"""`bmq topics`: create, list, describe, alter, delete."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from confluent_kafka import KafkaError

from bmq.naming.names import is_internal
from bmq_cli.kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    TopicDescription,
    earliest,
    latest,
)
from bmq_cli.kafka.completion import complete_topics
from bmq_cli.kafka.connection import Connection, refused_arguments
from bmq_cli.session import Session, with_session
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, SeveralFailed
from bmq_cli.terminal.formats import key_and_value
from bmq_cli.terminal.output import Column, Output, fields

app = typer.Typer(name="topics", help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

TopicName = Annotated[str, typer.Argument(metavar="NAME", help="The topic.", autocompletion=complete_topics)]
TopicNames = Annotated[list[str], typer.Argument(metavar="NAME...", help="The topics.", autocompletion=complete_topics)]
Configs = Annotated[
    list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Set a configuration; may be repeated.")
]

_PARTITION_COLUMNS: Final = (
    Column(title="PARTITION", number=True),
    Column(title="LEADER", number=True),
    Column(title="EPOCH", number=True),
    Column(title="LOG START", number=True),
    Column(title="HIGH WATERMARK", number=True),
    Column(title="RECORDS", number=True),
)
_PARTITIONS_MAX: Final = 100_000
"""How many partitions one request may ask for, by librdkafka: above it what it says does not name the option."""
_CONFIG_COLUMNS: Final = (Column(title="CONFIGURATION"), Column(title="VALUE"), Column(title="SOURCE"))


@app.command()
@with_session
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new topic.")],
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=_PARTITIONS_MAX,
            metavar="N",
            help="How many partitions. Default: the cluster's num.partitions.",
            show_default=False,
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed when the topic exists already; it stays as it is.")
    ] = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Check everything, create nothing.")] = False,
) -> None:
    """Create a topic."""
    what = f"create topic {name}"
    configs = _configs(config)
    admin = session.connection.admin()
    with refused_arguments(what):
        topic = NewTopic(name, num_partitions=partitions or -1, replication_factor=-1, config=configs)
        timeout_s = session.connection.timeout_s
        futures = admin.create_topics(
            [topic], validate_only=validate_only, request_timeout=timeout_s, operation_timeout=timeout_s
        )
    created = True
    try:
        session.connection.wait(what, futures[name])
    except CommandFailed as failure:
        if not (if_not_exists and is_kafka_error(failure, KafkaError.TOPIC_ALREADY_EXISTS)):
            raise
        created = False
    created = created and not validate_only
    session.output.document({"topic": name, "created": created, "validated_only": validate_only})
    if created:
        session.output.text(f"created topic {name}")
    else:
        session.output.text(f"topic {name} can be created" if validate_only else f"topic {name} exists already")


@app.command("list")
@with_session
def list_topics(
    session: Session,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the topics that hold group offsets and transactions.")
    ] = False,
) -> None:
    """List the topics."""
    topics = session.connection.admin().list_topics(timeout=session.connection.timeout_s).topics
    rows = [(name, len(topics[name].partitions)) for name in sorted(topics) if internal or not is_internal(name)]
    session.output.document([{"name": name, "partitions": count} for name, count in rows])
    session.output.table((Column(title="TOPIC"), Column(title="PARTITIONS", number=True)), rows)


@app.command()
@with_session
def describe(session: Session, names: TopicNames) -> None:
    """Show each topic's partitions (leader, leader epoch, log start, high watermark, records) and configuration with
    its source.
    """
    failures: list[CommandFailed] = []
    documents: list[dict[str, Any]] = []
    for name in names:
        try:
            documents.append(_describe(session.connection, session.connection.describe_topic(name)))
        except CommandFailed as failure:
            failures.append(failure)
    if documents:
        session.output.document(documents)
    for position, document in enumerate(documents):
        if position:
            session.output.text()
        show_topic(session.output, document)
    raise_failures(failures)


@app.command()
@with_session
def alter(
    session: Session,
    name: TopicName,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=_PARTITIONS_MAX,
            metavar="N",
            help="Grow to this many partitions.",
            show_default=False,
        ),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="Back to the default; may be repeated.")
    ] = None,
) -> None:
    """Change a topic's configuration, or give it more partitions."""
    changes = _configs(config)
    removals = list(delete_config or ())
    if both := sorted(set(changes) & set(removals)):
        raise CommandFailed(
            f"alter topic {name}", f"{both[0]} is both set and deleted", "give it once", code=ExitCode.USAGE
        )
    if partitions is None and not changes and not removals:
        raise CommandFailed(
            f"alter topic {name}",
            "nothing to change",
            "give --partitions, --config or --delete-config",
            code=ExitCode.USAGE,
        )
    session.connection.describe_topic(name)
    if changes or removals:
        _alter_configs(session.connection, name, changes=changes, removals=removals)
    if partitions is not None:
        what = f"partitions of topic {name}"
        timeout_s = session.connection.timeout_s
        with refused_arguments(what):
            request = [NewPartitions(name, partitions)]
            futures = session.connection.admin().create_partitions(
                request, request_timeout=timeout_s, operation_timeout=timeout_s
            )
        session.connection.wait(what, futures[name])
    session.output.document({"topic": name, "partitions": partitions, "set": changes, "deleted": removals})
    session.output.text(f"altered topic {name}")


@app.command()
@with_session
def delete(
    session: Session,
    names: TopicNames,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete topics and all their records. Asks first when standard input is a terminal."""
    names = list(dict.fromkeys(names))
    confirm(f"delete {', '.join(names)} with all records?", yes=yes)
    timeout_s = session.connection.timeout_s
    with refused_arguments("delete"):
        futures = session.connection.admin().delete_topics(
            names, request_timeout=timeout_s, operation_timeout=timeout_s
        )
    failures = []
    deleted = []
    for name in names:
        try:
            session.connection.wait(f"delete topic {name}", futures[name])
        except CommandFailed as failure:
            failures.append(failure.with_remedy("`bmq topics list` shows them"))
        else:
            deleted.append(name)
            session.output.text(f"deleted topic {name}")
    session.output.document({"deleted": deleted})
    raise_failures(failures)


def confirm(question: str, *, yes: bool) -> None:
    """Asks on a terminal; without one, or with `yes`, goes on. Raises CommandFailed when the answer is no."""
    if yes or not sys.stdin.isatty():
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("delete", "not confirmed", "nothing was deleted")


def raise_failures(failures: Sequence[CommandFailed]) -> None:
    """Raises SeveralFailed unless there are none."""
    if failures:
        raise SeveralFailed(failures)


def is_kafka_error(failure: CommandFailed, code: int) -> bool:
    """Whether `failure` came of this Kafka error."""
    cause = failure.__cause__
    return (
        cause is not None
        and bool(cause.args)
        and isinstance(cause.args[0], KafkaError)
        and cause.args[0].code() == code
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition as `describe` shows it."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    log_start_offset: int
    high_watermark: int

    @property
    def records(self) -> int:
        """How many offsets there are to read; compaction and transactions leave fewer records."""
        return self.high_watermark - self.log_start_offset

    def document(self) -> dict[str, Any]:
        """For json and yaml."""
        return {
            "partition": self.partition,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "records": self.records,
        }


def show_topic(output: Output, document: dict[str, Any]) -> None:
    """The tables of a document that `describe` made."""
    partitions = document["partitions"]
    heading = [
        ("partitions", len(partitions)),
        ("records", sum(row["records"] for row in partitions)),
        ("id", document["id"]),
    ]
    output.text(f"{document['name']}  {fields(heading)}")
    output.table(_PARTITION_COLUMNS, [list(row.values()) for row in partitions])
    output.text()
    output.table(
        _CONFIG_COLUMNS, [(entry["name"], entry["value"], entry["source"]) for entry in document["configuration"]]
    )


def _describe(connection: Connection, topic: TopicDescription) -> dict[str, Any]:
    partitions = [(topic.name, partition.id) for partition in topic.partitions]
    starts = connection.list_offsets(partitions, earliest())
    ends = connection.list_offsets(partitions, latest())
    rows = [
        PartitionRow(
            partition=partition.id,
            leader=partition.leader.id if partition.leader is not None else None,
            leader_epoch=ends[topic.name, partition.id].leader_epoch,
            log_start_offset=starts[topic.name, partition.id].offset,
            high_watermark=ends[topic.name, partition.id].offset,
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.id)
    ]
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [row.document() for row in rows],
        "configuration": _describe_configs(connection, topic.name),
    }


def _describe_configs(connection: Connection, name: str) -> list[dict[str, Any]]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    futures = connection.admin().describe_configs([resource], request_timeout=connection.timeout_s)
    entries: dict[str, ConfigEntry] = connection.wait(f"configuration of topic {name}", futures[resource])
    return [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": _source_name(entry.source),
            "read_only": entry.is_read_only,
        }
        for entry in sorted(entries.values(), key=lambda entry: entry.name)
    ]


def _source_name(source: Any) -> str:
    """`DYNAMIC_TOPIC_CONFIG` as `topic`, and so on."""

    match ConfigSource(source):
        case ConfigSource.DYNAMIC_TOPIC_CONFIG:
            return "topic"
        case ConfigSource.DYNAMIC_BROKER_CONFIG:
            return "broker"
        case ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG:
            return "cluster"
        case ConfigSource.STATIC_BROKER_CONFIG:
            return "start-up"
        case ConfigSource.DEFAULT_CONFIG:
            return "default"
        case other:
            return str(other.name).lower()


def _alter_configs(connection: Connection, name: str, *, changes: dict[str, str], removals: Iterable[str]) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()]
    entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in removals]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    what = f"configuration of topic {name}"
    with refused_arguments(what):
        futures = connection.admin().incremental_alter_configs([resource], request_timeout=connection.timeout_s)
    connection.wait(what, futures[resource])


def _configs(pairs: Sequence[str] | None) -> dict[str, str]:
    return dict(key_and_value(pair, option="--config") for pair in pairs or ())
