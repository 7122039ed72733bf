"""What docs/cli.md says of exit codes is what commands end with: one table of situations, walked here."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cli_cluster import BMQ, run_process
from tests.started_bmq import StartedBmq, started_bmq

from bmq_cli.terminal.exit_codes import MEANINGS, ExitCode

PAGE: Final = Path(__file__).parents[2] / "docs" / "cli.md"
NOBODY: Final = "127.0.0.1:1"
UNREACHED: Final = f"s3://bmq?endpoint=http://{NOBODY}&region=us-east-1"
PORTS: Final = "--listen 127.0.0.1:0 --admin 127.0.0.1:0"
SITUATIONS: Final = (
    ("topics list", ExitCode.OK),
    ("consume orders --count 0", ExitCode.OK),
    # a folder in use, whatever is to be done with it
    (f"up --data DATA {PORTS}", ExitCode.FAILED),
    (f"up --nodes 1c1b1p --data DATA {PORTS}", ExitCode.FAILED),
    ("server --node-id 1 --store file://DATA --listen 127.0.0.1:0 --admin 127.0.0.1:0", ExitCode.FAILED),
    ("store erase --data DATA --cluster-id x --yes", ExitCode.FAILED),
    ("store check --data DATA --repair --yes", ExitCode.FAILED),
    # a node without what it needs
    ("up --data FREE --listen KAFKA --admin 127.0.0.1:0", ExitCode.FAILED),
    (f"up --store {UNREACHED} {PORTS}", ExitCode.FAILED),
    # what a command cannot connect to
    (f"store check --store {UNREACHED}", ExitCode.NO_CONNECTION),
    (f"topics list -b {NOBODY} --timeout 1", ExitCode.NO_CONNECTION),
    (f"cluster status --admin {NOBODY} --timeout 1", ExitCode.NO_CONNECTION),
    # what is not there
    ("topics describe nothing", ExitCode.NOT_FOUND),
    ("topics delete nothing --yes", ExitCode.NOT_FOUND),
    ("consume orders -p 7", ExitCode.NOT_FOUND),
    ("produce orders -p 7", ExitCode.NOT_FOUND),
    ("groups describe nothing", ExitCode.NOT_FOUND),
    ("groups delete nothing --yes", ExitCode.NOT_FOUND),
    ("cluster cordon 99 --admin ADMIN", ExitCode.NOT_FOUND),
    ("lanes describe nothing --admin ADMIN", ExitCode.NOT_FOUND),
    ("lanes routes nothing --admin ADMIN", ExitCode.NOT_FOUND),
    ("lanes routes orders --lane nothing --admin ADMIN", ExitCode.NOT_FOUND),
    ("channels describe nothing --admin ADMIN", ExitCode.NOT_FOUND),
    ("channels alter nothing --disabled --admin ADMIN", ExitCode.NOT_FOUND),
    # slips
    ("topics lst", ExitCode.USAGE),
    ("consume orders --from sometime", ExitCode.USAGE),
    ("consume orders --group=", ExitCode.USAGE),
    ("produce orders --file /nothing/there", ExitCode.USAGE),
    (f"up --data FREE --store memory:// {PORTS}", ExitCode.USAGE),
    ("server --node-id 1 --store nonsense", ExitCode.USAGE),
    ("store check --data FREE", ExitCode.USAGE),
)
ELSEWHERE: Final = {ExitCode.INTERRUPTED}
"""Tried where commands run on."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StartedBmq, Path]]:
    folder = tmp_path_factory.mktemp("bmq")
    with started_bmq(folder) as bmq:
        assert run_process(bmq.kafka, ["topics", "create", "orders", "--partitions", "1"]).code == 0
        yield bmq, folder / "data"


@pytest.mark.parametrize(("line", "code"), SITUATIONS)
def test_a_command_ends_with_the_code_of_its_situation(
    running: tuple[StartedBmq, Path], tmp_path: Path, line: str, code: ExitCode
) -> None:
    bmq, data = running
    (tmp_path / "free").mkdir()
    places = {"DATA": str(data), "FREE": str(tmp_path / "free"), "KAFKA": bmq.kafka, "ADMIN": bmq.admin}
    for name, place in places.items():
        line = line.replace(name, place)
    done = subprocess.run(
        [BMQ, *line.split()],
        input="",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "BMQ_BOOTSTRAP_SERVER": bmq.kafka, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
        timeout=60,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    if code is not ExitCode.OK:
        assert "error: " in done.stderr


def test_every_code_is_on_the_page_and_has_its_situations() -> None:
    page = PAGE.read_text()
    assert [code for code, meaning in MEANINGS.items() if f"| {code.value} | {meaning} |" not in page] == []
    assert {code for _, code in SITUATIONS} | ELSEWHERE == set(ExitCode) == set(MEANINGS)
