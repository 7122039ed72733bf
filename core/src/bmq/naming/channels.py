"""What a channel of Databus may be called. Pure.

A channel's name is a part of paths: of addresses that applications write to, and of folders on a sidecar's disk.
"""

import re
from typing import Final

from bmq.errors import InvalidRequest

CHANNEL_NAME_LENGTH_MAX: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SHOWN: Final = 40


def check_channel_name(name: str) -> None:
    """Raises InvalidRequest unless a channel may have this name, which is what Kubernetes calls objects."""
    if len(name) > CHANNEL_NAME_LENGTH_MAX or _NAME.fullmatch(name) is None:
        shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        raise InvalidRequest(
            f"The channel name {shown!r} is illegal: use 1 to {CHANNEL_NAME_LENGTH_MAX} lower-case letters, digits, "
            "'-' and '.', with a letter or a digit at both ends"
        )
