"""A spool's folder that no channel has any more, and in which nothing waits: it goes, unless something of it is kept.

Kept are messages that the cluster refused, damaged segments, those of a later version, a replay that is under way,
whatever is not the spool's own, and keys of requests whose windows are not over: a channel that was deleted by mistake
and is made again knows what it was sent before. Blocking.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from bmq.runtime.file_io import sync_folder
from bmq.runtime.folder_lock import lock_folder
from bmq_databus.spool import clusters, identity, keys
from bmq_databus.spool.clusters import CLUSTERS, channel_of, folder_of, of_other_clusters, servers_of

PROBE: Final = "probe"
"""A file that is written where the disk is in trouble and nobody else finds out that it is not any more."""
GOES: Final = frozenset({*identity.FILES, *keys.FILES, *clusters.FILES, PROBE})
"""What nobody needs of a spool without messages."""


def give_back(root: Path, name: str, *, now_ms: int) -> int:
    """Deletes the folder of the spool of this name; where its keys are what it is kept for, when they are over, in ms
    since 1970, else 0. One that somebody has is left to them.
    """
    folder = folder_of(root, name)
    over_at_ms = _gave_back(folder, now_ms)
    if servers_of(name):
        with suppress(OSError):
            folder.parent.rmdir()
        _gave_back(root / channel_of(name), now_ms)
    return over_at_ms


def idle_in(root: Path) -> list[str]:
    """Names of all spools that have a folder; those without an id are no more than empty. Raises OSError."""
    own = [path.parent.name for path in root.glob(f"*/{identity.ID_FILE}") if identity.id_in(path.parent)]
    return sorted({*own, *of_other_clusters(root)})


def _gave_back(folder: Path, now_ms: int) -> int:
    """As `give_back`."""
    try:
        fd = lock_folder(folder, fcntl.LOCK_EX)
    except OSError:
        return 0
    try:
        with suppress(OSError):
            (folder / CLUSTERS).rmdir()
        found = set(os.listdir(folder))
        if found - GOES:
            return 0
        if (over_at_ms := keys.over_at_ms(folder)) > now_ms:
            return over_at_ms
        for file in found:
            (folder / file).unlink()
        folder.rmdir()
        sync_folder(folder.parent)
    except OSError:
        pass  # it stays, and does no harm
    finally:
        os.close(fd)
    return 0
