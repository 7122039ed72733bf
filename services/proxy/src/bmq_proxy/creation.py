"""What one client may create: bounded for a request, and for an address over time, so that nobody uses up the cluster's partitions. Pure."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from bmq.cluster_config import PARTITIONS_PER_TOPIC_MAX
from bmq.errors import PolicyViolation, QuotaExceeded
from bmq.limits import Limits
from bmq.roles.controller import NewTopic

ADDRESSES_MAX: Final = 10_000
"""Addresses remembered; the one that created nothing for longest is forgotten first."""
PIECE_TOPICS: Final = 200
PIECE_PARTITIONS: Final = 1_000
"""What the controller is asked for at once: between two such pieces it hears heartbeats. One topic is never divided."""


class CreationQuota:
    """A bucket of partitions for each address. The caller gives the loop's time."""

    def __init__(self, limits: Limits) -> None:
        self._burst = limits.create_partitions_burst
        self._per_s = limits.create_partitions_per_minute / 60
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What an address has left, and when it was looked at; who is not here has everything."""

    def take(self, address: str, partitions: int, now_s: float) -> None:
        """Raises QuotaExceeded, with the time to wait; then nothing is taken. Who has all of it may take more than that at once."""
        left, at_s = self._left.get(address, (float(self._burst), now_s))
        left = min(float(self._burst), left + (now_s - at_s) * self._per_s)
        if left < min(partitions, self._burst):
            wait_s = (min(partitions, self._burst) - left) / self._per_s
            raise QuotaExceeded(
                f"{partitions} partitions are too many now for clients at {address}: they have made {self._burst - left:.0f} of "
                f"create_partitions_burst = {self._burst}, which comes back at create_partitions_per_minute = {self._per_s * 60:.0f}; try again in "
                f"{wait_s:.0f} s, or raise these limits",
                wait_s=wait_s,
            )
        self._left[address] = left - partitions, now_s
        self._left.move_to_end(address)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)


def check_request(limits: Limits, *, topics: int, partitions: int) -> None:
    """Raises PolicyViolation where one request asks for too much."""
    if topics > limits.create_topics_max:
        raise PolicyViolation(f"{topics} topics in one request: create_topics_max is {limits.create_topics_max}: name fewer at a time")
    if partitions > limits.create_partitions_max:
        raise PolicyViolation(
            f"{partitions} partitions in one request: create_partitions_max is {limits.create_partitions_max}: ask for fewer at a time"
        )


def pieces(topics: Sequence[NewTopic], *, default_partitions: int) -> Iterator[list[NewTopic]]:
    """In order."""
    piece: list[NewTopic] = []
    partitions = 0
    for topic in topics:
        count = partitions_of(topic, default_partitions)
        if piece and (len(piece) >= PIECE_TOPICS or partitions + count > PIECE_PARTITIONS):
            yield piece
            piece, partitions = [], 0
        piece.append(topic)
        partitions += count
    if piece:
        yield piece


def partitions_of(topic: NewTopic, default_partitions: int) -> int:
    """How many it is to have; what is no possible number counts as one: the controller refuses it."""
    count = len(topic.assignments) if topic.assignments else default_partitions if topic.partitions == -1 else topic.partitions
    return count if 1 <= count <= PARTITIONS_PER_TOPIC_MAX else 1
