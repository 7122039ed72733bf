"""In which order channels begin to be served. Pure."""

from collections.abc import Mapping

from bmq_databus.channels.channel import Channel


def in_order(channels: Mapping[str, Channel]) -> list[str]:
    """Names: a channel comes behind the one that gets its dead letters, which would else have nowhere to go; and those
    that need no spool before those that do.
    """
    found: dict[str, None] = {}
    for name in sorted(channels, key=lambda one: channels[one].acknowledgement == "accepted"):
        chain: dict[str, None] = {}
        while name in channels and name not in found and name not in chain:
            chain[name] = None
            name = channels[name].dead_letter
        found.update(dict.fromkeys(reversed(chain)))
    return list(found)
