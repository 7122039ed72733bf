"""`bmq groups`: list, describe, delete, reset-offsets."""

import concurrent.futures
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from bmq_cli.groups.lag import Lag, first_unread_timestamps_ms, lag_of
from bmq_cli.groups.resets import Reset, Selection, parse_selection, plan_shift, plan_to, select
from bmq_cli.kafka.admin import ConsumerGroupDescription, at_or_after
from bmq_cli.kafka.completion import complete_groups
from bmq_cli.kafka.connection import Connection, refused_arguments
from bmq_cli.kafka.failures import kafka_failure
from bmq_cli.kafka.positions import PartitionKey, resolve
from bmq_cli.records.consume import read_bounds
from bmq_cli.session import Session, with_session
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Column, Output, counted, fields
from bmq_cli.terminal.times import FORMS, parse_position
from bmq_cli.topics.commands import confirm, raise_failures
from bmq_cli.wall_clock import now_ms

app = typer.Typer(
    name="groups", help="List, describe and delete consumer groups; reset their offsets.", no_args_is_help=True
)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=complete_groups)]


class GroupState(enum.StrEnum):
    """`--state`."""

    STABLE = "stable"
    EMPTY = "empty"
    DEAD = "dead"
    PREPARING_REBALANCE = "preparing-rebalance"
    COMPLETING_REBALANCE = "completing-rebalance"


_STATES: Final = {
    GroupState.STABLE: ConsumerGroupState.STABLE,
    GroupState.EMPTY: ConsumerGroupState.EMPTY,
    GroupState.DEAD: ConsumerGroupState.DEAD,
    GroupState.PREPARING_REBALANCE: ConsumerGroupState.PREPARING_REBALANCING,
    GroupState.COMPLETING_REBALANCE: ConsumerGroupState.COMPLETING_REBALANCING,
}
_STATE_NAMES: Final[dict[enum.Enum, str]] = {state: name.value for name, state in _STATES.items()}
_LIST_COLUMNS: Final = (Column(title="GROUP"), Column(title="STATE"), Column(title="TYPE"))
_MEMBER_COLUMNS: Final = (
    Column(title="MEMBER"),
    Column(title="CLIENT"),
    Column(title="HOST"),
    Column(title="INSTANCE"),
    Column(title="PARTITIONS"),
)
_OFFSET_COLUMNS: Final = (
    Column(title="TOPIC"),
    Column(title="PARTITION", number=True),
    Column(title="COMMITTED", number=True),
    Column(title="END", number=True),
    Column(title="LAG", number=True),
    Column(title="LAG SECONDS", number=True),
    Column(title="CLIENT"),
)
_RESET_COLUMNS: Final = (
    Column(title="TOPIC"),
    Column(title="PARTITION", number=True),
    Column(title="BEFORE", number=True),
    Column(title="AFTER", number=True),
)


@app.command("list")
@with_session
def list_groups(
    session: Session,
    state: Annotated[
        list[GroupState] | None, typer.Option("--state", help="Only groups in this state; may be repeated.")
    ] = None,
) -> None:
    """List the groups."""
    connection = session.connection
    wanted = {"states": {_STATES[name] for name in state}} if state else {}
    future = connection.admin().list_consumer_groups(request_timeout=connection.timeout_s, **wanted)
    result = connection.wait("list groups", future)
    rows = sorted((group.group_id, _state_name(group.state), group.type.name.lower()) for group in result.valid or ())
    session.output.document([{"group": name, "state": state_name, "type": kind} for name, state_name, kind in rows])
    session.output.table(_LIST_COLUMNS, rows)
    raise_failures(
        [kafka_failure("list groups", error) for error in result.errors or () if isinstance(error, KafkaException)]
    )


@app.command()
@with_session
def describe(session: Session, name: GroupName) -> None:
    """Show a group's state, members and, per partition, committed offset, end, and lag in records and seconds."""
    connection = session.connection
    group, committed = _existing_group(connection, name)
    assigned = {
        (item.topic, item.partition): member for member in group.members for item in member.assignment.topic_partitions
    }
    lags = _lags(connection, {topic for topic, _ in (*assigned, *committed)}, committed)
    offsets = [
        {
            "topic": topic,
            "partition": partition,
            "committed": lag.committed,
            "end": lag.end,
            "lag": lag.records,
            "lag_seconds": lag.seconds,
            "client": assigned[topic, partition].client_id if (topic, partition) in assigned else None,
        }
        for (topic, partition), lag in sorted(lags.items())
    ]
    document = {
        "group": name,
        "state": _state_name(group.state),
        "type": group.type.name.lower(),
        "protocol": group.partition_assignor or None,
        "coordinator": group.coordinator.id if group.coordinator is not None else None,
        "lag": sum(lag.records or 0 for lag in lags.values()),
        "lag_seconds": max((lag.seconds for lag in lags.values() if lag.seconds is not None), default=0.0),
        "members": [
            _member(member) for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id))
        ],
        "offsets": offsets,
    }
    session.output.document(document)
    _show_group(session.output, document)


@app.command()
@with_session
def delete(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups.", autocompletion=complete_groups)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete groups with their committed offsets. A group that has members stays. Asks first when standard input is a
    terminal.
    """
    names = list(dict.fromkeys(names))
    confirm(f"delete {', '.join(names)} with all committed offsets?", yes=yes)
    with refused_arguments("delete groups"):
        futures = session.connection.admin().delete_consumer_groups(names, request_timeout=session.connection.timeout_s)
    failures, deleted = [], []
    for name in names:
        try:
            session.connection.wait(f"delete group {name}", futures[name])
        except CommandFailed as failure:
            failures.append(failure.with_remedy("`bmq groups list` shows them"))
        else:
            deleted.append(name)
            session.output.text(f"deleted group {name}")
    session.output.document({"deleted": deleted})
    raise_failures(failures)


@app.command("reset-offsets")
@with_session
def reset_offsets(
    session: Session,
    name: GroupName,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="T[:P,P]", help="Of this topic, or of these partitions of it; may be repeated."
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Of every partition of which the group has committed an offset.")
    ] = False,
    to: Annotated[str | None, typer.Option("--to", metavar="POSITION", help=f"{FORMS}.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="N records forward, or back when negative.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it. Without this, only show what would change.")
    ] = False,
) -> None:
    """Move a group's committed offsets. A dry run unless --execute; refused while the group has members."""
    if (to is None) == (shift_by is None):
        raise CommandFailed(
            "reset-offsets", "the target is not clear", "give one of --to and --shift-by", code=ExitCode.USAGE
        )
    if bool(topic) == all_topics:
        raise CommandFailed(
            "reset-offsets", "it is not clear of which topics", "give --topic or --all-topics", code=ExitCode.USAGE
        )
    position = None if to is None else parse_position(to, now_ms=now_ms(), option="--to")
    connection = session.connection
    group, committed = _existing_group(connection, name) if all_topics else _group(connection, name)
    refuse_active(name, group)
    keys = (
        _still_there(connection, committed)
        if all_topics
        else _chosen(connection, [parse_selection(text) for text in topic or ()])
    )
    bounds = read_bounds(connection, keys)
    if position is not None:
        resets = plan_to(
            resolve(position, bounds, lambda timestamp_ms: _at_time(connection, keys, timestamp_ms)), committed
        )
    else:
        assert shift_by is not None
        resets = plan_shift(shift_by, bounds, committed)
    if not execute and _is_missing(group, committed):
        session.output.note(f"there is no group {name} yet: --execute makes it, with these offsets")
    if execute:
        _write(connection, name, [reset for reset in resets if reset.changes])
    _show_resets(session.output, name, resets, executed=execute)


def refuse_active(name: str, group: ConsumerGroupDescription) -> None:
    """Raises CommandFailed when members would go on from, and overwrite, what a reset writes."""
    if group.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
        return
    clients = sorted({f"{member.client_id} on {member.host.lstrip('/')}" for member in group.members})
    why = (
        f"it is {_state_name(group.state)} with {counted(len(group.members), 'member')} "
        f"({', '.join(clients[:3])}{', …' if len(clients) > 3 else ''})"
    )
    raise CommandFailed(
        f"reset offsets of group {name}", why, "stop them first: a reset under running members would be overwritten"
    )


def _group(connection: Connection, name: str) -> tuple[ConsumerGroupDescription, dict[PartitionKey, int]]:
    """Its description and committed offsets; a group that is not there is dead and has none."""
    with refused_arguments(f"group {name}"):
        described = connection.admin().describe_consumer_groups([name], request_timeout=connection.timeout_s)
        offsets = connection.admin().list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=connection.timeout_s
        )
    group: ConsumerGroupDescription = connection.wait(f"group {name}", described[name])
    found: ConsumerGroupTopicPartitions = _offsets_or_none(connection, name, offsets[name])
    return group, {
        (item.topic, item.partition): item.offset for item in found.topic_partitions or () if item.offset >= 0
    }


def _offsets_or_none(connection: Connection, name: str, future: "concurrent.futures.Future[Any]") -> Any:
    try:
        return connection.wait(f"offsets of group {name}", future)
    except CommandFailed as failure:
        if failure.code is not ExitCode.NOT_FOUND:
            raise
        return ConsumerGroupTopicPartitions(name, [])


def _existing_group(connection: Connection, name: str) -> tuple[ConsumerGroupDescription, dict[PartitionKey, int]]:
    group, committed = _group(connection, name)
    if _is_missing(group, committed):
        raise CommandFailed(
            f"group {name}", "there is no such group", "`bmq groups list` shows them", code=ExitCode.NOT_FOUND
        )
    return group, committed


def _is_missing(group: ConsumerGroupDescription, committed: Mapping[PartitionKey, int]) -> bool:
    return group.state is ConsumerGroupState.DEAD and not group.members and not committed


def _chosen(connection: Connection, selections: Sequence[Selection]) -> list[PartitionKey]:
    existing = {
        choice.topic: [item.id for item in connection.describe_topic(choice.topic).partitions] for choice in selections
    }
    return select(selections, existing)


def _still_there(connection: Connection, keys: Iterable[PartitionKey]) -> list[PartitionKey]:
    topics = connection.admin().list_topics(timeout=connection.timeout_s).topics
    return sorted(
        (topic, partition) for topic, partition in keys if topic in topics and partition in topics[topic].partitions
    )


def _lags(connection: Connection, topics: set[str], committed: dict[PartitionKey, int]) -> dict[PartitionKey, Lag]:
    """The lag of every partition of those of these topics that exist: where nothing is committed, that too is worth
    seeing.
    """
    existing = connection.admin().list_topics(timeout=connection.timeout_s).topics
    keys = [
        (topic, partition)
        for topic in sorted(topics & existing.keys())
        for partition in sorted(existing[topic].partitions)
    ]
    bounds = read_bounds(connection, keys)
    unread = {
        key: bounds[key].clamp(committed[key]) for key in keys if key in committed and committed[key] < bounds[key].end
    }
    timestamps_ms = first_unread_timestamps_ms(connection, unread)
    moment_ms = now_ms()
    return {
        key: lag_of(
            committed=committed.get(key), bounds=bounds[key], first_unread_ms=timestamps_ms.get(key), now_ms=moment_ms
        )
        for key in keys
    }


def _at_time(connection: Connection, keys: Iterable[PartitionKey], timestamp_ms: int) -> dict[PartitionKey, int]:
    return {key: listed.offset for key, listed in connection.list_offsets(keys, at_or_after(timestamp_ms)).items()}


def _write(connection: Connection, name: str, resets: Sequence[Reset]) -> None:
    if not resets:
        return
    what = f"reset offsets of group {name}"
    request = ConsumerGroupTopicPartitions(
        name, [TopicPartition(reset.topic, reset.partition, reset.after) for reset in resets]
    )
    with refused_arguments(what):
        futures = connection.admin().alter_consumer_group_offsets([request], request_timeout=connection.timeout_s)
    result: ConsumerGroupTopicPartitions = connection.wait(what, futures[name])
    failed: list[tuple[TopicPartition, KafkaError]] = [
        (item, item.error) for item in result.topic_partitions or () if item.error is not None
    ]
    raise_failures([kafka_failure(f"{what}, {item.topic}/{item.partition}", error) for item, error in failed])


def _member(member: Any) -> dict[str, Any]:
    partitions = sorted((item.topic, item.partition) for item in member.assignment.topic_partitions)
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.host.lstrip("/"),
        "instance": member.group_instance_id,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions],
    }


def _show_group(output: Output, document: dict[str, Any]) -> None:
    heading = [(name.replace("_", " "), document[name]) for name in ("state", "type", "protocol", "lag", "lag_seconds")]
    output.text(f"{document['group']}  {fields(heading)}")
    if document["members"]:
        output.text()
        output.table(
            _MEMBER_COLUMNS, [(*list(row.values())[:4], _ranges(row["partitions"])) for row in document["members"]]
        )
    if document["offsets"]:
        output.text()
        output.table(_OFFSET_COLUMNS, [list(row.values()) for row in document["offsets"]])


def _ranges(partitions: Sequence[dict[str, Any]]) -> str:
    """`orders:0,1 payments:2`."""
    topics: dict[str, list[str]] = {}
    for item in partitions:
        topics.setdefault(item["topic"], []).append(str(item["partition"]))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items())


def _show_resets(output: Output, name: str, resets: Sequence[Reset], *, executed: bool) -> None:
    rows = [(reset.topic, reset.partition, reset.before, reset.after) for reset in resets]
    changes = [
        {"topic": topic, "partition": partition, "before": before, "after": after}
        for topic, partition, before, after in rows
    ]
    output.document({"group": name, "executed": executed, "offsets": changes})
    output.table(_RESET_COLUMNS, rows)
    if output.for_people and not executed:
        output.note("nothing was changed: add --execute to do it")


def _state_name(state: enum.Enum) -> str:
    return _STATE_NAMES.get(state, state.name.lower())
