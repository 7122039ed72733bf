"""What `bmq up` sets for its one process, and for each of several: they share a machine's memory."""

from collections.abc import Sequence
from typing import Final

from bmq_node.configuration.server_config import flag_of

KEYS: Final = {
    "tail_limit_bytes": "192MiB",
    "request_memory_bytes": "64MiB",
    "fetch_memory_bytes": "64MiB",
}
"""By the keys of docs/server-configuration.md."""


def flags() -> Sequence[str]:
    """The same as options of `bmq server`."""
    return [part for key, value in KEYS.items() for part in (flag_of(key), value)]
