"""What an audit found: faults, garbage and notes by key, what each means, and what a repair would do. Bounded, however
much is wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from bmq.storage.manifest import Manifest
from bmq.storage.segment import SegmentEntry
from bmq.values import Nonce, TopicPartition
from bmq_audit.manifest_repair import Gap

FINDINGS_MAX: Final = 10_000
"""How many findings of each level are kept; the others are counted."""


class Level(StrEnum):
    """FAULT: something is lost, damaged or foreign. GARBAGE: nothing can reach it, it only costs money. NOTE: as it
    should be at this moment.
    """

    FAULT = "fault"
    GARBAGE = "garbage"
    NOTE = "note"


class Kind(StrEnum):
    """What is wrong, for programs."""

    LOST = "lost"
    """Named, and not there."""
    DAMAGED = "damaged"
    """There, and not what was written."""
    UNREADABLE = "unreadable"
    """The store does not give it, again and again; or a newer bmq wrote it."""
    UNOPENABLE = "unopenable"
    """A batch that is as its producer wrote it, and that no reader can open."""
    DISAGREES = "disagrees"
    """Whole, and says something else than the object that names it."""
    GAP = "gap"
    """Offsets that nothing holds."""
    FOREIGN = "foreign"
    """Under a key that bmq never makes, or of a topic or node that the metadata never heard of."""
    UNREACHABLE = "unreachable"
    """Nothing names it, and nothing can any more."""
    UNNAMED = "unnamed"
    """Nothing names it; its writer may yet, or the next owner of the partition deletes it."""
    DUE = "due"
    """bmq is about to delete it by itself."""
    KEPT = "kept"
    """Not good, and of no consequence: it stays because deleting it could have some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One object (or all below a key that ends with a slash), what is wrong with it, and what that means."""

    level: Level
    kind: Kind
    key: str
    means: str
    topic: str = ""
    """`name-partition`, where it is a partition's."""
    objects: int = 1
    size_bytes: int = 0
    repair: str = ""
    """What `--repair` does about it; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A repair: the object, or all below a key that ends with a slash, goes."""

    key: str
    size_bytes: int = 0
    objects: int = 1
    loses: str = ""
    """What is lost by it; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRepair:
    """A repair: one more manifest version, after the entry `base_number`.

    `manifest` has the pages that stay, and no entries: `entries` come behind them, on new pages where they are many,
    with segments between them that fill the `gaps`. `leader_epoch` is the partition's in the image.
    """

    tp: TopicPartition
    topic: str
    leader_epoch: int
    base_number: int
    base_epoch: int
    base_nonce: Nonce
    manifest: Manifest
    entries: tuple[SegmentEntry, ...]
    gaps: tuple[Gap, ...]
    gains: tuple[str, ...]
    loses: tuple[str, ...]
    unknown: str = ""
    """What nobody can tell any more."""


Repair = Delete | ManifestRepair


@dataclass(slots=True)
class Checked:
    """How much was looked at."""

    objects: int = 0
    size_bytes: int = 0
    read_bytes: int = 0
    partitions: int = 0
    segments: int = 0
    wal_objects: int = 0
    batches: int = 0
    records: int = 0


@dataclass(slots=True)
class Report:
    """Filled while the audit runs."""

    cluster_id: str = ""
    checked: Checked = field(default_factory=Checked)
    findings: dict[Level, list[Finding]] = field(default_factory=lambda: {level: [] for level in Level})
    counts: dict[tuple[Level, Kind], int] = field(default_factory=dict)
    objects: dict[Level, int] = field(default_factory=lambda: dict.fromkeys(Level, 0))
    size_bytes: dict[Level, int] = field(default_factory=lambda: dict.fromkeys(Level, 0))
    repairs: list[Repair] = field(default_factory=list)
    moved_on: bool = False
    """Whether the cluster wrote metadata while this looked."""
    behind: bool = False
    """Whether something is newer than the newest metadata entry: that is not the whole metadata."""

    def add(self, finding: Finding) -> None:
        """Counts it, and keeps it while there is room."""
        level = finding.level
        self.counts[level, finding.kind] = self.counts.get((level, finding.kind), 0) + 1
        self.objects[level] += finding.objects
        self.size_bytes[level] += finding.size_bytes
        if len(self.findings[level]) < FINDINGS_MAX:
            self.findings[level].append(finding)

    def fault(
        self, kind: Kind, key: str, means: str, *, topic: str = "", size_bytes: int = 0, repair: str = ""
    ) -> None:
        """Something is wrong."""
        self.add(
            Finding(
                level=Level.FAULT, kind=kind, key=key, means=means, topic=topic, size_bytes=size_bytes, repair=repair
            )
        )

    def garbage(
        self, key: str, means: str, *, topic: str = "", objects: int = 1, size_bytes: int = 0, unread: bool = False
    ) -> None:
        """Nothing can reach it: a repair deletes it. `unread`: a segment, and others were not read that it may have to
        stand in for; it stays.
        """
        deleted = not unread and len(self.repairs) < FINDINGS_MAX
        if deleted:
            self.repairs.append(Delete(key=key, objects=objects, size_bytes=size_bytes))
        self.add(
            Finding(
                level=Level.GARBAGE,
                kind=Kind.UNREACHABLE,
                key=key,
                means=means,
                topic=topic,
                objects=objects,
                size_bytes=size_bytes,
                repair="deleted" if deleted else "" if unread else "deleted by another run",
            )
        )

    def note(self, kind: Kind, key: str, means: str, *, topic: str = "", objects: int = 1, size_bytes: int = 0) -> None:
        """Worth a line, and as it should be."""
        self.add(
            Finding(
                level=Level.NOTE, kind=kind, key=key, means=means, topic=topic, objects=objects, size_bytes=size_bytes
            )
        )

    def delete(self, key: str, *, size_bytes: int = 0, loses: str = "") -> None:
        """A repair of a fault: the object goes."""
        self.repairs.append(Delete(key=key, size_bytes=size_bytes, loses=loses))

    def forget(self, *, prefixes: tuple[str, ...], topics: frozenset[str]) -> None:
        """Takes back what was found of topics that were deleted meanwhile: their objects go while they are looked
        at.
        """
        if not prefixes:
            return
        for level in self.findings:
            self._take_back(
                level, lambda finding: finding.key.startswith(prefixes) or finding.topic.rpartition("-")[0] in topics
            )
        self.repairs = [each for each in self.repairs if not _is_of(each, prefixes=prefixes, topics=topics)]

    def keep(self, prefix: str) -> None:
        """Something is lost that the objects below the prefix may hold: no repair deletes what nothing names."""
        self.repairs = [each for each in self.repairs if not (isinstance(each, Delete) and each.key.startswith(prefix))]
        means = "nothing names it, and it stays because it may hold something that is lost"
        for finding in self._take_back(Level.GARBAGE, lambda finding: finding.key.startswith(prefix)):
            self.add(replace(finding, level=Level.NOTE, kind=Kind.UNNAMED, means=means, repair=""))

    def _take_back(self, level: Level, which: Callable[[Finding], bool]) -> list[Finding]:
        """Those of a level for which `which` is true, which count no more."""
        taken: list[Finding] = []
        kept: list[Finding] = []
        for finding in self.findings[level]:
            (taken if which(finding) else kept).append(finding)
        self.findings[level] = kept
        for finding in taken:
            self.counts[level, finding.kind] -= 1
            self.objects[level] -= finding.objects
            self.size_bytes[level] -= finding.size_bytes
        return taken

    def doubt(self) -> None:
        """The metadata is not whole, so nothing is certainly garbage, and nothing is repaired before it is."""
        self.repairs.clear()
        for finding in self.findings[Level.GARBAGE]:
            self.add(replace(finding, level=Level.NOTE, kind=Kind.UNNAMED, repair=""))
        self.counts[Level.GARBAGE, Kind.UNREACHABLE] = 0
        self.findings[Level.GARBAGE].clear()
        self.objects[Level.GARBAGE] = self.size_bytes[Level.GARBAGE] = 0
        self.promise_nothing()

    @property
    def has_unreadable(self) -> bool:
        """Whether something cannot be read, which is not known to be damaged."""
        return (Level.FAULT, Kind.UNREADABLE) in self.counts

    def promise_nothing(self) -> None:
        """No fault is going to be repaired."""
        self.findings[Level.FAULT] = [replace(finding, repair="") for finding in self.findings[Level.FAULT]]

    def sort(self) -> None:
        """By key: audits look at several things at a time."""
        for findings in self.findings.values():
            findings.sort(key=lambda finding: (finding.key, finding.means))
        self.repairs.sort(
            key=lambda repair: ("", repair.topic) if isinstance(repair, ManifestRepair) else (repair.key, "")
        )

    def count(self, level: Level) -> int:
        """Findings of a level, those not kept included."""
        return sum(number for (found, _), number in self.counts.items() if found is level)

    def take(self, other: "Report") -> None:
        """Adds what another report found; its figures of what was looked at, too."""
        for findings in other.findings.values():
            for finding in findings:
                self.add(finding)
        for (level, kind), number in other.counts.items():
            kept = sum(finding.kind is kind for finding in other.findings[level])
            if number > kept:
                self.counts[level, kind] = self.counts.get((level, kind), 0) + number - kept
        self.repairs += other.repairs[: FINDINGS_MAX - len(self.repairs)]
        self.behind |= other.behind
        for name in Checked.__slots__:
            setattr(self.checked, name, getattr(self.checked, name) + getattr(other.checked, name))


def _is_of(repair: Repair, *, prefixes: tuple[str, ...], topics: frozenset[str]) -> bool:
    """Whether it is of these topics' partitions."""
    match repair:
        case ManifestRepair():
            return repair.topic.rpartition("-")[0] in topics
        case Delete():
            return repair.key.startswith(prefixes)
