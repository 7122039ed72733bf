"""How many connections clients and sidecars may have where a process may open few files: the store, other nodes and the
admin address need some, too.
"""

from dataclasses import replace
from typing import Final

import structlog

from bmq.config.limits import Limits, limits_of
from bmq_node.configuration.server_config import ServerConfig
from bmq_node.configuration.values import Role

OWN_FILES: Final = 256
"""For the store, other nodes, and what the process has open by itself."""
_log = structlog.get_logger(__name__)


def connections_within(files: int, wanted: int, limits: Limits) -> int:
    """How many of the `wanted` connections there may be: as many as leave files for everything else; where there are
    very few files, a quarter of them. `files` below 0: no limit.
    """
    if files < 0:
        return wanted
    admin = limits.admin_connections_max + watches_within(files, limits)
    others = OWN_FILES + admin + limits.internal_strangers_max
    return min(wanted, max(files - others, files // 4))


def watches_within(files: int, limits: Limits) -> int:
    """How many sidecars may wait at the admin address: a quarter of the files, where that is less than what is set."""
    return limits.admin_watches_max if files < 0 else min(limits.admin_watches_max, max(8, files // 4))


def limits_within(connections: int, limits: Limits) -> Limits:
    """Without an address that may have more than half of the connections."""
    return replace(limits, connections_per_address=min(limits.connections_per_address, max(1, connections // 2)))


def with_files(config: ServerConfig, files: int) -> ServerConfig:
    """With as many waiting sidecars and connections of clients as leave files for everything else, where the process
    may open so many.
    """
    limits = limits_of(config.limits)
    if (watches := watches_within(files, limits)) < limits.admin_watches_max:
        given = {**config.limits, "admin_watches_max": str(watches)}
        config = config.model_copy(update={"limits": given})
    if not config.has(Role.PROXY):
        return config
    connections = connections_within(files, config.connections_max, limits)
    per_address = str(limits_within(connections, limits).connections_per_address)
    return config.model_copy(
        update={"connections_max": connections, "limits": {**config.limits, "connections_per_address": per_address}}
    )


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
