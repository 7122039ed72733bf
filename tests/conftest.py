"""What tests of running processes share, and which of them run beside each other (`pytest -n 3`)."""

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

LIBRARIES: Final = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
)

FOLDERS: Final = ("e2e", "chaos", "cluster", "survival", "compat", "monitoring", "image", "chart")
"""Where a run in parallel begins: with what takes longest in one worker."""
STORES: Final = ("folder", "minio")


class Groups(LoadScopeScheduling):
    """One worker runs what shares what it starts: tests of a file, or of a file and a store; and one all of e2e: a
    machine has one cluster.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if file.startswith("tests/e2e/"):
            return "tests/e2e"
        store = test.partition("[")[2].partition("-")[0].rstrip("]")
        return f"{file} {store}" if store in STORES else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    """For `pytest -n`."""
    config.option.loadscopereorder = False  # by how many tests a group has
    return Groups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups begin in the order of their first tests."""
    items.sort(
        key=lambda item: FOLDERS.index(item.path.parent.name) if item.path.parent.name in FOLDERS else len(FOLDERS)
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says plainly which whole folder was not run, and why."""
    skipped = {
        report.longrepr[2] for report in terminalreporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)
    }
    for why in sorted(skipped):
        if "were NOT run" in why:
            terminalreporter.write_line(why.removeprefix("Skipped: "), yellow=True, bold=True)


@pytest.fixture(scope="module")
def faketime() -> str:
    """The library that shifts a process's clock, installed where this user may."""
    for _ in range(2):
        for library in LIBRARIES:
            if Path(library).exists():
                return library
        subprocess.run(
            ["apt-get", "-o", "DPkg::Lock::Timeout=120", "install", "-qqy", "--no-install-recommends", "faketime"],
            capture_output=True,
            check=False,
        )
    pytest.skip("needs libfaketime (Debian: apt-get install faketime)")
