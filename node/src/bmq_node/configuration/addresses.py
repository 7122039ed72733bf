"""Addresses as operators write them: HOST:PORT. Pure, and quick to import."""

from typing import Final

from bmq.naming.listeners import HOST_CHARS_MAX, PORT_MAX

WILDCARD_HOSTS: Final = frozenset(("0.0.0.0", "::", "*"))


def address_of(text: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT, an IPv6 host in brackets. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > PORT_MAX or len(host) > HOST_CHARS_MAX:
        raise ValueError(f"{text!r}: write HOST:PORT, for example 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def meet(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether who listens at one could not at the other, as far as it is written: names of hosts are not looked up.
    Port 0 is any that is free.
    """
    return (
        one[1] != 0 and one[1] == other[1] and (one[0] == other[0] or not WILDCARD_HOSTS.isdisjoint((one[0], other[0])))
    )


def address_text(host: str, port: int) -> str:
    """The opposite of `address_of`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
