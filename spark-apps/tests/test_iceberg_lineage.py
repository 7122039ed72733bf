"""What a table's newest snapshot stands on, by metadata of now and of before, whoever expired what. Without a catalog."""

from dataclasses import dataclass, field

from bmq_spark.batches.places import to_json
from bmq_spark.iceberg.lineage import Lineages
from bmq_spark.iceberg.notes import PLACES, SNAPSHOT, Lineage, places_by


@dataclass
class Snapshot:
    number: int
    parent: int | None
    places: dict[str, dict[int, int]] = field(default_factory=dict)

    def snapshotId(self) -> int:
        return self.number

    def sequenceNumber(self) -> int:
        return self.number

    def parentId(self) -> int | None:
        return self.parent

    def summary(self) -> dict[str, str]:
        return {PLACES: to_json(self.places)} if self.places else {}


@dataclass
class File:
    name: str

    def file(self) -> str:
        return self.name


@dataclass
class Metadata:
    snapshots: list[Snapshot]
    before: list[str]

    def currentSnapshot(self) -> Snapshot:
        return self.snapshots[-1]

    def snapshot(self, number: int) -> Snapshot | None:
        return next((one for one in self.snapshots if one.number == number), None)

    def previousFiles(self) -> list[File]:
        return [File(name) for name in self.before]


class Table:
    """Each commit has metadata of its own, which stay."""

    def __init__(self) -> None:
        self.files: dict[str, Metadata] = {}

    def commit(self, *snapshots: Snapshot) -> None:
        self.files[f"v{len(self.files) + 1}"] = Metadata(list(snapshots), list(self.files))

    def lineage(self, named: int) -> Lineage:
        newest = self.files[f"v{len(self.files)}"]
        return Lineages(self.files.get, table="t").of(newest, (named, named))


FIRST, BATCH = Snapshot(1, None, {"t": {0: 10}}), Snapshot(2, 1, {"t": {0: 100}})
KEPT = {PLACES: to_json({"t": {0: 100, 1: 50}}), SNAPSHOT: "2:2"}


def test_a_batch_stands_though_each_expiry_takes_out_a_parent() -> None:
    table = Table()
    table.commit(FIRST)
    table.commit(FIRST, BATCH)
    table.commit(FIRST, BATCH, Snapshot(3, 2))
    table.commit(Snapshot(3, None))
    once = table.lineage(2)
    assert (once.stands, places_by(KEPT, once, table="t")) == (True, {"t": {0: 100, 1: 50}})
    table.commit(Snapshot(3, None), Snapshot(4, 3))
    table.commit(Snapshot(4, None))
    twice = table.lineage(2)
    assert (twice.stands, places_by(KEPT, twice, table="t")) == (True, {"t": {0: 100, 1: 50}})


def test_a_snapshot_that_was_made_without_a_parent_is_the_first_of_its_line() -> None:
    """Somebody has removed the branch, and begun anew."""
    table = Table()
    table.commit(FIRST)
    table.commit(FIRST, BATCH)
    table.commit(FIRST, BATCH, Snapshot(3, None))
    lineage = table.lineage(2)
    assert (lineage.stands, lineage.complete, places_by(KEPT, lineage, table="t")) == (False, True, {})


def test_where_metadata_of_before_are_gone_nothing_is_taken_for_a_first_snapshot() -> None:
    table = Table()
    table.commit(FIRST)
    table.commit(FIRST, BATCH, Snapshot(3, 2))
    table.commit(Snapshot(3, None))
    for name in ("v1", "v2"):
        del table.files[name]
    newest = table.files["v3"]
    lineage = Lineages(table.files.get, table="t").of(newest, (2, 2))
    assert (lineage.stands, lineage.complete) == (None, False)
    assert places_by(KEPT, lineage, table="t") == {"t": {0: 100, 1: 50}}
