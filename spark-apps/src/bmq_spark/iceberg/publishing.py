"""How a snapshot gets into a table: staged by whoever writes the rows, then made the newest by the driver, in one step
that compares.

A staged snapshot is in the table's metadata and no reader sees it. The step is one commit of the catalog: it makes the
snapshot the newest and sets the table's places, on the condition that the newest is still the one which the snapshot
was staged on. So whoever slept, and whatever came meanwhile, nothing is added to a table that is not the one that was
looked at; and a step of unknown outcome may be repeated, for it comes through once.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bmq_spark.batches.places import Places, each, place
from bmq_spark.errors import BmqError, JobStopped
from bmq_spark.iceberg.away import is_unknown
from bmq_spark.iceberg.clocks import too_old
from bmq_spark.iceberg.notes import Notes
from bmq_spark.iceberg.tables import CAME_TWICE, IcebergTable, Staged, unreachable

ATTEMPTS: Final = 10
"""So often a batch is written where others commit to the table meanwhile: maintenance does, some times in a run."""
STEPS: Final = 5
"""So often the step is tried where its outcome is unknown, or where others change the table's schema or properties."""
LOST_ANSWERS: Final = 2
"""So often the answer to what stages a batch may be lost: each time all of it is written."""
_FAILED: Final = ("ValidationException", "CommitFailedException")
_BY_A_TASK: Final = "Job aborted due to stage failure"
"""What Spark says where a task failed, which asks others than the catalog."""
_WAP_ID: Final = "spark.wap.id"
_NOTE: Final = "spark.sql.iceberg.snapshot-property."


def commit(
    session: SparkSession,
    table: IcebergTable,
    notes: Notes,
    *,
    have: Places,
    write: Callable[[], None] | None = None,
    verify: Callable[[], None] = lambda: None,
    look: Callable[[Mapping[str, str]], None] | None = None,
) -> Mapping[str, str]:
    """What `write` has Spark write (None: nothing) becomes the newest snapshot, with these notes; returns its summary.

    `have` is what the caller took for the table's places. Raises JobStopped where another has moved them, and what
    `verify` and `look` raise, which are called when all is written, `look` with the summary: nothing was committed
    then.
    """
    lost = 0
    for _ in range(ATTEMPTS):
        try:
            staged = _staged(session, table, notes, write)
        except _AnswerLost as error:
            lost += 1
            if lost == LOST_ANSWERS:
                raise unreachable(table.name, error) from error
            continue
        if staged is None:
            continue
        try:
            if look is not None:
                look(staged.summary)
            verify()
        except (BmqError, PySparkException):
            table.drop(staged)
            raise
        if _published(table, staged, notes, have):
            return staged.summary
        table.drop(staged)
    raise JobStopped(
        f"table {table.name}: others committed to it {ATTEMPTS} times while one batch was written: the place is "
        "kept; run fewer of them"
    )


def was_overtaken(error: Exception) -> bool:
    """Whether others committed to the table meanwhile: nothing was, and it is to be written again."""
    return any(name in str(error) for name in _FAILED)


def was_lost(error: Exception, table: IcebergTable) -> bool:
    """Whether the catalog's answer did not come: what was written may be in the table, or come later."""
    return is_unknown(error) or (table.may_come(error) and _BY_A_TASK not in str(error))


def moved(table: IcebergTable) -> JobStopped:
    """Somebody else has added to the table what a batch was to add, or something else of the topics."""
    return JobStopped(
        f"table {table.name}: its places are others than they were: does another job write to it? Let one of them "
        "go on alone"
    )


def _staged(
    session: SparkSession, table: IcebergTable, notes: Notes, write: Callable[[], None] | None
) -> Staged | None:
    """The snapshot, which Spark staged, or which adds nothing where Spark had nothing to write. None: to be tried
    again.
    """
    mark = f"bmq-{secrets.token_hex(8)}"
    if write is None:
        return _nothing(table, mark, notes)
    table.stages()
    before = table.newest_id()
    try:
        with _settings(session, {_WAP_ID: mark} | {_NOTE + key: value for key, value in notes.summary().items()}):
            write()
    except (PySparkException, Py4JError) as error:
        said = str(error)
        if (stopped := too_old(table.name, said)) is not None:
            raise stopped from error
        if CAME_TWICE in said:
            _forget(table, mark)
            return None
        if was_lost(error, table):
            # If it is staged later, nobody makes it the newest.
            if (staged := table.staged(mark)) is not None:
                return staged
            raise _AnswerLost(said) from error
        if not was_overtaken(error):
            raise
        return None
    staged = table.staged(mark)
    if staged is not None:
        return staged
    # Nothing to write, if the table is as it was: rows that Spark committed by itself would be there.
    return _nothing(table, mark, notes) if table.newest_id() == before else None


def _nothing(table: IcebergTable, mark: str, notes: Notes) -> Staged | None:
    staged = table.stage_nothing(mark, notes.summary())
    if staged is None:
        _forget(table, mark)
    return staged


def _forget(table: IcebergTable, mark: str) -> None:
    """Takes out what came twice: whoever expires or looks for orphans later would miss its files."""
    if (staged := table.staged(mark)) is not None:
        table.drop(staged, has_files=False)


def _published(table: IcebergTable, staged: Staged, notes: Notes, have: Places) -> bool:
    """Whether it is in the table; if not, it never will be. Raises JobStopped where that is not known, or where the
    places have moved.
    """
    cause = "whether a batch was committed is not known"
    for _ in range(STEPS):
        state = table.state()
        if staged.snapshot_id in state.ancestors:
            return True
        if any(
            place(state.places, topic, partition) != place(have, topic, partition)
            for topic, partition, _ in each(notes.places)
        ):
            table.drop(staged)
            raise moved(table)
        if state.newest_id != staged.parent_id or not state.has(staged):
            return False
        cause = table.step(state, staged, notes.places) or cause
    raise JobStopped(f"table {table.name}: {cause}: run the job again: it begins where the table is")


class _AnswerLost(Exception):
    """What was to be staged is not there, and may still come."""


@contextmanager
def _settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """What the session writes is written with these."""
    conf = session.conf
    for key, value in settings.items():
        conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            conf.unset(key)
