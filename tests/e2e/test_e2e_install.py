"""From an empty namespace to records: helm install, a Cluster and a Topic of examples/, and clients inside and
outside.
"""

import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest
from e2e_release import CLUSTER, Release, client_pod, status_of

BMQ = Path(sys.executable).with_name("bmq")
OUTSIDE = {"name": "outside", "type": "NodePort", "port": 9094}


@pytest.fixture(scope="module")
def ready(release: Release) -> Release:
    """With the Cluster and the Topic of examples/, and a pod for clients."""
    started = monotonic()
    kubectl = release.kubectl
    cluster = release.example("cluster.yaml", listeners=[OUTSIDE])
    kubectl.apply(cluster, release.example("topic.yaml"), client_pod(release.images))
    kubectl.until_ready(f"clusters.bmq.io/{CLUSTER}", "topics.bmq.io/orders", timeout_s=180)
    print(f"ready {monotonic() - started:.1f} s after kubectl apply")
    kubectl("wait", "pod/client", "--for=condition=Ready", "--timeout=60s")
    kubectl.exec("client", "bmq", "produce", "orders", given="the first\n")
    print(f"the first record {monotonic() - started:.1f} s after kubectl apply")
    return release


def test_records_of_clients_inside_and_outside_meet(ready: Release) -> None:
    kubectl = ready.kubectl
    (listener,) = status_of(kubectl, f"clusters.bmq.io/{CLUSTER}")["listeners"]
    outside = ["-b", listener["bootstrapServers"]]
    kubectl.exec("client", "bmq", "produce", "orders", given="from inside\n")
    subprocess.run([BMQ, "produce", "orders", *outside], input="from outside\n", text=True, check=True, timeout=60)
    wanted = {"from inside", "from outside"}
    heard = subprocess.run(
        [BMQ, "consume", "orders", *outside], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert wanted <= set(heard.splitlines())
    assert wanted <= set(kubectl.exec("client", "bmq", "consume", "orders").splitlines())


def test_the_topic_is_as_its_resource_says(ready: Release) -> None:
    described = ready.kubectl.exec("client", "bmq", "topics", "describe", "orders", "-o", "json")
    assert "604800000" in described
    assert status_of(ready.kubectl, "topics.bmq.io/orders")["partitions"] == 3


def test_helm_test_finds_that_it_works(ready: Release) -> None:
    assert "Phase:          Succeeded" in ready.helm("test", ready.name, "--timeout", "120s")
    assert f"pod/{ready.name}-bmq-test" not in ready.kubectl("get", "pods", "--output=name").split(), (
        "it goes where it succeeded"
    )


def test_the_operator_has_the_rights_that_it_uses(ready: Release) -> None:
    log = ready.operator_log()
    assert "leads" in log
    assert "forbidden" not in log.lower()


def test_applying_the_same_again_changes_nothing(ready: Release) -> None:
    kubectl = ready.kubectl
    before = kubectl.json("get", "deployment,statefulset,service,configmap,clusters.bmq.io,topics.bmq.io")["items"]
    ready.install()
    kubectl.apply(ready.example("cluster.yaml", listeners=[OUTSIDE]), ready.example("topic.yaml"))
    after = kubectl.json("get", "deployment,statefulset,service,configmap,clusters.bmq.io,topics.bmq.io")["items"]
    generations = [
        [(one["kind"], one["metadata"]["name"], one["metadata"].get("generation"), one.get("data")) for one in part]
        for part in (before, after)
    ]
    assert generations[0] == generations[1]


def test_an_uninstall_leaves_the_cluster_serving_and_a_deletion_later_hangs_nothing(ready: Release) -> None:
    kubectl = ready.kubectl
    kubectl("patch", "topics.bmq.io/orders", "--type=merge", "--patch", '{"spec": {"deletionPolicy": "Delete"}}')
    kubectl.until(
        "the finalizer is there", lambda: kubectl.json("get", "topics.bmq.io/orders")["metadata"].get("finalizers")
    )
    ready.uninstall()
    assert not kubectl.json("get", "pods", "--selector=app.kubernetes.io/name=bmq-operator")["items"]
    kubectl.exec("client", "bmq", "produce", "orders", given="without an operator\n")
    assert "without an operator" in kubectl.exec("client", "bmq", "consume", "orders")
    kubectl("delete", "topics.bmq.io/orders", f"clusters.bmq.io/{CLUSTER}", "--timeout=30s")
    assert "data-bmq-minio-0" in kubectl("get", "persistentvolumeclaims", "--output=name")
