"""Every error that bmq raises on purpose. A noun under one base; Kafka's codes are chosen in wire.chosen_codes alone.

The message says what happened, why, and what to do about it.
"""

from collections.abc import Sequence


class BmqError(Exception):
    """The base of all of them."""


class ConfigurationError(BmqError):
    """A setting that cannot be used. The message is one line: key, value, remedy."""


class FolderInUse(ConfigurationError):
    """Another process works on the data folder."""


class StoreError(BmqError):
    """An operation on the object store did not succeed."""


class NotApplied(StoreError):
    """A create that certainly did not happen: it may be sent again."""


class Conflict(StoreError):
    """A create of a key that exists."""


class UnknownOutcome(StoreError):
    """A create that may or may not have happened (the reply was lost)."""


class ObjectMissing(StoreError):
    """The key does not exist."""


class StoreUnavailable(StoreError):
    """A get, list, head or delete failed for now: worth another try."""


class StoreUnusable(StoreError):
    """The store cannot carry bmq: wrong credentials, no bucket, or no conditional create."""


class FormatError(BmqError):
    """Bytes read back from the store are not what a writer of bmq wrote."""


class Corrupt(FormatError):
    """Truncated, changed, or of another kind."""


class FormatTooNew(FormatError):
    """Written by a newer bmq; the message names format, version and the newest one readable."""


class Fenced(BmqError):
    """Somebody with a higher epoch has taken over; this writer may write nothing more."""


class NotOwner(BmqError):
    """This node does not own the partition (any more): nothing was applied."""


class NotReady(BmqError):
    """The partition is being opened, or buffers are full: nothing was applied, try again."""


class PartitionStopped(BmqError):
    """The partition is stopped because what is in the store cannot be explained; an operator has to look."""


class RequestError(BmqError):
    """The base of what a client asked for and cannot have."""


class UnknownTopic(RequestError):
    """No such topic or partition."""


class UnknownTopicId(RequestError):
    """No topic has this id (any more)."""


class CorruptBatch(RequestError):
    """CRC, length, magic or counts of a record batch do not hold."""


class InvalidBatch(RequestError):
    """A well-formed batch that is not allowed here (control batch, transactional without a transaction, bad
    offsets).
    """


class InvalidRecords(InvalidBatch):
    """Some records of a batch are not allowed here; none of the batch is taken. `records` are (number in the batch,
    why).
    """

    def __init__(self, message: str, records: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.records = records


class BatchTooLarge(RequestError):
    """Larger than the topic's max.message.bytes."""


class MostlyEmpty(BatchTooLarge):
    """Its compressed bytes are many for what they hold: it would cost much each time that it is opened."""


class InvalidTimestamp(RequestError):
    """Outside message.timestamp.before.max.ms and message.timestamp.after.max.ms."""


class UnsupportedCompression(RequestError):
    """A codec that does not exist, or that the request's version may not use."""


class OutOfOrderSequence(RequestError):
    """An idempotent producer's batch that does not follow its last one."""


class NotYetNext(RequestError):
    """An idempotent producer's batch; what precedes it is not there, and may be on its way: send it again."""


class InvalidProducerEpoch(RequestError):
    """An idempotent producer's batch with an epoch below the newest one."""


class UnknownProducerId(RequestError):
    """An idempotent producer's batch in mid-sequence of a producer that is not known (any more)."""


class OffsetOutOfRange(RequestError):
    """Below the log start or above the high watermark."""


class FencedLeaderEpoch(RequestError):
    """The request's leader epoch is below the partition's."""


class UnknownLeaderEpoch(RequestError):
    """The request's leader epoch is above the partition's."""


class UnsupportedMessageFormat(RequestError):
    """Message formats 0 and 1."""


class WireError(BmqError):
    """Bytes on a connection are not the Kafka protocol, or exceed a limit; the connection is closed."""


class InvalidRequest(RequestError):
    """A request that contradicts itself (the same topic or key named twice)."""


class TopicExists(RequestError):
    """A topic of this name exists."""


class LaneExists(RequestError):
    """A lane of this name exists."""


class LaneInUse(RequestError):
    """Other lanes are nested in this one."""


class UnknownLane(RequestError):
    """No such lane."""


class TurnIsOver(RequestError):
    """What was said of a turn of a lane's messages is not so any more: look whose turn it is now."""


class ChannelExists(RequestError):
    """A channel of this name exists."""


class UnknownChannel(RequestError):
    """No such channel."""


class InvalidGroupId(RequestError):
    """A group's id that nobody may have, or not here."""


class InvalidTopicName(RequestError):
    """Not a legal topic name."""


class InvalidPartitions(RequestError):
    """A number of partitions that is not possible."""


class InvalidReplicationFactor(RequestError):
    """A replication factor that makes no sense."""


class InvalidReplicaAssignment(RequestError):
    """A manual assignment: bmq places partitions itself, because a move copies nothing."""


class InvalidConfig(RequestError):
    """A configuration's name or value."""


class PolicyViolation(RequestError):
    """Allowed by the protocol, not by this cluster."""


class LaneFull(PolicyViolation):
    """A lane has all that its quota says."""


class ConfigsFull(PolicyViolation):
    """All configurations together have no room for more."""


class QuotaExceeded(RequestError):
    """Too much for now of what clients at one address may do over time; `wait_s` says when it may be done."""

    def __init__(self, message: str, *, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class NoMoveUnderWay(RequestError):
    """A move that is to be taken back is not there (any more)."""


class ControllerUnavailable(BmqError):
    """The controller cannot commit now (the store is down, or another one leads): try again."""


class NoLeader(ControllerUnavailable):
    """No controller that leads was reached: nothing was applied, and whoever asks may ask again as soon as one
    leads.
    """
