"""Files that a killed run has left: written, and named by no commit.

They may go once no commit can name them any more: the run that wrote them is over for the log (`Table.begin`), or their
batch is committed.
"""

from collections.abc import Collection, Iterator

from bmq_spark.locations import Found, Location
from bmq_spark.table.layout import batch_of_name, query_mark
from bmq_spark.table.state import Snapshot


def remove_orphans(location: Location, snapshot: Snapshot, query_id: str, *, named: Collection[str]) -> int:
    """Removes unnamed files of that query's last committed batch and of later ones; returns how many. Raises
    StoreError.

    `named`: what its last committed batch added.

    `snapshot` is the one that began this run, so that what lies here was written by runs that are refused from now on.
    Files of the last committed batch that were live once are left to vacuum: somebody may still read them.
    """
    last = snapshot.last_batch.get(query_id, -1)
    mark, count = query_mark(query_id), 0
    for found in list(data_objects(location)):
        batch = batch_of_name(found.key)
        if (
            batch is None
            or batch.query_mark != mark
            or batch.batch_id < last
            or found.key in snapshot.by_key
            or found.key in named
        ):
            continue
        location.delete(found.key)
        count += 1
    return count


def data_objects(location: Location) -> Iterator[Found]:
    """Everything at a table's location but what begins with `_`: its log, and tables inside of it (dead letters).
    Raises StoreError.
    """
    return (found for found in location.list() if not found.key.startswith("_"))
