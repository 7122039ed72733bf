"""Which tests `make test` leaves to `make verify`: what takes long, or needs more than Python packages. Nothing is in
neither of them.
"""

from pathlib import Path
from typing import Final

import hypothesis
import pytest

from bmq.runtime.loop import settle

pytest.register_assert_rewrite("tests.transcripts")  # so that what differs is shown
hypothesis.settings.register_profile("bmq", deadline=None)
hypothesis.settings.load_profile("bmq")  # how long an example takes says more of the machine than of the code

HERE: Final = Path(__file__).parent
FOLDERS: Final = ("tests/chart", "tests/cluster", "tests/e2e", "tests/image", "tests/monitoring", "tests/survival")
FILES: Final = (
    "core/tests/test_runtime_minio_faults.py",
    "core/tests/test_runtime_emulator_faults.py",
    "sim/tests/test_planted_bugs.py",
    "tests/chaos/test_chaos_run.py",
    "tests/compat/test_java_tools.py",
    "tests/compat/test_kcat.py",
    "tests/compat/test_survival.py",
    "tests/databus/test_client_examples.py",
)
MARKS: Final = ("measures", "seeds", "slow")
MAIN_CLIENTS: Final = ("folder-aiokafka", "folder-confluent-kafka", "folder-kafka-python")
STORES_APART: Final = ("minio", "versitygw", "azurite", "gcs")


def pytest_configure(config: pytest.Config) -> None:
    """A run may take an hour, and be cut off: what failed is told at once."""
    if not hasattr(config, "workerinput"):  # the process that tells, not one of those that run tests
        config.pluginmanager.register(_ToldAtOnce(config), "told-at-once")


class _ToldAtOnce:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message if crash is not None else report.longreprtext
            terminal.write_line(f"\n{report.nodeid} failed ({report.when}): {why.strip().splitlines()[0]}")


def pytest_collection_finish() -> None:
    """As a node does once it is loaded: else a tenth of a run is the garbage collector's."""
    settle()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks them."""
    for item in items:
        if _is_apart(item):
            item.add_marker(pytest.mark.verify)


def _is_apart(item: pytest.Item) -> bool:
    path = item.path.relative_to(HERE).as_posix()
    if path in FILES or path.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
        return True
    if any(item.get_closest_marker(mark) is not None for mark in MARKS):
        return True
    if path.startswith("tests/compat/"):
        return not any(client in item.name for client in MAIN_CLIENTS)
    parameters = item.name.partition("[")[2].rstrip("]").split("-")
    return any(store in name for store in STORES_APART for name in (*parameters, *getattr(item, "fixturenames", ())))
