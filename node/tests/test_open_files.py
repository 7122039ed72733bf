"""Connections of clients where few files may be open."""

import pytest

from bmq.config.limits import Limits, limits_of
from bmq_node.configuration.node_settings import exposed_limits, node_settings
from bmq_node.configuration.server_config import ServerConfig
from bmq_node.process.open_files import connections_within, limits_within, with_files


@pytest.mark.parametrize(
    ("files", "wanted", "taken"),
    [(1 << 20, 20_000, 20_000), (-1, 20_000, 20_000), (4_096, 20_000, 2_304), (4_096, 100, 100), (200, 20_000, 50)],
)
def test_clients_have_what_the_store_and_other_addresses_leave_of_the_files(
    files: int, wanted: int, taken: int
) -> None:
    assert connections_within(files, wanted, Limits()) == taken


def test_more_connections_to_the_admin_address_leave_fewer_to_clients() -> None:
    assert connections_within(4_096, 20_000, limits_of({"admin_connections_max": 1_256})) == 1_304


def test_one_address_leaves_half_of_the_connections_to_others() -> None:
    assert limits_within(3_328, Limits()).connections_per_address == 1_664
    assert limits_within(50_000, Limits()) == Limits()
    assert limits_within(1, Limits()).connections_per_address == 1


def test_a_node_takes_shows_and_exposes_what_its_files_allow() -> None:
    config = with_files(ServerConfig(store="file:///s", node_id=1, limits={"turn_requests": "40"}), 4_096)
    proxy = node_settings(config, one_disk=True, log_dir="x").proxy
    assert (
        proxy.connections_max
        == exposed_limits(config)["connections_max"]
        == config.model_dump()["connections_max"]
        == 2_304
    )
    limits = proxy.limits
    assert (limits.connections_per_address, limits.turn_requests, limits.admin_watches_max) == (1_152, 40, 1_024)
    broker = ServerConfig(store="file:///s", node_id=1, roles="broker")
    assert with_files(broker, 4_096) == broker.model_copy(update={"limits": {"admin_watches_max": "1024"}})
