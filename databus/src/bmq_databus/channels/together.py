"""What channels of one sidecar have to keep to together. Pure."""

from collections.abc import Iterable
from typing import Final

from bmq.errors import ConfigurationError
from bmq_databus.channels.channel import Channel

MANNERS_MAX: Final = 8
"""Producers for one purpose, and their threads, are so many at most."""


def check_together(channels: Iterable[Channel]) -> None:
    """Raises ConfigurationError."""
    manners: dict[object, str] = {}
    for channel in channels:
        manners.setdefault(channel.manner, channel.name)
    if len(manners) > MANNERS_MAX:
        raise ConfigurationError(
            f"channels {', '.join(manners.values())} are sent in {len(manners)} manners (partitioner), and each needs "
            f"a producer of its own, of which there are {MANNERS_MAX} at most: let more of them have the same"
        )
