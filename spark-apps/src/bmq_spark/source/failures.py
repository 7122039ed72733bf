"""What can go wrong while a topic is read from its segments. Nouns under bmq's one base; every message is one line and
ends with a remedy.
"""

from bmq_spark.errors import BmqError


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
