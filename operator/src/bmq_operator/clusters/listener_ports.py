"""How Services reach the ports that proxies have for listeners: by name, as Kubernetes finds the number in each pod; by
number where pods have it under another name. Pure.
"""

from collections.abc import Iterable, Iterator

from bmq_operator.clusters.names import COMPONENT_LABEL, PROXY_PORTS
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Listener


def listener_port_name(listener: str) -> str:
    """The name of its port in a proxy's pod; empty: none, as probes and Services go by the proxies' own names, and
    Kubernetes takes no -- in one.
    """
    return "" if listener in PROXY_PORTS or "--" in listener else listener


def reached_by_number(listeners: Iterable[Listener], pods: Iterable[Manifest]) -> frozenset[str]:
    """The names of those whose port some proxy has, but not under the listener's name: those that were renamed."""
    known = [dict(_ports(pod)) for pod in pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) == "proxy"]
    return frozenset(
        one.name for one in listeners if any(one.name not in ports and one.port in ports.values() for ports in known)
    )


def _ports(pod: Manifest) -> Iterator[tuple[str, int]]:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            yield port.get("name") or str(port["containerPort"]), port["containerPort"]
