"""How many spools a process may have open: connections, and the producers' own, need files, too."""

import resource
import sys
from typing import Final

FILES_EACH: Final = 5
"""For a spool that is written and sent: its folder, the newest segment, the one that is sent, what became of it,
and keys of requests."""
FILES_OF_OTHERS: Final = 384
"""For connections, the cluster's, and what the process has open by itself."""


def spools_within(files: int) -> int:
    """How many leave enough for everything else; where there are very few files, they get half of them. `files` below
    0: no limit.
    """
    if files < 0:
        return sys.maxsize
    return max(files - FILES_OF_OTHERS, files // 2) // FILES_EACH


def files_max() -> int:
    """How many this process may have; below 0: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if soft == resource.RLIM_INFINITY else soft
