"""A job, compactions, vacuum and retention on one table, each killed at any step or left without an answer: no record
is lost or doubled.

The model is a list: what the job has committed, less what retention has taken. It is compared with the files of every
version that is still promised.
"""

import io
import os
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest
from faulty_location import Faults, FaultyLocation, Killed
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from table_records import HOUR_MS, START_MS, covered_by, records, write

from bmq_spark.errors import BmqError, CommitRefused
from bmq_spark.table import Commit, Snapshot, Table, log, record_schema
from bmq_spark.table.compaction import compact
from bmq_spark.table.vacuum import expire, vacuum

KEPT_MS = 10 * 60_000
"""How long a replaced version can still be read."""
EXAMPLES = int(os.environ.get("BMQ_TABLE_EXAMPLES", "30"))
faults_of_a_step = st.one_of(
    st.none(),
    st.tuples(st.just("kill_before"), st.integers(0, 6)),
    st.tuples(st.just("kill_after"), st.integers(0, 6)),
    st.tuples(st.just("lost_made"), st.integers(0, 2)),
    st.tuples(st.just("lost_late"), st.integers(0, 2)),
)


class TableMachine(RuleBasedStateMachine):
    """One location, one query, processes that come and go."""

    @initialize()
    def a_table(self) -> None:
        self.faults = Faults()
        self.location = FaultyLocation("s3://model/table", self.faults)
        self.now_ms = START_MS
        Table.create(self.location, clock_ms=self.clock)
        self.plan: list[tuple[int, int, int]] = []
        """Of each batch of the stream, as Spark's checkpoint has it: first offset, count, time of the first record."""
        self.job: Table | None = None
        self.expired_ms = 0
        self.promised: dict[int, tuple[int, frozenset[int]]] = {}

    def clock(self) -> int:
        self.faults.now_ms = self.now_ms
        return self.now_ms

    def run(self, step: Callable[[], object], fault: tuple[str, int] | None) -> bool:
        """One step of a process, with at most one fault. False where the process did not live through it."""
        self.now_ms += 60_000
        self.clock()
        match fault:
            case ("kill_before", count):
                self.faults.kill_before = count
            case ("kill_after", count):
                self.faults.kill_after = count
            case ("lost_made" | "lost_late" as kind, count):
                self.faults.lose_answer, self.faults.lost_is_made = count, kind == "lost_made"
            case _:
                pass
        try:
            step()
        except (Killed, BmqError):
            return False
        finally:
            self.faults.heal()
        return True

    @rule(count=st.integers(1, 4), hours_late=st.integers(0, 2), fault=faults_of_a_step)
    def the_job_takes_a_batch(self, count: int, hours_late: int, fault: tuple[str, int] | None) -> None:
        """The next batch, or again the one that was planned and not committed."""
        committed = Table.open(self.location).snapshot().last_batch.get("q", -1) + 1
        if committed == len(self.plan):
            first = sum(planned[1] for planned in self.plan)
            self.plan.append((first, count, self.now_ms - hours_late * HOUR_MS))

        def step() -> None:
            if self.job is None:
                job = Table.open(self.location, clock_ms=self.clock)
                job.begin("q")
                self.job = job
            self.take(self.job, len(self.plan) - 1)

        if not self.run(step, fault):
            self.job = None

    def take(self, job: Table, number: int) -> None:
        if job.snapshot().has_batch("q", number):
            return
        first, count, start_ms = self.plan[number]
        batch = [records("t", 0, first, count, start_ms=start_ms, step_ms=HOUR_MS // 2)]
        job.commit_batch(
            ("q", number), added=write(job, "q", number, batch), offsets=covered_by(batch), schema=record_schema()
        )

    @rule(fault=faults_of_a_step)
    def a_job_that_was_thought_dead_wakes(self, fault: tuple[str, int] | None) -> None:
        """Its successor has begun meanwhile: the sleeper's files and commit come late."""
        sleeper = self.job
        if sleeper is None:
            return
        if Table.open(self.location).snapshot().has_batch("q", len(self.plan) - 1):
            self.plan.append((sum(planned[1] for planned in self.plan), 2, self.now_ms))
        number = len(self.plan) - 1
        first, count, start_ms = self.plan[number]
        batch = [records("t", 0, first, count, start_ms=start_ms, step_ms=HOUR_MS // 2)]
        held = write(sleeper, "q", number, batch)
        successor = Table.open(self.location, clock_ms=self.clock)
        lived = self.run(lambda: successor.begin("q"), fault)
        began = Table.open(self.location).snapshot().runs.get("q") != sleeper.run
        self.job = successor if lived else None
        if began and not Table.open(self.location).snapshot().has_batch("q", number):
            with pytest.raises(CommitRefused):
                sleeper.commit_batch(("q", number), added=held, offsets=covered_by(batch), schema=record_schema())

    @rule(fault=faults_of_a_step, min_files=st.integers(2, 4))
    def a_compaction(self, fault: tuple[str, int] | None, min_files: int) -> None:
        table = Table.open(self.location, clock_ms=self.clock)
        self.run(lambda: compact(table, before_ms=1 << 42, min_files=min_files), fault)

    @rule(
        fault=faults_of_a_step,
        other=st.sampled_from(["batch", "compaction", "retention", "vacuum", "batch and vacuum"]),
    )
    def a_compaction_that_others_overtake(self, fault: tuple[str, int] | None, other: str) -> None:
        """Between its merges and its commit."""
        table = Table.open(self.location, clock_ms=self.clock)
        commit_on_newest = table.commit_on_newest

        def overtaken(decide: Callable[[Snapshot], Commit | None]) -> Snapshot:
            match other:
                case "batch":
                    self.the_job_takes_a_batch(2, 0, None)
                case "compaction":
                    self.a_compaction(None, 2)
                case "retention":
                    self.retention(2, None)
                case _:
                    if other != "vacuum":
                        self.the_job_takes_a_batch(1, 0, None)
                    self.now_ms += 2 * KEPT_MS
                    self.a_vacuum(None)
            return commit_on_newest(decide)

        table.commit_on_newest = overtaken  # type: ignore[method-assign]
        self.run(lambda: compact(table, before_ms=1 << 42, min_files=2), fault)

    @rule(fault=faults_of_a_step)
    def a_vacuum(self, fault: tuple[str, int] | None) -> None:
        self.run(lambda: vacuum(Table.open(self.location, clock_ms=self.clock), before_ms=self.now_ms - KEPT_MS), fault)

    @rule(hours=st.integers(1, 4), fault=faults_of_a_step)
    def retention(self, hours: int, fault: tuple[str, int] | None) -> None:
        before_ms = self.now_ms - hours * HOUR_MS
        table = Table.open(self.location, clock_ms=self.clock)
        self.run(lambda: expire(table, before_ms=before_ms), fault)
        self.expired_ms = max(self.expired_ms, before_ms)

    @rule()
    def creates_that_were_under_way_arrive(self) -> None:
        self.location.arrive()

    @rule(minutes=st.integers(1, 90))
    def time_passes(self, minutes: int) -> None:
        self.now_ms += minutes * 60_000

    @invariant()
    def every_record_is_there_once(self) -> None:
        """At the newest version: all that is committed, but for what retention may have taken; nothing twice, nothing
        of the future.
        """
        snapshot = Table.open(self.location).snapshot()
        offsets = self.offsets_at(snapshot)
        assert len(offsets) == len(set(offsets)), "a record is there twice"
        committed = self.plan[: snapshot.last_batch.get("q", -1) + 1]
        times = {first + i: start_ms + i * HOUR_MS // 2 for first, count, start_ms in committed for i in range(count)}
        assert set(offsets) <= set(times)
        lost = {
            offset
            for offset in set(times) - set(offsets)
            if times[offset] // HOUR_MS * HOUR_MS + HOUR_MS > self.expired_ms
        }
        assert not lost, f"offsets {sorted(lost)} are lost"
        assert snapshot.offsets.get("t", {}).get(0, 0) == len(times)
        self.promised.setdefault(snapshot.version, (snapshot.time_ms, frozenset(offsets)))

    @invariant()
    def replaced_versions_can_be_read_for_a_while(self) -> None:
        newest = Table.open(self.location).snapshot()
        for version, (_, offsets) in list(self.promised.items())[-4:]:
            if version >= newest.version:
                continue
            replaced_ms = Table(self.location).read_commit(version + 1).time_ms
            if replaced_ms > self.now_ms - KEPT_MS:
                assert set(self.offsets_at(Table.open(self.location).snapshot(version))) == offsets

    def offsets_at(self, snapshot: Snapshot) -> list[int]:
        found: list[int] = []
        for file in snapshot.files:
            offsets = pq.read_table(io.BytesIO(self.location.read(file.key)), columns=["offset"]).column(0).to_pylist()
            assert len(offsets) == file.rows
            found += offsets
        return found


@pytest.fixture(autouse=True)
def stored_snapshots_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "SNAPSHOT_INTERVAL", 3)
    monkeypatch.setattr(log, "SNAPSHOTS_KEPT", 2)


class TestTable(TableMachine.TestCase):  # type: ignore[misc]
    settings = settings(
        max_examples=EXAMPLES, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
    )
