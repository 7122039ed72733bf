"""Which proxy stands for a partition: its owner where that is a proxy as well, else rendezvous hashing over the proxies
that the image shows. Pure.

Every proxy serves every partition. Naming one of them for each spreads the clients, lets all readers of a partition
meet in one cache, and moves only the partitions of a proxy that comes or goes. Where the owner is in the same process,
naming that one saves the hop between nodes, and clients see who owns what. A client that says its zone is told of a
proxy there: what it reads and writes does not leave the zone, and each zone has one cache of a partition.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bmq.metadata.image import Image
from bmq.naming.listeners import DEFAULT_LISTENER
from bmq.values import NodeId, TopicPartition

PROXY_ROLE: Final = "proxy"
BROKER_ROLE: Final = "broker"
_ZONE: Final = re.compile(r"(?:^|[\s,;/|&])bmq_az=([^\s,;/|&]+)")
_MASK: Final = (1 << 64) - 1
_ODD: Final = 0x9E3779B97F4A7C15
_OTHER_ODD: Final = 0xC2B2AE3D27D4EB4F


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyAddress:
    """Where clients reach a proxy. `rack` None: it has none."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def described(self) -> dict[str, Any]:
        """As Metadata names it."""
        return {"node_id": self.node_id, "host": self.host, "port": self.port, "rack": self.rack}


class Proxies:
    """The proxies of one image that a client may be told of, by node id."""

    __slots__ = ("_owning", "_seeds", "by_id")

    def __init__(
        self, addresses: Mapping[int, ProxyAddress], *, zone: str | None = None, brokers: Collection[int] = ()
    ) -> None:
        """Those of `zone` stand for partitions; all of them where it has none, or is None. `brokers`: those that own
        partitions, too.
        """
        self.by_id = dict(sorted(addresses.items()))
        near = [node_id for node_id, address in self.by_id.items() if zone is not None and address.rack == zone]
        self._seeds = [(node_id, _mixed(node_id + 1)) for node_id in near or self.by_id]
        self._owning = frozenset(brokers).intersection(near or self.by_id)

    @classmethod
    def of(
        cls,
        image: Image,
        own: ProxyAddress,
        *,
        zone: str | None = None,
        listener: str = DEFAULT_LISTENER,
        lane: str = "",
    ) -> "Proxies":
        """Those of the lane that are registered with an address of this listener. `own` is at the address that it knows
        itself; "": it has none.
        """
        found = {}
        for node in image.nodes.values():
            host, port = (
                (node.host, node.port) if listener == DEFAULT_LISTENER else node.listeners.get(listener, ("", 0))
            )
            if PROXY_ROLE in node.roles and node.lane == lane and host and port:
                found[int(node.node_id)] = ProxyAddress(
                    node_id=node.node_id, host=host, port=port, rack=node.rack or None
                )
        registered = image.nodes.get(NodeId(own.node_id))
        rack = registered.rack or None if registered is not None else own.rack
        if own.host:
            found[own.node_id] = ProxyAddress(node_id=own.node_id, host=own.host, port=own.port, rack=rack)
        else:
            found.pop(own.node_id, None)
        return cls(
            found, zone=zone, brokers=[node_id for node_id, node in image.nodes.items() if BROKER_ROLE in node.roles]
        )

    def standing_for(self, tp: TopicPartition, *, owner: int) -> ProxyAddress | None:
        """The partition's proxy (for this zone): the same for every proxy with this image, and for as long as it (and
        its owner) is there.

        None: clients may be told of no proxy.
        """
        if owner in self._owning:
            return self.by_id[owner]
        if not self._seeds:
            return None
        if len(self._seeds) == 1:
            return self.by_id[self._seeds[0][0]]
        key = _mixed((tp.topic_id.int >> 64) ^ (tp.topic_id.int & _MASK) ^ (tp.partition * _OTHER_ODD & _MASK))
        return self.by_id[max(self._seeds, key=lambda seed: _mixed(key ^ seed[1]))[0]]


def zone_of(client_id: str) -> str | None:
    """What a client says of itself: `bmq_az=NAME` in its client.id, with commas, semicolons or spaces around it; None:
    nothing.
    """
    found = _ZONE.search(client_id)
    return found[1] if found is not None else None


def _mixed(value: int) -> int:
    """64 bits, each of which depends on all of the value's."""
    value = (value ^ value >> 32) * _ODD & _MASK
    value = (value ^ value >> 29) * _OTHER_ODD & _MASK
    return value ^ value >> 32
