"""A cluster that does not answer is no empty topic, and a slip on the command line says what is wrong instead of doing
something else.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_cluster import BMQ, Result, environment, run_process, started_bmq
from deaf_relay import deaf_to, led_by_nobody
from tests.waiting import until

from bmq.wire.error_codes import ErrorCode

PRODUCE = 0
LIST_OFFSETS = 2
NO_ANSWER = "no answer within 1 s. raise --timeout, or see what `bmq cluster status` says\n"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started_bmq(tmp_path_factory.mktemp("bmq")) as listening:
        assert run_process(listening, ["topics", "create", "orders", "--partitions", "1"]).code == 0
        assert run_process(listening, ["produce", "orders"], stdin=b"one\ntwo\n").code == 0
        yield listening


@pytest.fixture(scope="module")
def deaf(address: str) -> Iterator[str]:
    """The same cluster, which never says where a log begins and ends."""
    with deaf_to(LIST_OFFSETS, address) as relay:
        yield relay


def test_records_that_nobody_tells_of_are_not_called_none(address: str, deaf: str) -> None:
    assert run_process(address, ["consume", "orders"]) == Result(0, "one\ntwo\n", "")
    assert run_process(deaf, ["consume", "orders", "--timeout", "1"]) == Result(
        4, "", f"error: offsets of orders/0: {NO_ANSWER}"
    )
    assert run_process(deaf, ["topics", "describe", "orders", "--timeout", "1"]).code == 4


@pytest.mark.parametrize(
    "error", [ErrorCode.not_leader_or_follower, ErrorCode.leader_not_available, ErrorCode.fenced_leader_epoch]
)
def test_offsets_of_a_partition_that_changes_its_leader_are_asked_for_again(address: str, error: ErrorCode) -> None:
    with led_by_nobody(address, error, answers=3) as (relay, asked):
        assert run_process(relay, ["consume", "orders"]) == Result(0, "one\ntwo\n", "")
        assert len(asked) >= 5, "for its beginning until that is known, and for its end"


def test_who_waits_for_a_leader_that_does_not_come_ends_when_the_time_is_up_and_says_why(address: str) -> None:
    with led_by_nobody(address, ErrorCode.not_leader_or_follower, answers=10**6) as (relay, asked):
        done = run_process(relay, ["consume", "orders", "--timeout", "1"])
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("error: offsets of orders/0: ")
        assert 2 <= len(asked) <= 30, "again, and not all the time"
    with led_by_nobody(address, ErrorCode.topic_authorization_failed, answers=10**6) as (relay, asked):
        assert run_process(relay, ["consume", "orders"]).code == 1
        assert len(asked) == 1, "what time does not mend is not asked for again"


@pytest.mark.parametrize("position", ["beginning", "end", "-1", "2020-01-01"])
def test_a_group_is_not_moved_to_where_nobody_said_that_the_log_ends(address: str, deaf: str, position: str) -> None:
    group = f"moved-to-{position.strip('-')}"
    assert run_process(address, ["consume", "orders", "--group", group, "--count", "1"]).code == 0
    done = run_process(
        deaf, ["groups", "reset-offsets", group, "--topic", "orders", "--to", position, "--execute", "--timeout", "1"]
    )
    assert (done.code, done.out, done.err) == (4, "", f"error: offsets of orders/0: {NO_ANSWER}")
    assert run_process(address, ["consume", "orders", "--group", group]).out == "two\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--data", ""],
        ["up", "--data="],
        ["up", "--store", ""],
        ["store", "check", "--data", ""],
        ["store", "copy", "--to", ""],
        ["topics", "delete", "orders", "--yes", "-b", ""],
        ["-b", "", "topics", "list"],
        ["cluster", "status", "--admin", ""],
    ],
)
def test_a_place_named_by_an_empty_text_is_refused_and_not_replaced_by_the_default(
    address: str, arguments: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [BMQ, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(address),
        timeout=30,
        check=False,
    )
    option = next(
        argument for argument in arguments if argument in ("--data", "--data=", "--store", "--to", "-b", "--admin")
    ).rstrip("=")
    assert (done.returncode, done.stderr) == (
        2,
        f"error: {option}: its value is empty: give one, or leave the option out\n",
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("option", ["--group", "--group=", "-g"])
def test_a_group_without_a_name_is_not_none(address: str, option: str) -> None:
    done = run_process(address, ["consume", "orders", option, *([] if option.endswith("=") else [""])])
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {option.rstrip('=')}: its value is empty: give one, or leave the option out\n"


@pytest.mark.parametrize("position", ["999999", "2", "2999-01-01"])
def test_a_position_beyond_the_end_is_said_to_be_one(address: str, position: str) -> None:
    assert run_process(address, ["consume", "orders", "--from", position]) == Result(
        0, "", f"nothing is at or after --from {position}: orders ends at offset 2; --follow waits for more\n"
    )


def test_a_position_at_which_something_is_has_no_hint(address: str) -> None:
    assert run_process(address, ["consume", "orders", "--from", "1"]) == Result(0, "two\n", "")
    assert run_process(address, ["consume", "orders", "--from", "end"]) == Result(0, "", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("topics delete nothing -y", "`bmq topics list` shows them"),
        ("groups delete nothing -y", "`bmq groups list` shows them"),
        ("consume orders -p 99", "there is none: it has 1 partition. `bmq topics describe orders` shows them"),
        ("produce orders -p 99", "there is none: it has 1 partition. `bmq topics describe orders` shows them"),
        ("produce bad!name", "'bad!name' is illegal. use only ASCII letters and digits"),
        ("produce orders --json", "1 record before it was sent"),
        ("produce orders -f /nothing", "no such file or directory. name a file that can be read"),
        ("topics create x --partitions 0", "greater than or equal to 1. Try `"),
    ],
)
def test_a_refusal_says_what_to_do(address: str, arguments: str, says: str) -> None:
    done = run_process(address, arguments.split(), stdin=b'{"partition": 0}\nno json\n')
    assert done.code != 0
    assert says in done.err


def test_a_preview_for_a_group_that_is_not_there_says_so(address: str) -> None:
    done = run_process(address, ["groups", "reset-offsets", "never-seen", "--topic", "orders", "--to", "beginning"])
    assert done.code == 0
    assert "there is no group never-seen yet: --execute makes it" in done.err


def test_a_store_named_by_an_empty_text_is_refused(address: str) -> None:
    done = run_process(address, ["store", "check", ""])
    assert (done.code, done.err) == (2, "error: the store's name is empty: give a folder or a URL, or leave it out\n")


@pytest.mark.parametrize("command", ["create", "alter"])
def test_more_partitions_than_a_request_can_name_are_wrong_usage(address: str, command: str) -> None:
    done = run_process(address, ["topics", command, "orders", "--partitions", "100000000000"])
    assert done.code == 2
    assert done.err.startswith(
        "error: usage: Invalid value for '--partitions' / '-p': Input should be less than or equal to 100000. "
    )


def test_a_record_for_a_partition_that_is_not_there_is_said_not_to_have_been_sent(address: str) -> None:
    done = run_process(address, ["produce", "orders", "--json"], stdin=b'{"value": "x", "partition": 7}\n')
    assert done.code == 1
    assert done.err.endswith(
        "1 of 1 records failed: Local: Unknown partition. these were not sent: `bmq topics describe orders` shows "
        "its partitions\n"
    )


def test_so_is_one_that_comes_when_the_topic_is_known_already(address: str) -> None:
    assert run_process(address, ["topics", "create", "slips", "--partitions", "1"]).code == 0
    with subprocess.Popen(
        [BMQ, "produce", "slips", "--json"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(address),
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"value": "x"}\n')
        process.stdin.flush()
        until(lambda: run_process(address, ["consume", "slips"]).out == "x\n", "the first record to be there")
        _, said = process.communicate(b'{"value": "y", "partition": 7}\n{"value": "z"}\n', timeout=30)
    assert process.returncode == 1
    assert said == (
        b"2 records, 2 bytes sent to slips, 1 failed\nerror: produce to slips: 1 of 3 records failed: Local: Unknown "
        b"partition. these were not sent: `bmq topics describe slips` shows its partitions\n"
    )
    assert run_process(address, ["consume", "slips"]).out == "x\nz\n"


def test_output_that_finds_no_space_is_told_as_such(address: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [BMQ, "topics", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(address),
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert (
        done.stderr
        == b"error: the command's output: no space is left where it is written to. free some, or write it elsewhere\n"
    )


def test_records_that_nobody_acknowledges_in_time_are_told_with_where_to_look(address: str) -> None:
    with deaf_to(PRODUCE, address) as relay:
        done = run_process(relay, ["produce", "orders", "--delivery-timeout", "1"], stdin=b"three\n")
    assert done.code == 1
    remedy = "see what `bmq cluster status` says of the cluster and its store; some may have been written"
    assert f"1 of 1 records failed: Local: Message timed out. {remedy}" in done.err
