"""Which of Kafka's error codes each error of bmq becomes, by who is told it. Nothing else chooses one for an error.

Java's consumer throws at codes that it does not expect in a Fetch, and every client retries some codes and not others;
so what is worth another try becomes one of the codes that all of them retry.
"""

from typing import Final

from bmq import errors
from bmq.wire.error_codes import ErrorCode

_Table = dict[type[BaseException], ErrorCode]

_CODES: Final[_Table] = {
    errors.BmqError: ErrorCode.unknown_server_error,
    errors.ConfigurationError: ErrorCode.invalid_config,
    errors.FolderInUse: ErrorCode.invalid_config,
    errors.StoreError: ErrorCode.kafka_storage_error,
    errors.NotApplied: ErrorCode.kafka_storage_error,
    errors.Conflict: ErrorCode.kafka_storage_error,
    errors.UnknownOutcome: ErrorCode.request_timed_out,
    errors.ObjectMissing: ErrorCode.kafka_storage_error,
    errors.StoreUnavailable: ErrorCode.kafka_storage_error,
    errors.StoreUnusable: ErrorCode.kafka_storage_error,
    errors.FormatError: ErrorCode.kafka_storage_error,
    errors.Corrupt: ErrorCode.kafka_storage_error,
    errors.FormatTooNew: ErrorCode.kafka_storage_error,
    errors.Fenced: ErrorCode.not_leader_or_follower,
    errors.NotOwner: ErrorCode.not_leader_or_follower,
    errors.NotReady: ErrorCode.not_leader_or_follower,
    errors.PartitionStopped: ErrorCode.kafka_storage_error,
    errors.RequestError: ErrorCode.invalid_request,
    errors.InvalidRequest: ErrorCode.invalid_request,
    errors.UnknownTopic: ErrorCode.unknown_topic_or_partition,
    errors.UnknownTopicId: ErrorCode.unknown_topic_id,
    errors.InvalidGroupId: ErrorCode.invalid_group_id,
    errors.UnknownLane: ErrorCode.topic_authorization_failed,
    errors.LaneExists: ErrorCode.policy_violation,
    errors.LaneInUse: ErrorCode.policy_violation,
    errors.LaneFull: ErrorCode.policy_violation,
    errors.TurnIsOver: ErrorCode.invalid_request,
    errors.UnknownChannel: ErrorCode.invalid_request,
    errors.ChannelExists: ErrorCode.policy_violation,
    errors.CorruptBatch: ErrorCode.corrupt_message,
    errors.InvalidBatch: ErrorCode.invalid_record,
    errors.InvalidRecords: ErrorCode.invalid_record,
    errors.BatchTooLarge: ErrorCode.message_too_large,
    errors.MostlyEmpty: ErrorCode.message_too_large,
    errors.InvalidTimestamp: ErrorCode.invalid_timestamp,
    errors.UnsupportedCompression: ErrorCode.unsupported_compression_type,
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.NotYetNext: ErrorCode.not_leader_or_follower,
    errors.InvalidProducerEpoch: ErrorCode.invalid_producer_epoch,
    errors.UnknownProducerId: ErrorCode.unknown_producer_id,
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.FencedLeaderEpoch: ErrorCode.fenced_leader_epoch,
    errors.UnknownLeaderEpoch: ErrorCode.unknown_leader_epoch,
    errors.UnsupportedMessageFormat: ErrorCode.unsupported_for_message_format,
    errors.WireError: ErrorCode.invalid_request,
    errors.TopicExists: ErrorCode.topic_already_exists,
    errors.InvalidTopicName: ErrorCode.invalid_topic_exception,
    errors.InvalidPartitions: ErrorCode.invalid_partitions,
    errors.InvalidReplicationFactor: ErrorCode.invalid_replication_factor,
    errors.InvalidReplicaAssignment: ErrorCode.invalid_replica_assignment,
    errors.InvalidConfig: ErrorCode.invalid_config,
    errors.PolicyViolation: ErrorCode.policy_violation,
    errors.ConfigsFull: ErrorCode.policy_violation,
    errors.QuotaExceeded: ErrorCode.throttling_quota_exceeded,
    errors.NoMoveUnderWay: ErrorCode.no_reassignment_in_progress,
    errors.ControllerUnavailable: ErrorCode.not_controller,
    errors.NoLeader: ErrorCode.not_controller,
}


_TOLD_TO_GROUPS: Final[_Table] = {
    errors.NotReady: ErrorCode.coordinator_load_in_progress,
    errors.NotOwner: ErrorCode.not_coordinator,
    errors.Fenced: ErrorCode.not_coordinator,
    errors.StoreError: ErrorCode.coordinator_not_available,
    errors.ControllerUnavailable: ErrorCode.coordinator_not_available,
    errors.PartitionStopped: ErrorCode.coordinator_not_available,
}
"""Where the group's coordinator cannot be had: find it again, or wait for it."""
_TOLD_BY_COORDINATORS: Final[_Table] = {
    errors.RequestError: ErrorCode.invalid_request,
    errors.NotReady: ErrorCode.coordinator_load_in_progress,
    errors.NotOwner: ErrorCode.not_coordinator,
    errors.Fenced: ErrorCode.not_coordinator,
    errors.StoreError: ErrorCode.not_coordinator,
}
"""Where the coordinator itself cannot answer. One that cannot write is about to be none."""
_TOLD_TO_ADMINISTRATORS: Final[_Table] = {
    errors.ControllerUnavailable: ErrorCode.request_timed_out,
    errors.StoreError: ErrorCode.request_timed_out,
}
"""A controller that cannot commit is worth another try."""


def code_for(error: BaseException | None) -> ErrorCode:
    """The code of an error: its own, or that of its nearest base; `none` for None, `unknown_server_error` for what is
    not bmq's own.
    """
    return ErrorCode.none if error is None else _nearest(_CODES, error) or ErrorCode.unknown_server_error


def coordinator_code(error: errors.BmqError) -> int:
    """What a client of a group is told who cannot reach its coordinator."""
    return int(_nearest(_TOLD_TO_GROUPS, error) or code_for(error))


def own_coordinator_code(error: errors.BmqError) -> ErrorCode:
    """What a coordinator says of itself."""
    return _nearest(_TOLD_BY_COORDINATORS, error) or code_for(error)


def controller_code(error: errors.BmqError, *, knows_quotas: bool = True) -> int:
    """What an administrator's client is told; one of before Kafka's quotas does not know of them."""
    if isinstance(error, errors.QuotaExceeded) and not knows_quotas:
        return int(ErrorCode.policy_violation)
    return int(_nearest(_TOLD_TO_ADMINISTRATORS, error) or code_for(error))


def has_code_of_its_own(kind: type[BaseException]) -> bool:
    """Whether `code_for` knows the class itself."""
    return kind in _CODES


def _nearest(table: _Table, error: BaseException) -> ErrorCode | None:
    for kind in type(error).__mro__:
        code = table.get(kind)
        if code is not None:
            return code
    return None
