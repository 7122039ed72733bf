"""One look at one partition: what the parts of its audit hand on to each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bmq.storage.manifest import CoordinatorSnapshotRef, Manifest
from bmq.storage.segment import SegmentEntry
from bmq.values import TopicPartition
from bmq_audit.findings import Report
from bmq_audit.held import Held
from bmq_audit.manifest_repair import UnnamedRun
from bmq_audit.partitions.listing import PartitionListing
from bmq_audit.partitions.manifests import AuditedManifest

OFFSET_MAX: Final = (1 << 63) - 1


class SharedRun(NamedTuple):
    """A run in a segment of several partitions, as a manifest names it."""

    tp: TopicPartition
    entry: SegmentEntry


@dataclass(slots=True)
class PartitionFacts:
    """What the other parts of an audit need of a partition. `epoch`: that of its newest manifest version, -1 without
    one.
    """

    epoch: int = -1
    shared: list[SharedRun] = field(default_factory=list)
    settled: bool = True
    """Whether nothing is wrong with it; otherwise objects that nothing names may be what is missing."""
    end: int = OFFSET_MAX
    """Above what it names; where that is not known, above everything."""
    wounded: bool = False
    """Whether something is lost or missing that segments which nothing names may have, shared ones, too."""
    pinned: str = ""
    """The segment that it names for its producer snapshot alone."""


@dataclass(slots=True, kw_only=True)
class PartitionState:
    """One look at one partition."""

    listing: PartitionListing
    topic: str
    report: Report
    audited: AuditedManifest
    held: Held
    shared_runs: Sequence[UnnamedRun] = ()
    """Runs of the partition in shared segments, named or not; looked for only where something is missing."""
    pages: list[tuple[SegmentEntry, ...] | None] = field(default_factory=list)
    lost: set[SegmentEntry] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    shared: list[SharedRun] = field(default_factory=list)
    snapshot: CoordinatorSnapshotRef | None = None
    producers_usable: bool = True
    torn: bool = False
    """Whether something is to be repaired besides lost entries and pages."""

    @property
    def manifest(self) -> Manifest:
        return self.audited.manifest

    @property
    def entries(self) -> Iterator[SegmentEntry]:
        return (entry for entries in (*self.pages, self.manifest.entries) for entry in entries or ())
