"""Producers that go on whatever happens to bmq, and remember what was acknowledged; afterwards all of that has to be
there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from time import monotonic

from survival_wire import NO_ERROR, batch_of, create_topic, fetch, produce, produce_fields
from tests.bare_client import BareClient, PeerClosed
from tests.waiting import until

from bmq.wire.apis import ApiKey
from bmq.wire.batches import iterate_records, split
from bmq.wire.error_codes import ErrorCode

RETRIABLE = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
        ErrorCode.network_exception,
        ErrorCode.coordinator_not_available,
    }
)
PRODUCERS = 3
FLOODS = 6
TIMEOUT_MS = 4_000


@dataclass(slots=True)
class Acknowledged:
    """By partition: {offset: value}."""

    records: dict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    lock: Lock = field(default_factory=Lock)
    newest_at: float = 0.0
    """Monotonic time of the newest acknowledgement."""
    refused: int = 0

    def add(self, partition: int, offset: int, value: bytes) -> None:
        with self.lock:
            assert self.records[partition].setdefault(offset, value) == value, (
                f"offset {offset} of partition {partition} was given twice"
            )
            self.newest_at = monotonic()

    def count(self) -> int:
        with self.lock:
            return sum(len(records) for records in self.records.values())


class Workload:
    """Plain producers, each with a partition of its own, and (`flood`) others that send large batches without waiting
    for answers.

    Use as a context; an unexpected error of a producer is raised at its end. `servers` may be changed while it runs.
    """

    def __init__(self, servers: str, topic: str, *, flood: bool = True) -> None:
        self.servers = servers
        self.topic = topic
        self.acknowledged = Acknowledged()
        self._stop = Event()
        self._failed: list[BaseException] = []
        with BareClient(servers) as peer:
            create_topic(peer, topic, partitions=PRODUCERS + FLOODS)
        jobs = [(self._produce, partition) for partition in range(PRODUCERS)]
        jobs += [(self._flood, PRODUCERS + index) for index in range(FLOODS if flood else 0)]
        self._threads = [Thread(target=self._guarded, args=job) for job in jobs]

    def __enter__(self) -> "Workload":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def until_acknowledged(self, *, after: float, timeout_s: float) -> float:
        """Seconds from `after` (monotonic) to an acknowledgement of each plain producer later than that."""
        before = {partition: len(self.acknowledged.records[partition]) for partition in range(PRODUCERS)}
        until(
            lambda: all(len(self.acknowledged.records[partition]) > count for partition, count in before.items()),
            "every producer to go on",
            after + timeout_s - monotonic(),
            unless=lambda: self._failed,
            shows=lambda: self._failed,
        )
        return monotonic() - after

    def verify(self, servers: str) -> int:
        """Reads every partition and compares; the number of acknowledged records. Raises AssertionError."""
        with BareClient(servers, timeout_s=60) as peer:
            for partition in range(PRODUCERS):
                there = dict(read_all(peer, self.topic, partition))
                for offset, value in self.acknowledged.records[partition].items():
                    assert there.get(offset) == value, (
                        f"acknowledged record {partition}/{offset} is {there.get(offset, b'lost')[:40]!r}"
                    )
                assert sorted(there) == list(range(len(there))), f"the offsets of partition {partition} have holes"
        return self.acknowledged.count()

    def _guarded(self, job: Callable[[int], None], partition: int) -> None:
        try:
            job(partition)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
            self._failed.append(error)

    def _produce(self, partition: int) -> None:
        number = 0
        while not self._stop.is_set():
            with suppress(OSError, PeerClosed), BareClient(self.servers, timeout_s=TIMEOUT_MS / 1000 + 5) as peer:
                while not self._stop.is_set():
                    value = b"%d-%012d-" % (partition, number) + b"x" * 2_000
                    error, offset = produce(peer, self.topic, partition, batch_of(value), timeout_ms=TIMEOUT_MS)
                    number += 1
                    if error == NO_ERROR:
                        self.acknowledged.add(partition, offset, value)
                        self._stop.wait(0.002)
                    else:
                        assert error in RETRIABLE, (
                            f"produce answered {ErrorCode(error).name}, which clients do not try again"
                        )
                        self.acknowledged.refused += 1
                        self._stop.wait(0.05)
            self._stop.wait(0.05)

    def _flood(self, partition: int) -> None:
        batch = batch_of(b"y" * 900_000)
        fields = produce_fields(self.topic, partition, batch, timeout_ms=TIMEOUT_MS)
        while not self._stop.is_set():
            with suppress(OSError, PeerClosed), BareClient(self.servers, timeout_s=1) as peer:
                while not self._stop.is_set():
                    for _ in range(8):
                        peer.send(ApiKey.PRODUCE, 8, fields)
                    for _ in range(8):
                        self._await_frame(peer)
                    self._stop.wait(0.3)
            self._stop.wait(0.05)

    def _await_frame(self, peer: BareClient) -> None:
        """An answer may take the request's whole time; a stop is noticed meanwhile."""
        peer.socket.settimeout(TIMEOUT_MS / 1000 + 10)
        peer.receive_frame()


def read_all(peer: BareClient, topic: str, partition: int) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of every record from the start to the high watermark."""
    offset = 0
    while True:
        error, high_watermark, batches = fetch(peer, topic, partition, offset, max_bytes=4 << 20)
        assert error == NO_ERROR, f"fetch of {topic}-{partition} from {offset} answered {ErrorCode(error).name}"
        if offset >= high_watermark:
            return
        for header in split(batches):
            for record in iterate_records(batches, header):
                if record.offset >= offset:
                    yield record.offset, record.value or b""
            offset = header.next_offset


__all__ = ["PRODUCERS", "RETRIABLE", "Acknowledged", "Workload", "read_all"]
