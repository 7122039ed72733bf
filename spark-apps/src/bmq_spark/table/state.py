"""What a table is at a version, and how a commit changes it. Pure: the objects of the log are `log`'s, their bytes
`log_format`'s.

One function, `replay`, serves writers and readers: a commit is applied to the state before it is created, by the code
that later reads it.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from bmq_spark.errors import Corrupt
from bmq_spark.table.layout import is_apart

Batch = tuple[str, int]
"""Query id and batch id of a streaming query."""
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One Parquet file of the table; never changed once it is named."""

    key: str
    """Below the table's location, with its folders (`date=2026-01-01/hour=03/NAME.parquet`)."""
    rows: int
    bytes: int
    topic_partitions: Mapping[TopicPartition, tuple[int, int]]
    """First and last offset of its records, by topic and partition."""
    min_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def folder(self) -> str:
        """Its key without its name; '' where the table has no partitions."""
        return self.key.rpartition("/")[0]

    @property
    def partition_values(self) -> Mapping[str, str]:
        """What its folders say (`date`, `hour`)."""
        return dict(part.split("=", 1) for part in self.folder.split("/") if "=" in part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The offsets [first, next) of one partition that a batch took from its source: what is not in its files has no
    record there.
    """

    topic: str
    partition: int
    first: int
    next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets [first, next) that never came into the table, and why: a batch after a hole names it, or is refused."""

    topic: str
    partition: int
    first: int
    next: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version: what it changes."""

    version: int
    nonce: str
    """What only this writer's commit has: who does not know the outcome of its create knows its commit by it."""
    time_ms: int
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()
    batch: Batch | None = None
    run: tuple[str, str] | None = None
    """Query id and nonce of the run that this commit begins, or (with `batch`) that it comes from."""
    base: int | None = None
    """Files that replace others: the version from which the work began."""
    horizon: int | None = None
    """Vacuum: works that began below this version are refused from now on."""
    covered: Sequence[Covered] = ()
    gaps: Sequence[Gap] = ()
    schema: pa.Schema | None = None
    properties: Mapping[str, str] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The table at a version. What it holds is never changed."""

    version: int
    time_ms: int
    by_key: Mapping[str, DataFile]
    """The live files, in the order in which they came."""
    schema: pa.Schema | None
    properties: Mapping[str, str]
    offsets: Mapping[str, Mapping[int, int]]
    """The next offset, by topic and partition."""
    last_batch: Mapping[str, int]
    """The last committed batch of each query."""
    batch_versions: Mapping[str, int]
    """The version that committed it."""
    runs: Mapping[str, str]
    """The run that each query is in: batches of earlier ones are refused."""
    horizon: int
    checkpoint: int
    """The version of the stored snapshot that this was read from; 0: none."""

    @property
    def files(self) -> Sequence[DataFile]:
        """The live files."""
        return tuple(self.by_key.values())

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Whether that batch is in the table: a run after a kill skips it."""
        return self.last_batch.get(query_id, -1) >= batch_id


NOTHING: Final = Snapshot(
    version=0,
    time_ms=0,
    by_key={},
    schema=None,
    properties={},
    offsets={},
    last_batch={},
    batch_versions={},
    runs={},
    horizon=0,
    checkpoint=0,
)


def after(snapshot: Snapshot, commit: Commit) -> Snapshot:
    """The table after one commit, which is not checked: see `bmq_spark.table.replaying`."""
    by_key = snapshot.by_key
    if commit.added or commit.removed:
        by_key = dict(by_key)
        for key in commit.removed:
            del by_key[key]
        by_key.update((file.key, file) for file in commit.added)
    offsets = {topic: dict(partitions) for topic, partitions in snapshot.offsets.items()}
    for covered in commit.covered:
        offsets.setdefault(covered.topic, {})[covered.partition] = covered.next
    batch = {} if commit.batch is None else {commit.batch[0]: commit.batch[1]}
    return Snapshot(
        version=commit.version,
        time_ms=commit.time_ms,
        by_key=by_key,
        schema=commit.schema or snapshot.schema,
        properties=snapshot.properties if commit.properties is None else {**snapshot.properties, **commit.properties},
        offsets=offsets,
        last_batch={**snapshot.last_batch, **batch},
        batch_versions={**snapshot.batch_versions, **dict.fromkeys(batch, commit.version)},
        runs=snapshot.runs if commit.run is None else {**snapshot.runs, commit.run[0]: commit.run[1]},
        horizon=snapshot.horizon if commit.horizon is None else commit.horizon,
        checkpoint=snapshot.checkpoint,
    )


def commit_fields(commit: Commit) -> dict[str, Any]:
    """A commit as JSON; what is empty is left out."""
    fields = {
        "version": commit.version,
        "nonce": commit.nonce,
        "time_ms": commit.time_ms,
        "added": [_file_fields(file) for file in commit.added],
        "removed": list(commit.removed),
        "batch": commit.batch and list(commit.batch),
        "run": commit.run and list(commit.run),
        "base": commit.base,
        "horizon": commit.horizon,
        "offsets": [[covered.topic, covered.partition, covered.first, covered.next] for covered in commit.covered],
        "gaps": [[gap.topic, gap.partition, gap.first, gap.next, gap.reason] for gap in commit.gaps],
        "schema": _schema_text(commit.schema),
        "properties": commit.properties and dict(commit.properties),
        "notes": dict(commit.notes),
    }
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def commit_of(fields: Mapping[str, Any], *, name: str) -> Commit:
    """Raises Corrupt, which calls the object `name`."""
    try:
        return Commit(
            version=int(fields["version"]),
            nonce=str(fields["nonce"]),
            time_ms=int(fields["time_ms"]),
            added=tuple(_file_of(file) for file in fields.get("added", ())),
            removed=tuple(fields.get("removed", ())),
            batch=_pair(fields.get("batch"), int),
            run=_pair(fields.get("run"), str),
            base=fields.get("base"),
            horizon=fields.get("horizon"),
            covered=tuple(
                Covered(topic=t, partition=p, first=first, next=end) for t, p, first, end in fields.get("offsets", ())
            ),
            gaps=tuple(
                Gap(topic=t, partition=p, first=first, next=end, reason=why)
                for t, p, first, end, why in fields.get("gaps", ())
            ),
            schema=_schema_of(fields.get("schema")),
            properties=fields.get("properties"),
            notes=fields.get("notes", {}),
        )
    except (LookupError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise Corrupt(f"{name}: {type(error).__name__} {error}") from error


def format_of(files: Iterable[DataFile]) -> int:
    """The format version of an object that names these: files in a folder without a time came with version 2."""
    return 2 if any(is_apart(file.folder) for file in files) else 1


def snapshot_fields(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON."""
    return {
        "version": snapshot.version,
        "time_ms": snapshot.time_ms,
        "files": [_file_fields(file) for file in snapshot.by_key.values()],
        "schema": _schema_text(snapshot.schema),
        "properties": dict(snapshot.properties),
        "offsets": [
            [topic, partition, end]
            for topic, partitions in snapshot.offsets.items()
            for partition, end in partitions.items()
        ],
        "last_batch": dict(snapshot.last_batch),
        "batch_versions": dict(snapshot.batch_versions),
        "runs": dict(snapshot.runs),
        "horizon": snapshot.horizon,
    }


def snapshot_of(fields: Mapping[str, Any], *, name: str) -> Snapshot:
    """Raises Corrupt, which calls the object `name`."""
    try:
        offsets: dict[str, dict[int, int]] = {}
        for topic, partition, end in fields["offsets"]:
            offsets.setdefault(topic, {})[partition] = end
        files = (_file_of(file) for file in fields["files"])
        return Snapshot(
            version=int(fields["version"]),
            time_ms=int(fields["time_ms"]),
            by_key={file.key: file for file in files},
            schema=_schema_of(fields["schema"]),
            properties=fields["properties"],
            offsets=offsets,
            last_batch=fields["last_batch"],
            batch_versions=fields["batch_versions"],
            runs=fields["runs"],
            horizon=int(fields["horizon"]),
            checkpoint=int(fields["version"]),
        )
    except (LookupError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise Corrupt(f"{name}: {type(error).__name__} {error}") from error


def _file_fields(file: DataFile) -> list[Any]:
    ranges = [[topic, partition, first, last] for (topic, partition), (first, last) in file.topic_partitions.items()]
    return [file.key, file.rows, file.bytes, ranges, file.min_timestamp_ms, file.max_timestamp_ms]


def _file_of(fields: Sequence[Any]) -> DataFile:
    key, rows, size, ranges, lowest, highest = fields
    return DataFile(
        key=key,
        rows=rows,
        bytes=size,
        topic_partitions={(topic, partition): (first, last) for topic, partition, first, last in ranges},
        min_timestamp_ms=lowest,
        max_timestamp_ms=highest,
    )


def _pair(value: Any, second: type) -> Any:
    return None if value is None else (str(value[0]), second(value[1]))


def _schema_text(schema: pa.Schema | None) -> str | None:
    return None if schema is None else base64.b64encode(schema.serialize().to_pybytes()).decode()


def _schema_of(text: str | None) -> pa.Schema | None:
    return None if text is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
