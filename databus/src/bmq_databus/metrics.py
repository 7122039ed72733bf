"""The sidecar's metrics. Names start with `bmq_databus_`; sizes in bytes."""

from collections.abc import Iterable
from typing import Final, Protocol

from prometheus_client import Counter, Gauge

MESSAGES = Counter(
    "bmq_databus_messages",
    "Messages that applications wrote, by channel and by the status that each was answered with.",
    ["channel", "status"],
)
CHANNEL_TAKES = Gauge(
    "bmq_databus_channel_takes_messages",
    "1 where the channel takes messages, 0 where it is turned off, its cluster (durable) is not reached or its spool "
    "(accepted) takes none: /readyz says why. By channel.",
    ["channel"],
)
STREAMS = Gauge("bmq_databus_streams", "Streams of messages that are open.")
ANSWERED_AGAIN = Counter(
    "bmq_databus_answered_again",
    "Requests that came again with their Idempotency-Key, were given the same answer and not written, by channel.",
    ["channel"],
)
KEYS_FORGOTTEN = Counter(
    "bmq_databus_idempotency_keys_forgotten",
    "Keys whose answers gave way to others before their time: who comes again with one writes again. By channel.",
    ["channel"],
)
CONFIGURATION_AGE = Gauge(
    "bmq_databus_configuration_age_seconds",
    "How long ago the control plane said last which channels there are, or that they are what they were; NaN where it "
    "never did, 0 where channels come from a file.",
)
CONFIGURATION_TROUBLES = Gauge(
    "bmq_databus_configuration_troubles",
    "Channels that are not what the control plane wants them to be: /readyz says why.",
)
CONFIGURATION_REFUSED = Counter(
    "bmq_databus_configuration_refused",
    "Answers of the control plane that were none, and changed nothing.",
)
SPOOL_BYTES = Gauge("bmq_databus_spool_bytes", "Bytes of the spool on disk, by channel.", ["channel"])
SPOOL_MESSAGES = Gauge(
    "bmq_databus_spool_messages", "Accepted messages that are not in the cluster yet, by channel.", ["channel"]
)
SPOOL_SENT = Counter("bmq_databus_spool_sent", "Accepted messages that the cluster has, by channel.", ["channel"])
SPOOL_SENT_AGAIN = Counter(
    "bmq_databus_spool_sent_again",
    "Those of them that may be in their topic twice, as a sidecar died before it knew, by channel.",
    ["channel"],
)
SPOOL_REFUSED = Counter(
    "bmq_databus_spool_refused",
    "Accepted messages that the cluster takes never: they are in the file of refused ones, by channel.",
    ["channel"],
)
SPOOL_DROPPED = Counter(
    "bmq_databus_spool_dropped", "Accepted messages that were given up for space or age, by channel.", ["channel"]
)
SPOOL_DAMAGED = Counter(
    "bmq_databus_spool_damaged", "Accepted messages that the disk has lost, by channel.", ["channel"]
)
SPOOL_REFUSED_DROPPED = Counter(
    "bmq_databus_spool_refused_dropped",
    "Refused messages that are kept no longer, as their files have as much as they may, by channel.",
    ["channel"],
)
SPOOL_DAMAGED_DROPPED = Counter(
    "bmq_databus_spool_damaged_dropped",
    "Damaged segments that are kept no longer, as they have as much as they may, by channel.",
    ["channel"],
)

LOSSES_TOLD_MAX: Final = 1_000
_OF_SPOOLS = (SPOOL_BYTES, SPOOL_MESSAGES, SPOOL_SENT, SPOOL_SENT_AGAIN)
_LOSSES = (SPOOL_REFUSED, SPOOL_DROPPED, SPOOL_DAMAGED, SPOOL_REFUSED_DROPPED, SPOOL_DAMAGED_DROPPED)
_told_on: dict[str, None] = {}
"""Closed spools whose losses are told yet, the one that was closed last at the end: alerts go by what they count."""


def forget_channel(name: str) -> None:
    """It is written no more: its series of what was written go."""
    for one in (MESSAGES, ANSWERED_AGAIN, KEYS_FORGOTTEN):
        one.remove_by_labels({"channel": name})


class Held(Protocol):
    """What a spool says of itself."""

    @property
    def size_bytes(self) -> int:
        """On disk, or about to be."""

    @property
    def waiting(self) -> int:
        """How many messages need something yet."""


class Counts(Protocol):
    """What counts upwards."""

    def inc(self, amount: float = 1) -> None:
        """By so many."""


class SpoolCounts(Protocol):
    """What happened to a spool's messages, and to what is kept aside of it."""

    @property
    def sent(self) -> Counts:
        """The cluster has them."""

    @property
    def sent_again(self) -> Counts:
        """Those of them that may be there twice."""

    @property
    def refused(self) -> Counts:
        """The cluster takes them never."""

    @property
    def dropped(self) -> Counts:
        """They were given up for space or age."""

    @property
    def damaged(self) -> Counts:
        """The disk has lost them."""

    @property
    def refused_dropped(self) -> Counts:
        """Refused ones that are kept no longer."""

    @property
    def damaged_dropped(self) -> Counts:
        """Damaged segments that are kept no longer."""

    def tell(self, spool: Held) -> None:
        """What this spool says of itself, from now on."""


class SpoolMetrics:
    """What is told of one channel's spool."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        _told_on.pop(channel, None)
        self.sent = SPOOL_SENT.labels(channel)
        self.sent_again = SPOOL_SENT_AGAIN.labels(channel)
        self.refused = SPOOL_REFUSED.labels(channel)
        self.dropped = SPOOL_DROPPED.labels(channel)
        self.damaged = SPOOL_DAMAGED.labels(channel)
        self.refused_dropped = SPOOL_REFUSED_DROPPED.labels(channel)
        self.damaged_dropped = SPOOL_DAMAGED_DROPPED.labels(channel)

    def tell(self, spool: Held) -> None:
        """What this spool says of itself, from now on."""
        SPOOL_BYTES.labels(self._channel).set_function(lambda: spool.size_bytes)
        SPOOL_MESSAGES.labels(self._channel).set_function(lambda: spool.waiting)

    def forget(self) -> None:
        """The spool is closed: its series go, but for those of losses where there are any, of the spools that were
        closed last.
        """
        _remove(self._channel, _OF_SPOOLS)
        losses = (self.refused, self.dropped, self.damaged, self.refused_dropped, self.damaged_dropped)
        if not any(map(_counted, losses)):
            _remove(self._channel, _LOSSES)
            return
        _told_on[self._channel] = None
        if len(_told_on) > LOSSES_TOLD_MAX:
            oldest = next(iter(_told_on))
            del _told_on[oldest]
            _remove(oldest, _LOSSES)


def _remove(channel: str, series: Iterable[Gauge | Counter]) -> None:
    for one in series:
        one.remove_by_labels({"channel": channel})


def _counted(count: Counter) -> float:
    return sum(one.value for family in count.collect() for one in family.samples if one.name.endswith("_total"))
