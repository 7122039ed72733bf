"""Which faults a run injects, and when: a function of the seed. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

START_S: Final = 2.0
OVERLAPS: Final = 0.25
"""So many faults begin before the one before is over."""
RECOVERY_S: Final = (1.5, 4.0)
DELAY_S: Final = (0.05, 0.6)


class Fault(StrEnum):
    """What is done; its target is a node of the role that the name says, or the store."""

    KILL_BROKER = "kill-broker"
    KILL_PROXY = "kill-proxy"
    KILL_LEADER = "kill-leader"
    KILL_CONTROLLER = "kill-controller"
    PAUSE_BROKER = "pause-broker"
    PAUSE_PROXY = "pause-proxy"
    PAUSE_LEADER = "pause-leader"
    RESTART_BROKER = "restart-broker"
    RESTART_PROXY = "restart-proxy"
    RESTART_LEADER = "restart-leader"
    NODE_DELAY = "node-delay"
    NODE_CUT = "node-cut"
    NODE_HALF_OPEN = "node-half-open"
    NODE_DEAF = "node-deaf"
    STORE_DELAY = "store-delay"
    STORE_CUT = "store-cut"
    STORE_HALF_OPEN = "store-half-open"
    STORE_DEAF = "store-deaf"
    CLIENT_DELAY = "client-delay"
    CLIENT_CUT = "client-cut"
    CLIENT_HALF_OPEN = "client-half-open"
    CLIENT_DEAF = "client-deaf"
    STORE_KILL = "store-kill"
    STORE_PAUSE = "store-pause"

    @property
    def verb(self) -> str:
        return self.value.partition("-")[0]


_SECONDS: Final = {"kill": (0.0, 4.0), "pause": (0.3, 12.0), "restart": (0.0, 1.0)}
_NETWORK_SECONDS: Final = (0.5, 8.0)
_STORE_SECONDS: Final = (0.5, 6.0)
_OF_THE_STORE: Final = (Fault.STORE_KILL, Fault.STORE_PAUSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One fault. `node_id` −1: whoever leads the controllers then; −2: another controller; 0: the store itself."""

    at_s: float
    fault: Fault
    node_id: int
    seconds: float
    delay_s: float = 0.0
    peers: tuple[int, ...] = ()
    """Whose connections to the node are hit; none: everybody's."""


LEADER: Final = -1
OTHER_CONTROLLER: Final = -2
STORE: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Of each role."""

    brokers: Sequence[int]
    proxies: Sequence[int]
    controllers: Sequence[int]

    @property
    def everyone(self) -> list[int]:
        return [*self.brokers, *self.proxies, *self.controllers]


def plan(seed: int, *, seconds: float, nodes: Nodes, faults: Sequence[Fault] = tuple(Fault)) -> list[Planned]:
    """Faults from a shuffled deck, so that each comes before one comes twice. The last one is over when the time is."""
    chance = random.Random(seed)
    deck: list[Fault] = []
    found: list[Planned] = []
    at_s = START_S
    while True:
        if not deck:
            deck = list(faults)
            chance.shuffle(deck)
        one = _planned(deck.pop(), at_s, nodes, chance)
        if one.at_s + one.seconds > seconds:
            return found
        found.append(one)
        if chance.random() < OVERLAPS:
            at_s += chance.uniform(0.3, max(one.seconds, 0.5))
        else:
            at_s += one.seconds + chance.uniform(*RECOVERY_S)


def _planned(fault: Fault, at_s: float, nodes: Nodes, chance: random.Random) -> Planned:
    if fault in _OF_THE_STORE:
        return Planned(at_s=at_s, fault=fault, node_id=STORE, seconds=chance.uniform(*_STORE_SECONDS))
    seconds = chance.uniform(*_SECONDS.get(fault.verb, _NETWORK_SECONDS))
    delay_s = chance.uniform(*DELAY_S) if fault.value.endswith("-delay") else 0.0
    node_id = _target(fault, nodes, chance)
    peers: tuple[int, ...] = ()
    if fault.verb == "node" and chance.random() < 0.5:
        others = [other for other in nodes.everyone if other != node_id]
        peers = tuple(sorted(chance.sample(others, chance.randint(1, len(others) - 1))))
    return Planned(at_s=at_s, fault=fault, node_id=node_id, seconds=seconds, delay_s=delay_s, peers=peers)


def _target(fault: Fault, nodes: Nodes, chance: random.Random) -> int:
    match fault.value.rpartition("-")[2]:
        case "broker":
            return chance.choice(nodes.brokers)
        case "proxy":
            return chance.choice(nodes.proxies)
        case "leader":
            return LEADER
        case "controller":
            return OTHER_CONTROLLER
    if fault.verb == "client":
        return chance.choice(nodes.proxies)
    if fault.verb == "node":
        return chance.choice([*nodes.brokers, *nodes.controllers])  # nobody calls a proxy
    return chance.choice(nodes.everyone)
