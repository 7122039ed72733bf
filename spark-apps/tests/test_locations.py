"""A folder and MinIO do the same."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Buckets

from bmq.errors import ConfigurationError, NotApplied, ObjectMissing, StoreUnavailable
from bmq_spark import durable_files
from bmq_spark.locations import Location
from bmq_spark.values import read_schema


@pytest.fixture(params=["folder", "minio"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "folder":
        return Location.parse(str(tmp_path / "a folder"))
    minio: Buckets = request.getfixturevalue("minio")
    return minio.location("locations")


def keys_of(location: Location, prefix: str = "") -> list[str]:
    return sorted(found.key for found in location.list(prefix))


def test_an_object_is_created_once_and_a_second_creator_is_told(location: Location) -> None:
    assert location.create("log/1", b"mine")
    assert not location.create("log/1", b"theirs")
    assert location.create("log/1", b"mine"), "the same bytes again are the same creation"
    assert location.read("log/1") == b"mine"


def test_what_is_listed_is_what_was_written_by_its_key_below_the_location(location: Location, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    location.upload("date=2026-01-01/hour=03/a.parquet", tmp_path / "file")
    location.create("log/1", b"one")
    assert keys_of(location) == ["date=2026-01-01/hour=03/a.parquet", "log/1"]
    assert keys_of(location, "log") == ["log/1"]
    (found,) = location.list("date=2026-01-01")
    assert found.size_bytes == 1000 and found.modified_ms > 1_600_000_000_000
    assert keys_of(location.child("date=2026-01-01")) == ["hour=03/a.parquet"]


def test_an_upload_replaces_and_a_delete_may_be_repeated(location: Location, tmp_path: Path) -> None:
    file = tmp_path / "file"
    for content in (b"one", b"another"):
        file.write_bytes(content)
        location.upload("a", file)
    assert location.read("a") == b"another"
    location.delete("a")
    location.delete("a")
    with pytest.raises(ObjectMissing):
        location.read("a")
    assert keys_of(location) == []


def test_a_location_that_is_not_there_yet_is_empty(location: Location) -> None:
    assert keys_of(location, "log") == []


def test_looking_at_a_folder_that_is_not_there_does_not_make_it(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "orders"))
    assert keys_of(location) == []
    location.delete("log/1")
    with pytest.raises(ObjectMissing, match=r"log/1 .*orders"):
        location.read("log/1")
    with pytest.raises(ConfigurationError, match=r"orders/x\.ddl.*cannot be read"):
        read_schema(str(tmp_path / "orders" / "x.ddl"))
    assert list(tmp_path.iterdir()) == []
    assert location.create("log/1", b"one") and location.read("log/1") == b"one", (
        "and is seen once somebody has made it"
    )


def test_what_a_killed_writer_left_in_a_folder_is_not_an_object(tmp_path: Path) -> None:
    """The process dies after the bytes and before the link."""
    location = Location.parse(str(tmp_path))
    script = (
        "import os, bmq_spark.durable_files as files; os.link = lambda *_: os._exit(9);"
        "files.create_file(files.Path({!r}), b'torn', root=files.Path({!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script.format(str(tmp_path / "log" / "1"), str(tmp_path))], timeout=60, check=False
    )
    assert done.returncode == 9
    assert len(list((tmp_path / "log").iterdir())) == 1, "the file is there under a name of its own"
    assert keys_of(location) == []
    assert location.create("log/1", b"whole")


def test_what_is_swept_while_it_is_written_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vacuum with a clock that is ahead takes it for what a killed process left."""
    location = Location.parse(str(tmp_path))
    swept = 0

    def swept_first(times: int) -> Callable[[Path, Path], None]:
        link = os.link

        def sweeping(source: Path, name: Path) -> None:
            nonlocal swept
            if swept < times:
                swept += 1
                source.unlink()
            link(source, name)

        return sweeping

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", swept_first(durable_files.TRIES_MAX - 1))
        assert location.create("log/1", b"mine")
    assert (swept, location.read("log/1")) == (durable_files.TRIES_MAX - 1, b"mine")
    swept = 0
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", swept_first(durable_files.TRIES_MAX))
        with pytest.raises(NotApplied, match=r"write .*log/2: No such file"):
            location.create("log/2", b"mine")
    assert keys_of(location) == ["log/1"]
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write a folder"),
        ("memory:", "nothing that a table is kept in"),
        ("ftp://host/a", "use file, memory, s3, gs or az"),
        ("s3a:///prefix", "bucket"),
        ("s3a://tables/orders#eu", "character '#' cannot be used: leave it out"),
        ("file:///tables/orders#eu", "a folder's name may have %23 for #"),
        ("file://tables/orders", "write file:///absolute/folder"),
    ],
)
def test_a_location_that_makes_no_sense_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Location.parse(text)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_folder_that_cannot_be_written_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    location = Location.parse(str(tmp_path))
    with pytest.raises(NotApplied, match=r"file/log/1.*name another folder|file/log.*"):
        location.create("file/log/1", b"")


def test_a_bucket_that_is_not_there_is_named(minio: Buckets) -> None:
    location = Location.parse(f"s3a://no-such-bucket/table?endpoint=http://127.0.0.1:{minio.port}")
    verbs: list[Callable[[], object]] = [lambda: list(location.list("log")), lambda: location.create("log/1", b"")]
    for verb in verbs:
        with pytest.raises((StoreUnavailable, NotApplied), match="NoSuchBucket"):
            verb()
