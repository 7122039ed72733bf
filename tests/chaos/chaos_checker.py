"""What a log that loses nothing must look like, held against what clients saw, in the manner of Jepsen's queue and
Kafka workloads. Pure.

The log is what a reader finds after everything has healed; everything that any client was told during the run has to
agree with it.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from chaos_history import ACKNOWLEDGED, ASSIGNED, WRONG, Committed, Latest, Read, Sent

from bmq_sim.delivery import Following, Given, Reached, doubled, not_there, reordered

EXAMPLES_MAX: Final = 5
_SEQUENCE_BITS: Final = 32

ANOMALIES: Final[Mapping[str, str]] = {
    "lost": "acknowledged, and not in the log",
    "wrong": "the log, or a reader, has something else at an offset than was acknowledged there, or than any "
    "writer made",
    "duplicate": "an idempotent producer's record is in the log twice, or was acknowledged twice",
    "reordered": "an idempotent producer's records of one partition are in another order than they were sent",
    "stray": "the log has what was written elsewhere: a lane's in the base, the base's in a lane",
    "gap": "the log's offsets are not dense",
    "non-monotonic": "a reader was given an offset that does not follow the one before",
    "disagreement": "two readers, or a reader and the log, have different records at one offset",
    "unseen": "in the log, and passed over by a reader or by a group's committed offset",
    "stale end": "the end of a partition was said to be below what had been acknowledged before it was asked for",
    "commit went back": "a group's committed offset is below one that was confirmed",
}


class Log:
    """Records by partition and offset, each (producer, sequence) in one number."""

    def __init__(self) -> None:
        self.partitions: defaultdict[int, array[int]] = defaultdict(lambda: array("Q"))

    def at(self, partition: int, offset: int) -> int:
        """The record; −1 where there is none."""
        records = self.partitions.get(partition)
        return records[offset] if records is not None and 0 <= offset < len(records) else -1

    def end(self, partition: int) -> int:
        return len(self.partitions.get(partition, ()))


@dataclass(slots=True)
class Findings:
    """How many of each anomaly, and the first few in words."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, anomaly: str, text: str) -> None:
        assert anomaly in ANOMALIES, anomaly
        self.counts[anomaly] += 1
        if len(self.examples[anomaly]) < EXAMPLES_MAX:
            self.examples[anomaly].append(text)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        return (
            "\n".join(
                f"{name} ({ANOMALIES[name]}): {count}: {'; '.join(self.examples[name])}"
                for name, count in self.counts.items()
            )
            or "none"
        )


def key_of(producer: int, sequence: int) -> int:
    """Both in one number."""
    return producer << _SEQUENCE_BITS | sequence


def shown(key: int) -> str:
    """For people."""
    return "nothing" if key < 0 else f"record {key >> _SEQUENCE_BITS}/{key & (1 << _SEQUENCE_BITS) - 1}"


def build_log(reads: Iterable[Read], findings: Findings) -> Log:
    """From a reader that began at offset 0 of every partition."""
    log = Log()
    for read in reads:
        records = log.partitions[read.partition]
        if read.offset != len(records):
            findings.add("gap", f"{read.partition}/{read.offset} where {len(records)} was due")
            continue
        if read.producer == WRONG:
            findings.add("wrong", f"{read.partition}/{read.offset} holds what no writer made")
        records.append(key_of(read.producer, read.sequence))
    return log


@dataclass(slots=True)
class WriterFigures:
    """Of one writer, once checked."""

    sent: int = 0
    acknowledged: int = 0
    failed: Counter[int] = field(default_factory=Counter)
    """Failed delivery reports, by the client's error code; −1: never answered."""
    duplicates: int = 0
    """Records that are in the log more than once."""
    reordered: int = 0


def check_writer(
    producer: int, sent: Iterable[Sent], log: Log, findings: Findings, *, name: str, idempotent: bool
) -> WriterFigures:
    """Lost, wrong, duplicate, reordered. A plain producer's own retries may write twice and overtake: counted, no
    anomaly.
    """
    figures = WriterFigures()
    placed = [_sequences(producer, records) for records in log.partitions.values()]
    there = set(chain.from_iterable(placed))
    twice = doubled(chain.from_iterable(placed))

    def acknowledged() -> Iterator[tuple[Sent, int]]:
        seen: set[int] = set()
        for row in sent:
            figures.sent += 1
            if row.status != ACKNOWLEDGED:
                figures.failed[row.status] += 1
                continue
            figures.acknowledged += 1
            if row.sequence in seen:
                findings.add("duplicate", f"{name}: {row.sequence} was acknowledged twice")
            seen.add(row.sequence)
            yield row, key_of(producer, row.sequence)

    for row, _, found in not_there(acknowledged(), lambda row: log.at(row.partition, row.offset)):
        if row.sequence in there:
            findings.add(
                "wrong",
                f"{name}: {row.sequence} was acknowledged at {row.partition}/{row.offset}, where the log has "
                f"{shown(-1 if found is None else found)}",
            )
        else:
            findings.add(
                "lost", f"{name}: {row.sequence}, acknowledged at {row.partition}/{row.offset} {row.answered_s:.3f}"
            )
    figures.duplicates = sum(count - 1 for count in twice.values())
    figures.reordered = sum(1 for sequences in placed for _ in reordered(sequences))
    if idempotent and figures.duplicates:
        among = ", ".join(map(str, list(twice)[:EXAMPLES_MAX]))
        findings.add("duplicate", f"{name}: {figures.duplicates} records, among them {among}")
    if idempotent and figures.reordered:
        findings.add("reordered", f"{name}: {figures.reordered} records")
    return figures


def check_origins(log: Log, producers: Sequence[int], findings: Findings, *, where: str) -> None:
    """Nothing is in it but what these producers wrote."""
    for partition, records in log.partitions.items():
        strays = [key for key in records if key >> _SEQUENCE_BITS not in (*producers, WRONG)]
        if strays:
            findings.add("stray", f"{where}: {len(strays)} records in {partition}, first {shown(strays[0])}")


def check_follower(reads: Iterable[Read], log: Log, findings: Findings, *, name: str) -> int:
    """A reader of all partitions from their beginning to the end that the log has: sees everything, once, in order. The
    number of reads.
    """
    following = Following()
    count = 0
    for read in reads:
        if following.due(read.partition) == 0:
            following.begins(read.partition, 0)
        count += 1
        _follow(read, following, findings, name=name)
        _compare(read, log, findings, name=name)
    for partition in log.partitions:
        if (due := following.due(partition)) < log.end(partition):
            findings.add("unseen", f"{name}: {partition} from {due} to {log.end(partition)}")
    return count


def check_group(
    members: Mapping[str, Iterable[Read]],
    commits: Sequence[Committed],
    committed: Mapping[int, int],
    log: Log,
    findings: Findings,
) -> int:
    """At least once: what is below the committed offset was seen by some member; each reads on without holes from where
    it was told to begin.

    `committed` is what the group is told at the end. The number of reads.
    """
    given: defaultdict[int, Given] = defaultdict(Given)
    count = 0
    for name, reads in members.items():
        following = Following()
        for read in reads:
            if read.offset == ASSIGNED:
                following.begins(read.partition)
                continue
            count += 1
            _follow(read, following, findings, name=name)
            given[read.partition].add(read.offset)
            _compare(read, log, findings, name=name)
    for partition, end in committed.items():
        if missed := given[partition].passed_over(0, end):
            findings.add(
                "unseen",
                f"the group: {len(missed)} records of {partition} below its committed offset {end}, first {missed[0]}",
            )
    _check_commits(commits, committed, findings)
    return count


def check_latest(latest: Iterable[Latest], writers: Iterable[Iterable[Sent]], findings: Findings) -> int:
    """Whoever asks for a partition's end is told at least what had been acknowledged before. The number of answers."""
    acknowledged: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for sent in writers:
        for row in sent:
            if row.status == ACKNOWLEDGED:
                acknowledged[row.partition].append((row.answered_s, row.offset + 1))
    reached = {partition: Reached(told) for partition, told in acknowledged.items()}
    count = 0
    for answer in latest:
        if answer.status:
            continue
        count += 1
        must = reached[answer.partition].before(answer.asked_s) if answer.partition in reached else 0
        if answer.offset < must:
            findings.add(
                "stale end",
                f"{answer.partition}: {answer.offset} at {answer.asked_s:.3f}, where {must - 1} had been acknowledged",
            )
    return count


def _check_commits(commits: Sequence[Committed], committed: Mapping[int, int], findings: Findings) -> None:
    confirmed = [commit for commit in commits if commit.status == 0]
    for commit in confirmed:
        if committed.get(commit.partition, -1) < commit.offset:
            findings.add(
                "commit went back",
                f"{commit.partition}: {commit.offset} was confirmed, {committed.get(commit.partition)} is there",
            )
    told: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for commit in confirmed:
        told[commit.partition].append((commit.answered_s, commit.offset))
    reached = {partition: Reached(commits_of_it) for partition, commits_of_it in told.items()}
    for commit in confirmed:
        must = reached[commit.partition].before(commit.asked_s)
        if commit.offset < must:
            text = f"{commit.partition}: a member began behind {must} and committed {commit.offset} later"
            findings.add("commit went back", text)


def _follow(read: Read, following: Following, findings: Findings, *, name: str) -> None:
    due = following.breaks(read.partition, read.offset)
    if due is not None:
        findings.add("non-monotonic", f"{name}: {read.partition}/{read.offset} where {due} was due")


def _compare(read: Read, log: Log, findings: Findings, *, name: str) -> None:
    if read.producer == WRONG:
        findings.add("wrong", f"{name}: {read.partition}/{read.offset} held what no writer made")
    elif log.at(read.partition, read.offset) != key_of(read.producer, read.sequence):
        here, there = shown(key_of(read.producer, read.sequence)), shown(log.at(read.partition, read.offset))
        findings.add("disagreement", f"{name}: {read.partition}/{read.offset} was {here}, the log has {there}")


def _sequences(producer: int, records: Iterable[int]) -> list[int]:
    """This producer's, in the order of the log."""
    low, high = key_of(producer, 0), key_of(producer + 1, 0)
    return [key - low for key in records if low <= key < high]
