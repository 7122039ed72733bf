"""What one client may create: bounded for a request, and for an address over time, so that nobody uses up the cluster's
partitions. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from bmq.config.cluster_config import PARTITIONS_PER_TOPIC_MAX
from bmq.config.limits import Limits
from bmq.errors import PolicyViolation, QuotaExceeded
from bmq.fairness.address_buckets import AddressBuckets
from bmq.fairness.grouping import in_weighed_groups
from bmq.roles.controller import NewTopic

PIECE_TOPICS: Final = 200
PIECE_PARTITIONS: Final = 1_000
"""What the controller is asked for at once: between two such pieces it hears heartbeats. One topic is never divided."""
TEXT_BYTES_PER_PARTITION: Final = 1 << 10
"""So much of a resource's configuration counts as a partition: every node holds it, and every snapshot of the
metadata."""


class CreationQuota:
    """A bucket of partitions for each address. The caller gives the loop's time."""

    def __init__(self, limits: Limits) -> None:
        self._burst = limits.create_partitions_burst
        self._per_s = limits.create_partitions_per_minute / 60
        self._buckets = AddressBuckets()

    def take(self, address: str, partitions: int, now_s: float) -> None:
        """Raises QuotaExceeded, with the time to wait; then nothing is taken. Who has all of it may take more than that
        at once.
        """
        left = self._buckets.left(address, now_s, burst=self._burst, per_time=self._per_s)
        if left < min(partitions, self._burst):
            wait_s = (min(partitions, self._burst) - left) / self._per_s
            raise QuotaExceeded(
                f"{partitions} partitions are too many now for clients at {address}: they have made "
                f"{self._burst - left:.0f} of create_partitions_burst = {self._burst}, which comes back at "
                f"create_partitions_per_minute = {self._per_s * 60:.0f}; try again in {wait_s:.0f} s, or raise "
                "these limits",
                wait_s=wait_s,
            )
        self._buckets.take(address, now_s, left=left, taken=partitions)


def check_request(limits: Limits, *, topics: int, partitions: int) -> None:
    """Raises PolicyViolation where one request asks for too much."""
    if topics > limits.create_topics_max:
        raise PolicyViolation(
            f"{topics} topics in one request: create_topics_max is {limits.create_topics_max}: name fewer at a time"
        )
    if partitions > limits.create_partitions_max:
        raise PolicyViolation(
            f"{partitions} partitions in one request: create_partitions_max is {limits.create_partitions_max}: ask "
            "for fewer at a time"
        )


def pieces(topics: Sequence[NewTopic], *, default_partitions: int) -> Iterator[list[NewTopic]]:
    """In order."""
    weighed = partial(partitions_of, default_partitions=default_partitions)
    return in_weighed_groups(topics, weighed, count_max=PIECE_TOPICS, weight_max=PIECE_PARTITIONS)


def texts_count(values: Iterable[str | None]) -> int:
    """As how many partitions the values of one resource count: none, where they are as short as those that have an
    effect.
    """
    return (
        sum(len(value.encode(errors="surrogatepass")) for value in values if value is not None)
        // TEXT_BYTES_PER_PARTITION
    )


def partitions_of(topic: NewTopic, default_partitions: int) -> int:
    """How many it is to have; what is no possible number counts as one: the controller refuses it."""
    count = (
        len(topic.assignments)
        if topic.assignments
        else default_partitions
        if topic.partitions == -1
        else topic.partitions
    )
    return count if 1 <= count <= PARTITIONS_PER_TOPIC_MAX else 1
