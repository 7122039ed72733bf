"""The command against a started bmq over a folder."""

import itertools
import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from cli_cluster import BMQ, Result, environment, following, run_process, shown_on_terminal, started_bmq

from bmq_cli.main import execute
from bmq_cli.wall_clock import now_ms

_numbers = itertools.count()
Bmq = Callable[..., Result]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started_bmq(tmp_path_factory.mktemp("bmq")) as listening:
        yield listening


@pytest.fixture
def bmq(address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Bmq:
    """Runs a command line in this process."""
    monkeypatch.setenv("BMQ_BOOTSTRAP_SERVER", address)

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        code = execute(arguments)
        out, err = capfd.readouterr()
        return Result(int(code), out, err)

    return run


@pytest.fixture
def topic(bmq: Bmq) -> str:
    name = f"topic{next(_numbers)}"
    assert bmq("topics", "create", name, "--partitions", "2") == Result(0, f"created topic {name}\n", "")
    return name


def produce(bmq: Bmq, topic: str, text: str, tmp_path: Path, *options: str) -> Result:
    file = tmp_path / "records"
    file.write_text(text)
    return bmq("produce", topic, "-f", str(file), *options)


def lines_of(result: Result) -> list[str]:
    assert (result.code, result.err) == (0, "")
    return result.out.splitlines()


def test_a_topic_from_creation_to_deletion(bmq: Bmq) -> None:
    assert (
        bmq("topics", "create", "life", "-p", "2", "--config", "retention.ms=60000", "--validate-only").out
        == "topic life can be created\n"
    )
    assert bmq("topics", "describe", "life").code == 3
    assert bmq("topics", "create", "life", "-p", "2", "--config", "retention.ms=60000").code == 0
    again = bmq("topics", "create", "life")
    assert (again.code, again.err.startswith("error: create topic life: ")) == (1, True)
    assert bmq("topics", "create", "life", "--if-not-exists") == Result(0, "topic life exists already\n", "")
    assert {"name": "life", "partitions": 2} in json.loads(bmq("topics", "list", "-o", "json").out)

    described = json.loads(bmq("-o", "json", "topics", "describe", "life").out)[0]
    assert [
        (row["partition"], row["log_start_offset"], row["high_watermark"], row["records"])
        for row in described["partitions"]
    ] == [
        (0, 0, 0, 0),
        (1, 0, 0, 0),
    ]
    assert all(row["leader"] is not None and row["leader_epoch"] is not None for row in described["partitions"])
    configuration = {entry["name"]: (entry["value"], entry["source"]) for entry in described["configuration"]}
    assert configuration["retention.ms"] == ("60000", "topic")
    assert configuration["cleanup.policy"] == ("delete", "default")

    assert (
        bmq(
            "topics",
            "alter",
            "life",
            "--partitions",
            "5",
            "--config",
            "segment.bytes=2000000",
            "--delete-config",
            "retention.ms",
        ).code
        == 0
    )
    described = yaml.safe_load(bmq("topics", "describe", "life", "-o", "yaml").out)[0]
    configuration = {entry["name"]: (entry["value"], entry["source"]) for entry in described["configuration"]}
    assert len(described["partitions"]) == 5
    assert configuration["segment.bytes"] == ("2000000", "topic")
    assert configuration["retention.ms"][1] == "default"
    assert bmq("topics", "alter", "life", "--partitions", "3").code == 2

    gone = bmq("topics", "delete", "life", "neverwas", "--yes")
    assert (gone.code, gone.out, gone.err.count("\n")) == (3, "deleted topic life\n", 1)
    assert bmq("topics", "describe", "life").code == 3


def test_what_the_cluster_refuses_is_an_error_of_usage_with_its_reason(bmq: Bmq, topic: str) -> None:
    for arguments in (
        ["create", "a b"],
        ["create", "x", "--config", "retention.ms=soon"],
        ["alter", topic, "--config", "no.such.key=1"],
    ):
        result = bmq("topics", *arguments)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)


def test_what_does_not_exist_is_exit_code_3(bmq: Bmq, topic: str) -> None:
    for arguments in (
        ["topics", "describe", "nowhere"],
        ["topics", "alter", "nowhere", "--partitions", "3"],
        ["topics", "delete", "nowhere", "--yes"],
        ["consume", "nowhere"],
        ["consume", topic, "-p", "9"],
        ["produce", "nowhere", "-f", os.devnull],
        ["produce", topic, "-p", "9", "-f", os.devnull],
        ["groups", "describe", "nobody"],
        ["groups", "delete", "nobody"],
        ["groups", "reset-offsets", "g", "--topic", f"{topic}:7", "--to", "end"],
    ):
        result = bmq(*arguments)
        assert (result.code, result.out, result.err.count("\n")) == (3, "", 1), arguments
    assert json.loads(bmq("topics", "list", "-o", "json").out).count({"name": "nowhere", "partitions": 1}) == 0


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_are_read_back_in_order(bmq: Bmq, topic: str, tmp_path: Path, compression: str) -> None:
    text = "".join(f"line {number}\n" for number in range(2000))
    sent = produce(bmq, topic, text, tmp_path, "--partition", "1", "--compression", compression)
    assert sent == Result(0, "", f"2000 records, {len(text) - 2000} bytes sent to {topic}\n")
    assert bmq("consume", topic).out == text
    assert bmq("consume", topic, "-p", "0").out == ""


def test_lines_come_from_standard_input_too(address: str, bmq: Bmq, topic: str) -> None:
    sent = run_process(address, ["produce", topic, "-p", "0"], stdin=b"one\n\nthree")
    assert sent == Result(0, "", f"3 records, 8 bytes sent to {topic}\n")
    assert bmq("consume", topic, "-f", r"[%v]\n").out == "[one]\n[]\n[three]\n"


def test_keys_headers_and_formats(bmq: Bmq, topic: str, tmp_path: Path) -> None:
    assert (
        produce(bmq, topic, "a:1\nb:2:3\n", tmp_path, "--key-separator", ":", "-H", "x=y", "-H", "z=", "-p", "1").code
        == 0
    )
    assert produce(bmq, topic, "v\n", tmp_path, "-k", "fixed", "-p", "1").code == 0
    form = r"%t|%p|%o|%k|%v|%h\n"
    assert lines_of(bmq("consume", topic, "-f", form)) == [
        f"{topic}|1|0|a|1|x=y,z=",
        f"{topic}|1|1|b|2:3|x=y,z=",
        f"{topic}|1|2|fixed|v|",
    ]


def test_a_bad_line_ends_the_command_and_says_which_and_what_was_sent(bmq: Bmq, topic: str, tmp_path: Path) -> None:
    result = produce(bmq, topic, "a:1\nb\nc:3\n", tmp_path, "-K", ":")
    assert result.code == 1
    assert (
        result.err
        == f"1 record, 2 bytes sent to {topic}\nerror: line 2: no key separator ':' in it. correct it; 1 record "
        "before it was sent\n"
    )


def test_json_lines_come_back_as_they_were_sent(bmq: Bmq, topic: str, tmp_path: Path) -> None:
    records = [
        {
            "key": "k",
            "value": "v",
            "headers": [{"name": "h", "value": None}],
            "timestamp": 1_700_000_000_000,
            "partition": 1,
        },
        {"key": None, "value": {"base64": "/wA="}, "headers": [], "timestamp": 1_700_000_000_001, "partition": 1},
        {"key": "tombstone", "value": None, "headers": [], "timestamp": 1_700_000_000_002, "partition": 1},
    ]
    assert produce(bmq, topic, "".join(json.dumps(record) + "\n" for record in records), tmp_path, "--json").code == 0
    read = [json.loads(line) for line in lines_of(bmq("consume", topic, "-o", "json"))]
    assert read == [
        {"topic": topic, "offset": offset, "timestamp_type": "create", **record}
        for offset, record in enumerate(records)
    ]
    as_yaml = list(yaml.safe_load_all(bmq("consume", topic, "-o", "yaml").out))
    assert as_yaml == read


def test_reading_begins_where_it_is_told(bmq: Bmq, topic: str, tmp_path: Path) -> None:
    records = [
        {"value": str(number), "timestamp": 1_700_000_000_000 + 1000 * number, "partition": 0} for number in range(10)
    ]
    assert produce(bmq, topic, "".join(json.dumps(record) + "\n" for record in records), tmp_path, "--json").code == 0

    def read(position: str, *options: str) -> str:
        return "".join(lines_of(bmq("consume", topic, "--from", position, *options)))

    assert read("beginning") == "0123456789"
    assert read("end") == ""
    assert read("7") == "789"
    assert read("-2") == "89"
    assert read("1700000004500") == "56789"
    assert read("2023-11-14T22:13:28Z") == "89"
    assert bmq("consume", topic, "--from", "2030-01-01").err.startswith("nothing is at or after --from 2030-01-01: ")
    assert read("3", "-n", "2") == "34"
    assert read("beginning", "-n", "0") == ""


def test_a_group_goes_on_where_it_was(bmq: Bmq, topic: str, tmp_path: Path) -> None:
    produce(bmq, topic, "a\nb\nc\n", tmp_path, "-p", "0")
    assert lines_of(bmq("consume", topic, "-g", "resumes", "-n", "2")) == ["a", "b"]
    assert lines_of(bmq("consume", topic, "-g", "resumes")) == ["c"]
    assert lines_of(bmq("consume", topic, "-g", "resumes", "--from", "beginning")) == []
    produce(bmq, topic, "d\n", tmp_path, "-p", "1")
    assert lines_of(bmq("consume", topic, "-g", "resumes")) == ["d"]
    assert lines_of(bmq("consume", topic, "-g", "late", "--from", "end")) == []
    produce(bmq, topic, "e\n", tmp_path, "-p", "1")
    assert lines_of(bmq("consume", topic, "-g", "late")) == ["e"]


def test_lag_is_told_in_records_and_in_seconds_of_the_first_unread_record(bmq: Bmq, topic: str, tmp_path: Path) -> None:
    hour_ago_ms = now_ms() - 3_600_000
    records = [{"value": "x", "timestamp": hour_ago_ms + 1000 * number, "partition": 0} for number in range(5)]
    produce(bmq, topic, "".join(json.dumps(record) + "\n" for record in records), tmp_path, "--json")
    bmq("consume", topic, "-g", "behind", "-n", "2")
    described = json.loads(bmq("groups", "describe", "behind", "-o", "json").out)
    first, second = described["offsets"]
    assert (first["committed"], first["end"], first["lag"]) == (2, 5, 3)
    assert 3590 <= first["lag_seconds"] <= 3598 + 60
    assert (second["committed"], second["lag"], second["lag_seconds"]) == (0, 0, 0)
    assert (described["state"], described["members"], described["lag"]) == ("empty", [], 3)
    bmq("consume", topic, "-g", "behind")
    after = json.loads(bmq("groups", "describe", "behind", "-o", "json").out)
    assert (after["lag"], after["lag_seconds"]) == (0, 0)


def test_a_reset_is_shown_then_done(bmq: Bmq, topic: str, tmp_path: Path) -> None:
    produce(bmq, topic, "a\nb\nc\n", tmp_path, "-p", "0")
    bmq("consume", topic, "-g", "moved")
    reset = ["groups", "reset-offsets", "moved", "--topic", f"{topic}:0"]
    shown = bmq(*reset, "--to", "1")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["TOPIC", "PARTITION", "BEFORE", "AFTER"],
        [topic, "0", "3", "1"],
    ]
    assert "--execute" in shown.err
    assert lines_of(bmq("consume", topic, "-g", "moved")) == []
    assert bmq(*reset, "--to", "1", "--execute").code == 0
    assert lines_of(bmq("consume", topic, "-g", "moved")) == ["b", "c"]
    assert bmq(*reset, "--shift-by", "-1", "--execute", "-o", "json").code == 0
    assert lines_of(bmq("consume", topic, "-g", "moved")) == ["c"]
    unborn = json.loads(
        bmq("groups", "reset-offsets", "unborn", "--topic", topic, "--to", "earliest", "--execute", "-o", "json").out
    )
    assert [(row["before"], row["after"]) for row in unborn["offsets"]] == [(None, 0), (None, 0)]
    assert {"group": "unborn", "state": "empty"}.items() <= next(
        row for row in json.loads(bmq("groups", "list", "-o", "json").out) if row["group"] == "unborn"
    ).items()
    every = ["groups", "reset-offsets", "moved", "--all-topics", "-o", "json"]
    shifted = json.loads(bmq(*every, "--shift-by", "0", "--execute").out)["offsets"]
    assert [(row["topic"], row["before"], row["after"]) for row in shifted] == [(topic, 3, 3), (topic, 0, 0)]
    assert [row["after"] for row in json.loads(bmq(*every, "--to", "earliest").out)["offsets"]] == [0, 0]
    assert bmq("groups", "reset-offsets", "nobody", "--all-topics", "--to", "end").code == 3
    assert bmq("groups", "delete", "unborn", "moved") == Result(0, "deleted group unborn\ndeleted group moved\n", "")
    assert bmq("groups", "describe", "moved").code == 3


def test_a_group_with_members_is_described_and_neither_reset_nor_deleted(
    address: str, bmq: Bmq, topic: str, tmp_path: Path
) -> None:
    produce(bmq, topic, "a\n", tmp_path, "-p", "0")
    with following(address, ["consume", topic, "-g", "busy", "--follow", "--from", "beginning"]) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == "a\n"
        described = json.loads(bmq("groups", "describe", "busy", "-o", "json").out)
        assert (described["state"], [member["client"] for member in described["members"]]) == ("stable", ["bmq-cli"])
        assert described["protocol"]
        assert [row["client"] for row in described["offsets"]] == ["bmq-cli", "bmq-cli"]
        assert "busy" in bmq("groups", "list", "--state", "stable").out
        assert "busy" not in bmq("groups", "list", "--state", "empty").out
        refused = bmq("groups", "reset-offsets", "busy", "--topic", topic, "--to", "beginning", "--execute")
        assert refused.code == 1
        assert refused.err.startswith(
            "error: reset offsets of group busy: it is stable with 1 member (bmq-cli on 127.0.0.1). stop them first"
        )
        assert (bmq("groups", "delete", "busy").code, bmq("groups", "describe", "busy").code) == (1, 0)


@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_member_commits_and_leaves(
    address: str, bmq: Bmq, topic: str, tmp_path: Path, interruption: signal.Signals
) -> None:
    produce(bmq, topic, "a\nb\n", tmp_path, "-p", "0")
    group = f"leaves-{interruption.name}"
    with following(address, ["consume", topic, "-g", group, "--follow", "--from", "beginning"]) as member:
        assert member.stdout is not None
        assert [member.stdout.readline() for _ in range(2)] == ["a\n", "b\n"]
        member.send_signal(interruption)
        out, err = member.communicate(timeout=30)
        assert (out, err, member.returncode) == ("", "", 130)
    described = json.loads(bmq("groups", "describe", group, "-o", "json").out)
    assert (described["state"], described["lag"]) == ("empty", 0)


def test_following_prints_what_comes(address: str, bmq: Bmq, topic: str, tmp_path: Path) -> None:
    produce(bmq, topic, "old\n", tmp_path, "-p", "0")
    with following(address, ["consume", topic, "--follow", "--from", "-1", "-n", "2"]) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "old\n"
        produce(bmq, topic, "new\n", tmp_path, "-p", "0")
        assert reader.communicate(timeout=30)[0] == "new\n"
        assert reader.returncode == 0


def test_a_reader_that_leaves_ends_the_command_quietly(address: str, bmq: Bmq, topic: str, tmp_path: Path) -> None:
    produce(bmq, topic, "x" * 200 + "\n" + ("y" * 200 + "\n") * 5000, tmp_path, "-p", "0")
    process = subprocess.Popen(
        [BMQ, "consume", topic], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(address)
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"x" * 200 + b"\n"
    process.stdout.close()
    assert (process.stderr.read(), process.wait(30)) == (b"", 0)
    process.stderr.close()


def test_a_record_that_the_cluster_refuses_is_exit_code_1_and_the_others_arrive(bmq: Bmq, tmp_path: Path) -> None:
    assert bmq("topics", "create", "small", "-p", "1", "--config", "max.message.bytes=1000").code == 0
    # Batches of one record: each is judged alone.
    first = produce(bmq, "small", "a" * 100 + "\n", tmp_path)
    refused = produce(bmq, "small", "b" * 5000 + "\n", tmp_path)
    assert (first.code, refused.code) == (0, 1)
    assert refused.err.startswith(
        "0 records, 0 bytes sent to small, 1 failed\nerror: produce to small: 1 of 1 records failed: "
    )
    assert lines_of(bmq("consume", "small")) == ["a" * 100]


@pytest.mark.parametrize(
    ("words", "expected"), [("bmq topics describe compl", "completed"), ("bmq groups describe compl", "completing")]
)
def test_names_are_completed_from_the_cluster(address: str, bmq: Bmq, words: str, expected: str) -> None:
    bmq("topics", "create", "completed", "--if-not-exists")
    bmq("groups", "reset-offsets", "completing", "--topic", "completed", "--to", "end", "--execute")
    settings = {"_BMQ_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    done = subprocess.run([BMQ], capture_output=True, env={**environment(address), **settings}, timeout=30, check=False)
    assert (done.stdout.decode().split(), done.stderr) == ([expected], b"")


def test_completion_without_a_cluster_is_empty_and_quiet() -> None:
    settings = {"_BMQ_COMPLETE": "complete_bash", "COMP_WORDS": "bmq topics describe x", "COMP_CWORD": "3"}
    done = subprocess.run(
        [BMQ], capture_output=True, env={**environment("127.0.0.1:1"), **settings}, timeout=30, check=False
    )
    assert (done.stdout.split(), done.stderr) == ([], b"")


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_deleting_asks_on_a_terminal(address: str, bmq: Bmq, topic: str, answer: bytes, code: int) -> None:
    ours, theirs = pty.openpty()
    arguments = [BMQ, "topics", "delete", topic]
    process = subprocess.Popen(
        arguments, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(address)
    )
    os.close(theirs)
    os.write(ours, answer)
    out, err = process.communicate(timeout=30)
    os.close(ours)
    assert (process.returncode, f"delete {topic} with all records?".encode() in err) == (code, True)
    assert (topic in bmq("topics", "list").out) is (code != 0)
    assert (out == f"deleted topic {topic}\n".encode()) is (code == 0)


def test_a_file_shows_its_progress_on_a_terminal(address: str, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "records.txt"
    file.write_text("x" * 1000 + "\n")
    code, shown = shown_on_terminal(address, ["produce", topic, "-f", str(file)])
    assert code == 0
    assert "records.txt" in shown
    assert "1 record, 1000 bytes sent to" in shown


def test_a_check_of_a_store_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    with started_bmq(tmp_path) as address:
        assert run_process(address, ["topics", "create", "orders"]).code == 0
        assert run_process(address, ["produce", "orders"], stdin=b"one\ntwo\n").code == 0
    code, shown = shown_on_terminal(address, ["store", "check", "--data", str(tmp_path / "data")])
    assert code == 0
    assert "━" in shown
    assert "KiB" in shown
