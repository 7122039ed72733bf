"""What a node is made of: `bmq up` and a process of `bmq server` with all roles have the same parts, but for those that
are named here. The simulator runs these very classes.
"""

from collections import deque
from typing import Any, Final

from nodes_in_one_loop import Cluster, run

import bmq_sim.cluster.process
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq_node.cluster_node import ClusterNode
from bmq_node.single import Node, NodeSettings
from bmq_sim.node import _RecordedNode

SERVICES: Final = ("bmq_broker.", "bmq_controller.", "bmq_proxy.", "bmq_node.")
UP_ALONE: Final = {
    "bmq_node.single.Node",
    "bmq_node.single.NodeSettings",
    "bmq_controller.main.ControllerRole",  # it leads at once: nobody else does
}
SERVER_ALONE: Final = {
    "bmq_node.cluster_node.ClusterNode",
    "bmq_node.configuration.role_settings.RoleSettings",
    "bmq_node.configuration.sources.read_config.<locals>.Sourced",
    "bmq_node.configuration.values.Role",
    # one of several controllers
    "bmq_controller.main.StandbyRole",
    "bmq_controller.standby.Standby",
    "bmq_controller.current.CurrentController",
    # brokers elsewhere; and its own, which begins anew where it was replaced: `bmq up` ends there
    "bmq_node.owners.Owners",
    "bmq_broker.incarnations.Incarnations",
    # `bmq up` serves its admin address before there is a node
    "bmq_node.admin.api.AdminApi",
    "bmq_controller.api.front.AdminFront",
    "bmq_controller.api.front.FrontState",
    "bmq_controller.api.sources.ApiSources",
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
        node = Node(store, clock=SystemClock(), rng=SystemRng(), settings=NodeSettings(port=0))
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


def test_the_simulator_runs_the_same_two() -> None:
    assert _RecordedNode.__mro__[1] is Node
    assert {name for name in vars(_RecordedNode) if not name.startswith("__")} == {"_owner_for"}
    assert bmq_sim.cluster.process.ClusterNode is ClusterNode
