"""A lane with proxies and brokers of its own: whoever connects to its endpoint is in it, is told of no other node, and
loads no other broker.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic
from free_ports import free_port
from lane_clients import BASE, admin, make_lane, read, rest, write
from server_process import Server, server_arguments

CONTROLLER, BROKER, PROXY = 1, 101, 201
LANE_BROKER, LANE_PROXIES = 102, (301, 302)

pytestmark = pytest.mark.slow


class Nodes:
    """Five processes over one folder; the lane's are those of `dev`."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir()
        self._store = f"file://{folder}/data?shared=true"
        self._folder = folder
        self.api = f"127.0.0.1:{free_port()}"
        self.servers: dict[int, Server] = {}
        self._start(CONTROLLER, "controller")
        self._start(BROKER, "broker")
        self._start(PROXY, "proxy")
        self._start(LANE_BROKER, "broker", "--pool", "lane-dev")
        for node_id in LANE_PROXIES:
            self._start(node_id, "proxy", "--lane", "dev")
        self.kafka = {node_id: self._kafka(server.until_it_serves()) for node_id, server in self.servers.items()}

    def _start(self, node_id: int, roles: str, *more: str) -> None:
        arguments = server_arguments(roles, node_id, self._store)
        if roles == "controller":
            arguments[arguments.index("--admin") + 1] = self.api
        self.servers[node_id] = Server([*arguments, *more], log=self._folder / f"{node_id}.log")

    @staticmethod
    def _kafka(line: str) -> str:
        found = re.search(r"(\S+) \(Kafka\)", line)
        return found[1] if found else ""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    running = Nodes(tmp_path)
    try:
        yield running
        for server in reversed(running.servers.values()):
            assert server.stop() == 0, server.text()
    finally:
        for server in running.servers.values():
            server.close()


def plain_admin(servers: str) -> AdminClient:
    """A client that says nothing of a lane."""
    return AdminClient({"bootstrap.servers": servers, "client.id": "service"})


def test_a_lanes_endpoint_is_in_the_lane_and_its_topics_are_on_its_own_brokers(nodes: Nodes) -> None:
    make_lane(nodes.api, "dev", own_brokers=True)
    make_lane(nodes.api, "other")
    base, dev = nodes.kafka[PROXY], nodes.kafka[LANE_PROXIES[0]]
    client = plain_admin(base)
    client.create_topics([NewTopic("orders", num_partitions=3)])["orders"].result(30)
    assert set(client.list_topics(timeout=20).brokers) == {PROXY}
    assert set(plain_admin(dev).list_topics(timeout=20).brokers) == set(LANE_PROXIES)
    write(base, BASE, "orders", ["base"])
    write(dev, BASE, "orders", ["lane"])
    write(base, "dev", "orders", ["by its name"])
    assert sorted(read(nodes.kafka[LANE_PROXIES[1]], BASE, "orders", 2)) == ["by its name", "lane"]
    assert read(base, BASE, "orders", 1) == ["base"]
    for lane, owner in (("", BROKER), ("dev", LANE_BROKER)):
        name = "dev:orders" if lane else "orders"
        items = rest(nodes.api, "GET", f"/v1/topics/{name}/partitions")[1]["items"]
        assert [one["owner"] for one in items] == [owner] * 3, name
    assert rest(nodes.api, "GET", "/v1/lanes/dev")[1]["proxies"] == list(LANE_PROXIES)


def test_a_lanes_endpoint_serves_no_other_lane_and_nothing_before_there_is_one(nodes: Nodes) -> None:
    base, dev = nodes.kafka[PROXY], nodes.kafka[LANE_PROXIES[0]]
    client = plain_admin(base)
    client.create_topics([NewTopic("orders", num_partitions=1)])["orders"].result(30)
    write(base, BASE, "orders", ["base"])
    make_lane(nodes.api, "other")
    for refused in (plain_admin(dev), admin(dev, "other")):
        error = refused.list_topics("orders", timeout=20).topics["orders"].error
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    make_lane(nodes.api, "dev")
    write(dev, BASE, "orders", ["lane"])
    assert read(dev, BASE, "orders", 1) == ["lane"]
    assert read(base, BASE, "orders", 1) == ["base"]
