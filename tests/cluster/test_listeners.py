"""Several Kafka listeners: a client that comes by one of them is told its addresses alone, and those may become known
while the nodes run.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

import pytest
from compat_server import tool
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from free_ports import free_port
from server_process import Server, server_arguments
from tests.waiting import until

PARTITIONS = 12
BASE, FIRST, SECOND = 1, 11, 12
Addresses = dict[int, tuple[str, int]]

pytestmark = pytest.mark.slow


class Node:
    """A process with a proxy, and what is its listeners' file."""

    def __init__(self, roles: str, node_id: int, store: str, folder: Path) -> None:
        self.node_id = node_id
        self.file = folder / f"{node_id}.addresses"
        self.inside, self.outside, self.admin = free_port(), free_port(), free_port()
        arguments = server_arguments(roles, node_id, store, "--listeners", f"external=0.0.0.0:{self.outside}")
        for flag, value in (("--listen", f"127.0.0.1:{self.inside}"), ("--admin", f"127.0.0.1:{self.admin}")):
            arguments[arguments.index(flag) + 1] = value
        self.server = Server([*arguments, "--advertised-listeners-file", str(self.file)], log=folder / f"{node_id}.log")

    def tell(self, host: str) -> tuple[str, int]:
        """Writes where clients reach its external listener: any host 127.x.x.x leads there."""
        self.file.write_text(f"external={host}:{self.outside}\n")
        return host, self.outside


class Trio:
    """A node with all roles but for the proxy, one with a broker and a proxy, and a proxy alone."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir()
        store = f"file://{folder}/data?shared=true"
        self.base = Server(server_arguments("controller,broker", BASE, store), log=folder / "base.log")
        self.first = Node("broker,proxy", FIRST, store, folder)
        self.second = Node("proxy", SECOND, store, folder)
        self.servers = [self.base, self.first.server, self.second.server]

    def until_it_serves(self) -> None:
        for server in self.servers:
            server.until_it_serves()

    def inside(self) -> Addresses:
        return {node.node_id: ("127.0.0.1", node.inside) for node in (self.first, self.second)}

    def epochs(self) -> dict[int, int]:
        with urlopen(f"http://127.0.0.1:{self.first.admin}/v1/nodes", timeout=10) as answer:
            return {one["node_id"]: one["epoch"] for one in json.load(answer)["items"]}


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    found = Trio(tmp_path)
    yield found
    for server in found.servers:
        server.close()


def told(bootstrap: str) -> Addresses:
    """By Metadata."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).brokers
    return {one.id: (one.host, one.port) for one in found.values()}


def until_told(bootstrap: str, expected: Addresses, *, timeout_s: float = 20) -> None:
    until(lambda: told(bootstrap), f"{expected} to be told", timeout_s, holds=lambda found: found == expected)


def create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)], request_timeout=30).values():
        future.result(60)


def write_and_read(bootstrap: str, topic: str, *, while_reading: Callable[[], None] = lambda: None) -> list[str]:
    """Records to all partitions and back through a group; the errors that the clients met."""
    errors: list[str] = []
    settings = {"bootstrap.servers": bootstrap, "error_cb": lambda error: errors.append(str(error))}
    producer = Producer({**settings, "enable.idempotence": True})
    consumer = Consumer(
        {**settings, "group.id": f"{topic}-readers", "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
    )
    consumer.subscribe([topic])
    read: list[bytes] = []
    for turn in range(2):
        for number in range(PARTITIONS):
            producer.produce(topic, b"%d-%d" % (turn, number), partition=number)
        assert producer.flush(60) == 0
        deadline = monotonic() + 60
        while len(read) < PARTITIONS * (turn + 1):
            assert monotonic() < deadline, f"{len(read)} records read; {errors}"
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                read.append(message.value())
        if not turn:
            while_reading()
    consumer.close()
    assert sorted(read) == sorted(b"%d-%d" % (turn, number) for turn in range(2) for number in range(PARTITIONS))
    return errors


def test_a_client_from_outside_meets_outside_addresses_alone(trio: Trio) -> None:
    outside = {FIRST: trio.first.tell("127.0.1.11"), SECOND: trio.second.tell("127.0.1.12")}
    trio.until_it_serves()
    for address in outside.values():
        until_told("{}:{}".format(*address), outside)
    for address in trio.inside().values():
        assert told("{}:{}".format(*address)) == trio.inside()
    bootstrap = "{}:{}".format(*outside[FIRST])
    create_topic(bootstrap, "orders")
    assert write_and_read(bootstrap, "orders") == []
    java = tool(
        "kafka", "run", "org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", bootstrap, timeout_s=60
    )
    found = {line.split(" (id:")[0] for line in java.splitlines() if " (id:" in line}
    assert found == {"{}:{}".format(*address) for address in outside.values()}, java


def test_addresses_that_become_known_later_are_told_without_a_restart_or_a_new_epoch(trio: Trio) -> None:
    first = trio.first.tell("127.0.1.11")
    trio.until_it_serves()
    bootstrap = "{}:{}".format(*first)
    until_told(bootstrap, {FIRST: first})
    create_topic(bootstrap, "orders")
    epochs = trio.epochs()
    later: Addresses = {}

    def move() -> None:
        later.update({FIRST: trio.first.tell("127.0.2.11"), SECOND: trio.second.tell("127.0.2.12")})
        until_told(bootstrap, later)
        until_told("{}:{}".format(*later[SECOND]), later)

    assert write_and_read(bootstrap, "orders", while_reading=move) == []
    trio.second.file.write_text("external=nonsense\n")
    trio.second.server.until_line("the addresses of listeners stay as they are")
    assert told(bootstrap) == later
    trio.second.file.write_text("# nothing\n")
    until_told(bootstrap, {FIRST: later[FIRST]})
    assert trio.epochs() == epochs, "nobody had to register again"
    assert all(server.is_alive() for server in trio.servers)
    assert told(f"127.0.0.1:{trio.second.inside}") == trio.inside()


def test_a_file_that_cannot_be_used_at_the_start_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    file.write_text("external=0.0.0.0:1\n")
    arguments = server_arguments("controller,broker,proxy", 1, "memory://", "--listeners", "external=127.0.0.1:0")
    server = Server([*arguments, "--advertised-listeners-file", str(file)], log=tmp_path / "log")
    try:
        assert server.until_end() == 2
        assert server.said() == [
            f"error: advertised_listeners_file {file}: external=0.0.0.0:1: nobody can connect to that: write a "
            "name or an address, HOST:PORT"
        ]
    finally:
        server.close()
