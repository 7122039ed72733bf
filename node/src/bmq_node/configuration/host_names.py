"""What a process takes from its host's name: its node id, and what stands for {hostname} and {ordinal} in the addresses
that others are told.

In a StatefulSet all pods have one configuration, and differ in their names alone: bmq-broker-12. Pure.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

BASE: Final = "node_id_base"
NODE_ID: Final = "node_id"
PLACED: Final = ("advertised_listen", "advertised_internal", "advertised_listeners", "advertised_listeners_file")
"""The keys in which placeholders may stand."""
_LAST_NUMBER: Final = re.compile(r"([0-9]{1,10})\Z", re.ASCII)
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


def short_name(host_name: str) -> str:
    """Without its domain."""
    return host_name.partition(".")[0]


def ordinal_of(host_name: str) -> int:
    """The number at the end of the short name. Raises ValueError."""
    found = _LAST_NUMBER.search(short_name(host_name))
    if found is None:
        raise ValueError(f"the host's name {short_name(host_name)!r} does not end in a number")
    return int(found[1])


def on_host(given: Mapping[str, Any], host_name: str, *, node_id_max: int) -> dict[str, Any]:
    """The values as they are meant on this host: with a node id, and without placeholders. Raises ValueError with the
    remedy.
    """
    placed = dict(given)
    for key in PLACED:
        if key in placed:
            placed[key] = filled(placed[key], host_name, key=key)
    if placed.get(BASE) is not None:
        placed[NODE_ID] = _node_id(placed, host_name, node_id_max=node_id_max)
    return placed


def filled(value: Any, host_name: str, *, key: str) -> Any:
    """A text with the placeholders' values, also in a list or a mapping of texts. Raises ValueError."""
    if isinstance(value, Mapping):
        return {name: filled(one, host_name, key=key) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [filled(one, host_name, key=key) for one in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        match found[1]:
            case "hostname":
                return short_name(host_name)
            case "ordinal":
                try:
                    return str(ordinal_of(host_name))
                except ValueError as error:
                    raise ValueError(
                        f"{key} {value}: {error}, which {{ordinal}} stands for: write the address without it"
                    ) from None
        raise ValueError(f"{key} {value}: {found[0]} stands for nothing: use {{hostname}} or {{ordinal}}")

    return _PLACEHOLDER.sub(fill, value)


def _node_id(given: Mapping[str, Any], host_name: str, *, node_id_max: int) -> int | None:
    base = given[BASE]
    if given.get(NODE_ID) is not None:
        raise ValueError(f"{NODE_ID} {given[NODE_ID]} and {BASE} {base} are both given: leave one of them out")
    if not str(base).isascii() or not str(base).isdecimal():
        return 0  # the base itself is refused
    try:
        ordinal = ordinal_of(host_name)
    except ValueError as error:
        raise ValueError(
            f"{BASE} {base}: {error}: set {NODE_ID} instead, or name the host as a StatefulSet names its pods, for "
            "example bmq-broker-12"
        ) from None
    if int(base) + ordinal > node_id_max:
        raise ValueError(
            f"{BASE} {base}: with the {ordinal} of {short_name(host_name)} it is above {node_id_max}: lower it"
        )
    return int(base) + ordinal
