"""`bmq consume`: prints a topic's records, from anywhere to the end or on and on, alone or as a member of a group."""

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, BinaryIO, Final

import typer
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from bmq_cli.kafka.admin import at_or_after, earliest, latest
from bmq_cli.kafka.completion import complete_groups, complete_topics
from bmq_cli.kafka.connection import Connection
from bmq_cli.kafka.failures import kafka_failure
from bmq_cli.kafka.positions import Bounds, Ends, PartitionKey, resolve
from bmq_cli.session import Session, with_session
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.formats import Header, Record, compile_format, to_document, to_json_line
from bmq_cli.terminal.output import counted, to_yaml
from bmq_cli.terminal.output_format import OutputFormat
from bmq_cli.terminal.times import FORMS, AtOffset, AtTime, Beginning, End, Position, parse_position
from bmq_cli.wall_clock import now_ms

_BATCH_RECORDS: Final = 500
_POLL_S: Final = 0.2
_GROUPLESS: Final = "bmq-cli"
_SESSION_TIMEOUT_MS: Final = 10_000
_DEFAULT_FORMAT: Final = r"%v\n"


@with_session
def consume(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.", autocompletion=complete_topics)],
    *,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help=f"{FORMS}. In a group: where nothing is committed. Default: beginning; end with --follow.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group, and commit.",
            autocompletion=complete_groups,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Go on at the end of the topic, until Ctrl-C.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=0, metavar="COUNT", help="Stop after so many records.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help=r"%k key, %v value, %t topic, %p partition, %o offset, %T timestamp, %h headers; \n \t \xHH. "
            rf"Default: {_DEFAULT_FORMAT}.",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, metavar="P", help="Only this one; may be repeated.")
    ] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Also records of transactions that are open or were aborted.")
    ] = False,
) -> None:
    """Print a topic's records. Without --follow it ends where the topic ended when it started."""
    if group is not None and partition:
        raise CommandFailed(
            "--partition",
            "a group assigns the partitions",
            "leave out one of --group and --partition",
            code=ExitCode.USAGE,
        )
    position = (
        parse_position(start, now_ms=now_ms(), option="--from")
        if start is not None
        else End()
        if follow
        else Beginning()
    )
    render = _renderer(session.output.form, form)
    connection = session.connection
    partitions = _partitions(connection, topic, partition or ())
    bounds = read_bounds(connection, partitions)
    starts = resolve(position, bounds, lambda timestamp_ms: _at_time(connection, partitions, timestamp_ms))
    if group is None and not follow and (hint := _nothing_follows(topic, start, position, starts, bounds)):
        session.output.note(hint)
    settings: dict[str, Any] = {
        "group.id": group or _GROUPLESS,
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        "session.timeout.ms": _SESSION_TIMEOUT_MS,
        "fetch.wait.max.ms": 200,
        "queued.max.messages.kbytes": 65_536,
    }
    ends = Ends({key: bound.end for key, bound in bounds.items()})
    consumer = connection.consumer(settings)
    reader = _Reader(
        connection, consumer, render, ends=None if follow else ends, count=count, in_group=group is not None
    )
    with _interruption() as interruption, _closing(consumer, in_group=group is not None):
        if group is None:
            ends.assigned(starts.items())
            consumer.assign([TopicPartition(name, number, offset) for (name, number), offset in starts.items()])
        else:
            _join(consumer, topic, starts, ends, timeout_s=connection.timeout_s)
        reader.run(sys.stdout.buffer, interruption)


class _Reader:
    """Reads, prints, and marks what was printed as consumed."""

    def __init__(
        self,
        connection: Connection,
        consumer: Consumer,
        render: Any,
        *,
        ends: Ends | None,
        count: int | None,
        in_group: bool,
    ) -> None:
        self._connection = connection
        self._consumer = consumer
        self._render = render
        self._ends = ends
        self._left = count
        self._in_group = in_group
        self._silent_s = 0.0

    def run(self, out: BinaryIO, interruption: "Interruption") -> None:
        """Until the count, the ends, or an interruption, which waits until what was printed is marked. Raises
        KeyboardInterrupt.
        """
        while self._left != 0 and not (self._ends is not None and self._ends.reached):
            if interruption.came:
                raise KeyboardInterrupt
            wanted = _BATCH_RECORDS if self._left is None else min(_BATCH_RECORDS, self._left)
            messages = self._consumer.consume(wanted, _POLL_S)
            printed = [message for message in messages if self._print(message, out)]
            if printed:
                out.flush()
                self._mark(printed)
            self._watch(bool(messages))

    def _print(self, message: Message, out: BinaryIO) -> bool:
        error = message.error()
        if error is not None:
            self._meet(error, message)
            return False
        record = to_record(message)
        if self._ends is not None and not self._ends.wanted(record.topic, record.partition, record.offset):
            return False
        out.write(self._render(record))
        if self._ends is not None:
            self._ends.read(record.topic, record.partition, record.offset)
        if self._left is not None:
            self._left -= 1
        return True

    def _meet(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            topic, partition = message.topic(), message.partition()
            if self._ends is not None and topic is not None and partition is not None:
                self._ends.at_end(topic, partition)
        elif not error.retriable() and error.code() not in (
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._RESOLVE,
        ):
            raise kafka_failure("consume", error)

    def _mark(self, messages: Sequence[Message]) -> None:
        if not self._in_group:
            return
        for message in messages:
            try:
                self._consumer.store_offsets(message)
            except KafkaException as exception:
                # The partition was taken away between reading and now: its new owner reads the record again.
                if exception.args[0].code() != KafkaError._STATE:
                    raise

    def _watch(self, progressed: bool) -> None:
        """Without --follow the cluster's disappearance ends the command; with it, the cluster is waited for."""
        if progressed:
            self._silent_s = 0.0
            self._connection.forget_errors()
            return
        self._silent_s += _POLL_S
        lost = self._connection.lost()
        if self._ends is not None and lost is not None and self._silent_s >= self._connection.timeout_s:
            raise kafka_failure("consume", lost)


def to_record(message: Message) -> Record:
    """A message that carries no error."""
    kind, timestamp_ms = message.timestamp()
    headers = list(_headers(message))
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Record(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        append_time=kind == TIMESTAMP_LOG_APPEND_TIME,
        key=message.key(),
        value=message.value(),
        headers=headers,
    )


def _headers(message: Message) -> Iterator[Header]:
    headers = message.headers() or []
    for name, value in headers.items() if isinstance(headers, dict) else headers:
        yield name, value.encode() if isinstance(value, str) else value


def read_bounds(connection: Connection, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Bounds]:
    """Where each partition begins and ends now."""
    starts = connection.list_offsets(partitions, earliest())
    ends = connection.list_offsets(partitions, latest())
    return {key: Bounds(start=starts[key].offset, end=ends[key].offset) for key in partitions}


def _renderer(output: OutputFormat, form: str | None) -> Any:
    if form is not None and output is not OutputFormat.TABLE:
        raise CommandFailed(
            "--format", f"it cannot go with -o {output.value}", "leave out one of them", code=ExitCode.USAGE
        )
    match output:
        case OutputFormat.TABLE:
            return compile_format(_DEFAULT_FORMAT if form is None else form)
        case OutputFormat.JSON:
            return to_json_line
        case OutputFormat.YAML:
            return lambda record: b"---\n" + to_yaml(to_document(record)).encode()


def _partitions(connection: Connection, topic: str, chosen: Sequence[int]) -> list[tuple[str, int]]:
    existing = sorted(partition.id for partition in connection.describe_topic(topic).partitions)
    if missing := sorted(set(chosen) - set(existing)):
        raise CommandFailed(
            f"partition {missing[0]} of topic {topic}",
            f"there is none: it has {counted(len(existing), 'partition')}",
            f"`bmq topics describe {topic}` shows them",
            code=ExitCode.NOT_FOUND,
        )
    return [(topic, number) for number in (sorted(set(chosen)) or existing)]


def _nothing_follows(
    topic: str,
    given: str | None,
    position: Position,
    starts: Mapping[PartitionKey, int],
    bounds: Mapping[PartitionKey, Bounds],
) -> str:
    """Why nothing is printed where the position lies at or beyond the end of all that is read; else empty."""
    if not isinstance(position, AtOffset | AtTime) or any(starts[key] < bound.end for key, bound in bounds.items()):
        return ""
    last = max((bound.end for bound in bounds.values()), default=0)
    return (
        f"nothing is at or after --from {given}: {topic} ends at offset {last}"
        f"{' at most' if len(bounds) > 1 else ''}; --follow waits for more"
    )


def _at_time(
    connection: Connection, partitions: Sequence[tuple[str, int]], timestamp_ms: int
) -> dict[tuple[str, int], int]:
    return {
        key: listed.offset for key, listed in connection.list_offsets(partitions, at_or_after(timestamp_ms)).items()
    }


def _join(consumer: Consumer, topic: str, starts: dict[tuple[str, int], int], ends: Ends, *, timeout_s: float) -> None:
    """Subscribes; whenever partitions come, those without a committed offset begin where `starts` says."""

    def assign(member: Consumer, partitions: list[TopicPartition]) -> None:
        committed = member.committed(partitions, timeout=timeout_s) if partitions else []
        chosen = [
            (
                item.topic,
                item.partition,
                item.offset if item.offset >= 0 else starts.get((item.topic, item.partition), 0),
            )
            for item in committed
        ]
        ends.assigned(((name, number), offset) for name, number, offset in chosen)
        member.assign([TopicPartition(name, number, offset) for name, number, offset in chosen])
        if fresh := [
            TopicPartition(item.topic, item.partition, starts.get((item.topic, item.partition), 0))
            for item in committed
            if item.offset < 0
        ]:
            # Where the group begins is remembered even if nothing is read: the next member must not begin elsewhere.
            member.store_offsets(offsets=fresh)

    def revoke(member: Consumer, partitions: list[TopicPartition]) -> None:
        ends.revoked((item.topic, item.partition) for item in partitions)
        member.unassign()

    consumer.subscribe([topic], on_assign=assign, on_revoke=revoke, on_lost=revoke)


@contextmanager
def _closing(consumer: Consumer, *, in_group: bool) -> Iterator[None]:
    try:
        yield
    finally:
        if in_group:
            _commit(consumer)
        consumer.close()


def _commit(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as exception:
        if exception.args[0].code() != KafkaError._NO_OFFSET:
            raise kafka_failure("commit", exception, "these records will be read again") from exception


class Interruption:
    """SIGINT or SIGTERM: the first is noted, a second one (output that nobody takes, say) interrupts at once."""

    def __init__(self) -> None:
        self.came = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal handler. Raises KeyboardInterrupt the second time."""
        if self.came:
            raise KeyboardInterrupt
        self.came = True


@contextmanager
def _interruption() -> Iterator[Interruption]:
    interruption = Interruption()
    before = {number: signal.signal(number, interruption.note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
