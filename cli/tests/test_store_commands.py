"""`bmq store check` and `bmq store cost` over folders that a real bmq filled."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_cluster import BMQ, Result, run_process, started_bmq

from bmq.errors import ConfigurationError
from bmq_cli.main import execute
from bmq_cli.store.cost import load_prices

RECORD = b"a record that is long enough to fill a segment after some hundred thousand of them"


def store(*arguments: str | Path) -> Result:
    """`bmq store …` in this process; it needs no cluster."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = execute(["store", *map(str, arguments)])
    return Result(int(code), out.getvalue(), err.getvalue())


def repair(folder: Path, *options: str) -> Result:
    """`bmq store check --repair` as a process of its own: it sets up logging."""
    done = subprocess.run(
        [BMQ, "store", "check", "--data", folder, "--repair", *options], capture_output=True, timeout=60, check=False
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def check(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = store("check", "--data", folder, "-o", "json", *options)
    assert not done.err, done.err
    return done.code, json.loads(done.out)


def fill(address: str) -> None:
    run_process(address, ["topics", "create", "orders", "-p", "2", "--config", "segment.bytes=1048576"])
    run_process(address, ["topics", "create", "gone", "-p", "1"])
    # Half of them for each partition: without a key they may all be for one, which a producer stays with for a while.
    for name, partition, count in (("orders", 0, 30_000), ("orders", 1, 30_000), ("gone", 0, 1_000)):
        records = b"\n".join(RECORD + b" %d" % n for n in range(count))
        assert run_process(address, ["produce", name, "--partition", str(partition)], stdin=records).code == 0
    assert (
        run_process(address, ["consume", "orders", "--group", "readers", "--from", "beginning", "--count", "100"]).code
        == 0
    )
    assert run_process(address, ["topics", "delete", "gone", "--yes"]).code == 0


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a bmq that was stopped."""
    folder = tmp_path_factory.mktemp("stopped")
    with started_bmq(folder) as address:
        fill(address)
    yield folder / "data"


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    shutil.copytree(stopped, tmp_path / "data")
    return tmp_path / "data"


def objects(folder: Path, pattern: str) -> list[Path]:
    """By size, the largest first."""
    return sorted((path for path in folder.glob(pattern) if path.is_file()), key=lambda path: -path.stat().st_size)


def key_of(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder))


def test_a_stopped_store_has_no_faults_and_is_not_touched(stopped: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*")}
    code, found = check(stopped)
    assert (code, found["faults"]) == (0, [])
    assert found["checked"]["records"] >= 60_000
    assert found["checked"]["segments"] >= 2
    assert {path: path.stat().st_mtime_ns for path in stopped.rglob("*")} == before


def test_a_folder_may_be_named_as_people_name_it(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stopped.parent)
    for command in (
        ["check", "./data"],
        ["check", "data", "--quick"],
        ["check", f"file://{stopped}"],
        ["cost", "data"],
    ):
        done = store(*command)
        assert (done.code, done.err) == (0, ""), command
    for both in (
        ["data", "--data", "data"],
        ["data", "--store", "memory://"],
        ["--data", "data", "--store", "memory://"],
    ):
        done = store("check", *both)
        assert done.code == 2
        assert "are both given: give one of them" in done.err
    assert "there is no such folder" in store("check", "./none").err


def test_a_running_and_then_killed_store_has_no_faults(tmp_path: Path) -> None:
    with started_bmq(tmp_path) as address:
        assert (
            run_process(address, ["topics", "create", "orders", "-p", "2", "--config", "segment.bytes=1048576"]).code
            == 0
        )
        assert run_process(address, ["produce", "orders"], stdin=b"\n".join([RECORD] * 60_000)).code == 0
        code, found = check(tmp_path / "data")
        assert (code, found["faults"]) == (0, [])
        pid = int((tmp_path / "data" / ".lock").read_text())
        os.kill(pid, signal.SIGKILL)
    code, found = check(tmp_path / "data")
    assert (code, found["faults"]) == (0, [])


def test_what_a_crash_without_fsync_cut_off_the_wal_goes_and_the_rest_is_read(tmp_path: Path) -> None:
    with started_bmq(tmp_path) as address:
        assert run_process(address, ["topics", "create", "orders", "-p", "1"]).code == 0
        for _ in range(2):
            assert run_process(address, ["produce", "orders"], stdin=b"\n".join([RECORD] * 100)).code == 0
        os.kill(int((tmp_path / "data" / ".lock").read_text()), signal.SIGKILL)
    newest = max(path for path in (tmp_path / "data").glob("wal/*/*/*") if path.stat().st_size > 5_000)
    newest.write_bytes(newest.read_bytes()[:4_000])
    said = json.loads(repair(tmp_path / "data", "--yes", "-o", "json").out)
    assert said["planned"] == [
        {
            "delete": key_of(tmp_path / "data", newest),
            "objects": 1,
            "size_bytes": 4_000,
            "without": ["orders-0 offsets 100 to 199"],
        }
    ]
    assert said["left"] == []
    assert read_again(tmp_path / "data", tmp_path) == 100


DAMAGE = {
    "segment": "topics/*/*/segment/*/*",
    "manifest": "topics/*/*/manifest/*",
    "WAL": "wal/*/*/*",
    "metadata": "meta/log/*",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_flipped_byte_is_found_and_its_object_named(copy: Path, what: str) -> None:
    path = objects(copy, DAMAGE[what])[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    code, found = check(copy)
    named = {finding["key"] for finding in (*found["faults"], *found["notes"])}
    assert key_of(copy, path) in named
    assert code == (1 if found["faults"] else 0)


@pytest.mark.parametrize("what", DAMAGE)
def test_a_cut_object_is_found_and_named(copy: Path, what: str) -> None:
    path = objects(copy, DAMAGE[what])[0]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    _, found = check(copy)
    assert key_of(copy, path) in {finding["key"] for finding in (*found["faults"], *found["notes"])}


def test_a_deleted_segment_is_named_with_the_records_that_are_lost(copy: Path) -> None:
    path = objects(copy, DAMAGE["segment"])[0]
    path.unlink()
    for options in ((), ("--quick",)):
        code, found = check(copy, *options)
        (fault,) = found["faults"]
        assert code == 1
        assert (fault["kind"], fault["key"]) == ("lost", key_of(copy, path))
        assert fault["partition"].startswith("orders-")
        assert "records) cannot be read" in fault["means"]


def test_a_foreign_object_is_named(copy: Path) -> None:
    (copy / "notes.txt").write_text("hello")
    code, found = check(copy)
    assert (code, [fault["key"] for fault in found["faults"]]) == (1, ["notes.txt"])
    shown = store("check", "--data", copy)
    assert shown.code == 1
    assert "fault foreign: notes.txt" in shown.out
    assert shown.out.endswith("1 fault\n")


def test_a_repair_says_what_is_lost_and_the_rest_is_read(copy: Path, tmp_path: Path) -> None:
    # not of the other partition: its newest manifest alone may name it
    lost = objects(copy, "topics/*/0000000000/segment/*/*")[0]
    lost.unlink()
    newest = max((copy / "topics").glob("*/0000000001/manifest/*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    _, found = check(copy)
    refused = repair(copy)
    assert refused.code == 1
    assert "add --yes" in refused.err
    assert "for good" in refused.out
    assert "it cannot be known whether a version of the manifest that cannot be read named segments" in refused.out
    assert check(copy)[1]["faults"] == found["faults"], "nothing was done without being asked to"
    done = repair(copy, "--yes", "-o", "json")
    assert done.code == 0, done.out
    said = json.loads(done.out)
    assert said["left"] == []
    (loss,) = (text for each in said["planned"] for text in each["without"])
    assert check(copy)[0] == 0
    first, last = re.findall(r"[0-9]+", loss)[:2]
    assert read_again(copy, tmp_path) == 60_000 - (int(last) - int(first) + 1)


def read_again(folder: Path, place: Path) -> int:
    """How many records a started bmq gives of what is in the folder."""
    with started_bmq(place) as address:
        assert folder == place / "data"
        done = run_process(address, ["consume", "orders", "--from", "beginning", "--format", "%o\\n"])
    assert done.code == 0, done.err
    return len(done.out.splitlines())


def test_a_folder_in_use_is_not_repaired(tmp_path: Path) -> None:
    with started_bmq(tmp_path):
        done = repair(tmp_path / "data", "--yes")
        assert done.code == 1
        assert "in use by process" in done.err


def test_repair_options_without_repair_are_bad_usage(stopped: Path) -> None:
    done = store("check", "--data", stopped, "--yes")
    assert done.code == 2
    assert "--repair only" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "/nowhere/at/all"], "no such folder"),
        (["--store", "nonsense://x"], "scheme"),
        (["--store", "memory://"], "nothing to look at"),
    ],
)
def test_what_is_no_store_is_bad_usage(arguments: list[str], said: str) -> None:
    done = store("check", *arguments)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_folder_without_a_store_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("hello")
    done = store("check", "--data", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "no store of bmq" in done.err


def test_the_cost_of_a_store_adds_up(stopped: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("storage_gib_month: 1000\nput_per_1000: 1\nget_per_1000: 0.5\n")
    done = store("cost", "--data", stopped, "-o", "json", "--prices", prices)
    assert done.code == 0, done.err
    bill = json.loads(done.out)
    size_bytes = sum(path.stat().st_size for path in stopped.rglob("*") if path.is_file() and path.name != ".lock")
    assert bill["total"]["own_bytes"] == size_bytes
    assert sum(each["own_bytes"] + each["shared_bytes"] for each in bill["topics"]) == pytest.approx(size_bytes, abs=10)
    assert bill["total"]["storage_dollars_a_month"] == pytest.approx(size_bytes / 2**30 * 1000, rel=1e-4)
    assert bill["topics"][0]["topic"] == "orders"
    shown = store("cost", "--data", stopped)
    assert "orders" in shown.out
    assert "$0.023" in shown.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("storage_gib_month: 1\nput_per_1000: x\nget_per_1000: 1\n", "put_per_1000 'x'"),
        ("storage_gib_month: 1\nput_per_1000: 1\n", "get_per_1000 None"),
        ("storage: 1\n", "storage: no such key"),
        ("- 1\n", "not a mapping"),
        ("a: [\n", "no YAML"),
    ],
)
def test_prices_that_cannot_be_used_are_told_by_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_prices(str(path))
    assert said in str(caught.value)


def test_a_file_of_prices_that_has_no_end_is_not_read_to_it() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^--prices /dev/zero: it has more than 65536 bytes: name a YAML file of three prices$",
    ):
        load_prices("/dev/zero")


def test_prices_that_are_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("[" * 30_000)
    with pytest.raises(ConfigurationError, match=r"no YAML: it is nested too deeply$"):
        load_prices(str(path))


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and util-linux, to do without root's rights",
)
@pytest.mark.parametrize(
    "command", [["check"], ["cost"], ["erase", "--cluster-id", "x", "--yes"]], ids=lambda command: command[0]
)
@pytest.mark.parametrize("hidden", ["data", "data/meta"], ids=["the folder", "what is above it"])
def test_a_folder_that_this_user_may_not_read_is_told_with_what_to_do(command: list[str], hidden: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        data = Path(folder) / hidden
        data.mkdir(parents=True)
        (Path(folder) / "data").chmod(0o700)
        os.chown(Path(folder) / "data", 65534, 65534)
        # Still root, who may read the checkout wherever it is, but without the right to read what is others'.
        run = [
            "setpriv",
            "--bounding-set=-dac_override,-dac_read_search",
            BMQ,
            "store",
            command[0],
            "--data",
            data,
            *command[1:],
        ]
        done = subprocess.run(run, capture_output=True, timeout=60, check=False, text=True, cwd="/")
    said = (
        f"error: data folder {data}: permission denied: run this as the user that bmq runs as, or name another folder\n"
    )
    assert (done.returncode, done.stderr) == (2, said)


def test_a_price_list_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(ConfigurationError, match="s3, gcs, free"):
        load_prices("ebay")
