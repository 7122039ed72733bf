"""`bmq channels` against a started bmq."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator

import pytest
from cli_cluster import BMQ
from tests.started_bmq import started_bmq
from typer.testing import CliRunner

from bmq.naming.bearer import watching_token
from bmq_cli.channels.commands import app
from bmq_cli.channels.fields import with_fields
from bmq_cli.terminal.exit_codes import CommandFailed

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with started_bmq(tmp_path_factory.mktemp("channels")) as bmq:

        def channels(*arguments: str) -> tuple[int, str, str]:
            done = subprocess.run(
                [BMQ, "channels", *arguments],
                capture_output=True,
                text=True,
                env={**os.environ, "BMQ_ADMIN_URL": f"http://{bmq.admin.removeprefix('http://')}", "COLUMNS": "200"},
                timeout=60,
                check=False,
            )
            return done.returncode, done.stdout, done.stderr

        yield channels


def test_a_channel_is_created_shown_altered_and_deleted(run: Run) -> None:
    assert run("create", "orders", "--topic", "shop", "--set", "spool.maxBytes=2097152")[:2] == (
        0,
        "created channel orders\n",
    )
    assert run("create", "clicks", "--acknowledgement", "accepted", "--disabled")[0] == 0
    listed = [line.split() for line in run("list")[1].splitlines()]
    assert listed[1:] == [["clicks", "clicks", "accepted", "no"], ["orders", "shop", "durable", "yes"]]
    shown = run("describe", "orders")[1]
    assert "shop" in shown
    assert '{"maxBytes": 2097152}' in shown
    assert run("alter", "orders", "--unset", "topic", "--set", "idempotency.windowSeconds=60")[1] == (
        "changed channel orders\n"
    )
    assert run("alter", "orders", "--enabled")[1] == "channel orders is so already\n"
    assert json.loads(run("describe", "orders", "-o", "json")[1])["spec"] == {
        "spool": {"maxBytes": 2097152},
        "idempotency": {"windowSeconds": 60},
    }
    assert run("delete", "orders", "clicks", "--yes")[1] == "deleted channel orders\ndeleted channel clicks\n"
    assert json.loads(run("list", "-o", "json")[1]) == []


def test_what_cannot_be_is_told_with_the_field(run: Run) -> None:
    code, _, error = run("create", "orders", "--set", "spool.maxBytes=1")
    assert (code != 0, "spec.spool.maxBytes" in error) == (True, True)
    code, _, error = run("create", "orders", "--set", "nothing=1")
    assert (code != 0, "spec.nothing" in error) == (True, True)
    assert run("create", "orders", "--set", "enabled")[0] == 2
    assert run("delete", "nothing", "--yes")[0] == 3


def test_fields_are_set_and_taken_by_their_paths() -> None:
    before = {"a": {"b": 1, "c": 2}, "d": "x"}
    assert with_fields(before, given=["a.b=true", "e.f={g: [1, 2]}", "d="], taken=["a.c", "n.o"]) == {
        "a": {"b": True},
        "d": None,
        "e": {"f": {"g": [1, 2]}},
    }
    assert before == {"a": {"b": 1, "c": 2}, "d": "x"}
    for given, taken in ((["a"], []), ([".a=1"], []), (["a={"], []), ([], ["a..b"])):
        with pytest.raises(CommandFailed):
            with_fields({}, given=given, taken=taken)


def test_the_token_for_sidecars_is_made_of_the_nodes_token_without_asking_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = CliRunner().invoke(app, ["token"], env={"BMQ_TOKEN": "a-token-of-the-nodes"})
    assert (found.exit_code, found.stdout) == (0, f"{watching_token('a-token-of-the-nodes')}\n")
    monkeypatch.delenv("BMQ_TOKEN", raising=False)
    lacking = CliRunner().invoke(app, ["token"])
    assert isinstance(lacking.exception, CommandFailed) and "BMQ_TOKEN" in lacking.exception.remedy
