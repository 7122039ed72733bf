"""protoc that comes to no verdict, as on a machine without memory or room: no record and no schema is to blame."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hurried import hurried
from value_cases import decode
from value_registry import RegistryServer, met_anew

from bmq_spark.errors import BmqError, ConfigurationError, ProtocFailed
from bmq_spark.jobs import parquet
from bmq_spark.jobs.decoders import typing_of
from bmq_spark.jobs.newest_version import NewestVersion
from bmq_spark.values import decoder, protobuf_files
from bmq_spark.values import registry as registries
from bmq_spark.values.protobuf_files import compiled

SCHEMA = 'syntax = "proto3"; message Order { int32 id = 1; }'
WIDER = 'syntax = "proto3"; message Order { int32 id = 1; string note = 2; }'
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
WARNED = "x.proto:1:21: warning: Import google/protobuf/any.proto is unused."
ENDS = {
    "was ended by signal 9": KILLED,
    "ended with code 1: /tmp/x/descriptors: No space left on device": (
        f"import sys; sys.exit({WARNED!r} + chr(10) + '/tmp/x/descriptors: No space left on device')"
    ),
    "ended with code 1: MemoryError": "raise MemoryError",
    "ended with code 1: x.proto: File not found.": "import sys; sys.exit('x.proto: File not found.')",
    "ended with code 3: no reason given": "import sys; sys.exit(3)",
}
"""By what is said of it: what a process does in the place of protoc."""


class Protoc:
    """What processes that are to be protoc do."""

    def __init__(self, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self._module = folder / "grpc_tools" / "protoc.py"
        self._module.parent.mkdir()
        (self._module.parent / "__init__.py").write_text("")
        self._environment = environment

    def does(self, code: str) -> None:
        self._module.write_text(code)
        self._environment.setenv("PYTHONPATH", str(self._module.parents[1]))

    def works(self) -> None:
        self._environment.undo()


@pytest.fixture
def protoc(tmp_path: Path) -> Iterator[Protoc]:
    with pytest.MonkeyPatch.context() as environment:
        yield Protoc(tmp_path, environment)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registries, "PATIENCE", hurried())
    with met_anew() as server:
        yield server


def made(schema: str = SCHEMA) -> None:
    compiled({"x.proto": schema.encode()}, "x.proto", "of somebody")


@pytest.mark.parametrize("why", ENDS)
def test_protoc_that_ends_without_a_verdict_is_this_machine_s_fault(protoc: Protoc, why: str) -> None:
    protoc.does(ENDS[why])
    with pytest.raises(ProtocFailed) as raised:
        made()
    said = str(raised.value)
    assert said.startswith(f"schema of somebody: protoc {why}: that is this machine's fault") and "\n" not in said
    assert "run the job again" in said and not isinstance(raised.value, ConfigurationError)


def test_protoc_that_cannot_be_started_or_takes_too_long_is_this_machine_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(protobuf_files, "PROTOC_TIMEOUT_S", 0.001)
        with pytest.raises(ProtocFailed, match=r"protoc took longer than 0\.001 s"):
            made()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ProtocFailed, match=r"protoc could not run .*No such file or directory"):
        made()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ('syntax = "proto3"; message A { strin a = 1; }', 'x.proto:1:32: "strin" is not defined'),
        ("message A { strin a = 1; }", 'x.proto:1:13: Expected "required", "optional", or "repeated"'),
        ('syntax = "proto3"; import "no.proto";', 'x.proto:1:20: Import "no.proto" was not found or had errors'),
        ('syntax = "proto3"; import "x.proto";', "x.proto:1:20: File recursively imports itself"),
        ('syntax = "proto3"; import "google/protobuf/any.proto"; message A { strin a = 1; }', "x.proto:1:68: "),
    ],
)
def test_what_protoc_says_of_a_file_is_its_verdict(schema: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        made(schema)
    assert str(raised.value).startswith(f"schema of somebody: protoc says {says}")


def test_records_whose_schema_was_not_compiled_are_no_dead_letters(protoc: Protoc, registry: RegistryServer) -> None:
    registry.register("s", SCHEMA, kind="PROTOBUF")
    orders = decoder("protobuf", registry=registry.url, subject="s")
    number = registry.register("s", WIDER, kind="PROTOBUF")
    record = b"\x00" + number.to_bytes(4, "big") + b"\x00\x08\x07"
    protoc.does(KILLED)
    with pytest.raises(ProtocFailed, match=f"id {number}: protoc was ended by signal 9"):
        decode(orders, [record])
    protoc.works()
    assert decode(orders, [record]) == ([{"id": 7}], [None])


def test_a_running_job_does_not_go_on_without_the_newer_version_that_it_could_not_compile(
    protoc: Protoc, registry: RegistryServer, tmp_path: Path
) -> None:
    """The records that brought it would have fields in no column, and no later batch would ask again."""
    registry.register("orders-value", SCHEMA, kind="PROTOBUF")
    given = ["--topic", "orders", "--output", str(tmp_path / "t"), "--registry", registry.url, "--format", "protobuf"]
    options = parquet.parse(given)
    typing = typing_of(options)
    newest = NewestVersion(options)
    number = registry.register("orders-value", WIDER, kind="PROTOBUF")
    protoc.does(KILLED)
    with pytest.raises(BmqError, match="was ended by signal 9"):
        newest.after(typing, {number: 1}, typing.schema)
    protoc.works()
    found = newest.after(typing, {number: 1}, typing.schema)
    assert found is not None and [field.name for field in found.columns] == ["id", "note"]
