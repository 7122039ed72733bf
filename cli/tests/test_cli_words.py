"""Arguments and variables that are no text."""

import subprocess
import sys

import pytest

from bmq_cli.main import execute


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create", "a\udcff"],
        ["topics", "create", "a", "--config", "retention.ms=\udcff"],
        ["up", "--data", "/nowhere/\udcff"],
        ["lanes", "create", "\udcff"],
        ["\udcff"],
    ],
    ids=lambda arguments: ascii(" ".join(arguments)),
)
def test_an_argument_that_is_not_utf8_is_refused_before_anything_happens(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == 2
    said = capfd.readouterr().err
    assert (
        said.startswith("error: argument ")
        and "\\udcff" in said
        and "write names and paths in UTF-8" in said
        and said.count("\n") == 1
    )


@pytest.mark.parametrize("ttl", ["0s", "00d", " 0h"])
def test_a_lane_that_would_end_as_it_begins_is_refused_unasked(ttl: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert execute(["lanes", "create", "dev", "--ttl", ttl, "--admin", "http://127.0.0.1:9"]) == 2
    assert (
        capfd.readouterr().err
        == f"error: --ttl: {ttl!r} is over at once. Write for example 8h, or 0 for a lane that stays.\n"
    )


def test_so_is_a_variable(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BMQ_BOOTSTRAP_SERVER", "\udcff:9092")
    assert execute(["topics", "list"]) == 2
    assert (
        capfd.readouterr().err
        == "error: the variable 'BMQ_BOOTSTRAP_SERVER' is not UTF-8: write names and paths in UTF-8\n"
    )


def test_a_misspelt_command_is_told_what_it_may_have_meant(capfd: pytest.CaptureFixture[str]) -> None:
    assert execute(["topcs"]) == 2
    assert capfd.readouterr().err == "error: usage: No such command 'topcs'. Did you mean 'topics'? Try `bmq --help`\n"


def test_a_node_imports_no_kafka_client() -> None:
    """It costs each start its time, and each idle process its memory."""
    looked = "import sys, bmq_cli.main, bmq_cli.processes.up, bmq_cli.processes.server; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", looked], capture_output=True, check=True, text=True).stdout.split()
    assert "bmq_node.node" in modules
    assert not {"confluent_kafka", "bmq_cli.terminal.output", "bmq_databus"} & set(modules)
