"""The table of served APIs. Only what is in it is advertised; versions and frame limits are the wire's own table."""

from bmq_proxy.api import Route
from bmq_proxy.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k33_alter_configs,
    k34_alter_replica_log_dirs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k42_delete_groups,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k47_offset_delete,
    k60_describe_cluster,
    k75_describe_topic_partitions,
)
from bmq_proxy.proxy import Proxy

_HANDLERS = (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k33_alter_configs,
    k34_alter_replica_log_dirs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k42_delete_groups,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k47_offset_delete,
    k60_describe_cluster,
    k75_describe_topic_partitions,
)


def routes(proxy: Proxy) -> dict[int, Route]:
    """By API key."""
    table = {int(route.api.key): route for route in (handler.route(proxy) for handler in _HANDLERS)}
    versions = k18_api_versions.route(proxy, table.values())
    table[int(versions.api.key)] = versions
    return table
