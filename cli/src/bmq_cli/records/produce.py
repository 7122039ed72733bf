"""`bmq produce`: lines of standard input or a file as records. Waits for every delivery report."""

import enum
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from bmq_cli.kafka.completion import complete_topics
from bmq_cli.kafka.failures import kafka_failure
from bmq_cli.session import Session, with_session
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.formats import BadLine, Header, NewRecord, from_json_line, key_and_value, unescape
from bmq_cli.terminal.output import counted

LINE_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
_QUEUE_RECORDS: Final = 100_000
_QUEUE_KIB: Final = 131_072
_FLUSH_SLICE_S: Final = 0.2
_LATE: Final = KafkaError(KafkaError._MSG_TIMED_OUT).str()
_NO_PARTITION: Final = KafkaError(KafkaError._UNKNOWN_PARTITION).str()
_PROGRESS_STEP_BYTES: Final = 256 * 1024


class Compression(enum.StrEnum):
    """`--compression`."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReading:
    """How a line becomes a record."""

    json_lines: bool = False
    key_separator: bytes | None = None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None

    def record(self, line: bytes) -> NewRecord:
        """The record of one line (without its line break). What the line itself says goes before the options. Raises
        BadLine.
        """
        if self.json_lines:
            read = from_json_line(line)
            return NewRecord(
                key=self.key if read.key is None else read.key,
                value=read.value,
                headers=(*self.headers, *read.headers),
                timestamp_ms=read.timestamp_ms,
                partition=self.partition if read.partition is None else read.partition,
            )
        key, value = self.key, line
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                raise BadLine(f"no key separator {self.key_separator.decode(errors='replace')!r} in it")
        return NewRecord(key=key, value=value, headers=self.headers, partition=self.partition)


@dataclass(kw_only=True)
class Delivery:
    """What became of the records: librdkafka reports failures alone, what is neither queued nor failed has arrived."""

    handed_over: int = 0
    size_bytes: int = 0
    failed_bytes: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def report(self, error: KafkaError | None, message: Message) -> None:
        """The delivery callback."""
        if error is not None:
            self.fail(error, _size_bytes(message.value(), message.key()))

    def fail(self, error: KafkaError, size_bytes: int) -> None:
        """One record did not arrive."""
        self.failures[error.str().removeprefix("Broker: ")] += 1
        self.failed_bytes += size_bytes

    @property
    def failed(self) -> int:
        """How many records did not arrive, as far as is known."""
        return self.failures.total()

    def summary(self, topic: str) -> str:
        """Once nothing is in flight: what arrived, and how many did not."""
        arrived = counted(self.handed_over - self.failed, "record")
        line = f"{arrived}, {counted(self.size_bytes - self.failed_bytes, 'byte')} sent to {topic}"
        return f"{line}, {self.failed} failed" if self.failed else line


@with_session
def produce(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.", autocompletion=complete_topics)],
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read this file instead of standard input.")
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json", help="Each line is a JSON object with key, value, headers, timestamp, partition (all optional)."
        ),
    ] = False,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="SEP", help=r"Each line is KEY SEP VALUE; escapes such as \t work."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="The key of every record.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be repeated."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="The partition. Default: by key.", show_default=False)
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="How batches are compressed.")
    ] = Compression.NONE,
    delivery_timeout: Annotated[
        float,
        typer.Option(
            "--delivery-timeout",
            min=1,
            max=86_400,
            metavar="SECONDS",
            help="How long each record may take, retries included.",
        ),
    ] = 120,
    idempotent: Annotated[
        bool, typer.Option("--idempotent/--no-idempotent", help="Retries neither repeat nor reorder records.")
    ] = True,
) -> None:
    """Send each line as a record. Ends when the cluster has them all; prints their count and bytes to standard
    error.
    """
    if json_lines and key_separator is not None:
        raise CommandFailed(
            "--key-separator", "it cannot go with --json", "put the key into the JSON object", code=ExitCode.USAGE
        )
    if key_separator == "":
        raise CommandFailed(
            "--key-separator", "it is empty", r"for example --key-separator : or '\t'", code=ExitCode.USAGE
        )
    reading = LineReading(
        json_lines=json_lines,
        key_separator=None if key_separator is None else unescape(key_separator),
        key=None if key is None else os.fsencode(key),
        headers=tuple(
            (name, os.fsencode(value))
            for name, value in (key_and_value(text, option="--header") for text in header or ())
        ),
        partition=partition,
    )
    with _open(file) as source:
        described = session.connection.describe_topic(topic)
        if partition is not None and partition >= len(described.partitions):
            raise CommandFailed(
                f"partition {partition} of topic {topic}",
                f"there is none: it has {counted(len(described.partitions), 'partition')}",
                f"`bmq topics describe {topic}` shows them",
                code=ExitCode.NOT_FOUND,
            )
        producer = session.connection.producer(
            {
                "enable.idempotence": idempotent,
                "acks": "all",
                "compression.type": compression.value,
                "linger.ms": 5,
                "message.max.bytes": LINE_SIZE_BYTES_MAX,
                "message.timeout.ms": int(delivery_timeout * 1000),
                "queue.buffering.max.messages": _QUEUE_RECORDS,
                "queue.buffering.max.kbytes": _QUEUE_KIB,
                "delivery.report.only.error": True,
            }
        )
        delivery = Delivery()
        try:
            with _progress(session.output.messages, file) as advance:
                _send(producer, topic, read_lines(source, advance), reading, delivery)
        except KeyboardInterrupt:
            _drain(producer, bound_s=session.connection.timeout_s)
            raise
        finally:
            _drain(producer)
            session.output.note(delivery.summary(topic))
    if delivery.failed:
        raise delivery_failure(topic, delivery)


def delivery_failure(topic: str, delivery: Delivery) -> CommandFailed:
    """What did not arrive, and its commonest reason."""
    reason, _ = delivery.failures.most_common(1)[0]
    remedy = "some may have been written all the same: look before you send them again"
    if reason == _NO_PARTITION:
        remedy = f"these were not sent: `bmq topics describe {topic}` shows its partitions"
    elif reason == _LATE:
        # What was answered meanwhile, a full disk say, no library tells: it tried again and again.
        remedy = f"see what `bmq cluster status` says of the cluster and its store; {remedy}"
    elif "too large" in reason:
        remedy = (
            f"send smaller records, or raise what the topic takes: bmq topics alter {topic} --config "
            "max.message.bytes=BYTES"
        )
    return CommandFailed(
        f"produce to {topic}", f"{delivery.failed} of {delivery.handed_over} records failed: {reason}", remedy
    )


def read_lines(source: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    """The lines without their line breaks (a carriage return stays). `advance` hears of the bytes read. Raises BadLine
    for one too long.
    """
    while line := source.readline(LINE_SIZE_BYTES_MAX + 1):
        if len(line) > LINE_SIZE_BYTES_MAX:
            raise BadLine(f"longer than {LINE_SIZE_BYTES_MAX} bytes")
        advance(len(line))
        yield line.removesuffix(b"\n")


def _send(producer: Producer, topic: str, lines: Iterator[bytes], reading: LineReading, delivery: Delivery) -> None:
    number = 1
    try:
        for line in lines:
            _send_one(producer, topic, reading.record(line), delivery)
            number += 1
    except BadLine as error:
        raise CommandFailed(
            f"line {number}",
            str(error),
            f"correct it; {counted(delivery.handed_over, 'record')} before it {_was(delivery.handed_over)} sent",
        ) from error
    except KafkaException as error:
        raise kafka_failure(f"line {number}", error) from error


def _send_one(producer: Producer, topic: str, record: NewRecord, delivery: Delivery) -> None:
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                on_delivery=delivery.report,
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
            )
            break
        except BufferError:
            producer.poll(_FLUSH_SLICE_S)
        except KafkaException as error:
            if (code := error.args[0].code()) != KafkaError._UNKNOWN_PARTITION:
                raise
            # at once, in other words, where librdkafka knows the topic by then; else by its report
            delivery.fail(KafkaError(code), _size_bytes(record.value, record.key))
            break
    delivery.handed_over += 1
    delivery.size_bytes += _size_bytes(record.value, record.key)
    producer.poll(0)


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _drain(producer: Producer, *, bound_s: float = math.inf) -> None:
    """Waits until every record has arrived or failed (each fails by itself in time), or for `bound_s`; then the rest is
    given up, as failed.
    """
    waited_s = 0.0
    while producer.flush(_FLUSH_SLICE_S) > 0:
        waited_s += _FLUSH_SLICE_S
        if waited_s >= bound_s:
            producer.purge()


def _size_bytes(value: bytes | None, key: bytes | None) -> int:
    return len(value or b"") + len(key or b"")


@contextmanager
def _open(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as error:
        raise CommandFailed(
            f"--file {file}",
            (error.strerror or str(error)).lower(),
            "name a file that can be read, or leave --file out to read standard input",
            code=ExitCode.USAGE,
        ) from error
    with source:
        yield source


@contextmanager
def _progress(console: Console, file: Path | None) -> Iterator[Callable[[int], None]]:
    """What to call with the bytes read; shows a bar where a file is read and standard error is a terminal."""
    if file is None or not console.is_terminal or not file.is_file():
        yield lambda size_bytes: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(file.name, total=file.stat().st_size)
        unseen_bytes = 0

        def advance(size_bytes: int) -> None:
            nonlocal unseen_bytes
            unseen_bytes += size_bytes
            if unseen_bytes >= _PROGRESS_STEP_BYTES:
                progress.advance(task, unseen_bytes)
                unseen_bytes = 0

        yield advance
