"""Node ports that go from one Service of a Cluster to another, as where a listener is renamed or its ports are moved by
one. Pure.

Kubernetes gives each out once. So whoever has one that another Service of the same Cluster is to have is deleted
before, and made anew with its own.
"""

from collections.abc import Iterable

from bmq_operator.applied import was_applied
from bmq_operator.clusters.existing import Existing
from bmq_operator.kube import Manifest


def in_the_way(existing: Existing, wanted: Iterable[Manifest]) -> list[Manifest]:
    """Services that have a node port of another one. What the spec leaves as it is keeps the port that Kubernetes chose
    for it, and what has an address of a cloud keeps that: there the API server's refusal is told."""
    services = {one["metadata"]["name"]: one for one in wanted if one["kind"] == "Service"}
    meant_for = {port: name for name, one in services.items() for port in _node_ports(one)}
    found = []
    for (kind, name), there in existing.objects.items():
        if (
            kind == "Service"
            and any(meant_for.get(port, name) != name for port in _node_ports(there))
            and _may_go(there, services.get(name))
        ):
            found.append(there)
    return found


def _may_go(there: Manifest, wanted: Manifest | None) -> bool:
    if wanted is None:
        return True
    same = set(_node_ports(there)) & set(_node_ports(wanted))
    return not same and wanted["spec"].get("type") != "LoadBalancer" and not was_applied(there, wanted)


def _node_ports(service: Manifest) -> list[int]:
    return [int(one["nodePort"]) for one in service["spec"].get("ports", ()) if one.get("nodePort")]
