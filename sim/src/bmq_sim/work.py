"""What a run did, in numbers that add up over runs: records acknowledged, faults, and which fault met which step of a
protocol.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from bmq_sim.store import Fault

WIDTH = 9
INJECTED = ("kill", "pause", "stop", "no way", "cut", "clock", "damage", *Fault)
"""Whatever can go wrong: with a process, between two hosts (a way that is blocked, a connection that is lost), with a
clock, with what is stored, with a request to the store."""


@dataclass(slots=True)
class Work:
    """What one run did, or many together."""

    seeds: int = 0
    virtual_s: float = 0.0
    batches: int = 0
    """Acknowledged."""
    records: int = 0
    """Acknowledged."""
    read: int = 0
    """Records that readers and groups saw."""
    commits: int = 0
    """Commits of groups that were acknowledged."""
    operations: Counter[str] = field(default_factory=Counter)
    """Operations of those who run the cluster, by kind."""
    faults: Counter[str] = field(default_factory=Counter)
    """By kind."""
    injected: Counter[str] = field(default_factory=Counter)
    """By kind of INJECTED: what went wrong at all, in any scenario; of the store each request counts that met it."""
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of fault and step that the node was in."""

    def add(self, other: "Work") -> None:
        """Sums up."""
        self.seeds += other.seeds
        self.virtual_s += other.virtual_s
        self.batches += other.batches
        self.records += other.records
        self.read += other.read
        self.commits += other.commits
        self.operations.update(other.operations)
        self.faults.update(other.faults)
        self.pairs.update(other.pairs)
        self.injected.update(other.injected)


def table(work: Work, kinds: Sequence[str], steps: Sequence[str]) -> str:
    """Steps down, kinds of faults across; the last column and the last line are the smallest of theirs."""
    head = _line("", (*kinds, "least"))
    lines = [
        _line(
            step,
            (*(str(work.pairs[kind, step]) for kind in kinds), str(_least(work.pairs[kind, step] for kind in kinds))),
        )
        for step in steps
    ]
    least = _line("least", (*(str(_least(work.pairs[kind, step] for step in steps)) for kind in kinds), ""))
    return "\n".join((head, *lines, least))


def faults_table(works: Mapping[str, Work]) -> str:
    """By scenario what went wrong, as docs/simulator.md has it."""
    lines = [("scenario", "seeds", *INJECTED), ("---",) * (len(INJECTED) + 2)]
    for name, work in works.items():
        lines.append((name, str(work.seeds), *(f"{work.injected[kind]:,}" for kind in INJECTED)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(work: Work) -> str:
    """One line."""
    return (
        f"{work.records} records in {work.batches} batches acknowledged, {work.read} records read, {work.commits} "
        f"commits, {sum(work.faults.values())} faults, {work.virtual_s / 3600:.1f} simulated hours"
    )


def added(work: Work, file: Path) -> Work:
    """The sum of `work` and of what the file says, which says the sum from then on."""
    kept = _read(file)
    kept.add(work)
    rows = {name: getattr(kept, name) for name in _NUMBERS} | {
        "operations": kept.operations,
        "faults": kept.faults,
        "injected": kept.injected,
        "pairs": [[kind, step, count] for (kind, step), count in sorted(kept.pairs.items())],
    }
    file.write_text(json.dumps(rows, indent=1))
    return kept


_NUMBERS = tuple(one.name for one in fields(Work) if one.type in ("int", "float", int, float))


def _read(file: Path) -> Work:
    if not file.exists():
        return Work()
    rows = json.loads(file.read_text())
    return Work(
        **{name: rows[name] for name in _NUMBERS},
        operations=Counter(rows["operations"]),
        faults=Counter(rows["faults"]),
        injected=Counter(rows.get("injected", {})),
        pairs=Counter({(kind, step): count for kind, step, count in rows["pairs"]}),
    )


def _least(counts: Iterable[int]) -> int:
    return min(counts, default=0)


def _line(name: str, cells: Iterable[str]) -> str:
    return f"{name:16}" + "".join(f"{cell:>{WIDTH + 1}}" for cell in cells)
