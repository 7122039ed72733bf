"""What can go wrong while a topic is read from its segments. Nouns under bmq's one base; every message is one line and
ends with a remedy. And which errors of brokers are none yet, as they pass by themselves.
"""

from typing import Final

from bmq.wire.error_codes import ErrorCode
from bmq_spark.errors import BmqError

PASSING: Final = frozenset(
    (
        ErrorCode.unknown_topic_or_partition,
        # by who has not heard of it yet, or of another topic's of that name: its leader is looked for again
        ErrorCode.unknown_topic_id,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.network_exception,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.not_controller,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    )
)
"""What brokers say while one of them dies or comes: asked again a moment later, another one answers."""
PAUSE_S: Final = 0.2
"""Before that is asked again."""


class SourceFailed(BmqError):
    """The base of what ends a read."""


class StoreLost(SourceFailed):
    """The store does not answer, or refuses."""


class TopicGone(SourceFailed):
    """No such topic, or another one of the same name than the one that was read before."""


class RecordsGone(SourceFailed):
    """Records that were to be read are not there any more: retention or a deletion was faster."""


class SegmentBroken(SourceFailed):
    """Bytes of a segment are not what bmq wrote."""
