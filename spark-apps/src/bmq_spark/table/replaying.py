"""A table's history as what it comes to. Pure."""

from collections.abc import Iterable

from bmq_spark.table.invariants import check
from bmq_spark.table.state import Commit, Snapshot, after


def replay(snapshot: Snapshot, commits: Iterable[Commit]) -> Snapshot:
    """The table after these commits, of which each has to keep the table's invariants. Raises CommitRefused."""
    for commit in commits:
        check(snapshot, commit)
        snapshot = after(snapshot, commit)
    return snapshot
