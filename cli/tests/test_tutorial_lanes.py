"""docs/tutorial-lanes.md as somebody follows it: each of its commands, and what it says that they print.

Blocks of `sh` are run in order; one with a name is a terminal in which something goes on running. A block of `text`
behind a command is what that prints, at last; one with a name is what the terminal of that name shows.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.started_bmq import BMQ, StartedBmq, started_bmq
from tests.waiting import until

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "tutorial-lanes.md"
WITHIN_S: Final = 120
BMQ_ITSELF: Final = "terminal"
"""The terminal in which bmq runs: here it is on ports of its own."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Block(NamedTuple):
    kind: str
    name: str
    text: str


class Terminal:
    """What goes on running in one."""

    def __init__(self, command: str, environment: dict[str, str], shown: Path) -> None:
        self._shown = shown
        with shown.open("wb") as file:
            self._process = subprocess.Popen(
                f"exec env {command.strip()}",
                shell=True,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=ROOT,
            )

    def shows(self) -> str:
        return self._shown.read_text()

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)


def blocks() -> Iterator[Block]:
    for kind, name, text in re.findall(
        r"^```(sh|text) ?([a-z-]*)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    ):
        yield Block(kind, name, text)


def environment(bmq: StartedBmq) -> dict[str, str]:
    path = f"{Path(BMQ).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "BMQ_BOOTSTRAP_SERVER": bmq.kafka,
        "BMQ_ADMIN_URL": bmq.admin,
        "COLUMNS": "200",
    }


def run(command: str, given: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-ec", command], capture_output=True, text=True, env=given, cwd=ROOT, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_each_command_does_what_the_page_says(tmp_path: Path) -> None:
    found = list(blocks())
    assert len(found) > 20
    with started_bmq(tmp_path) as bmq, ExitStack() as stack:
        given = environment(bmq)
        terminals: dict[str, Terminal] = {}
        asked = ""
        for kind, name, text in found:
            match kind, name:
                case "sh", "":
                    asked = text
                    printed = run(text, given)
                case "sh", _ if name == BMQ_ITSELF:
                    assert text == "make up\n"
                case "sh", _:
                    terminals[name] = terminal = Terminal(text, given, tmp_path / name)
                    stack.callback(terminal.close)
                case "text", "":
                    if printed != text:  # not yet: what was begun before takes a moment
                        until(lambda asked=asked: run(asked, given), text, WITHIN_S, holds=text.__eq__, every_s=0.5)
                case _:
                    until(
                        terminals[name].shows,
                        f"{name} to show {text!r}",
                        WITHIN_S,
                        holds=lambda shown, text=text: text in shown,
                    )
        handled = {name: re.findall(r"^[BC] of .*", one.shows(), re.MULTILINE) for name, one in terminals.items()}
    assert handled == {
        "base-b": ["B of the base takes order 1"],
        "base-c": ["C of the base takes payment for order 1", "C of the base takes payment for order 2 from lane dev"],
        "dev-b": ["B of dev takes order 2", "B of dev takes order 3"],
        "dev-c": ["C of dev takes payment for order 3"],
    }, "each message is handled once"
