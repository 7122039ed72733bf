"""The bytes of the log's objects: what is cut off, changed, of another kind or newer is a typed error; what is written
is read back.
"""

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_spark.errors import Corrupt, FormatTooNew
from bmq_spark.locations import Location
from bmq_spark.table import Commit, Covered, DataFile, Gap, Table, record_schema
from bmq_spark.table.log import commit_key, snapshot_key
from bmq_spark.table.log_format import FORMAT_VERSION, Kind, decode, encode
from bmq_spark.table.replaying import replay
from bmq_spark.table.state import NOTHING, commit_fields, commit_of, snapshot_fields, snapshot_of

names = st.text(min_size=1, max_size=12)
numbers = st.integers(0, 2**62)
files = st.builds(
    DataFile,
    key=names,
    rows=numbers,
    bytes=numbers,
    topic_partitions=st.dictionaries(st.tuples(names, st.integers(0, 99)), st.tuples(numbers, numbers), max_size=3),
    min_timestamp_ms=st.integers(-(2**62), 2**62),
    max_timestamp_ms=numbers,
)
commits = st.builds(
    Commit,
    version=numbers,
    nonce=names,
    time_ms=numbers,
    added=st.lists(files, max_size=3).map(tuple),
    removed=st.lists(names, max_size=3).map(tuple),
    batch=st.none() | st.tuples(names, numbers),
    run=st.none() | st.tuples(names, names),
    base=st.none() | numbers,
    horizon=st.none() | numbers,
    covered=st.lists(st.builds(Covered, topic=names, partition=numbers, first=numbers, next=numbers), max_size=3).map(
        tuple
    ),
    gaps=st.lists(
        st.builds(Gap, topic=names, partition=numbers, first=numbers, next=numbers, reason=names), max_size=2
    ).map(tuple),
    schema=st.sampled_from(
        [None, record_schema(), record_schema(pa.struct([("a", pa.int32()), ("ü", pa.list_(pa.string()))]))]
    ),
    properties=st.none() | st.dictionaries(names, names, min_size=1, max_size=3),
    notes=st.dictionaries(names, names, max_size=3),
)


@given(commits)
def test_a_commit_is_read_as_it_was_written(commit: Commit) -> None:
    content = encode(Kind.COMMIT, commit_fields(commit))
    assert commit_of(decode(Kind.COMMIT, content, name="x"), name="x") == commit


@given(st.lists(files, max_size=5, unique_by=lambda file: file.key), st.sampled_from(list(Kind)), st.data())
def test_what_is_cut_off_or_changed_is_never_believed(found: list[DataFile], kind: Kind, data: st.DataObject) -> None:
    snapshot = replay(NOTHING, [Commit(version=1, nonce="n", time_ms=0)])
    fields = {**snapshot_fields(snapshot), "files": [file.key for file in found]}
    content = encode(kind, fields)
    end = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises((Corrupt, FormatTooNew)):
        decode(kind, content[:end], name="x")
    with pytest.raises((Corrupt, FormatTooNew)):
        decode(kind, content[:end] + b"\0" * (len(content) - end - 1) + b"\1", name="x")
    place, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    flipped = bytearray(content)
    flipped[place] ^= 1 << bit
    with pytest.raises((Corrupt, FormatTooNew)):
        decode(kind, bytes(flipped), name="x")
    with pytest.raises((Corrupt, FormatTooNew)):
        decode(kind, content + b" ", name="x")


@given(st.binary(max_size=200), st.sampled_from(list(Kind)))
def test_any_bytes_are_read_or_refused_and_nothing_else(content: bytes, kind: Kind) -> None:
    with pytest.raises((Corrupt, FormatTooNew)):
        decode(kind, content, name="x")


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    )
)
def test_fields_that_are_none_of_ours_are_corrupt(fields: object) -> None:
    """Its checksum is right, so that somebody else wrote it: read, or refused as Corrupt; no other error."""
    for name in ("version", "time_ms", "added", "offsets", "gaps", "schema", "batch", "run"):
        with suppress(Corrupt):
            commit_of({"version": 1, "nonce": "n", "time_ms": 1, name: fields}, name="x")
    with pytest.raises(Corrupt):
        snapshot_of({"version": 1, "files": fields}, name="x")


def test_a_newer_version_is_refused_by_name() -> None:
    content = encode(Kind.COMMIT, {}, version=FORMAT_VERSION + 1)
    with pytest.raises(
        FormatTooNew,
        match=rf"log/7: bmq-table-commit of version {FORMAT_VERSION + 1}, and this bmq reads up to {FORMAT_VERSION}",
    ):
        decode(Kind.COMMIT, content, name="log/7")


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(Corrupt, match="no bmq-table-snapshot object"):
        decode(Kind.SNAPSHOT, encode(Kind.COMMIT, {}), name="x")


def test_a_stored_snapshot_that_cannot_be_read_is_passed_over_and_a_commit_is_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    location = Location.parse(str(tmp_path_factory.mktemp("table")))
    table = Table.create(location)
    for number in range(45):
        table.commit(table.snapshot(), properties={"n": str(number)})
    assert location.folder is not None
    for version in (20, 40):
        path = location.folder / snapshot_key(version)
        path.write_bytes(path.read_bytes()[:-3])
    newest = Table.open(location).snapshot()
    assert (newest.version, newest.checkpoint, newest.properties["n"]) == (46, 0, "44")
    path = location.folder / commit_key(46)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(Corrupt, match=r"_bmq/log/0{18}46\.json: \d+ bytes where \d+ were written"):
        Table.open(location)


@pytest.mark.parametrize(
    "folder", ["date=2026-01-01", "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"]
)
def test_only_what_names_files_in_a_folder_without_a_time_is_of_version_2(
    tmp_path_factory: pytest.TempPathFactory, folder: str
) -> None:
    location = Location.parse(str(tmp_path_factory.mktemp("table")))
    table = Table.create(location)
    file = DataFile(
        key=f"{folder}/x.parquet",
        rows=1,
        bytes=1,
        topic_partitions={("t", 0): (0, 0)},
        min_timestamp_ms=0,
        max_timestamp_ms=0,
    )
    table.commit_batch(
        ("q", 0), added=[file], offsets=[Covered(topic="t", partition=0, first=0, next=1)], schema=record_schema()
    )
    for number in range(20):
        table.commit(table.snapshot(), properties={"n": str(number)})
    version = 2 if "__" in folder else 1
    assert location.read(commit_key(1)).startswith(b"bmq-table-commit 1 ")
    assert location.read(commit_key(2)).startswith(b"bmq-table-commit %d " % version)
    assert location.read(commit_key(3)).startswith(b"bmq-table-commit 1 ")
    assert location.read(snapshot_key(20)).startswith(b"bmq-table-snapshot %d " % version)
    assert Table.open(location).snapshot().files == (file,)


def test_a_table_of_a_newer_bmq_is_not_guessed_at(tmp_path_factory: pytest.TempPathFactory) -> None:
    location = Location.parse(str(tmp_path_factory.mktemp("table")))
    Table.create(location)
    location.create(commit_key(2), encode(Kind.COMMIT, {}, version=FORMAT_VERSION + 1))
    with pytest.raises(FormatTooNew, match="upgrade it"):
        Table.open(location)
