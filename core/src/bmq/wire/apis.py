"""Which APIs are served, in which versions, with which headers and limits. What ApiVersions advertises comes from
here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from bmq.wire.limits import FIRST_FRAME_BYTES_MAX, FRAME_BYTES_MAX, PRODUCE_FRAME_BYTES_MAX


class ApiKey(IntEnum):
    """The served APIs' keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_TOPIC_PARTITIONS = 75


READS: Final = frozenset(
    (
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.API_VERSIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    )
)
"""Requests of use to nobody but who asks: they change nothing, but that topics are made that are missing, which whoever
misses them asks for again."""
WAIT_FOR_OTHERS: Final = frozenset((ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
"""Whose answers wait for other members of a group."""
ENDING: Final = READS | WAIT_FOR_OTHERS
"""Given up when the client is gone: nobody else can use the answer, and whoever connects anew for each would have any
number of them under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API. Versions are inclusive; `advertised_min` can be below `version_min`: such a request is answered with an
    error.
    """

    key: ApiKey
    name: str
    version_min: int
    version_max: int
    flexible_from: int
    advertised_min: int
    frame_bytes_max: int = FRAME_BYTES_MAX

    def serves(self, version: int) -> bool:
        return self.version_min <= version <= self.version_max

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """2 with tagged fields, 1 without."""
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        """1 with tagged fields, 0 without. ApiVersions always has 0: its reader does not know yet what this side speaks
        (KIP-511).
        """
        if self.key == ApiKey.API_VERSIONS:
            return 0
        return 1 if version >= self.flexible_from else 0


def _api(
    key: ApiKey,
    name: str,
    versions: tuple[int, int],
    flexible_from: int,
    *,
    advertised_min: int | None = None,
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> Api:
    return Api(
        key=key,
        name=name,
        version_min=versions[0],
        version_max=versions[1],
        flexible_from=flexible_from,
        advertised_min=versions[0] if advertised_min is None else advertised_min,
        frame_bytes_max=frame_bytes_max,
    )


_TABLE: Final = (
    # librdkafka takes a broker that does not advertise Produce 0 to 2 for one without any codec (KAFKA-18659).
    _api(ApiKey.PRODUCE, "Produce", (3, 13), 9, advertised_min=0, frame_bytes_max=PRODUCE_FRAME_BYTES_MAX),
    _api(ApiKey.FETCH, "Fetch", (4, 18), 12),
    _api(ApiKey.LIST_OFFSETS, "ListOffsets", (1, 11), 6),
    _api(ApiKey.METADATA, "Metadata", (0, 13), 9),
    _api(ApiKey.OFFSET_COMMIT, "OffsetCommit", (2, 10), 8),
    _api(ApiKey.OFFSET_FETCH, "OffsetFetch", (1, 10), 6),
    _api(ApiKey.FIND_COORDINATOR, "FindCoordinator", (0, 6), 3),
    _api(ApiKey.JOIN_GROUP, "JoinGroup", (0, 9), 6),
    _api(ApiKey.HEARTBEAT, "Heartbeat", (0, 4), 4),
    _api(ApiKey.LEAVE_GROUP, "LeaveGroup", (0, 5), 4),
    _api(ApiKey.SYNC_GROUP, "SyncGroup", (0, 5), 4),
    _api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", (0, 6), 5),
    _api(ApiKey.LIST_GROUPS, "ListGroups", (0, 5), 3),
    _api(ApiKey.API_VERSIONS, "ApiVersions", (0, 5), 3, frame_bytes_max=FIRST_FRAME_BYTES_MAX),
    _api(ApiKey.CREATE_TOPICS, "CreateTopics", (2, 7), 5),
    _api(ApiKey.DELETE_TOPICS, "DeleteTopics", (1, 6), 4),
    _api(ApiKey.DELETE_RECORDS, "DeleteRecords", (0, 2), 2),
    _api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", (0, 5), 2),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", (2, 4), 4),
    _api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", (1, 4), 4),
    _api(ApiKey.ALTER_CONFIGS, "AlterConfigs", (0, 2), 2),
    _api(ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", (1, 2), 2),
    _api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", (1, 5), 2),
    _api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", (0, 3), 2),
    _api(ApiKey.DELETE_GROUPS, "DeleteGroups", (0, 3), 2),
    _api(ApiKey.ELECT_LEADERS, "ElectLeaders", (0, 2), 2),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", (0, 1), 1),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", (0, 1), 0),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", (0, 0), 0),
    _api(ApiKey.OFFSET_DELETE, "OffsetDelete", (0, 0), 1),
    _api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", (0, 2), 0),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", (0, 0), 0),
)

SERVED: Final[Mapping[int, Api]] = MappingProxyType({int(api.key): api for api in _TABLE})
"""By API key."""


def frame_bytes_max(api_key: int) -> int:
    """How large a request of this API may be; small for what is not served, as it is only answered with an error."""
    api = SERVED.get(api_key)
    return FIRST_FRAME_BYTES_MAX if api is None else api.frame_bytes_max
