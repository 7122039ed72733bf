"""How the values of `bmq server`'s keys are written: addresses, sizes, roles, pairs. Validators raise ValueError with
the remedy.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator

from bmq.config.cluster_config import validate_cluster
from bmq.config.limits import limits_of
from bmq.errors import ConfigurationError, InvalidConfig
from bmq_node.configuration.addresses import address_of

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
OFF: Final = "off"
SECRET_CHARS_MIN: Final = 16
SECRET_CHARS_MAX: Final = 1024
_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": KIB,
    "ki": KIB,
    "kib": KIB,
    "m": MIB,
    "mi": MIB,
    "mib": MIB,
    "g": GIB,
    "gi": GIB,
    "gib": GIB,
}
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([A-Za-z]{0,3})", re.ASCII)


class Role(StrEnum):
    """What a process does."""

    CONTROLLER = "controller"
    BROKER = "broker"
    PROXY = "proxy"


def size_text(size_bytes: int) -> str:
    """As an operator writes it: 67108864 → 64MiB."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return str(size_bytes)


def _address(text: str) -> str:
    address_of(text)
    return text


def _address_or_off(text: str) -> str:
    return text if text in ("", OFF) else _address(text)


def _secret(text: str) -> str:
    if text and not SECRET_CHARS_MIN <= len(text) <= SECRET_CHARS_MAX:
        # and does not show them
        raise ValueError(f"has {len(text)} characters: use {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX}")
    if not (text.isascii() and text.isprintable()):
        raise ValueError(
            "has characters that are not printable ASCII, which clients cannot send: use letters, digits and signs "
            "of ASCII"
        )
    return text


def _secrets(text: str) -> str:
    for line in text.splitlines():
        _secret(line)
    return text


def _size(value: object) -> object:
    matched = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = _UNITS.get(matched[2].lower()) if matched is not None else None
    return value if matched is None or unit is None else int(matched[1]) * unit


def _items(value: object) -> object:
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else value


def _different(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    if not roles or len(set(roles)) < len(roles):
        raise ValueError(f"{','.join(roles)!r}: name each of controller, broker, proxy at most once, and one at least")
    return roles


def _pairs(value: object) -> object:
    """A mapping from a mapping, from `KEY=VALUE,KEY=VALUE`, or from a list of `KEY=VALUE`."""
    if isinstance(value, Mapping):
        return {str(name): _text(one) for name, one in value.items()}
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    pairs = {}
    for text in texts:
        name, equals, one = str(text).partition("=")
        if not equals:
            raise ValueError(f"{text!r}: write KEY=VALUE")
        pairs[name.strip()] = one.strip()
    return pairs


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_the_cluster(configs: dict[str, str]) -> dict[str, str]:
    try:
        validate_cluster(configs)
    except InvalidConfig as error:
        raise ValueError(str(error)) from None
    return configs


def _as_limits(given: dict[str, str]) -> dict[str, str]:
    try:
        limits_of(given)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return given


Roles = Annotated[tuple[Role, ...], BeforeValidator(_items), AfterValidator(_different)]
Address = Annotated[str, AfterValidator(_address)]
OptionalAddress = Annotated[str, AfterValidator(_address_or_off)]
"""Empty and `off` are addresses, too."""
Secret = Annotated[str, AfterValidator(_secret)]
Secrets = Annotated[str, AfterValidator(_secrets)]
"""One a line."""
Size = Annotated[int, BeforeValidator(_size)]
"""Bytes: a number, or one with a unit (64MiB)."""
ClusterConfigs = Annotated[dict[str, str], BeforeValidator(_pairs), AfterValidator(_of_the_cluster)]
"""By Kafka's names."""
LimitsGiven = Annotated[dict[str, str], BeforeValidator(_pairs), AfterValidator(_as_limits)]
"""By the names of bmq.config.limits."""
