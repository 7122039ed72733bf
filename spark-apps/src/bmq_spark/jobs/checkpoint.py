"""Spark's notes on a stream, and whether they agree with the table.

A checkpoint belongs to one table (`bmq.json` says which). In it each query has a folder `NNNN` with `NNNN.json` beside
it: what it reads, where it began, and where the job did. A query goes on as long as what it reads is the same and its
last batch is finished and ends where the table does, and Spark can read its files (a power cut leaves some empty or cut
off, which were renamed and not synced); else the next number is begun from the table's places, which are the truth:
neither a kill nor a checkpoint that was restored, nor a table that was, loses or doubles a record. (Spark's own way, to
run an unfinished batch again, ends in a NullPointerException of its Kafka connector 4.1 with AvailableNow.)
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bmq_spark.batches.places import Places, each, from_json, merged, place, to_json
from bmq_spark.errors import BmqError, JobStopped
from bmq_spark.jobs.hadoop_files import HadoopFolder

OWNER: Final = "bmq.json"
_OF_SPARK: Final = frozenset(("metadata", "offsets", "commits"))
_NOTES: Final = re.compile(r"[0-9]{4,9}\.json")
_FOLDER: Final = re.compile(r"[0-9]{4,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What a query reads; another of any of these is another query."""

    source: str
    lane: str
    topics: Mapping[str, str]
    """Ids by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A query's newest batch, as Spark wrote it down before it ran."""

    batch_id: int
    end: Places
    finished: bool
    """Spark takes it for done and will not run it again."""


class Checkpoint:
    """A folder of checkpoints, of one table."""

    def __init__(self, folder: HadoopFolder, *, table_id: str, table: str) -> None:
        self._folder = folder
        self._table_id = table_id
        self._table = table

    def claim(self) -> None:
        """Raises JobStopped where it is another table's, or another program's."""
        text = self._folder.read(OWNER)
        if not text:  # none, or what a full disk or a kill has left of the first run
            # Queries are begun after this: what has such a name is somebody else's, and `begin` would delete it.
            if strange := sorted(name for name in self._folder.names() if name in _OF_SPARK or _NOTES.fullmatch(name)):
                raise JobStopped(
                    f"--checkpoint {self._folder.uri}: holds {strange[0]} of another program: give this job a "
                    "--checkpoint of its own"
                )
            self._folder.write(OWNER, json.dumps({"table_id": self._table_id, "table": self._table}))
            return
        try:
            owner = json.loads(text)
            table_id, table = str(owner["table_id"]), str(owner["table"])
        except (ValueError, KeyError, TypeError) as error:
            raise JobStopped(
                f"--checkpoint {self._folder.child(OWNER)}: not what a job wrote: give this job a --checkpoint of "
                "its own"
            ) from error
        if table_id != self._table_id:
            raise JobStopped(
                f"--checkpoint {self._folder.uri}: it is of the table {table}, not of {self._table}: give this job "
                "a --checkpoint of its own"
            )

    def newest(self) -> "Query | None":
        """The query that ran last."""
        numbers = self._numbers()
        return Query(self._folder, max(numbers)) if numbers else None

    def begin(self, reads: Reads, initial: Places, *, job_began: Places) -> "Query":
        """The next query, which begins at these places; the job itself did at others. Those before the one that ran
        last are deleted.
        """
        numbers = self._numbers()
        # Spark would go on by what lies in a folder whose notes were lost.
        folders = (int(name) for name in self._folder.names() if _FOLDER.fullmatch(name))
        number = max((*numbers, *folders), default=0) + 1
        notes: dict[str, Any] = {
            "source": reads.source,
            "lane": reads.lane,
            "topics": dict(reads.topics),
            "initial": json.loads(to_json(initial)),
        }
        notes["job_began"] = json.loads(to_json(job_began))
        self._folder.write(f"{number:04}.json", json.dumps(notes))
        for old in sorted(numbers)[:-1]:
            self._folder.delete(f"{old:04}")
            self._folder.delete(f"{old:04}.json")
        return Query(self._folder, number)

    def _numbers(self) -> list[int]:
        return [int(name.removesuffix(".json")) for name in self._folder.names() if _NOTES.fullmatch(name)]


class Query:
    """One stream's checkpoint."""

    def __init__(self, folder: HadoopFolder, number: int) -> None:
        self._folder = folder
        self._name = f"{number:04}"
        # Where they were cut off the query goes on with nothing, and the next one is begun.
        self._notes = _object_in(folder.read(f"{self._name}.json")) or {}

    @property
    def uri(self) -> str:
        """What Spark takes as checkpointLocation."""
        return self._folder.child(self._name)

    @property
    def initial(self) -> dict[str, dict[int, int]]:
        """Where it began."""
        return from_json(json.dumps(self._notes.get("initial", {})))

    @property
    def job_began(self) -> dict[str, dict[int, int]] | None:
        """Where the job began in its topics, when the table had nothing of them: the table may be rolled back to that.
        None in notes of before.
        """
        found = self._notes.get("job_began")
        return None if found is None else from_json(json.dumps(found))

    def is_gone(self) -> bool:
        """Whether somebody has deleted it; False where that is not known."""
        try:
            return self._folder.read(f"{self._name}.json") is None
        except JobStopped:
            return False

    def reads(self) -> Reads:
        """What it reads."""
        return Reads(
            source=self._notes.get("source", ""), lane=self._notes.get("lane", ""), topics=self._notes.get("topics", {})
        )

    def id(self) -> str:
        """Spark's id of it, which its batches are known by."""
        return str((_object_in(self._read("metadata")) or {}).get("id", self._name))

    def end(self, batch_id: int) -> dict[str, dict[int, int]] | None:
        """Where a batch ends; where the query began for the one before the first. None where Spark has no such
        batch.
        """
        if batch_id < 0:
            return self.initial
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            return None
        found = _end_in(text)
        if found is None:
            raise JobStopped(f"{self.uri}/offsets/{batch_id}: not a batch's offsets: run the job again")
        return found

    def planned(self) -> Planned | None:
        """The newest batch; None before the first. One that Spark cannot read is not finished."""
        newest = self._newest()
        if newest is None:
            return None
        end = _end_in(self._read(f"offsets/{newest}"))
        finished = end is not None and _said_in(self._read(f"commits/{newest}"))
        return Planned(batch_id=newest, end=end or {}, finished=finished)

    def is_whole(self) -> bool:
        """Whether Spark can read what it looks at before it goes on, beside what `planned` tells: the query's id, the
        batch before the newest, and where the sources began while there is no batch.
        """
        metadata, newest = self._read("metadata"), self._newest()
        if metadata is not None and _object_in(metadata) is None:
            return False
        if newest is None:
            return all(_said_in(self._read(f"sources/{source}/0")) for source in self._begun())
        return newest == 0 or _end_in(self._read(f"offsets/{newest - 1}")) is not None

    def has_begun(self) -> bool:
        """Whether Spark has noted where the query begins: until then it asks for a place of every partition."""
        return self._newest() is not None or bool(self._begun())

    def _begun(self) -> list[str]:
        """The sources of which it is noted where they begin."""
        sources = self._folder.names(f"{self._name}/sources")
        return [source for source in sources if "0" in self._folder.names(f"{self._name}/sources/{source}")]

    def _newest(self) -> int | None:
        return max(
            (int(name) for name in self._folder.names(f"{self._name}/offsets") if name.isdigit()),
            default=None,
        )

    def _read(self, name: str) -> str | None:
        return self._folder.read(f"{self._name}/{name}")


def _end_in(text: str | None) -> dict[str, dict[int, int]] | None:
    """Where a batch ends, as Spark's log of offsets has it: a version, what the batch was planned with, and the
    offsets, in a line each. None where it was cut off.
    """
    lines = (text or "").splitlines()
    if len(lines) < 3 or not lines[2].startswith("{"):
        return None
    try:
        return from_json(lines[2])
    except BmqError:
        return None


def _said_in(text: str | None) -> bool:
    """Whether one of Spark's notes of two lines, a version and an object, was written to its end."""
    lines = (text or "").splitlines()
    return len(lines) >= 2 and _object_in(lines[1]) is not None


def _object_in(text: str | None) -> Mapping[str, Any] | None:
    """None where it was cut off."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def checkpoint_gone(uri: str) -> JobStopped:
    """What to raise where a query's notes are not there any more."""
    return JobStopped(
        f"--checkpoint {uri}: it is gone: was it deleted while the job ran? Run the job again: it begins where the "
        "table ends"
    )


def agrees(planned: Planned | None, initial: Places, table: Places) -> bool:
    """Whether a query may go on for a table at these places of what it reads: where its newest batch ended, or where it
    began if it had none.

    A query that has not seen a partition of the table is an older copy's: the number of its next batch is one that the
    table has, of other records.
    """
    if planned is not None and not planned.finished:
        return False
    known = merged(initial, planned.end if planned else {})
    if any(place(known, topic, partition) is None for topic, partition, _ in each(table)):
        return False
    for topic, partition, offset in each(known):
        have = place(table, topic, partition)
        if have is None:
            have = place(initial, topic, partition) or 0
        if have != offset:
            return False
    return True
