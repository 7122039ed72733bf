"""What a node is made of: `bmq up` and a process of `bmq server` with all roles are the same composition, and differ in
what they meet of a cluster alone. The simulator runs this very class for both.
"""

from collections import deque
from typing import Any, Final

from nodes_in_one_loop import Cluster, run

import bmq_cli.processes.server
import bmq_cli.processes.up
import bmq_sim.cluster.process
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq_node.configuration.node_settings import NodeSettings
from bmq_node.node import Node
from bmq_sim.node import _RecordedNode

SERVICES: Final = ("bmq_broker.", "bmq_controller.", "bmq_proxy.", "bmq_node.")
UP_ALONE: Final = {
    "bmq_node.alone.Alone",
    "bmq_controller.main.ControllerRole",  # it leads at once: nobody else does
}
SERVER_ALONE: Final = {
    "bmq_node.member.Member",
    "bmq_node.configuration.sources.read_config.<locals>.Sourced",
    # one of several controllers
    "bmq_controller.main.StandbyRole",
    "bmq_controller.standby.Standby",
    "bmq_controller.current.CurrentController",
    # brokers elsewhere
    "bmq_node.owners.Owners",
}


def parts_of(root: object) -> set[str]:
    """The classes of the services of which an object has parts, however deep."""
    found: set[str] = set()
    seen: dict[int, object] = {}  # which keeps them, as ids are those of living objects
    left: deque[Any] = deque([root])
    while left:
        one = left.popleft()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        kind = type(one)
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            left.extend(one)
        elif callable(one) and hasattr(one, "__self__"):
            left.append(one.__self__)
        elif kind.__module__.startswith(("bmq.", *SERVICES)):
            if kind.__module__.startswith(SERVICES):
                found.add(f"{kind.__module__}.{kind.__qualname__}")
            slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
            left.extend(getattr(one, name) for name in slots if hasattr(one, name))
            left.extend(getattr(one, "__dict__", {}).values())
    return found


def test_bmq_up_and_bmq_server_are_made_of_the_same_parts() -> None:
    async def test(cluster: Cluster) -> None:
        server = parts_of(await cluster.start(1, "controller,broker,proxy"))
        store = open_store("memory://")
        settings = NodeSettings(listen="127.0.0.1:0")
        node = Node(store, clock=SystemClock(), rng=SystemRng(), settings=settings)
        try:
            await node.start()
            up = parts_of(node)
        finally:
            await node.stop(grace_s=0)
            store.close()
        assert up - server == UP_ALONE
        assert server - up == SERVER_ALONE
        assert len(up & server) > 60

    run(test)


def test_whoever_starts_a_node_starts_the_same() -> None:
    assert bmq_cli.processes.up.Node is bmq_cli.processes.server.Node is bmq_sim.cluster.process.Node is Node
    assert _RecordedNode.__mro__[1] is Node
    assert {name for name in vars(_RecordedNode) if not name.startswith("__")} == {"_owner_for"}
