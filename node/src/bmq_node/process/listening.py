"""Listening where an operator said, and saying in one line why it cannot be."""

import errno
import os
import socket
from collections.abc import Awaitable

from bmq.errors import BmqError, ConfigurationError
from bmq_node.configuration.addresses import address_text, meet


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


def check_apart(one_option: str, one: tuple[str, int], other_option: str, other: tuple[str, int]) -> None:
    """Raises ConfigurationError where nobody could listen at both."""
    if meet(one, other) or (one[1] and one[1] == other[1] and not _places(one).isdisjoint(_places(other))):
        both = f"{one_option} {address_text(*one)} and {other_option} {address_text(*other)}"
        raise ConfigurationError(f"{both}: choose another port for one of them")


async def bound(option: str, address: str, start: Awaitable[None]) -> None:
    """Awaits `start`, in which OSError means that it cannot listen. Raises BmqError."""
    try:
        await start
    except OSError as error:
        raise _cannot_listen(option, address, error) from error


def _cannot_listen(option: str, address: str, error: OSError) -> CannotListen:
    known = error.errno and not isinstance(error, socket.gaierror)
    reason = os.strerror(error.errno).lower() if known else str(error)  # type: ignore[arg-type]
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        remedy = "name an address of this machine, or 0.0.0.0 for all of them"
    elif error.errno in (errno.EACCES, errno.EPERM):
        remedy = "choose a port from 1024 on, or let bmq have lower ones (CAP_NET_BIND_SERVICE)"
    else:
        remedy = "choose another address, or stop what listens there"
    return CannotListen(f"{option} {address}: {reason}: {remedy}")


def _places(address: tuple[str, int]) -> set[object]:
    """Where that is. A host that nobody knows is nowhere: whoever tries to listen there says so."""
    try:
        return {where for *_, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)}
    except OSError:
        return set()
