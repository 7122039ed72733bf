"""How Services reach the ports that proxies have for listeners: by name, as Kubernetes finds the number in each pod; by
number where pods have it under another name. Pure.
"""

from collections.abc import Iterable, Sequence

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
    known = [_names(pod) for pod in pods if _is_proxy(pod)]
    return frozenset(
        one.name for one in listeners if any(one.port in of and one.name not in of.values() for of in known)
    )


def former_names(listeners: Sequence[Listener], pods: Iterable[Manifest]) -> dict[str, list[str]]:
    """Under what other names proxies have a listener's port, by the listener's name: it was renamed, and they are not
    replaced yet.
    """
    names = {"", *PROXY_PORTS, *(one.name for one in listeners)}
    known = [_names(pod) for pod in pods if _is_proxy(pod)]
    return {one.name: sorted({of.get(one.port, "") for of in known} - names) for one in listeners}


def _is_proxy(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("labels", {}).get(COMPONENT_LABEL) == "proxy")


def _names(pod: Manifest) -> dict[int, str]:
    """The names of its ports, by number; empty: it has none."""
    containers = pod.get("spec", {}).get("containers") or ()
    ports = (port for container in containers for port in container.get("ports") or ())
    return {port["containerPort"]: port.get("name") or "" for port in ports}
