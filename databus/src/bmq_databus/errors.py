"""What goes wrong in a sidecar, under one base."""


class DatabusError(Exception):
    """The base of all. Its text names what, why and the remedy."""


class SpoolDamaged(DatabusError):
    """Bytes on disk are not what was written."""


class SpoolTooNew(DatabusError):
    """A later version wrote it."""


class SpoolFull(DatabusError):
    """The spool's bounds leave no room for the message."""


class EntryTooLarge(DatabusError):
    """What is to be accepted at once is more than a spool takes at once: nothing of it was."""


class SpoolFailed(DatabusError):
    """The disk did not take what was to be accepted: it was not."""


class SpoolInUse(DatabusError):
    """Another process has the folder."""


class BadConfiguration(DatabusError):
    """What a control plane said, or a file says that it said, is nothing that channels can be made of."""


class NoSuchChannel(DatabusError):
    """There is none of that name."""


class NothingKnown(DatabusError):
    """Which channels there are is not known yet."""


class BadMessage(DatabusError):
    """What an application wrote is no message."""


class QueueFull(DatabusError):
    """The producer has as much under way as it may."""


class ClusterAway(QueueFull):
    """The cluster has not been reached for a while: the message was not handed to it."""


class LineTooLong(BadMessage):
    """A line of a stream has more bytes than one message may."""


class EndlessLine(DatabusError):
    """A stream has no message in what is more than several of them."""


class NoObjects(DatabusError):
    """A body is none of JSON objects."""


class TurnedOff(DatabusError):
    """The channel takes nothing."""


class Unfit(DatabusError):
    """A message that the channel's rules do not take as it is."""


class RateLimited(DatabusError):
    """The channel takes no more for now."""

    def __init__(self, text: str, *, retry_after_s: int) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
