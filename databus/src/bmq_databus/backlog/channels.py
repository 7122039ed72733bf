"""The channels that have something below a spool's folder, and what waits of them for other clusters. Blocking."""

from pathlib import Path
from typing import Final

from bmq_databus.errors import DatabusError
from bmq_databus.spool.clusters import folder_of, of_other_clusters
from bmq_databus.spool.refused import FILE, OLDER
from bmq_databus.spool.segments import ASIDE_SUFFIX, SEGMENT_SUFFIX

REPLAYING: Final = "replaying"
"""The folder of refused messages that a replay took and that are not through."""
_SIGNS: Final = (f"*{SEGMENT_SUFFIX}", f"*{ASIDE_SUFFIX}", FILE, OLDER, REPLAYING)


class NoSpool(DatabusError):
    """There is no such folder, or channel in it."""


def channels_in(root: Path) -> list[str]:
    """By name; what is for another cluster by `spool_name`. Raises NoSpool."""
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError as error:
        raise NoSpool(f"spool {root} cannot be read: {error.strerror}: name the --spool of a sidecar") from error
    names = sorted([*(path.name for path in folders), *of_other_clusters(root)])
    return [name for name in names if any(next(folder_of(root, name).glob(sign), None) for sign in _SIGNS)]


def chosen(root: Path, channel: str | None) -> list[str]:
    """All channels, or the one that is asked for. Raises NoSpool."""
    found = channels_in(root)
    if channel is None:
        return found
    if channel not in found:
        raise NoSpool(f"channel {channel} has nothing in spool {root}: {_there_are(found)}")
    return [channel]


def the_one(root: Path, channel: str | None) -> str:
    """The channel that is asked for, or the only one. Raises NoSpool."""
    found = chosen(root, channel)
    if len(found) != 1:
        raise NoSpool(f"spool {root}: {_there_are(found)}" + (": name one with --channel" if found else ""))
    return found[0]


def _there_are(found: list[str]) -> str:
    return f"there are {', '.join(found[:20])}" if found else "no channel has anything there"
