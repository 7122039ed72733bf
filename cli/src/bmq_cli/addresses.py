"""Addresses as operators write them: HOST:PORT. Pure, and quick to import."""

from typing import Final

WILDCARD_HOSTS: Final = frozenset(("0.0.0.0", "::", "*"))


def address_of(text: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT, an IPv6 host in brackets. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r}: write HOST:PORT, for example 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def address_text(host: str, port: int) -> str:
    """The opposite of `address_of`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
