"""What of a node can be told to clients, and be stored: checked before it becomes part of the metadata, which all nodes
read. Pure.

A node checks its own configuration at its start. What it says to a leader is checked once more: a number that fits into
no stored seal or no answer of Kafka's protocol would end whoever leads when the node falls silent, the next one too, or
have every client's metadata refused.
"""

from typing import Final

from bmq.errors import InvalidRequest
from bmq.naming.listeners import HOST_CHARS_MAX, LISTENER_NAME, LISTENER_NAME_REMEDY, PORT_MAX, ListenerAddresses
from bmq.roles.controller import Registration
from bmq.values import NODE_ID_MAX

TEXT_CHARS_MAX: Final = 1_000


def check_registration(registration: Registration) -> None:
    """Raises InvalidRequest."""
    if not 0 <= registration.node_id <= NODE_ID_MAX:
        raise InvalidRequest(f"node id {registration.node_id}: set a whole number from 0 to {NODE_ID_MAX}")
    _check_address("", registration.host, registration.port)
    _check_address("internal ", registration.internal_host, registration.internal_port)
    texts = {"rack": registration.rack, "pool": registration.pool, "lane": registration.lane}
    for what, text in {**texts, **{f"role {number}": role for number, role in enumerate(registration.roles)}}.items():
        _check_text(what, text, TEXT_CHARS_MAX)
    check_listeners(registration.listeners)


def check_listeners(listeners: ListenerAddresses) -> None:
    """Raises InvalidRequest."""
    for name, (host, port) in listeners.items():
        if not LISTENER_NAME.fullmatch(name):
            raise InvalidRequest(f"listener {name[:HOST_CHARS_MAX]!r}: {LISTENER_NAME_REMEDY}")
        _check_address("", host, port, of=f" of listener {name!r}")


def _check_address(which: str, host: str, port: int, *, of: str = "") -> None:
    if not 0 <= port <= PORT_MAX:
        raise InvalidRequest(f"{which}port {port}{of}: set a number from 0 to {PORT_MAX}")
    _check_text(f"{which}host{of}", host, HOST_CHARS_MAX)


def _check_text(what: str, text: str, chars_max: int) -> None:
    if len(text) > chars_max:
        raise InvalidRequest(
            f"{what} has {len(text)} characters: at most {chars_max} can be told to clients, set a shorter one"
        )
