"""A channel's spools: one for the sidecar's own cluster, in the channel's folder, and one for each other cluster that
its messages go to, below it. Earlier versions know of the first alone, and leave the others where they are.

Blocking.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

from bmq.runtime.file_io import sync_file, sync_folder
from bmq_databus.spool.folder import not_made
from bmq_databus.spool.segments import SEGMENT_SUFFIX

CLUSTERS: Final = "clusters"
FILE: Final = "cluster"
"""Says whose the spool in its folder is: the cluster's addresses."""
_BEGUN: Final = f"{FILE}.begun"
FILES: Final = (FILE, _BEGUN)
_AT: Final = "@"
_NAME_MAX: Final = 200


def spool_name(channel: str, servers: str) -> str:
    """What a spool is called: the channel's name, with the addresses of the cluster where that is not the sidecar's
    own.
    """
    return f"{channel}{_AT}{servers}" if servers else channel


def channel_of(name: str) -> str:
    """The channel in a spool's name."""
    return name.partition(_AT)[0]


def servers_of(name: str) -> str:
    """The addresses in a spool's name; empty: the sidecar's own cluster."""
    return name.partition(_AT)[2]


def folder_of(root: Path, name: str) -> Path:
    """Where the spool of this name is below a sidecar's folder."""
    channel, _, servers = name.partition(_AT)
    if not servers:
        return root / channel
    is_long = len(servers.encode()) > _NAME_MAX
    return root / channel / CLUSTERS / (hashlib.sha256(servers.encode()).hexdigest() if is_long else servers)


def mark(root: Path, name: str) -> None:
    """Makes the folder of another cluster's spool, and says there whose it is. Raises SpoolFailed."""
    folder = folder_of(root, name)
    file, begun = folder / FILE, folder / _BEGUN
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _read(file) != servers_of(name):
            with begun.open("w") as writing:
                writing.write(servers_of(name))
                writing.flush()
                sync_file(writing.fileno())
            os.replace(begun, file)
        for made_in in (root, folder.parent.parent, folder.parent, folder):
            sync_folder(made_in)
    except OSError as error:
        raise not_made(folder, error) from error


def of_other_clusters(root: Path) -> list[str]:
    """The names of their spools. Raises OSError."""
    found = []
    for file in sorted(root.glob(f"*/{CLUSTERS}/*/{FILE}")):
        if servers := _read(file):
            found.append(spool_name(file.parents[2].name, servers))
    return found


def left_in(root: Path) -> list[str]:
    """Names of spools that have messages below this folder. Raises OSError."""
    own = {path.parent.name for path in root.glob(f"*/*{SEGMENT_SUFFIX}")}
    others = [name for name in of_other_clusters(root) if any(folder_of(root, name).glob(f"*{SEGMENT_SUFFIX}"))]
    return sorted({*own, *others})


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""
