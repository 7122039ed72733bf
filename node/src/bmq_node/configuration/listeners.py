"""Further Kafka listeners as operators write them: NAME=HOST:PORT, and which of them clients are told. Pure.

An address comes from three places; the first one that has it counts: a line for this host's ordinal (`NAME.ORDINAL`), a
line for all (`NAME`), `advertised_listeners`. Without any it is where the listener listens, unless that is a wildcard:
then nobody is told of it until it is known.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator

from bmq.naming.listeners import DEFAULT_LISTENER, LISTENER_NAME, LISTENER_NAME_REMEDY, ListenerAddresses
from bmq_node.configuration.addresses import WILDCARD_HOSTS, address_of, meet
from bmq_node.configuration.host_names import filled, ordinal_of

A_LISTENER: Final = "write NAME=HOST:PORT, for example external=0.0.0.0:9094"


def _pairs(value: object) -> object:
    """A mapping from a mapping, from `NAME=HOST:PORT,NAME=HOST:PORT`, or from a list of such texts. Raises
    ValueError.
    """
    if isinstance(value, Mapping):
        return {str(name): str(address) for name, address in value.items()}
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    pairs: dict[str, str] = {}
    for text in (one.strip() for texts_of in texts for one in str(texts_of).split(",")):
        name, equals, address = (part.strip() for part in text.partition("="))
        if not equals:
            raise ValueError(f"{text!r}: {A_LISTENER}")
        if name in pairs:
            raise ValueError(f"{text!r}: there is a listener {name} already: give each its own name")
        pairs[name] = address
    return pairs


def _named(listeners: dict[str, str]) -> dict[str, str]:
    for name, address in listeners.items():
        if name == DEFAULT_LISTENER:
            raise ValueError(
                f"{name}={address}: {name} is the listener of `listen`, which is always there: choose another name"
            )
        if LISTENER_NAME.fullmatch(name) is None:
            raise ValueError(f"{name}={address}: no name for a listener: {LISTENER_NAME_REMEDY}")
        try:
            address_of(address)
        except ValueError:
            raise ValueError(f"{name}={address}: {A_LISTENER}") from None
    return listeners


Listeners = Annotated[dict[str, str], BeforeValidator(_pairs), AfterValidator(_named)]
"""HOST:PORT by name."""


def check_listeners(
    listeners: Mapping[str, str], told: Mapping[str, str], *, file: str, others: Iterable[tuple[str, str]]
) -> None:
    """Raises ValueError with the remedy. `told`: advertised_listeners; `others`: keys and addresses where this process
    listens besides.
    """
    for name, address in told.items():
        if name not in listeners:
            known = f"there are {', '.join(sorted(listeners))}" if listeners else "there are none"
            raise ValueError(
                f"advertised_listeners {name}={address}: there is no such listener, {known}: add it to listeners, "
                "or leave it out"
            )
        if address_of(address)[0] in WILDCARD_HOSTS:
            raise ValueError(
                f"advertised_listeners {name}={address}: nobody can connect to that: set a name or an address, "
                "HOST:PORT"
            )
    if file and not listeners:
        raise ValueError(f"advertised_listeners_file {file}: there are no listeners: set them too, or leave it out")
    taken: list[tuple[str, str]] = []
    for key, address in others:
        _check_apart(f"{key} {address}", address, taken)
        taken.append((key, address))
    for name, address in listeners.items():
        if address_of(address)[0] in WILDCARD_HOSTS and name not in told and not file:
            raise ValueError(
                f"listeners {name}={address}: it does not say where clients reach this node: set "
                f"advertised_listeners to {name}=HOST:PORT, or advertised_listeners_file"
            )
        _check_apart(f"listeners {name}={address}", address, taken)
        taken.append((f"the listener {name}", address))


def _check_apart(what: str, address: str, taken: Iterable[tuple[str, str]]) -> None:
    for key, other in taken:
        if meet(address_of(address), address_of(other)):
            raise ValueError(f"{what}: port {address_of(address)[1]} is that of {key}: give each a port of its own")


def read_lines(text: str) -> dict[str, str]:
    """HOST:PORT by what stands before `=`: NAME or NAME.ORDINAL. Empty lines and those that begin with # are passed
    over. Raises ValueError.
    """
    found: dict[str, str] = {}
    for number, line in enumerate((line.strip() for line in text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        key, equals, address = (part.strip() for part in line.partition("="))
        name, dot, ordinal = key.partition(".")
        if (
            not equals
            or LISTENER_NAME.fullmatch(name) is None
            or (dot and not (ordinal.isascii() and ordinal.isdecimal()))
        ):
            raise ValueError(f"line {number} is {line[:80]!r}: write NAME=HOST:PORT or NAME.ORDINAL=HOST:PORT")
        if key in found:
            raise ValueError(f"line {number}: {key} is there twice: leave one of them out")
        found[key] = address
    return found


def lines_wanted(listeners: Iterable[str], host_name: str) -> list[str]:
    """What lines may say something of this host's listeners, the most special of each listener last."""
    try:
        ordinal = ordinal_of(host_name)
    except ValueError:
        return list(listeners)
    return [key for name in listeners for key in (name, f"{name}.{ordinal}")]


def addresses_told(listeners: Mapping[str, str], lines: Mapping[str, str], host_name: str) -> dict[str, str]:
    """HOST:PORT by listener, from the lines for this host. Raises ValueError for one that cannot be an address."""
    found: dict[str, str] = {}
    for key in lines_wanted(listeners, host_name):
        if key not in lines:
            continue
        address = str(filled(lines[key], host_name, key=key))
        try:
            host, _ = address_of(address)
        except ValueError:
            raise ValueError(f"{key}={lines[key]}: write HOST:PORT, for example node1.example:31001") from None
        if host in WILDCARD_HOSTS:
            raise ValueError(f"{key}={lines[key]}: nobody can connect to that: write a name or an address, HOST:PORT")
        found[key.partition(".")[0]] = address
    return found


def advertised_listeners(
    listeners: Mapping[str, str], listening: ListenerAddresses, *, told: Mapping[str, str]
) -> dict[str, tuple[str, int]]:
    """(host, port) that clients are told of each listener whose address is known. `listening`: where each does so far,
    port 0 resolved.
    """
    found: dict[str, tuple[str, int]] = {}
    for name, address in listeners.items():
        host, port = address_of(told.get(name, address))
        if name in listening and host not in WILDCARD_HOSTS:
            found[name] = (host, port or listening[name][1])
    return found
