"""bmq on each store, and every client: each started once for all tests of this folder."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from compat_clients.aio import Aiokafka
from compat_clients.driven import DrivenClient, FranzGo, Java, Kafkajs
from compat_clients.librdkafka import Librdkafka
from compat_clients.python import KafkaPython
from compat_contract import Client
from compat_server import Bmq, Minio

STORES = ("folder", "minio")
IN_PYTHON: dict[str, Callable[[], Client]] = {
    "confluent-kafka": Librdkafka,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}
DRIVEN: dict[str, Callable[..., Client]] = {"kafkajs": Kafkajs, "franz-go": FranzGo, "java": Java}
CLIENTS = (*IN_PYTHON, *DRIVEN)
_topics = itertools.count(1)


@pytest.fixture(scope="session")
def minio(servers_by_store: dict[str, Bmq], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    server = Minio(tmp_path_factory.mktemp("minio"))
    yield server
    # while its store is there: without it, it would wait for it
    if (bmq := servers_by_store.pop("minio", None)) is not None:
        stop(bmq)
    server.stop()


@pytest.fixture(scope="session")
def servers_by_store() -> Iterator[dict[str, Bmq]]:
    """What was started so far: a fixture with parameters would be started anew whenever pytest goes from one to
    another.
    """
    servers: dict[str, Bmq] = {}
    yield servers
    for server in servers.values():
        stop(server)


def stop(server: Bmq) -> None:
    """Raises AssertionError where it does not end well."""
    assert server.stop() == 0, server.tail_of_log()


@pytest.fixture(params=STORES)
def bmq(
    request: pytest.FixtureRequest, servers_by_store: dict[str, Bmq], tmp_path_factory: pytest.TempPathFactory
) -> Bmq:
    """bmq over a folder, then over MinIO; running."""
    if request.param not in servers_by_store:
        folder = tmp_path_factory.mktemp(f"bmq-{request.param}")
        if request.param == "folder":
            server = Bmq(["--data", str(folder / "data")], log=folder / "bmq.log")
        else:
            store: Minio = request.getfixturevalue("minio")
            server = Bmq(
                ["--store", store.store_url("bmq-compat")], log=folder / "bmq.log", environment=store.environment
            )
        servers_by_store[request.param] = server
    server = servers_by_store[request.param]
    if not server.is_running():
        server.start()
    return server


@pytest.fixture(scope="session")
def clients_by_name() -> Iterator[dict[str, Client]]:
    clients: dict[str, Client] = {}
    yield clients
    for client in clients.values():
        if isinstance(client, DrivenClient):
            client.close()


@pytest.fixture(params=CLIENTS)
def client(
    request: pytest.FixtureRequest, clients_by_name: dict[str, Client], tmp_path_factory: pytest.TempPathFactory
) -> Client:
    name = request.param
    if name not in clients_by_name:
        clients_by_name[name] = (
            IN_PYTHON[name]() if name in IN_PYTHON else DRIVEN[name](tmp_path_factory.mktemp(name) / "driver.log")
        )
    return clients_by_name[name]


@pytest.fixture(scope="session")
def reference() -> Librdkafka:
    """The client that prepares what another is tested on."""
    return Librdkafka()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return f"{request.node.originalname.removeprefix('test_')[:60]}-{next(_topics)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    server = getattr(item, "funcargs", {}).get("bmq")
    if report.failed and isinstance(server, Bmq):
        report.sections.append(("the end of bmq's log", server.tail_of_log()))
    return report
