"""Listening where an operator said, and saying in one line why it cannot be."""

import os
import socket
from collections.abc import Awaitable

from bmq.errors import BmqError
from bmq_cli.addresses import address_text


class CannotListen(BmqError):
    """An address is taken, or is not this machine's."""


def check_free(option: str, address: tuple[str, int]) -> None:
    """Raises CannotListen where nobody could listen there now: before anything is begun. Port 0 is always free."""
    host, port = address
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, where in found:
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(where)
    except OSError as error:
        raise _cannot_listen(option, address_text(host, port), error) from error


async def bound(option: str, address: str, start: Awaitable[None]) -> None:
    """Awaits `start`, in which OSError means that it cannot listen. Raises BmqError."""
    try:
        await start
    except OSError as error:
        raise _cannot_listen(option, address, error) from error


def _cannot_listen(option: str, address: str, error: OSError) -> CannotListen:
    known = error.errno and not isinstance(error, socket.gaierror)
    reason = os.strerror(error.errno).lower() if known else str(error)  # type: ignore[arg-type]
    return CannotListen(f"{option} {address}: {reason}: choose another address, or stop what listens there")
