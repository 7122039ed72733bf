"""The StatefulSets of a Cluster, how they scale and how many of their pods may be away at a time. Pure."""

from datetime import datetime
from typing import Final

from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.names import KAFKA_PORT, NODE_IDS_FROM, ROLES, Component, Names, labels_of, selector_of
from bmq_operator.clusters.pods import ADVERTISED_FILE, ADVERTISED_PATH, Workload, stateful_set
from bmq_operator.conditions import Finding
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Brokers, Cluster, Controllers, Proxies

NO_METRICS_YET_MS: Final = 120_000
"""How long pods that were just made may be without any."""


def workloads(cluster: Cluster, inputs: Inputs, *, config_hash: str, config_map: str) -> list[Manifest]:
    """StatefulSets, PodDisruptionBudgets, and the autoscaler of the proxies."""
    sets = [stateful_set(cluster, inputs, _workload(cluster, inputs, role, config_hash, config_map)) for role in ROLES]
    budgets = [_budget(cluster, role) for role in ROLES]
    return [*sets, *budgets, *([_autoscaler(cluster, inputs)] if cluster.spec.proxies.autoscaling.enabled else [])]


def scaling_note(cluster: Cluster, autoscaler: Manifest | None, *, now_ms: int) -> Finding | None:
    """What is told where Kubernetes' autoscaler says that it cannot tell how many proxies there should be; None: it
    can, or there is to be none.
    """
    said: list[Manifest] = (autoscaler or {}).get("status", {}).get("conditions") or []
    inactive = next((one for one in said if (one["type"], one["status"]) == ("ScalingActive", "False")), None)
    if not cluster.spec.proxies.autoscaling.enabled or inactive is None:
        return None
    since = inactive.get("lastTransitionTime")
    if since and now_ms - datetime.fromisoformat(since).timestamp() * 1000 < NO_METRICS_YET_MS:
        return None
    text = (
        f"the number of proxies does not follow their CPU: {inactive.get('message', '').rstrip('. ')}. Write "
        "proxies.resources.requests.cpu where it is missing, and see that Kubernetes has metrics (kubectl top "
        "pods)"
    )
    return Finding(type="ProxiesScaled", status="False", reason=inactive.get("reason") or "NotScaled", message=text)


def replicas_of(cluster: Cluster, inputs: Inputs, component: Component) -> int | None:
    """How many pods a role's StatefulSet is to have now; None: the autoscaler says it."""
    spec = cluster.spec
    match component:
        case "controller":
            return max(spec.controllers.replicas, inputs.controller_replicas or 0)
        case "broker":
            return max(spec.brokers.replicas, inputs.broker_replicas or 0)
        case _:
            if spec.proxies.autoscaling.enabled:
                return inputs.proxy_replicas
            return max(spec.proxies.replicas, inputs.proxy_replicas or 0)


def _workload(cluster: Cluster, inputs: Inputs, component: Component, config_hash: str, config_map: str) -> Workload:
    names = Names.of(cluster)
    part = _part(cluster, component)
    listeners = cluster.spec.listeners if component == "proxy" else []
    return Workload(
        name=names.role(component),
        component=component,
        replicas=replicas_of(cluster, inputs, component),
        node_ids_from=NODE_IDS_FROM[component],
        resources=part.resources,
        placement=part.placement,
        config_hash=config_hash,
        config_map=config_map,
        env=_addresses(cluster) if component == "proxy" else {},
        ports={one.name: one.port for one in listeners},
        advertised_config_map=names.advertised if listeners else "",
    )


def _part(cluster: Cluster, component: Component) -> Controllers | Brokers | Proxies:
    match component:
        case "controller":
            return cluster.spec.controllers
        case "broker":
            return cluster.spec.brokers
        case _:
            return cluster.spec.proxies


def _addresses(cluster: Cluster) -> dict[str, str]:
    """Where proxies are reached, as keys of `bmq server`."""
    names = Names.of(cluster)
    inside = {"BMQ_ADVERTISED_LISTEN": f"{names.host(names.inside('{ordinal}'))}:{KAFKA_PORT}"}
    return inside | (listener_env(cluster) if cluster.spec.listeners else {})


def listener_env(cluster: Cluster) -> dict[str, str]:
    """The keys of `bmq server` for the listeners of proxies. Their addresses come from a file, as they are known only
    later, and change.
    """
    return {
        "BMQ_LISTENERS": ",".join(f"{one.name}=*:{one.port}" for one in cluster.spec.listeners),
        "BMQ_ADVERTISED_LISTENERS_FILE": f"{ADVERTISED_PATH}/{ADVERTISED_FILE}",
    }


def _budget(cluster: Cluster, component: Component) -> Manifest:
    names = Names.of(cluster)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": names.role(component), "labels": labels_of(names.cluster, component)},
        "spec": {
            "maxUnavailable": 1,
            # One that is not ready may always be evicted: it serves nobody.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector_of(names.cluster, component)},
        },
    }


def _autoscaler(cluster: Cluster, inputs: Inputs) -> Manifest:
    """It hears of a lowered bound once there are no more than that: it would take proxies away, whichever work."""
    names = Names.of(cluster)
    bounds = cluster.spec.proxies.autoscaling
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": names.role("proxy"), "labels": labels_of(names.cluster, "proxy")},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": names.role("proxy")},
            "minReplicas": bounds.min_replicas,
            "maxReplicas": max(bounds.max_replicas, inputs.proxies_there),
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": bounds.target_cpu_percent},
                    },
                }
            ],
        },
    }
