"""How each API keeps what lanes have apart from what the base has: one table, by which the handlers of lanes are
chosen.

No API may take a name or an id to whoever knows everybody's without one of these. A test walks all APIs that are
served, finds one that is not in the table, and asks each from the base for what a lane has and for what nobody has: the
answers must not differ.
"""

from collections.abc import Mapping
from enum import Flag, auto
from typing import Final

from bmq.wire.apis import ApiKey


class Apart(Flag):
    """By what. Several where a request goes several ways."""

    NOTHING = 0
    """It names neither topics nor groups."""
    VIEW = auto()
    """Topics are looked up in the image, which is the lane's or the base's view: `views`."""
    CONTROLLER = auto()
    """Topics go to the controller by name, which is the lane's or the base's: `controller`."""
    GROUPS = auto()
    """Groups, and the topics in them, go to coordinators by `groups`."""
    WRITES = auto()
    """It changes or deletes: a lane's clients reach by it their own topics alone, and nothing that they may read of the
    base."""


APART: Final[Mapping[int, Apart]] = {
    ApiKey.PRODUCE: Apart.VIEW | Apart.WRITES,
    ApiKey.FETCH: Apart.VIEW,
    ApiKey.LIST_OFFSETS: Apart.VIEW,
    ApiKey.METADATA: Apart.VIEW | Apart.CONTROLLER,
    ApiKey.OFFSET_COMMIT: Apart.VIEW | Apart.GROUPS,
    ApiKey.OFFSET_FETCH: Apart.VIEW | Apart.GROUPS,
    ApiKey.FIND_COORDINATOR: Apart.GROUPS,
    ApiKey.JOIN_GROUP: Apart.GROUPS,
    ApiKey.HEARTBEAT: Apart.GROUPS,
    ApiKey.LEAVE_GROUP: Apart.GROUPS,
    ApiKey.SYNC_GROUP: Apart.GROUPS,
    ApiKey.DESCRIBE_GROUPS: Apart.GROUPS,
    ApiKey.LIST_GROUPS: Apart.GROUPS,
    ApiKey.API_VERSIONS: Apart.NOTHING,
    ApiKey.CREATE_TOPICS: Apart.CONTROLLER | Apart.WRITES,
    ApiKey.DELETE_TOPICS: Apart.VIEW | Apart.CONTROLLER | Apart.WRITES,
    ApiKey.DELETE_RECORDS: Apart.VIEW | Apart.WRITES,
    ApiKey.INIT_PRODUCER_ID: Apart.NOTHING,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Apart.VIEW,
    ApiKey.DESCRIBE_CONFIGS: Apart.VIEW,
    ApiKey.ALTER_CONFIGS: Apart.CONTROLLER | Apart.WRITES,
    ApiKey.ALTER_REPLICA_LOG_DIRS: Apart.VIEW | Apart.WRITES,
    ApiKey.DESCRIBE_LOG_DIRS: Apart.VIEW,
    ApiKey.CREATE_PARTITIONS: Apart.CONTROLLER | Apart.WRITES,
    ApiKey.DELETE_GROUPS: Apart.GROUPS,
    ApiKey.ELECT_LEADERS: Apart.VIEW | Apart.WRITES,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Apart.CONTROLLER | Apart.WRITES,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Apart.VIEW | Apart.CONTROLLER | Apart.WRITES,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Apart.VIEW,
    ApiKey.OFFSET_DELETE: Apart.GROUPS,
    ApiKey.DESCRIBE_CLUSTER: Apart.NOTHING,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Apart.VIEW,
}
"""By API key."""
