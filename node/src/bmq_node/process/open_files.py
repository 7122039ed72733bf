"""How many connections clients may have where a process may open few files: the store, other nodes and the admin
address need some, too. Pure.
"""

from dataclasses import replace
from typing import Final

import structlog

from bmq.config.limits import Limits

OWN_FILES: Final = 256
"""For the store, other nodes, and what the process has open by itself."""
_log = structlog.get_logger(__name__)


def connections_within(files: int, wanted: int, limits: Limits) -> int:
    """How many of the `wanted` connections there may be: as many as leave files for everything else; where there are
    very few files, a quarter of them. `files` below 0: no limit.
    """
    if files < 0:
        return wanted
    others = OWN_FILES + limits.admin_connections_max + limits.internal_strangers_max
    return min(wanted, max(files - others, files // 4))


def limits_within(connections: int, limits: Limits) -> Limits:
    """Without an address that may have more than half of the connections."""
    return replace(limits, connections_per_address=min(limits.connections_per_address, max(1, connections // 2)))


def tell_if_fewer(files: int, wanted: int, connections: int) -> None:
    """Logs that it is not as many as were wanted, and warns where it is not nearly so many."""
    if connections < wanted:
        tell = _log.warning if connections < wanted // 2 else _log.info
        tell(
            "fewer connections than connections_max are taken, to leave files for the store: raise the limit of "
            "open files (ulimit -n)",
            connections_max=wanted,
            taken=connections,
            open_files_max=files,
        )
