"""What a run came to: figures for one line and for JSON, and whether it is good."""

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from chaos_checker import (
    Findings,
    WriterFigures,
    build_log,
    check_follower,
    check_group,
    check_latest,
    check_origins,
    check_writer,
)
from chaos_faults import Done, Windows
from chaos_history import ACKNOWLEDGED, read_committed, read_latest, read_reads, read_sent
from chaos_workload import Ended, Workload


@dataclass(slots=True, kw_only=True)
class Latency:
    """From sending to the report, in seconds."""

    count: int
    p50_s: float
    p99_s: float
    max_s: float


@dataclass(slots=True, kw_only=True)
class Report:
    """One run."""

    seed: int
    seconds: float
    faults: dict[str, int]
    windows: list[Done]
    """When each was on."""
    operations: dict[str, int] = field(default_factory=dict)
    writers: dict[str, WriterFigures] = field(default_factory=dict)
    latency: dict[str, Latency] = field(default_factory=dict)
    """By kind of fault that was on when a record was sent."""
    findings: Findings = field(default_factory=Findings)
    ended: Ended = field(default_factory=Ended)
    unexpected: list[str] = field(default_factory=list)
    """Nodes that ended by themselves, or not as they were told to."""
    starts_refused: int = 0
    """How often a node ended at its start because the store was away, and was started again."""
    bugs: list[str] = field(default_factory=list)
    """Lines of logs that no fault excuses."""
    audit: list[str] = field(default_factory=list)
    """What an audit of the store found wrong afterwards."""
    checked_s: float = 0.0

    @property
    def failed(self) -> int:
        """Failed delivery reports."""
        return sum(sum(figures.failed.values()) for figures in self.writers.values())

    @property
    def duplicates(self) -> int:
        """What plain producers wrote twice."""
        return sum(figures.duplicates for figures in self.writers.values())

    @property
    def is_good(self) -> bool:
        return not (self.findings or self.failed or self.ended.failures or self.unexpected or self.bugs or self.audit)

    def line(self) -> str:
        """All of it in one line."""
        total = sum(self.operations.values())
        parts = ", ".join(f"{count:,} {name}" for name, count in self.operations.items())
        everything = self.latency.get("all")
        latency = (
            f"p50 {everything.p50_s * 1000:.0f} ms, p99 {everything.p99_s:.2f} s, max {everything.max_s:.1f} s"
            if everything
            else "-"
        )
        anomalies = ", ".join(f"{count} {name}" for name, count in self.findings.counts.items()) or "none"
        others = len(self.ended.failures) + len(self.unexpected) + len(self.bugs) + len(self.audit)
        reordered = sum(figures.reordered for figures in self.writers.values())
        return (
            f"{'good' if self.is_good else 'BAD'} · seed {self.seed} · {self.seconds:.0f} s · "
            f"{sum(self.faults.values())} faults · {total:,} operations ({parts}) · {self.failed} failed delivery "
            f"reports · anomalies: {anomalies} · plain: {self.duplicates} written twice, {reordered} overtaken · "
            f"{latency} · clients hung: {self.ended.hung} · other complaints: {others}"
        )

    def table(self) -> str:
        """Latency by kind of fault."""
        rows = [f"{'fault':<18}{'times':>6}{'records':>10}{'p50 ms':>9}{'p99 s':>9}{'max s':>9}"]
        for name, found in self.latency.items():
            times = self.faults.get(name, "")
            latency = f"{found.p50_s * 1000:>9.0f}{found.p99_s:>9.2f}{found.max_s:>9.2f}"
            rows.append(f"{name:<18}{times:>6}{found.count:>10,}{latency}")
        return "\n".join(rows)

    def complaints(self) -> str:
        """What is wrong, in words."""
        lines = [str(self.findings)] if self.findings else []
        lines += [f"{name}: first failed delivery report: {error}" for name, error in self.ended.first_errors.items()]
        return "\n".join([*lines, *self.ended.failures, *self.unexpected, *self.bugs, *self.audit])

    def as_json(self) -> str:
        """The same for programs."""
        told = {**_fields(self), "good": self.is_good, "failed": self.failed, "duplicates_of_plain": self.duplicates}
        return json.dumps(told, indent=1, default=_fields)


def _fields(one: Any) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in fields(one)}


def report_on(
    workloads: Sequence[tuple[Workload, Ended]],
    done: Sequence[Done],
    *,
    seed: int,
    seconds: float,
    unexpected: Sequence[str],
    logs: Sequence[Path],
) -> Report:
    """Checks the histories of a run that is over."""
    report = Report(
        seed=seed,
        seconds=seconds,
        faults=dict(Counter(one.fault for one in done)),
        windows=list(done),
        unexpected=list(unexpected),
    )
    operations: Counter[str] = Counter()
    for workload, ended in workloads:
        report.ended.join(ended)
        operations.update(_checked(workload, ended, report))
    report.operations = dict(operations)
    report.latency = _latency([workload for workload, _ in workloads], done)
    report.bugs = [line for path in logs for line in bugs_of(path)]
    return report


def _checked(workload: Workload, ended: Ended, report: Report) -> dict[str, int]:
    """What was done by its clients; what is wrong about it is in the report then."""
    findings = report.findings
    log = build_log(read_reads(workload.whole.out), findings)
    reads = sum(len(records) for records in log.partitions.values())
    figures = {}
    for spec, client in workload.writers.items():
        rows = read_sent(client.out)
        figures[spec.name] = check_writer(
            spec.producer, rows, log, findings, name=spec.name, idempotent=spec.idempotent
        )
    report.writers |= figures
    check_origins(log, [spec.producer for spec in workload.specs], findings, where=workload.lane or "the base")
    for follower in workload.followers:
        reads += check_follower(read_reads(follower.out), log, findings, name=follower.name)
    members = {member.name: read_reads(member.out) for member in workload.members}
    commits = [commit for path in workload.commits for commit in read_committed(path)]
    reads += check_group(members, commits, ended.committed, log, findings)
    for partition in log.partitions:
        if ended.committed.get(partition, 0) < log.end(partition):
            findings.add(
                "unseen", f"the group came to {ended.committed.get(partition)} of {log.end(partition)} in {partition}"
            )
    ends = check_latest(
        read_latest(workload.prober.out), [read_sent(client.out) for client in workload.writers.values()], findings
    )
    return {
        "sent": sum(one.sent for one in figures.values()),
        "acknowledged": sum(one.acknowledged for one in figures.values()),
        "read": reads,
        "commits": sum(commit.status == 0 for commit in commits),
        "ends asked for": ends,
    }


BUGS = ("Traceback", "a bug", "exception was never retrieved", "never awaited", "invariant", '"level": "critical"')
BUGS_MAX = 20


def bugs_of(log: Path) -> list[str]:
    """Lines of a node's log that say that bmq itself is wrong."""
    found = []
    with log.open(errors="replace") as lines:
        for line in lines:
            if any(bug in line for bug in BUGS):
                found.append(f"{log.name}: {line.strip()[:600]}")
                if len(found) == BUGS_MAX:
                    break
    return found


def _latency(workloads: Sequence[Workload], done: Sequence[Done]) -> Mapping[str, Latency]:
    windows = Windows(done)
    seconds: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
    for client in [client for workload in workloads for client in workload.writers.values()]:
        for row in read_sent(client.out):
            if row.status == ACKNOWLEDGED:
                taken_s = row.answered_s - row.sent_s
                seconds["all"].append(taken_s)
                seconds[windows.at(row.sent_s)].append(taken_s)
    return {name: _latency_of(sorted(seconds[name])) for name in sorted(seconds)}


def _latency_of(ordered: Sequence[float]) -> Latency:
    count = len(ordered)
    return Latency(count=count, p50_s=ordered[count // 2], p99_s=ordered[count * 99 // 100], max_s=ordered[-1])
