"""bmq over a folder, with a neighbour whose time is measured: started once for a file of tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from survival_neighbour import Neighbour
from survival_process import Survivor


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survivor]:
    """One over a folder."""
    folder = tmp_path_factory.mktemp("survivor")
    server = Survivor(["--data", str(folder / "data")], log=folder / "bmq.log")
    server.start()
    yield server
    assert server.stop() == 0, server.tail_of_log()


@pytest.fixture(scope="module")
def neighbour(bmq: Survivor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbour]:
    """A client of `bmq` that behaves well."""
    running = Neighbour(bmq.servers, "neighbour", tmp_path_factory.mktemp("neighbour") / "notes")
    running.measure(0.7)
    yield running
    running.stop()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Survivor]]:
    """Makes bmqs that are ended with the test, however it ends."""
    made: list[Survivor] = []

    def make(*arguments: str, name: str = "bmq", environment: dict[str, str] | None = None) -> Survivor:
        made.append(Survivor(list(arguments), log=tmp_path / f"{name}.log", environment=environment))
        return made[-1]

    yield make
    for server in made:
        if server.is_alive():
            server.kill9()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    server = getattr(item, "funcargs", {}).get("bmq")
    if report.failed and isinstance(server, Survivor):
        report.sections.append(("the end of bmq's log", server.tail_of_log()))
    return report
