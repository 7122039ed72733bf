"""A Cluster's probe: a pod that says how long a record takes, labelled as the chart's PodMonitor expects, and gone when
it is not wanted any more.
"""

import pytest
import yaml  # type: ignore[import-untyped]
from e2e_kubectl import Kubectl
from e2e_release import CLUSTER
from e2e_running import RESOURCE, Running
from prometheus_process import RELABELINGS
from scraping import scraped

POD = f"{CLUSTER}-probe-0"

pytestmark = pytest.mark.timeout(600)


def told(kubectl: Kubectl, name: str, **labels: str) -> float:
    """A metric of the probe's."""
    text = kubectl("get", "--raw", f"/api/v1/namespaces/{kubectl.namespace}/pods/{POD}:9080/proxy/metrics")
    return sum(one.value for one in scraped(text) if one.name == name and labels.items() <= one.labels.items())


def test_a_cluster_that_asks_for_a_probe_is_measured_until_it_does_not(running: Running) -> None:
    kubectl = running.kubectl
    kubectl("patch", RESOURCE, "--type=merge", "--patch", '{"spec": {"probe": {"enabled": true, "intervalMs": 200}}}')
    kubectl.until("its pod is there", lambda: kubectl("get", "pods", POD, "--ignore-not-found"))
    kubectl("wait", f"pod/{POD}", "--for=condition=Ready", "--timeout=120s", timeout_s=150)
    kubectl.until_ready(RESOURCE)
    kubectl.until("records come through", lambda: told(kubectl, "bmq_probe_latency_seconds_count") > 20)
    assert told(kubectl, "bmq_probe_acknowledged_seconds_count") > 0
    done = told(kubectl, "bmq_probe_latency_seconds_count")
    kubectl.until("more of them do", lambda: told(kubectl, "bmq_probe_latency_seconds_count") > done + 20)

    pods = kubectl.json(
        "get", "pods", "--selector=app.kubernetes.io/name=bmq,app.kubernetes.io/managed-by=bmq-operator"
    )["items"]
    scraped_pods = {one["metadata"]["name"]: one for one in pods if "admin" in {port["name"] for port in _ports(one)}}
    assert {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in scraped_pods.values()} == {
        "controller",
        "broker",
        "proxy",
        "probe",
    }
    prefix = "__meta_kubernetes_pod_label_"
    taken = {
        label.removeprefix(prefix)
        for one in yaml.safe_load(RELABELINGS.read_text())
        for label in one["sourceLabels"]
        if prefix in label
    }
    for one in scraped_pods.values():
        assert taken <= {
            label.replace(".", "_").replace("/", "_").replace("-", "_") for label in one["metadata"]["labels"]
        }
        assert one["metadata"]["labels"]["bmq.io/cluster"] == CLUSTER

    kubectl("patch", RESOURCE, "--type=merge", "--patch", '{"spec": {"probe": {"enabled": false}}}')
    kubectl("wait", f"pod/{POD}", "--for=delete", "--timeout=120s", timeout_s=150)
    assert f"{CLUSTER}-probe" not in {one["metadata"]["name"] for one in kubectl.json("get", "statefulsets")["items"]}


def _ports(pod: dict) -> list[dict]:  # type: ignore[type-arg]
    return [port for container in pod["spec"]["containers"] for port in container.get("ports", [])]
