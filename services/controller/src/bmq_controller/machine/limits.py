"""How much there may be of what every node holds in its image and every snapshot has: partitions, and bytes of
configurations and channels; and how often a partition is moved for who asks. Pure.
"""

from dataclasses import dataclass
from typing import Final

from bmq.config.cluster_config import PARTITIONS_PER_TOPIC_MAX
from bmq.config.limits import Limits as Settings
from bmq.errors import ConfigsFull, InvalidPartitions
from bmq.metadata.image import Image

_SETTINGS: Final = Settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many partitions a topic and the cluster may have, what all configurations may take, how many channels there
    may be, what one of them may take, and how often one partition may be moved at once and goes on to be.
    """

    partitions_per_topic: int = PARTITIONS_PER_TOPIC_MAX
    partitions: int = _SETTINGS.partitions_max
    config_bytes: int = _SETTINGS.config_bytes_max
    channels: int = _SETTINGS.channels_max
    channel_bytes: int = _SETTINGS.channel_bytes_max
    moves_burst: int = _SETTINGS.partition_moves_burst
    moves_per_hour: int = _SETTINGS.partition_moves_per_hour

    @staticmethod
    def within(settings: Settings) -> "Limits":
        """Those that were set."""
        return Limits(
            partitions=settings.partitions_max,
            config_bytes=settings.config_bytes_max,
            channels=settings.channels_max,
            channel_bytes=settings.channel_bytes_max,
            moves_burst=settings.partition_moves_burst,
            moves_per_hour=settings.partition_moves_per_hour,
        )


DEFAULTS: Final = Limits()


def check_partitions(image: Image, total: int, *, added: int, limits: Limits) -> None:
    """Raises InvalidPartitions for a topic of `total` partitions, of which `added` (and others of the same request) are
    new.
    """
    if not 1 <= total <= limits.partitions_per_topic:
        raise InvalidPartitions(
            f"{total} partitions: set 1 to {limits.partitions_per_topic}, or -1 for the cluster's default"
        )
    present = sum(image.owned_counts.values())
    if present + added > limits.partitions:
        raise InvalidPartitions(
            f"The cluster has {present} partitions and would have {present + added}; it takes {limits.partitions}: "
            "delete topics or ask for fewer"
        )


def check_config_bytes(image: Image, added: int, *, limits: Limits) -> None:
    """Raises ConfigsFull where configurations would grow by `added` bytes beyond the limit. What does not grow is never
    refused.
    """
    after = image.config_bytes + added
    if added > 0 and after > limits.config_bytes:
        raise ConfigsFull(
            f"The configurations of all topics, lanes, channels and the cluster take {image.config_bytes} bytes, and "
            f"would take {after}; config_bytes_max is {limits.config_bytes}: set shorter values, delete configurations "
            "or topics that nobody needs, or raise it on all controllers"
        )
