"""The well-behaved client beside the one that misbehaves: a process of its own that produces a record, fetches it, and
notes how long each took.

`Neighbour` starts it and reads its notes. Run as a program it is that client: `survival_neighbour.py SERVERS TOPIC
NOTES`. It ends when its standard input does. What cannot be done it tries again, and notes as well.
"""

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from survival_wire import NO_ERROR, batch_of, create_topic, fetch, produce
from tests.bare_client import BareClient, PeerClosed
from tests.waiting import let_pass

ROOT = Path(__file__).parents[2]
PAUSE_S = 0.005
FLOOR_MS = 150.0
"""Below this a p99 says more about the other programs of a busy machine than about bmq."""
RATIO_MAX = 2.0
SAMPLES_MIN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Of the requests, both kinds together, that ended within some time."""

    count: int
    median_ms: float
    p99_ms: float
    worst_ms: float
    failures: int

    def __str__(self) -> str:
        return (
            f"{self.count} requests, p50 {self.median_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, worst "
            f"{self.worst_ms:.0f} ms, {self.failures} failed"
        )


class Neighbour:
    """A running one. Its topic has one partition and is its own."""

    def __init__(self, servers: str, topic: str, notes: Path) -> None:
        self._notes = notes
        with BareClient(servers) as peer:
            create_topic(peer, topic)
        notes.touch()
        self._process = subprocess.Popen(
            [sys.executable, __file__, servers, topic, str(notes)],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def measure(self, seconds: float) -> Latency:
        """Of the next `seconds`."""
        began = monotonic()
        let_pass(seconds, "it is measured so long")
        return self.between(began, monotonic())

    def between(self, began: float, ended: float) -> Latency:
        """Of the requests that ended between two monotonic times; one that still runs counts with the time it has
        taken.
        """
        taken, failures, newest = [], 0, 0.0
        for line in self._notes.read_text().splitlines():
            at, kind, ms = line.split()
            newest = float(at)
            if began <= newest <= ended:
                failures += kind == "failed"
                taken.append(float(ms))
        if ended - newest > 1:
            taken.append((ended - max(began, newest)) * 1000)
        assert taken, "the neighbour did nothing at all"
        ordered = sorted(taken)
        p99_ms = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        return Latency(
            count=len(taken), median_ms=statistics.median(taken), p99_ms=p99_ms, worst_ms=ordered[-1], failures=failures
        )

    def stop(self) -> None:
        """Ends it. Raises AssertionError where it ended by itself, or lost or changed a record."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0, "the neighbour found something wrong: see above"


def assert_undisturbed(what: str, before: Latency, beside: Latency) -> None:
    """Its p99 at most doubled and nothing failed. Prints both, which `pytest -rP` shows."""
    print(f"{what}: before: {before}; beside: {beside}; p99 ratio {beside.p99_ms / before.p99_ms:.2f}")
    assert beside.failures == 0, f"{what}: {beside}"
    assert beside.count >= SAMPLES_MIN, f"{what}: the neighbour got hardly anything done: {beside}"
    assert beside.p99_ms <= max(RATIO_MAX * before.p99_ms, FLOOR_MS), (
        f"{what}: p99 before {before.p99_ms:.1f} ms, beside {beside.p99_ms:.1f} ms"
    )


def _run(servers: str, topic: str, notes: Path) -> None:
    stop = Event()
    Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    peer: BareClient | None = None
    number = offset = 0
    with notes.open("a", buffering=1) as out:
        while not stop.is_set():
            began = monotonic()
            kind = "produce"
            try:
                if peer is None:
                    peer = BareClient(servers)
                value = b"%020d" % number
                error, base = produce(peer, topic, 0, batch_of(value + b"." * 1000))
                assert error == NO_ERROR, f"produce answered {error}"
                produced = monotonic()
                out.write(f"{produced:.6f} {kind} {(produced - began) * 1000:.3f}\n")
                kind = "fetch"
                assert base >= offset, f"record {number} at {base}, the one before at {offset - 1}"
                error, _, batches = fetch(peer, topic, 0, base)
                assert error == NO_ERROR and value in batches, (
                    f"fetch of {base} answered {error} and {len(batches)} bytes"
                )
                fetched = monotonic()
                out.write(f"{fetched:.6f} {kind} {(fetched - produced) * 1000:.3f}\n")
                number += 1
                offset = base + 1
            except (OSError, PeerClosed) as error:
                ended = monotonic()
                out.write(f"{ended:.6f} failed {(ended - began) * 1000:.3f}\n")
                print(f"neighbour: {kind}: {error!r}", file=sys.stderr)
                if peer is not None:
                    peer.close()
                    peer = None
            stop.wait(PAUSE_S)


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
