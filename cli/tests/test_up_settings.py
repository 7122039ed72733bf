"""What `bmq up` begins with where nothing is said."""

import pytest

from bmq.config.cluster_config import CLUSTER_KEYS
from bmq.errors import ConfigurationError
from bmq_cli.processes.up import _settings
from bmq_node.configuration.node_settings import NodeSettings, node_settings
from bmq_node.configuration.server_config import ServerConfig


def settings_of(*configs: str, **limits: str) -> NodeSettings:
    return _settings(
        data=None, store=None, listen="127.0.0.1:9092", configs=list(configs), limits=limits, linger_ms=5.0
    )[0]


def test_the_first_member_of_a_group_does_not_wait_for_others_unless_that_is_said() -> None:
    assert settings_of().cluster_configs == {"group.initial.rebalance.delay.ms": "0"}
    said = settings_of("group.initial.rebalance.delay.ms=500", "num.partitions=3").cluster_configs
    assert said == {"group.initial.rebalance.delay.ms": "500", "num.partitions": "3"}
    assert CLUSTER_KEYS["group.initial.rebalance.delay.ms"].default == "3000", "a cluster's does, as Kafka's"


def test_limits_of_groups_reach_their_coordinators() -> None:
    groups = settings_of(groups_per_partition_max="7", group_members_bytes_max="100000").groups
    assert (groups.group_count_max, groups.members_bytes_max) == (7, 100_000)
    with pytest.raises(ConfigurationError, match="groups_per_partition_max = 0: set a whole number"):
        settings_of(groups_per_partition_max="0")
    config = ServerConfig(store="file:///s", node_id=1, limits={"groups_per_partition_max": "7"})
    assert node_settings(config, one_disk=True, log_dir="x").groups.group_count_max == 7
