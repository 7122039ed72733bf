"""The addresses under which clients reach a proxy: the default listener, and further ones by name. Pure.

A client that came by a listener is told the addresses of that listener alone, those of every proxy that has one there.
"""

import re
from collections.abc import Mapping
from typing import Final

DEFAULT_LISTENER: Final = "internal"
"""The one that every proxy has: `listen`, and a node's `host` and `port` in the metadata."""
LISTENER_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
LISTENER_NAME_REMEDY: Final = "use 1 to 63 letters, digits, - and _, beginning with a letter"

HOST_CHARS_MAX: Final = 255
"""No name that DNS knows is longer."""
PORT_MAX: Final = 65_535

ListenerAddresses = Mapping[str, tuple[str, int]]
"""(host, port) that clients are told, by the names of further listeners; one whose address is not known is not in
it."""
