"""What holds of every version of a table, by name: checked before a commit is created, and again by every reader.

A commit that breaks one is CommitRefused: then nothing was written.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from bmq_spark.errors import CommitRefused
from bmq_spark.table.evolution import require_evolution
from bmq_spark.table.state import Commit, DataFile, Snapshot, TopicPartition


def check(snapshot: Snapshot, commit: Commit) -> None:
    """Raises CommitRefused: one line that names what would be broken."""
    for invariant in INVARIANTS:
        invariant(snapshot, commit)


def versions_are_dense(snapshot: Snapshot, commit: Commit) -> None:
    """Each version is one above the last."""
    if commit.version != snapshot.version + 1:
        raise CommitRefused(f"version {commit.version} after version {snapshot.version}: one above it was due")


def no_file_comes_twice(snapshot: Snapshot, commit: Commit) -> None:
    """A file that is added is not there, and is added once."""
    for key, count in Counter(file.key for file in commit.added).items():
        if count > 1 or key in snapshot.by_key:
            raise CommitRefused(f"file {key}: added twice")


def what_is_removed_is_there(snapshot: Snapshot, commit: Commit) -> None:
    """A file that is removed is live, and is removed once."""
    for key, count in Counter(commit.removed).items():
        if count > 1 or key not in snapshot.by_key:
            raise CommitRefused(f"file {key}: removed, and it is not there")


def files_have_an_origin(snapshot: Snapshot, commit: Commit) -> None:
    """Files come by a batch, or in the place of others."""
    if commit.added and commit.batch is None and not commit.removed:
        raise CommitRefused("files without a batch that they are of, or files that they replace")
    if commit.batch is not None and commit.removed:
        raise CommitRefused(f"batch {commit.batch[1]} of query {commit.batch[0]}: a batch removes no files")


def batches_come_in_order(snapshot: Snapshot, commit: Commit) -> None:
    """Each batch of a query comes once, after those before it."""
    if commit.batch is not None and snapshot.has_batch(*commit.batch):
        raise CommitRefused(f"batch {commit.batch[1]} of query {commit.batch[0]}: it is in the table")


def batches_are_of_the_current_run(snapshot: Snapshot, commit: Commit) -> None:
    """Once a run of a query has begun, what an earlier one still holds is not committed: its files may be gone."""
    if commit.batch is None:
        return
    query_id, batch_id = commit.batch
    current = snapshot.runs.get(query_id)
    if current is not None and (commit.run is None or commit.run[1] != current):
        raise CommitRefused(
            f"batch {batch_id} of query {query_id}: another run of this query has begun: this one is to end"
        )


def offsets_continue(snapshot: Snapshot, commit: Commit) -> None:
    """A batch begins at the offset where the last one ended, or names the gap."""
    gaps = {(gap.topic, gap.partition): gap for gap in commit.gaps}
    for covered in commit.covered:
        where = f"offsets {covered.first} to {covered.next} of {covered.topic}-{covered.partition}"
        due = snapshot.offsets.get(covered.topic, {}).get(covered.partition)
        if covered.next < covered.first:
            raise CommitRefused(f"{where}: they end before they begin")
        if due is None or due == covered.first:
            continue
        if covered.first < due:
            raise CommitRefused(f"{where}: the table has everything below {due} already")
        gap = gaps.get((covered.topic, covered.partition))
        if gap is None or (gap.first, gap.next) != (due, covered.first):
            raise CommitRefused(f"{where}: the table ends at {due}, and the commit does not name that gap")
    if len({(covered.topic, covered.partition) for covered in commit.covered}) != len(commit.covered):
        raise CommitRefused("offsets: one partition is covered twice")


def files_lie_in_what_their_batch_covers(snapshot: Snapshot, commit: Commit) -> None:
    """No file of a batch has an offset outside of it, and all of them no more rows than there are offsets."""
    if commit.batch is None:
        return
    covered = {(one.topic, one.partition): (one.first, one.next) for one in commit.covered}
    for file in commit.added:
        for (topic, partition), (first, last) in file.topic_partitions.items():
            start, end = covered.get((topic, partition), (0, 0))
            if not start <= first <= last < end:
                raise CommitRefused(
                    f"file {file.key}: offsets {first} to {last} of {topic}-{partition} are outside of the batch's "
                    f"{start} to {end}"
                )
    rows = sum(file.rows for file in commit.added)
    if rows > sum(end - start for start, end in covered.values()):
        raise CommitRefused(
            f"batch {commit.batch[1]} of query {commit.batch[0]}: {rows} rows, and it has no more offsets than "
            f"{_span(covered)}"
        )


def a_rewrite_keeps_every_row(snapshot: Snapshot, commit: Commit) -> None:
    """Files that replace others have as many rows, of the same partitions' offsets."""
    if not commit.added or commit.batch is not None:
        return
    before = [snapshot.by_key[key] for key in commit.removed]
    if (had := sum(file.rows for file in before)) != (has := sum(file.rows for file in commit.added)):
        raise CommitRefused(f"{has} rows in the place of {had}")
    if _bounds(before) != _bounds(commit.added):
        raise CommitRefused("other offsets than those of the files that are replaced")
    if {file.folder for file in before} != {file.folder for file in commit.added}:
        raise CommitRefused("other folders than those of the files that are replaced")


def a_rewrite_began_after_the_last_vacuum(snapshot: Snapshot, commit: Commit) -> None:
    """Vacuum has removed unnamed files of works that began below its horizon: those cannot be committed any more."""
    if commit.added and commit.batch is None and (commit.base is None or commit.base < snapshot.horizon):
        raise CommitRefused(
            f"a rewrite that began at version {commit.base}: a vacuum has removed what began below "
            f"{snapshot.horizon}: do it again"
        )


def the_horizon_only_rises(snapshot: Snapshot, commit: Commit) -> None:
    """A vacuum does not take back what an earlier one refused."""
    if commit.horizon is not None and not snapshot.horizon <= commit.horizon <= snapshot.version:
        raise CommitRefused(
            f"horizon {commit.horizon}: it is at {snapshot.horizon}, and the table at version {snapshot.version}"
        )


def the_schema_evolves(snapshot: Snapshot, commit: Commit) -> None:
    """Columns are added (nullable) or widened; nothing else, so that the old files can be read by the new schema."""
    if commit.schema is not None and snapshot.schema is not None:
        require_evolution(snapshot.schema, commit.schema)


INVARIANTS: Final[tuple[Callable[[Snapshot, Commit], None], ...]] = (
    versions_are_dense,
    no_file_comes_twice,
    what_is_removed_is_there,
    files_have_an_origin,
    batches_come_in_order,
    batches_are_of_the_current_run,
    offsets_continue,
    files_lie_in_what_their_batch_covers,
    a_rewrite_keeps_every_row,
    a_rewrite_began_after_the_last_vacuum,
    the_horizon_only_rises,
    the_schema_evolves,
)


def _span(covered: dict[TopicPartition, tuple[int, int]]) -> int:
    return sum(end - start for start, end in covered.values())


def _bounds(files: Sequence[DataFile]) -> dict[TopicPartition, tuple[int, int]]:
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    for file in files:
        for where, (first, last) in file.topic_partitions.items():
            low, high = bounds.get(where, (first, last))
            bounds[where] = (min(low, first), max(high, last))
    return bounds
