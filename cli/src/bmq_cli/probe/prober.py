"""Sends a record every so often and waits until a consumer has it: what clients see, measured from outside.

Two threads: the caller's sends and consumes, the other one hears what was acknowledged, so that neither time has the
other's waiting in it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock, Thread
from time import monotonic, time
from typing import Final
from uuid import uuid4

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from prometheus_client import Counter, Gauge, Histogram

from bmq_cli.kafka.admin import NewTopic
from bmq_cli.kafka.connection import Connection
from bmq_cli.probe.book import Failure, ProbeBook
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, one_line

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LATENCY_SECONDS: Final = Histogram(
    "bmq_probe_latency_seconds", "From sending a record until a consumer has it.", buckets=_BUCKETS
)
ACKNOWLEDGED_SECONDS: Final = Histogram(
    "bmq_probe_acknowledged_seconds", "From sending a record until it is acknowledged.", buckets=_BUCKETS
)
SENT: Final = Counter("bmq_probe_records", "Records that were due.")
FAILURES: Final = Counter("bmq_probe_failures", "Records that failed, by reason.", ["reason"])
LAST_SUCCESS: Final = Gauge(
    "bmq_probe_last_success_timestamp_seconds", "When a record was consumed last, by partition.", ["partition"]
)

_TICK_S: Final = 0.1
_RESET_S: Final = 30.0
"""Without a success for so long, clients are made anew: the topic may be another one by now."""
_STALLED_S: Final = 60.0
_RETENTION_MS: Final = 600_000
_log = structlog.get_logger("bmq.probe")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """What `bmq probe` was told."""

    topic: str
    partitions: int
    interval_s: float
    timeout_s: float


class Prober:
    """Runs until it is stopped, whatever becomes of the cluster."""

    def __init__(self, connection: Connection, settings: ProbeSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._run_id = uuid4().hex
        self._number = 0
        self._book = ProbeBook(timeout_s=settings.timeout_s)
        self._lock = Lock()
        self._due_s = monotonic()
        self._ticked_s = monotonic()
        self._succeeded_s: float | None = None
        for reason in Failure:
            FAILURES.labels(reason)

    def why_dead(self) -> str | None:
        """For /livez: its loop stands still."""
        silent_s = monotonic() - self._ticked_s
        return None if silent_s < _STALLED_S else f"nothing was done for {silent_s:.0f} s"

    def why_not_ready(self) -> str | None:
        """For /readyz: whether a record ever came through. Later failures are the cluster's, and the metrics tell of
        them.
        """
        return None if self._succeeded_s is not None else "no record has come through yet"

    def run(self, stop: Event) -> None:
        """Returns once `stop` is set."""
        while not stop.is_set():
            try:
                with self._clients() as (producer, consumer, partitions):
                    self._probe(producer, consumer, partitions, stop)
            except (CommandFailed, KafkaException) as error:
                self._cannot(error)
                self._idle(stop)

    def _probe(self, producer: Producer, consumer: Consumer, partitions: int, stop: Event) -> None:
        began_s = monotonic()
        while not stop.is_set():
            now_s = self._tick()
            if now_s >= self._due_s:
                self._send(producer, self._number % partitions)
            self._end_overdue()
            if now_s - max(began_s, self._succeeded_s or 0.0) > max(
                _RESET_S, 3 * self._settings.timeout_s, 3 * self._settings.interval_s
            ):
                _log.warning("makes new clients: nothing has come through", seconds=round(now_s - began_s))
                return
            message = consumer.poll(max(0.0, min(_TICK_S, self._due_s - monotonic())))
            if message is not None:
                self._consumed(message)

    def _send(self, producer: Producer, partition: int) -> None:
        number = self._next()
        with self._lock:
            self._book.sent(number, partition, at_s=monotonic())
        value = f"{self._run_id} {number}".encode()
        try:
            producer.produce(
                self._settings.topic, value, partition=partition, on_delivery=partial(self._delivered, number)
            )
        except (BufferError, KafkaException):
            self._delivered(number, KafkaError(KafkaError._QUEUE_FULL), None)

    def _delivered(self, number: int, error: KafkaError | None, _: Message | None) -> None:
        """In the other thread."""
        now_s = monotonic()
        with self._lock:
            took_s = self._book.acknowledged(number, at_s=now_s) if error is None else None
            is_refused = error is not None and self._book.refused(number)
        if took_s is not None:
            ACKNOWLEDGED_SECONDS.observe(took_s)
        if is_refused:
            self._failed(Failure.NOT_ACKNOWLEDGED, error)

    def _consumed(self, message: Message) -> None:
        now_s = monotonic()
        error, value, partition = message.error(), message.value(), message.partition()
        if error is not None:
            _log.debug("consumer", error=str(error))
            return
        run_id, _, number = (value or b"").decode(errors="replace").partition(" ")
        if run_id != self._run_id or not number.isdecimal():
            return  # another probe's, or an earlier one's
        with self._lock:
            took_s = self._book.seen(int(number), at_s=now_s)
        if took_s is None:
            return
        if self._succeeded_s is None:
            _log.info("the first record came through", seconds=round(took_s, 4))
        self._succeeded_s = now_s
        LATENCY_SECONDS.observe(took_s)
        LAST_SUCCESS.labels(str(partition)).set(time())

    def _end_overdue(self) -> None:
        with self._lock:
            ended = self._book.overdue(now_s=monotonic())
        for partition, reason in ended:
            self._failed(reason, f"partition {partition}: not within {self._settings.timeout_s:g} s")

    @contextmanager
    def _clients(self) -> Iterator[tuple[Producer, Consumer, int]]:
        """Raises CommandFailed, KafkaException."""
        partitions = self._topic()
        timeout_ms = max(1, round(self._settings.timeout_s * 1000))
        producer = self._connection.producer(
            {"acks": "all", "linger.ms": 0, "message.timeout.ms": timeout_ms, "socket.nagle.disable": True}
        )
        acknowledging = Event()
        thread = Thread(target=_acknowledge, args=(producer, acknowledging), name="acknowledgements", daemon=True)
        thread.start()
        consumer = self._connection.consumer(
            {
                "group.id": "bmq-probe",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "isolation.level": "read_uncommitted",
            }
        )
        try:
            wanted = [TopicPartition(self._settings.topic, index) for index in range(partitions)]
            # From offsets that are known, and not from wherever the end is when the consumer has found it: nothing sent
            # from now on is missed.
            for one in wanted:
                one.offset = consumer.get_watermark_offsets(one, timeout=self._connection.timeout_s)[1]
            consumer.assign(wanted)
            yield producer, consumer, partitions
        finally:
            producer.purge()
            producer.flush(1.0)
            acknowledging.set()
            thread.join()
            consumer.close()

    def _topic(self) -> int:
        """How many partitions it has; made where it is missing."""
        settings, name = self._settings, self._settings.topic
        try:
            return len(self._connection.describe_topic(name).partitions)
        except CommandFailed as failure:
            if failure.code is not ExitCode.NOT_FOUND:
                raise
        config = {"retention.ms": str(_RETENTION_MS), "cleanup.policy": "delete"}
        futures = self._connection.admin().create_topics(
            [NewTopic(name, num_partitions=settings.partitions, config=config)], operation_timeout=10
        )
        try:
            self._connection.wait(f"topic {name}", futures[name])
        except CommandFailed as failure:
            cause = failure.__cause__
            if not (isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS):
                raise
        _log.info("made its topic", topic=name, partitions=settings.partitions)
        return len(self._connection.describe_topic(name).partitions)

    def _cannot(self, error: Exception) -> None:
        """Every record that was due meanwhile has failed."""
        while self._due_s <= monotonic():
            self._next()
            self._failed(Failure.NO_CLUSTER, error)
        self._end_overdue()

    def _idle(self, stop: Event) -> None:
        self._tick()
        stop.wait(max(_TICK_S, min(1.0, self._due_s - monotonic())))

    def _next(self) -> int:
        """The number of a record that is due, and when the next one is: those that a long pause left out are not made
        up for.
        """
        self._number += 1
        SENT.inc()
        self._due_s = max(self._due_s + self._settings.interval_s, monotonic() - 10 * self._settings.interval_s)
        return self._number

    def _tick(self) -> float:
        self._ticked_s = monotonic()
        return self._ticked_s

    def _failed(self, reason: Failure, why: object) -> None:
        FAILURES.labels(reason).inc()
        _log.warning("a record failed", reason=str(reason), why=one_line(str(why)))


def _acknowledge(producer: Producer, stop: Event) -> None:
    while not stop.is_set():
        producer.poll(_TICK_S)
