"""Lanes: two services, one of them in a lane, and where each message went; lanes that go, by hand and when their time
is over.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_kubectl import Kubectl, Manifest
from e2e_release import CLUSTER, SMALL, status_of
from e2e_running import Running


@pytest.fixture(scope="module")
def ready(running: Running) -> Iterator[Kubectl]:
    """kubectl where a Cluster, a topic and a pod for clients are."""
    kubectl = running.with_client()
    kubectl.apply(running.release.example("topic.yaml"))
    kubectl.until_ready("topics.bmq.io/orders")
    yield kubectl
    # Lanes are held until the operator has taken them down: nothing of them is to be in the way of other modules.
    kubectl("delete", "lanes.bmq.io", "--all", "--timeout=60s")


def lane(name: str, **spec: Any) -> Manifest:
    small = {"proxies": {"replicas": 1, "resources": SMALL}, **spec}
    return {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Lane",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": CLUSTER}, **small},
    }


def consumed(kubectl: Kubectl, *options: str) -> list[str]:
    return sorted(kubectl.exec("client", "bmq", "consume", "orders", *options).split())


def test_messages_of_a_lane_stay_in_it_and_those_of_the_base_outside(ready: Kubectl) -> None:
    ready.apply(lane("feature", brokers={"replicas": 1, "resources": SMALL}))
    ready.until_ready("lanes.bmq.io/feature", timeout_s=120)
    endpoint = ["-b", status_of(ready, "lanes.bmq.io/feature")["bootstrapServers"]]
    ready.exec("client", "bmq", "produce", "orders", given="base\n")
    ready.exec("client", "bmq", "produce", "orders", *endpoint, given="lane\n")
    assert consumed(ready) == ["base"]
    assert consumed(ready, *endpoint) == ["lane"]
    ready.until(
        "the lane's topic is counted", lambda: status_of(ready, "lanes.bmq.io/feature")["topics"] == 1, timeout_s=90
    )

    first = status_of(ready, "lanes.bmq.io/feature")["nodeIdsFrom"]
    admin = ["--admin", f"http://{CLUSTER}-admin:9080", "-o", "json"]
    token = ready.exec(f"{CLUSTER}-controller-0", "sh", "-c", "echo $BMQ_ADMIN_TOKEN").strip()
    nodes = json.loads(ready.exec("client", "bmq", "cluster", "nodes", *admin, "--token", token))
    shown = {one["node_id"]: one for one in nodes}
    assert shown[first]["roles"] == ["proxy"]
    assert (shown[first + 100]["pool"], shown[first + 100]["partitions"]) == ("lane-feature", 3), (
        "the lane's topic is on the lane's broker"
    )


def test_a_lane_goes_with_its_topics_and_pods(ready: Kubectl) -> None:
    ready("delete", "lanes.bmq.io/feature", "--timeout=60s")
    ready.until("its pods are gone", lambda: not ready.json("get", "pods", "--selector=bmq.io/lane=feature")["items"])
    left = ready("get", "statefulsets,services,poddisruptionbudgets", "--selector=bmq.io/lane=feature", "--output=name")
    assert left == ""
    assert consumed(ready) == ["base"]
    ready.apply(lane("feature"))
    ready.until_ready("lanes.bmq.io/feature", timeout_s=120)
    endpoint = ["-b", status_of(ready, "lanes.bmq.io/feature")["bootstrapServers"]]
    ready.exec("client", "bmq", "produce", "orders", *endpoint, given="anew\n")
    assert consumed(ready, *endpoint) == ["anew"], "a lane of the same name begins empty"


def test_a_lane_scales_by_kubectl_scale(ready: Kubectl) -> None:
    ready("scale", "lanes.bmq.io/feature", "--replicas=2")
    ready.until_ready("lanes.bmq.io/feature", timeout_s=120)
    assert status_of(ready, "lanes.bmq.io/feature")["replicas"] == 2


def test_a_lane_goes_by_itself_when_its_time_is_over(ready: Kubectl) -> None:
    ready.apply(lane("short", ttlSeconds=15, proxies={"replicas": 0}))
    ready.until_ready("lanes.bmq.io/short")
    assert status_of(ready, "lanes.bmq.io/short")["expiresAt"]
    ready("wait", "--for=delete", "lanes.bmq.io/short", "--timeout=60s")


def test_two_lanes_for_one_name_have_one_that_waits(ready: Kubectl) -> None:
    ready.apply(lane("again", laneName="feature", proxies={"replicas": 0}))
    assert "/feature" in ready.until_condition("lanes.bmq.io/again", status="False", reason="Collision")["message"]
    ready("delete", "lanes.bmq.io/again", "--timeout=60s")
    ready.until_ready("lanes.bmq.io/feature")
