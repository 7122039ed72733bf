"""A table's committed versions as a Delta log beside its own, for readers that know Delta and not the log: they see no
uncommitted file, and no record twice, at any moment.

Derived, as stored snapshots are: a version of the Delta log is created after the commit that it tells of, once, and
says up to which version it goes. What a killed process did not publish goes with the next one. Nobody else writes to
it: a writer's feature that no other program knows makes them refuse.
"""

import json
import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from bmq.errors import ObjectMissing
from bmq_spark.errors import CommitRace, TableBroken
from bmq_spark.locations import Location
from bmq_spark.table.layout import NO_TIME
from bmq_spark.table.log import Table
from bmq_spark.table.state import DataFile, Snapshot

LOG: Final = "_delta_log"
CHECKPOINT_INTERVAL: Final = 50
"""Versions between two checkpoints: no more are read one by one."""
VERSIONS_KEPT: Final = 4 * CHECKPOINT_INTERVAL
"""Below a checkpoint so many stay, for readers that have begun."""
APP: Final = "bmq"
FORMAT: Final = 2
"""What a version is written like, in its commitInfo. Versions without it had bounds of `timestamp`; after another than
this one all is told again."""
_RACES_MAX: Final = 100
_VERSION_KEY: Final = re.compile(rf"{LOG}/([0-9]{{20}})\.(json|checkpoint\.parquet)")
_LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"
_STRINGS: Final = pa.map_(pa.string(), pa.string())
_CHECKPOINT: Final = pa.schema(
    [
        ("protocol", pa.struct(
            [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
             ("readerFeatures", pa.list_(pa.string())), ("writerFeatures", pa.list_(pa.string()))]
        )),
        ("metaData", pa.struct(
            [("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
             ("format", pa.struct([("provider", pa.string()), ("options", _STRINGS)])), ("schemaString", pa.string()),
             ("partitionColumns", pa.list_(pa.string())), ("configuration", _STRINGS), ("createdTime", pa.int64())]
        )),
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        ("add", pa.struct(
            [("path", pa.string()), ("partitionValues", _STRINGS), ("size", pa.int64()),
             ("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("stats", pa.string())]
        )),
        ("remove", pa.struct(
            [("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())]
        )),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """How far the Delta log goes."""

    version: int
    """-1: there is none."""
    of: int
    """The table's version that it tells of."""
    checkpoint: int
    """Its newest checkpoint; -1: none."""
    oldest: int
    is_current: bool = True
    """Whether it is of this FORMAT."""
    table_id: str | None = None
    """The table's; None: it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a version of the Delta log says of itself."""

    of: int
    """The table's version that it tells of."""
    written: int
    """Its FORMAT."""
    table_id: str | None


def publish(table: Table) -> int:
    """Brings the Delta log up to the table's newest version; the version that it tells of now (0: the table has no
    columns yet).

    Raises CommitRace (after 100 races), TableBroken (somebody else wrote to the Delta log, or it is left of another
    table), Corrupt, FormatTooNew, StoreError.
    """
    location = table.location
    for _ in range(_RACES_MAX):
        published = _published(location)
        newest = table.snapshot()  # after what was published of it
        if newest.schema is None:
            return 0
        _require_own(published, newest, location)
        if published.of < newest.version or not published.is_current:
            version = published.version + 1
            actions = (
                _whole(newest)
                if published.version < 0
                else _difference(table, published.of, newest, again=not published.is_current)
            )
            content = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
            if not location.create(_key(version), content.encode()):
                continue
            checkpoint = published.checkpoint if published.is_current else version - CHECKPOINT_INTERVAL
            published = _Published(version=version, of=newest.version, checkpoint=checkpoint, oldest=published.oldest)
        if published.of == newest.version and published.version - published.checkpoint >= CHECKPOINT_INTERVAL:
            _check_point(location, published, newest)
        return published.of
    raise CommitRace(f"table {location.uri}: {_RACES_MAX} times another process published it: run fewer of them")


def _published(location: Location) -> _Published:
    found = [match for each in location.list(LOG) if (match := _VERSION_KEY.fullmatch(each.key)) is not None]
    versions = [int(match[1]) for match in found if match[2] == "json"]
    checkpoint = max((int(match[1]) for match in found if match[2] != "json"), default=-1)
    if not versions:
        return _Published(version=-1, of=0, checkpoint=checkpoint, oldest=0)
    newest = max(versions)
    if (told := _told_of(location.read(_key(newest)))) is not None:
        return _Published(
            version=newest,
            of=told.of,
            checkpoint=checkpoint,
            oldest=min(versions),
            is_current=told.written == FORMAT,
            table_id=told.table_id,
        )
    raise TableBroken(
        f"{location.hadoop(_key(newest))}: another program wrote it: delete the folder {LOG}, and it is made anew"
    )


def _require_own(published: _Published, newest: Snapshot, location: Location) -> None:
    """Raises TableBroken where what was published is of another table, or of more than there is of this one: who begins
    a table anew may leave the folder.
    """
    if published.of <= newest.version and published.table_id in (None, newest.properties.get("id")):
        return
    raise TableBroken(
        f"{location.hadoop(LOG)}: it tells of a table that was there before: delete the folder {LOG}, and it is made "
        "anew"
    )


def _told_of(content: bytes) -> _Told | None:
    """None where it is not one that was published."""
    try:
        actions = [json.loads(line) for line in content.splitlines()]
        of = next(
            (int(action["txn"]["version"]) for action in actions if "txn" in action and action["txn"]["appId"] == APP),
            None,
        )
        info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        table_id = info.get("bmqTable")
        return None if of is None else _Told(of=of, written=int(info.get("bmqFormat", 1)), table_id=table_id)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _whole(newest: Snapshot) -> Iterator[dict[str, Any]]:
    yield from _head(newest, "CREATE TABLE")
    yield from _columns(newest)
    for file in newest.files:
        yield {"add": _add(file, newest, data_change=True)}


def _difference(table: Table, after: int, newest: Snapshot, *, again: bool) -> Iterator[dict[str, Any]]:
    """One version of the Delta log for all commits since; files that came and went meanwhile are in neither list.

    `again`, and where the folders' columns are said only now: columns and files that were told before are told once
    more, in place of that.
    """
    added: dict[str, DataFile] = {}
    removed: list[str] = []
    has_columns = data_change = False
    for commit in table.commits(after=after, last=newest.version):
        for key in commit.removed:
            if added.pop(key, None) is None:
                removed.append(key)
        added |= {file.key: file for file in commit.added}
        has_columns |= commit.schema is not None
        again |= "partition-by" in (commit.properties or {})
        data_change |= commit.batch is not None or (bool(commit.removed) and not commit.added)
    yield from _head(newest, "WRITE" if data_change or has_columns else "OPTIMIZE")
    if has_columns or again:
        yield from _columns(newest)
    for key in removed:
        yield {"remove": {"path": _path(key), "deletionTimestamp": newest.time_ms, "dataChange": data_change}}
    for file in newest.files if again else added.values():
        yield {"add": _add(file, newest, data_change=data_change and file.key in added)}


def _head(newest: Snapshot, operation: str) -> Iterator[dict[str, Any]]:
    table_id = newest.properties.get("id")
    yield {
        "commitInfo": {
            "timestamp": newest.time_ms,
            "operation": operation,
            "operationParameters": {},
            "engineInfo": APP,
            "bmqFormat": FORMAT,
            **({} if table_id is None else {"bmqTable": table_id}),
        }
    }
    yield {"txn": {"appId": APP, "version": newest.version, "lastUpdated": newest.time_ms}}


def _columns(newest: Snapshot) -> Iterator[dict[str, Any]]:
    """What reading and writing take, and the columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    assert newest.schema is not None
    schema = from_arrow_schema(newest.schema, prefer_timestamp_ntz=True)
    written = schema.jsonValue()
    folders = _folders(newest)
    kinds = {"date": "date", "hour": "integer"}
    written["fields"] += [{"name": name, "type": kinds[name], "nullable": True, "metadata": {}} for name in folders]
    text = json.dumps(written, separators=(",", ":"))
    features = ["timestampNtz"] if '"timestamp_ntz"' in text else []
    reader = {"minReaderVersion": 3, "readerFeatures": features} if features else {"minReaderVersion": 1}
    yield {"protocol": reader | {"minWriterVersion": 7, "writerFeatures": [*features, APP]}}
    yield {
        "metaData": {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"bmq:{newest.properties.get('id', '')}")),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": text,
            "partitionColumns": folders,
            "configuration": {},
            "createdTime": newest.time_ms,
        }
    }


def _folders(newest: Snapshot) -> list[str]:
    """The columns that folders stand for: a table says it. Dead letters of before did not, and lie as their table
    does.
    """
    kept = newest.properties.get("partition-by")
    if kept is None:
        return list(newest.files[0].partition_values) if newest.files else []
    return {"hour": ["date", "hour"], "date": ["date"]}.get(kept, [])


def _add(file: DataFile, newest: Snapshot, *, data_change: bool) -> dict[str, Any]:
    # Rows alone. Where a file has bounds for one column, delta-rs takes a column without them for one of nulls, and
    # passes over the file.
    stats = {"numRecords": file.rows}
    return {
        "path": _path(file.key),
        "partitionValues": {name: _value(name, file.partition_values) for name in _folders(newest)},
        "size": file.bytes,
        "modificationTime": newest.time_ms,
        "dataChange": data_change,
        "stats": json.dumps(stats, separators=(",", ":")),
    }


def _value(name: str, values: Mapping[str, str]) -> str | None:
    """As Delta writes it; null for a day that no calendar has."""
    text = values.get(name)
    if text is None or text == NO_TIME:
        return None
    if name == "hour":
        return str(int(text))
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return None


def _check_point(location: Location, published: _Published, newest: Snapshot) -> None:
    """Everything at that version as one object, and without what is far below it. What is cut off is done by the
    next.
    """
    rows = [action for action in _whole(newest) if "commitInfo" not in action]
    table = pa.Table.from_pylist(rows, schema=_CHECKPOINT)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "checkpoint")
        pq.write_table(table, file, compression="zstd")
        location.upload(_key(published.version, "checkpoint.parquet"), file)
        file.write_text(json.dumps({"version": published.version, "size": len(rows)}))
        location.upload(_LAST_CHECKPOINT, file)
    for version in range(published.oldest, published.version - VERSIONS_KEPT):
        for suffix in ("json", "checkpoint.parquet"):
            try:
                location.delete(_key(version, suffix))
            except ObjectMissing:
                continue


def _key(version: int, suffix: str = "json") -> str:
    return f"{LOG}/{version:020}.{suffix}"


def _path(key: str) -> str:
    return quote(key, safe="/=")
