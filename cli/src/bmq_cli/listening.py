"""Listening where an operator said, and saying in one line why it cannot be. Pure but for what is awaited."""

import os
from collections.abc import Awaitable

from bmq.errors import BmqError


class CannotListen(BmqError):
    """An address is taken, or is not this machine's."""


async def bound(option: str, address: str, start: Awaitable[None]) -> None:
    """Awaits `start`, in which OSError means that it cannot listen. Raises BmqError."""
    try:
        await start
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise CannotListen(f"{option} {address}: {reason}: choose another address, or stop what listens there") from error
