"""A command loads what it needs: resources' models take as long to import as a whole node does to start."""

import subprocess
import sys

import pytest

HEAVY = ("bmq_resources", "bmq_controller", "bmq_databus", "bmq_node", "fastapi", "pydantic")
LOADED = "import sys; print(*[name for name in {heavy} if name in sys.modules])"


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [("bmq_cli.main", HEAVY), ("bmq_cli.main, bmq_cli.processes.up", ("bmq_resources", "bmq_databus", "fastapi"))],
)
def test_nothing_heavy_is_loaded_that_is_not_asked_for(modules: str, heavy: tuple[str, ...]) -> None:
    program = f"import {modules}; {LOADED.format(heavy=heavy)}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("noun", ["lanes", "channels", "databus"])
def test_nouns_that_are_loaded_later_say_what_they_are(noun: str) -> None:
    line = [sys.executable, "-c", "from bmq_cli.main import run; run()", noun, "--help"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, f"bmq {noun}" in done.stdout) == (0, True), done.stderr
