"""`bmq up --nodes 1c3b2p`: which nodes that makes, and the command line of each. What runs them is
bmq_node.process.supervisor.

Node ids: proxies from 1 (Kafka clients see those), brokers from 101, controllers from 201; so a node keeps its id where
others are added. Proxy 1 listens where `--listen` says and the others on the ports after it. `--admin` is shared out in
the same way, over proxies, then brokers, then controllers. Where the two meet, each goes round what the other has. Port
0 stays 0: any free one.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bmq.errors import ConfigurationError
from bmq.naming.listeners import PORT_MAX
from bmq_node.configuration.addresses import address_text
from bmq_node.configuration.values import Role

OF_A_ROLE_MAX: Final = 99
FIRST_IDS: Final[Mapping[Role, int]] = {Role.PROXY: 1, Role.BROKER: 101, Role.CONTROLLER: 201}
"""In the order in which nodes are stopped: who takes requests in first, who keeps the metadata last."""
_LETTERS: Final = {"c": Role.CONTROLLER, "b": Role.BROKER, "p": Role.PROXY}
_SHAPE: Final = re.compile(r"(?:[0-9]{1,3}[cbp]){3}", re.ASCII)
_PART: Final = re.compile(r"([0-9]+)([cbp])", re.ASCII)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node: what `bmq server` is told to be it. The addresses are where it is to listen; None: it does not."""

    node_id: int
    role: Role
    admin: Address
    listen: Address | None = None
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """For people: `broker 101`."""
        return f"{self.role} {self.node_id}"


def shape_of(text: str) -> dict[Role, int]:
    """How many nodes of each role: `1c3b2p`, in any order. Raises ConfigurationError."""
    counts: dict[Role, int] = {}
    for count, letter in _PART.findall(text) if _SHAPE.fullmatch(text) else ():
        counts[_LETTERS[letter]] = int(count)
    if len(counts) < len(_LETTERS):
        raise ConfigurationError(f"--nodes {text}: write how many controllers, brokers and proxies, for example 1c3b2p")
    for role, count in counts.items():
        if not 1 <= count <= OF_A_ROLE_MAX:
            raise ConfigurationError(
                f"--nodes {text}: {count} nodes with the role {role}: choose 1 to {OF_A_ROLE_MAX} of each"
            )
    return counts


def plan_nodes(
    shape: Mapping[Role, int], *, store: str, listen: Address, admin: Address, options: Sequence[str] = ()
) -> list[NodePlan]:
    """The nodes, in the order in which they are stopped; `options` are for each of them. Raises ConfigurationError
    where ports run out or meet.
    """
    if listen[1] and listen[1] == admin[1]:
        raise ConfigurationError(
            f"--listen {address_text(*listen)} and --admin {address_text(*admin)}: choose another port for one of them"
        )
    listening = _ports(listen, shape[Role.PROXY], taken={admin[1]}, option="--listen")
    admins = _ports(admin, sum(shape.values()), taken={port for _, port in listening}, option="--admin")
    admin_of = iter(admins)
    return [
        _planned(
            role,
            first_id + i,
            store=store,
            listen=listening[i] if role is Role.PROXY else None,
            admin=next(admin_of),
            options=options,
        )
        for role, first_id in FIRST_IDS.items()
        for i in range(shape[role])
    ]


def _ports(first: Address, count: int, *, taken: Collection[int], option: str) -> list[Address]:
    host, port = first
    if not port:
        return [first] * count
    free = [number for number in range(port, min(port + count + len(taken), PORT_MAX + 1)) if number not in taken]
    if len(free) < count:
        raise ConfigurationError(
            f"{option} {address_text(host, port)}: {count} nodes take a port each from there on: choose a lower port"
        )
    return [(host, number) for number in free[:count]]


def _planned(
    role: Role, node_id: int, *, store: str, listen: Address | None, admin: Address, options: Sequence[str]
) -> NodePlan:
    def arguments() -> Iterator[str]:
        yield from ("server", "--roles", role, "--node-id", str(node_id), "--store", store)
        if listen is not None:
            yield from ("--listen", address_text(*listen))
        # Nodes tell each other through the metadata where they listen: any free port will do.
        yield from ("--internal-listen", "127.0.0.1:0", "--admin", address_text(*admin), *options)

    return NodePlan(node_id=node_id, role=role, listen=listen, admin=admin, arguments=tuple(arguments()))
