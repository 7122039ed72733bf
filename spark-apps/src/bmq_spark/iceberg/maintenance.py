"""What keeps an Iceberg table quick to read and small: merged files, rewritten manifests, expired snapshots, no
orphans, no rows past retention.

Every step is bounded, is a commit of its own, and may be killed: the next run does what is left. It may run beside a
job that writes, and beside others that maintain: a table's places are its properties, which no step touches.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from bmq_spark.batches.explaining import cause
from bmq_spark.batches.places import Places, each, place
from bmq_spark.ending import say
from bmq_spark.errors import ConfigurationError, JobStopped
from bmq_spark.iceberg import clocks
from bmq_spark.iceberg.neighbours import neighbours
from bmq_spark.iceberg.notes import PLACES, Notes
from bmq_spark.iceberg.publishing import commit
from bmq_spark.iceberg.tables import MADE_BY, METADATA, IcebergTable
from bmq_spark.table.clocks import SKEW_MS_MAX

ORPHAN_AGE_MIN_MS: Final = 24 * 3_600_000
"""Iceberg's own floor: files of a write under way have no snapshot yet."""
OWN_FOLDERS: Final = ("data", METADATA)
"""Where Iceberg writes a table's files, below its location."""
FILES_AT_ONCE: Final = 10_000
GROUP_BYTES: Final = 2 << 30
MANIFESTS_MIN: Final = 16
DELETE_FILES: Final = 5
"""A data file with so many files of deletes is written anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """What is to be done."""

    target_file_size_bytes: int
    min_files: int = 4
    """Fewer small files of one partition are left as they are."""
    keep_snapshots_ms: int = 5 * 24 * 3_600_000
    orphan_age_ms: int = 3 * 24 * 3_600_000
    tidies: bool = True
    """False: retention is all."""
    retention_ms: int | None = None
    """Rows whose hour or day ended longer ago leave the table; None: none do."""

    def __post_init__(self) -> None:
        """Raises ConfigurationError."""
        if self.orphan_age_ms < ORPHAN_AGE_MIN_MS:
            raise ConfigurationError(
                f"--orphans-older-than {self.orphan_age_ms // 3_600_000}h: give 24h or more: writes under way look "
                "like orphans"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """What was done."""

    files_merged: int = 0
    files_made: int = 0
    manifests_rewritten: int = 0
    snapshots_expired: int = 0
    orphans_removed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.files_merged} files merged into {self.files_made}, {self.manifests_rewritten} manifests rewritten, "
            f"{self.snapshots_expired} snapshots expired, {self.orphans_removed} orphans removed"
        )


def require_own(table: IcebergTable, maintenance: Maintenance) -> None:
    """Raises ConfigurationError where it is no table of a job's rows, or has no partitions that a retention could
    take.
    """
    if MADE_BY not in table.properties():
        raise ConfigurationError(
            f"--table {table.name}: not made by this job, which maintains its own alone: name another"
        )
    table.require_rows()
    if maintenance.retention_ms is not None and not table.has_times:
        raise ConfigurationError(
            f"--retention: the table {table.name} has no partitions by time, and only whole ones leave a table "
            "(with --upsert-key a row that nobody wrote for long is still the newest of its key): leave the "
            "option out"
        )


def maintain(
    spark: SparkSession,
    table: IcebergTable,
    maintenance: Maintenance,
    *,
    below: Places | None = None,
    clock_ms: Callable[[], int] = clocks.now_ms,
) -> Maintained:
    """Runs every step once; where this machine's clock is behind the store's, none that deletes by age. Raises
    JobStopped with what failed, the steps before it being committed, and where this machine's clock is ahead.

    `below`, of dead letters: up to where the table of the rows has each partition. What lies further stays, however
    old: a batch that was killed between the two commits comes again, and has to find what it has buried.
    """
    at_ms = clock_ms()
    expired, orphans = 0, []
    try:
        by_age = _is_the_stores(table, clock_ms)
        if maintenance.retention_ms is not None and by_age:
            _delete_old_rows(spark, table, at_ms - maintenance.retention_ms, below)
        if not maintenance.tidies:
            return Maintained()
        rewritten = _merge_files(spark, table, maintenance)
        manifests = _rewrite_manifests(spark, table)
        if by_age:
            expired = _expire(spark, table, at_ms - maintenance.keep_snapshots_ms)
            orphans = _remove_orphans(spark, table, at_ms - maintenance.orphan_age_ms)
    except (PySparkException, Py4JError) as error:
        raise clocks.too_old(table.name, str(error)) or JobStopped(
            f"table {table.name}: maintenance: {cause(str(error))}: what was done before stays; run it again"
        ) from error
    return Maintained(
        files_merged=rewritten["rewritten_data_files_count"],
        files_made=rewritten["added_data_files_count"],
        manifests_rewritten=manifests,
        snapshots_expired=expired,
        orphans_removed=len(orphans),
    )


def _is_the_stores(table: IcebergTable, clock_ms: Callable[[], int]) -> bool:
    """Whether this machine's clock is that of the table's store; else a line says that it is behind. Raises JobStopped
    where it is ahead.
    """
    skew_ms = clocks.skew_ms(table, clock_ms)
    if (stopped := clocks.ahead_of_the_stores(table, skew_ms)) is not None:
        raise stopped
    if skew_ms > SKEW_MS_MAX:
        say(
            f"warning: {table.name}: this machine's clock is {skew_ms // 1000} s behind the store's: no row, "
            "snapshot or orphan goes because of its age until they agree: set the clock"
        )
    return skew_ms <= SKEW_MS_MAX


def _delete_old_rows(spark: SparkSession, table: IcebergTable, before_ms: int, below: Places | None) -> None:
    """Whole partitions, so that no file is written: a day's begin is an hour's, too."""
    before_ms -= before_ms % (24 * 3_600_000)
    if before_ms <= 0:
        return
    kept = [
        f" AND NOT (topic = '{topic}' AND `partition` = {number} AND `offset` >= "
        f"{place(below or {}, topic, number) or 0})"
        for topic, number, end in each({} if below is None else table.places())
        if end > (place(below or {}, topic, number) or 0)
    ]
    spark.sql(f"DELETE FROM {table.name.sql} WHERE `timestamp` < {_timestamp(before_ms)}{''.join(kept)}")


def _merge_files(spark: SparkSession, table: IcebergTable, maintenance: Maintenance) -> Row:
    options = {
        "target-file-size-bytes": maintenance.target_file_size_bytes,
        "min-input-files": maintenance.min_files,
        "max-file-group-size-bytes": max(GROUP_BYTES, maintenance.target_file_size_bytes),
        "max-files-to-rewrite": FILES_AT_ONCE,
        "delete-file-threshold": DELETE_FILES,
        "remove-dangling-deletes": "true",
        # Groups that are done count although a later one fails, or the run is killed.
        "partial-progress.enabled": "true",
    }
    listed = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    row: Row = _call(spark, table, "rewrite_data_files", options=f"map({listed})")[0]
    return row


def _rewrite_manifests(spark: SparkSession, table: IcebergTable) -> int:
    count = spark.sql(f"SELECT count(*) FROM {table.name.sql}.manifests").collect()[0][0]
    if count < MANIFESTS_MIN:
        return 0
    return int(_call(spark, table, "rewrite_manifests", use_caching="false")[0]["rewritten_manifests_count"])


def _expire(spark: SparkSession, table: IcebergTable, before_ms: int) -> int:
    """How many snapshots went.

    First comes an empty one, where the newest merged files: what that one replaced goes when it expires itself. By it
    places that only snapshots have, since an older version of the job wrote the table, become properties.
    """
    before = _snapshots(spark, table)
    if not any(committed < before_ms for committed in before[:-1]):
        return 0
    if table.newest_operation() == "replace" or PLACES not in table.properties():
        commit(spark, table, Notes(places={}), have={})
        before = _snapshots(spark, table)
    table.expire(before_ms)
    return len(before) - len(_snapshots(spark, table))


def _remove_orphans(spark: SparkSession, table: IcebergTable, before_ms: int) -> list[Row]:
    """In the folders of the table's own files alone: within its folder lie the tables of a namespace that has its name,
    and whatever else others put there, of which no snapshot of this table says anything. A folder of ours that is
    another table's own, or has another's in it, is left alone. Where another table lies in the very same folder,
    nothing goes.
    """
    beside = neighbours(spark, table)
    if beside.another is not None:
        file, of = beside.another
        say(
            f"warning: {table.name}: {file} is another table's in the same folder (a catalog gives a new table the "
            "folder of its name, also where one lies that was renamed or dropped): no orphans go; if nobody wants that "
            f"table any more, delete the metadata files that have its id, {of}"
        )
        return []
    if beside.unread is not None:
        file, why = beside.unread
        say(
            f"warning: {table.name}: {file} cannot be read, so that it may be another table's in the same folder: "
            f"{why}: no orphans go until it can be"
        )
        return []
    if beside.cut_off is not None:
        say(
            f"warning: {table.name}: {beside.cut_off} is cut off, as where a job was killed while it wrote it: no "
            "table needs it; it goes with the orphans, once it is as old as they have to be"
        )
    jvm: Any = spark._jvm
    files = jvm.org.apache.hadoop.fs.Path(table.location).getFileSystem(
        spark._jsparkSession.sessionState().newHadoopConf()
    )  # type: ignore[no-untyped-call,unused-ignore]

    def exists(path: str) -> bool:
        return bool(files.exists(jvm.org.apache.hadoop.fs.Path(path)))

    removed: list[Row] = []
    for folder in (f"{table.location}/{name}" for name in OWN_FOLDERS):
        if not exists(folder) or exists(f"{folder}/{METADATA}"):
            continue
        given = {"older_than": _timestamp(before_ms), "location": _text(folder)}
        found = [
            str(row["orphan_file_location"])
            for row in _call(spark, table, "remove_orphan_files", **given, dry_run="true")
        ]
        inner = next((each for each in sorted(_folders_within(folder, found)) if exists(f"{each}/{METADATA}")), None)
        if inner is not None:
            say(
                f"warning: {table.name}: {inner} is another table's, within the folder of this one's files: no "
                f"orphans go from {folder}"
            )
        elif found:
            removed += _call(spark, table, "remove_orphan_files", **given)
    return removed


def _folders_within(folder: str, files: Iterable[str]) -> set[str]:
    """The folders between `folder` and the files in it."""
    within = folder.partition(":")[2].lstrip("/") if ":" in folder else folder.lstrip("/")
    found: set[str] = set()
    for file in files:
        begin = file.find(f"/{within}/")
        above, _, rest = file.rpartition("/") if begin >= 0 else ("", "", "")
        while rest and len(above) > begin + 1 + len(within) and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found


def _text(text: str) -> str:
    """A literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _snapshots(spark: SparkSession, table: IcebergTable) -> list[int]:
    """When each was committed, in ms, from the oldest to the newest."""
    rows = spark.sql(f"SELECT unix_millis(committed_at) AS at FROM {table.name.sql}.snapshots ORDER BY at").collect()
    return [row["at"] for row in rows]


def _call(spark: SparkSession, table: IcebergTable, procedure: str, **arguments: str) -> list[Row]:
    given = "".join(f", {name} => {value}" for name, value in arguments.items())
    return spark.sql(
        f"CALL `{table.name.catalog}`.system.{procedure}(table => '{table.name.in_catalog}'{given})"
    ).collect()


def _timestamp(at_ms: int) -> str:
    """A literal; the session's time zone is UTC."""
    return time.strftime("TIMESTAMP '%Y-%m-%d %H:%M:%S'", time.gmtime(at_ms // 1000))
