"""What `bmq up` begins with where nothing is said."""

from pathlib import Path
from typing import Any

import pytest

from bmq.config.cluster_config import CLUSTER_KEYS
from bmq.errors import ConfigurationError
from bmq_cli.processes import one_machine
from bmq_cli.processes.up import OWN_CONFIGS, _config
from bmq_node.configuration.node_settings import NodeSettings, node_settings
from bmq_node.configuration.server_config import ServerConfig
from bmq_node.configuration.sources import read_config
from bmq_node.process.over_store import settings_of


def up_settings(*configs: str, **limits: str) -> NodeSettings:
    return settings_of(
        _config(data=None, store=None, listen="127.0.0.1:9092", configs=list(configs), limits=limits, linger_ms=5.0)
    )


@pytest.mark.parametrize("store", ["file:///x/y", "memory://", "s3://bucket?endpoint=http://127.0.0.1:1"])
def test_over_a_store_bmq_up_is_told_what_bmq_server_is_but_for_what_one_machine_needs(store: str) -> None:
    up = settings_of(_config(data=None, store=store, listen="127.0.0.1:9092", configs=[], limits={}, linger_ms=5.0))
    of_one_machine = {**one_machine.KEYS, "cluster_config": OWN_CONFIGS, "balance_interval_ms": "0"}
    assert up == settings_of(read_config({"store": store, "node_id": "1", **of_one_machine}, environment={}))
    one_disk = not store.startswith("s3")
    assert (up.broker.eager, up.broker.hedge_creates, up.proxy.catch_up_gets_at_once == 2) == (
        one_disk,
        not one_disk,
        one_disk,
    )


def test_a_folder_and_its_url_are_one_store() -> None:
    known: dict[str, Any] = {"listen": "127.0.0.1:9092", "configs": [], "limits": {}, "linger_ms": 5.0}
    folder = _config(data=Path("/x/y"), store=None, **known)
    assert folder.model_dump() == _config(data=None, store="file:///x/y", **known).model_dump()


def test_the_first_member_of_a_group_does_not_wait_for_others_unless_that_is_said() -> None:
    assert up_settings().cluster_configs == {"group.initial.rebalance.delay.ms": "0"}
    said = up_settings("group.initial.rebalance.delay.ms=500", "num.partitions=3").cluster_configs
    assert said == {"group.initial.rebalance.delay.ms": "500", "num.partitions": "3"}
    assert CLUSTER_KEYS["group.initial.rebalance.delay.ms"].default == "3000", "a cluster's does, as Kafka's"


def test_limits_of_groups_reach_their_coordinators() -> None:
    groups = up_settings(groups_per_partition_max="7", group_members_bytes_max="100000").groups
    assert (groups.group_count_max, groups.members_bytes_max) == (7, 100_000)
    with pytest.raises(ConfigurationError, match="groups_per_partition_max = 0: set a whole number"):
        up_settings(groups_per_partition_max="0")
    config = ServerConfig(store="file:///s", node_id=1, limits={"groups_per_partition_max": "7"})
    assert node_settings(config, one_disk=True, log_dir="x").groups.group_count_max == 7
