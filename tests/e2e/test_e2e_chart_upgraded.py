"""The chart's first released state, kept in fixtures/, is upgraded to today's: CRDs too, and the Cluster goes on as it
was.
"""

from pathlib import Path

from chart_helm import objects, rendered
from e2e_cluster import Kubernetes
from e2e_images import Images
from e2e_kubectl import Kubectl
from e2e_release import CLUSTER, Release, client_pod

FIRST = Path(__file__).parent / "fixtures" / "chart-0.1.0"


def pods(kubectl: Kubectl) -> set[str]:
    """The Cluster's pods by uid."""
    return {
        one["metadata"]["uid"] for one in kubectl.json("get", "pods", f"--selector=bmq.io/cluster={CLUSTER}")["items"]
    }


def test_the_first_release_is_upgraded_while_a_cluster_runs(
    kubectl: Kubectl, kubernetes: Kubernetes, images: Images
) -> None:
    before = Release(kubectl=kubectl, images=images, chart=FIRST)
    before.install()
    one = {"replicas": 1}
    cluster = before.example("cluster.yaml", controllers=one, brokers=one, proxies=one)
    del cluster["spec"]["rollout"]  # which the first release does not know
    kubectl.apply(cluster, client_pod(images))
    kubectl.until_ready(f"clusters.bmq.io/{CLUSTER}", timeout_s=180)
    kubectl("wait", "pod/client", "--for=condition=Ready", "--timeout=60s")
    kubectl.exec("client", "bmq", "topics", "create", "greetings")
    kubectl.exec("client", "bmq", "produce", "greetings", given="before\n")
    same = pods(kubectl)
    after = Release(kubectl=kubectl, images=images)
    after.install()
    kubectl.until_ready(f"clusters.bmq.io/{CLUSTER}")
    assert pods(kubectl) == same, "an upgrade of the chart alone restarts nothing"
    kubectl.exec("client", "bmq", "produce", "greetings", given="after\n")
    assert kubectl.exec("client", "bmq", "consume", "greetings").split() == ["before", "after"]
    wanted = {one["metadata"]["name"]: one for one in objects(rendered()) if one["kind"] == "CustomResourceDefinition"}
    for name, crd in wanted.items():
        there = kubernetes.kubectl.json("get", "customresourcedefinition", name)
        assert there["spec"]["versions"][0]["schema"] == crd["spec"]["versions"][0]["schema"]
    after.uninstall()
    kubectl("delete", f"clusters.bmq.io/{CLUSTER}", "--timeout=30s")
