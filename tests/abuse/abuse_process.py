"""A bmq of its own process: what a request makes of its memory, and what meanwhile another client waits for."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from abuse_requests import TOPIC_IDS, TOPICS
from started_bmq import StartedBmq, started_bmq
from tests.bare_client import BareClient
from tests.waiting import let_pass, until

from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.records import Record, build_batch

ANSWERED_WITHIN_S: Final = 120
_MADE_AT_ONCE: Final = 100
_QUIET_S: Final = 0.5
_QUIET_SHARE: Final = 0.1
_BYTES_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BmqProcess:
    """One that runs `bmq up`."""

    started: StartedBmq

    @property
    def kafka(self) -> tuple[str, int]:
        """Where clients reach it."""
        host, _, port = self.started.kafka.rpartition(":")
        return host, int(port)

    def resident_bytes(self) -> int:
        """What of it is in memory."""
        return self._status("VmRSS")

    def waited_s(self) -> float:
        """How long its event loop's thread could have run and did not get a processor, since it began: what others on
        this machine took.
        """
        return int(Path(f"/proc/{self.started.pid}/schedstat").read_text().split()[1]) / 1e9

    def until_quiet(self) -> None:
        """Returns when what was asked of it before is over, also what it does by itself (snapshots, rolls)."""

        def used_s() -> float:
            before_s = self.used_s()
            let_pass(_QUIET_S, "what it uses in that time")
            return self.used_s() - before_s

        until(used_s, "it to be quiet", 120, holds=lambda used: used < _QUIET_S * _QUIET_SHARE, every_s=0)

    def used_s(self) -> float:
        """Processor time of all its threads."""
        fields = Path(f"/proc/{self.started.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextlib.contextmanager
    def growth(self) -> "Iterator[Growth]":
        """By how much more of it was in memory at some moment within than at the beginning."""
        Path(f"/proc/{self.started.pid}/clear_refs").write_text("5")
        before, found = self.resident_bytes(), Growth()
        yield found
        found.size_bytes = self._status("VmHWM") - before

    def have_topics(self, topics: dict[str, int]) -> None:
        """Makes those that are not there, and notes the ids of all for the requests that name them so."""
        with BareClient(self.kafka) as client:
            names = list(topics)
            for first in range(0, len(names), _MADE_AT_ONCE):
                wanted = [
                    {
                        "name": name,
                        "num_partitions": topics[name],
                        "replication_factor": 1,
                        "assignments": [],
                        "configs": [],
                    }
                    for name in names[first : first + _MADE_AT_ONCE]
                ]
                made = client.ask(19, 5, {"topics": wanted, "timeout_ms": 60_000, "validate_only": False})
                assert {one.error_code for one in made.topics} <= {0, ErrorCode.topic_already_exists}
            described = client.ask(
                3,
                12,
                {"topics": [{"topic_id": None, "name": name} for name in topics], "allow_auto_topic_creation": False},
            )
            TOPIC_IDS.update({topic.name: topic.topic_id for topic in described.topics})

    def _status(self, key: str) -> int:
        lines = Path(f"/proc/{self.started.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:"))


@dataclass(slots=True)
class Growth:
    """Known at the end."""

    size_bytes: int = 0


@contextlib.contextmanager
def bmq_process(folder: Path, *arguments: str, topics: dict[str, int] | None = None) -> Iterator[BmqProcess]:
    """One with the topics of the walk, and the one of the patient client."""
    with started_bmq(folder, *arguments) as started:
        process = BmqProcess(started)
        process.have_topics({**(TOPICS if topics is None else topics), PATIENT: 1})
        yield process


PATIENT: Final = "patient"


@dataclass(slots=True)
class PatientClient:
    """Produces, fetches and asks for metadata, one after the other, and notes how long each takes."""

    address: tuple[str, int]
    took_s: list[float] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "PatientClient":
        self._thread = threading.Thread(target=self._run, name="patient client")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join(ANSWERED_WITHIN_S)

    def so_far(self) -> int:
        """How many it has asked."""
        return len(self.took_s)

    def next_ones(self, count: int) -> list[float]:
        """How long the next ones take."""
        first = len(self.took_s)
        assert self._thread is not None
        until(
            lambda: len(self.took_s) >= first + count,
            f"{count} more answers",
            240,
            unless=lambda: self._thread is None or not self._thread.is_alive(),
            every_s=0.001,
        )
        return self.took_s[first : first + count]

    def _run(self) -> None:
        client = BareClient(self.address)
        batch = build_batch([Record(0, 1_000, None, b"patience")])
        offset = 0
        while not self._over.is_set():
            data = [{"name": PATIENT, "partition_data": [{"index": 0, "records": batch}]}]
            made = self._timed(
                client, 0, 9, {"transactional_id": None, "acks": -1, "timeout_ms": 60_000, "topic_data": data}
            )
            assert made.responses[0].partition_responses[0].error_code == 0
            partition = {
                "partition": 0,
                "fetch_offset": offset,
                "partition_max_bytes": 1 << 20,
                "current_leader_epoch": -1,
            }
            asked = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1}
            found = self._timed(client, 1, 11, {**asked, "topics": [{"topic": PATIENT, "partitions": [partition]}]})
            offset = found.responses[0].partitions[0].high_watermark
            self._timed(client, 3, 9, {"topics": [{"name": PATIENT}], "allow_auto_topic_creation": False})
        client.close()

    def _timed(self, client: BareClient, api_key: int, version: int, request: dict[str, Any]) -> Message:
        began_s = time.perf_counter()
        answer = client.ask(api_key, version, request)
        self.took_s.append(time.perf_counter() - began_s)
        return answer


def nearly_all_within_s(took_s: Sequence[float]) -> float:
    """Within which 99 of 100 were answered."""
    return sorted(took_s)[int(len(took_s) * 0.99)]
