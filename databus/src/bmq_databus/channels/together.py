"""What channels of one sidecar have to keep to together. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from bmq.errors import ConfigurationError
from bmq_databus.channels.channel import Channel

MANNERS_MAX: Final = 8
"""Producers for one purpose, and their threads, are so many at most."""


def check_together(all_channels: Iterable[Channel]) -> None:
    """Raises ConfigurationError."""
    channels = {channel.name: channel for channel in all_channels}
    for name in channels:
        check_dead_letters(name, channels)
    manners: dict[object, str] = {}
    for channel in channels.values():
        for manner in channel.manners:
            manners.setdefault(manner, channel.name)
    if len(manners) > MANNERS_MAX:
        raise ConfigurationError(
            f"channels {', '.join(dict.fromkeys(manners.values()))} are sent in {len(manners)} manners (partitioner, "
            "batching, compression, cluster), and each needs a producer of its own, of which there are "
            f"{MANNERS_MAX} at most: let more of them have the same"
        )


def check_dead_letters(name: str, channels: Mapping[str, Channel]) -> None:
    """Those of one channel go somewhere. Raises ConfigurationError."""
    way = [name]
    while (following := channels[way[-1]].dead_letter) != "":
        if following not in channels:
            raise ConfigurationError(
                f"channel {way[-1]}: its deadLetter {following} is no channel here: write one, or leave it out"
            )
        way.append(following)
        if following in way[:-1]:
            raise ConfigurationError(
                f"channel {name}: its dead letters go in a circle ({' → '.join(way)}): leave deadLetter out of one"
            )
