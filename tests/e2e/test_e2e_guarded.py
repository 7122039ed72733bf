"""Changes that could take a cluster down: other keys between its nodes, keys that are deleted, and a limit that kills
every broker that gets it.
"""

import pytest
from e2e_kubectl import Kubectl, Manifest
from e2e_observed import NEW_KEYS, RESOURCE, keys, read, replace_keys, uids, write
from e2e_release import CLUSTER, SMALL, Release, client_pod, status_of

LITTLE = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "48Mi"}}
"""A broker of this image takes more before it is ready."""


def cluster(release: Release, **of_brokers: object) -> Manifest:
    """Of two controllers and two brokers."""
    two = {"replicas": 2, "resources": SMALL}
    return release.example(
        "cluster.yaml", controllers=two, brokers=two | of_brokers, proxies={"replicas": 1, "resources": SMALL}
    )


@pytest.fixture(scope="module")
def kubectl(release: Release) -> Kubectl:
    """With the Cluster, and a client."""
    release.kubectl.apply(cluster(release), client_pod(release.images))
    release.kubectl.until_ready(RESOURCE, timeout_s=180)
    release.kubectl("wait", "pod/client", "--for=condition=Ready", "--timeout=60s")
    release.kubectl.exec("client", "bmq", "topics", "create", "orders", "--partitions", "4")
    return release.kubectl


def test_other_keys_reach_all_nodes_those_of_a_refused_lane_too_while_it_serves_and_deleted_ones_come_back(
    kubectl: Kubectl,
) -> None:
    lane = {"apiVersion": "bmq.io/v1alpha1", "kind": "Lane", "metadata": {"name": "dev"}}
    proxies = {"replicas": 1, "resources": SMALL}
    reference = {"clusterRef": {"name": CLUSTER}}
    kubectl.apply({**lane, "spec": {**reference, "proxies": proxies}})
    kubectl.until_ready("lanes.bmq.io/dev")
    kubectl.apply(
        {
            **lane,
            "spec": {**reference, "proxies": {**proxies, "placement": {"annotations": {"forbidden.example/x": "y"}}}},
        }
    )
    kubectl.until_condition("lanes.bmq.io/dev", status="False", reason="NotAllowed", timeout_s=30)
    before = uids(kubectl)
    assert len(before) == 6
    replace_keys(kubectl, NEW_KEYS)
    kubectl.until_condition(RESOURCE, kind="KeysAsWritten", status="False", reason="Replacing", timeout_s=30)

    words: set[str] = set()

    def replaced() -> bool:
        words.add(write(kubectl, f"word {len(words)}"))
        shown = status_of(kubectl, RESOURCE)["conditions"]
        return not any(one["type"] == "KeysAsWritten" for one in shown) and any(
            one["type"] == "Ready" and one["status"] == "True" for one in shown
        )

    kubectl.until("all nodes have the new keys", replaced, timeout_s=330)
    assert not set(before.values()) & set(uids(kubectl).values()), "a node has its old keys"
    environment = kubectl.exec(f"{CLUSTER}-broker-0", "cat", "/proc/1/environ", container="bmq").split("\0")
    assert f"BMQ_CLUSTER_SECRET={NEW_KEYS['cluster-secret']}" in environment
    assert not [one for one in environment if one.startswith("BMQ_CLUSTER_SECRETS_ACCEPTED")]
    rolled = uids(kubectl)
    kubectl("delete", "secret", f"{CLUSTER}-auth")
    kubectl.until("the keys are there again", lambda: keys(kubectl) == NEW_KEYS, timeout_s=30)
    kubectl.until_ready(RESOURCE)
    assert uids(kubectl) == rolled
    assert words <= read(kubectl)


def test_a_limit_that_kills_brokers_kills_one_is_named_and_heals_when_it_is_taken_away(
    kubectl: Kubectl, release: Release
) -> None:
    kubectl.until_ready(RESOURCE, timeout_s=180)
    before, acknowledged = uids(kubectl), {write(kubectl, "before")}
    kubectl.apply(cluster(release, resources=LITTLE))
    found = kubectl.until_condition(RESOURCE, status="False", reason="OutOfMemory", timeout_s=180)
    told = found["message"]
    assert (
        "was ended by Kubernetes (OOMKilled), as it was out of memory: raise its memory limit, or leave it out" in told
    )
    assert told.find("OOMKilled") < told.find("the last that it said") or "the last that it said" not in told
    victim = told.partition(" ")[0]
    for number in range(10):  # it ends again and again meanwhile
        acknowledged.add(write(kubectl, f"without it {number}"))
    assert {name for name, uid in uids(kubectl).items() if uid != before[name]} == {victim}, (
        "the roll went on behind a broker that does not run"
    )
    shown = status_of(kubectl, RESOURCE)
    assert (shown["brokers"]["ready"], shown["brokers"]["updated"]) == (1, 1)
    assert {one["type"]: one["status"] for one in shown["conditions"]}["Progressing"] == "True"
    kubectl.apply(cluster(release))
    kubectl.until_ready(RESOURCE, timeout_s=180)
    (container,) = kubectl.json("get", "pod", victim)["spec"]["containers"]
    assert "limits" not in container["resources"]
    after = uids(kubectl)
    assert {name for name, uid in after.items() if uid != before[name]} == {victim}, (
        "those that had never got the limit stay"
    )
    assert acknowledged | {write(kubectl, "after")} <= read(kubectl)


def test_a_tag_that_is_not_there_reaches_one_node_though_others_end_meanwhile_and_start_again(kubectl: Kubectl) -> None:
    kubectl.until_ready(RESOURCE, timeout_s=180)
    before = uids(kubectl)
    kubectl("patch", RESOURCE, "--type=merge", "--patch", '{"spec": {"image": {"tag": "missing"}}}')
    victim = kubectl.until_condition(RESOURCE, status="False", reason="ImageUnavailable")["message"].partition(":")[0]
    others = [
        one for one in (f"{CLUSTER}-controller-0", f"{CLUSTER}-controller-1", f"{CLUSTER}-broker-0") if one != victim
    ]
    assert len(others) == 2
    for name in others:
        kubectl.exec(name, "python3", "-c", "import os; os.kill(1, 15)", container="bmq")

        def again(name: str = name) -> bool:
            (found,) = kubectl.json("get", "pod", name)["status"].get("containerStatuses", [{}])
            return bool(found.get("ready") and found["restartCount"])

        kubectl.until(f"{name} has started again", again, timeout_s=60)
    assert {name for name, uid in uids(kubectl).items() if uid != before[name]} == {victim}
    kubectl("patch", RESOURCE, "--type=json", "--patch", '[{"op": "remove", "path": "/spec/image/tag"}]')
    kubectl.until_ready(RESOURCE, timeout_s=180)
    assert {name for name, uid in uids(kubectl).items() if uid != before[name]} == {victim}


def test_settings_of_which_kubernetes_makes_no_pod_reach_one_node_though_another_ends_meanwhile(
    kubectl: Kubectl, release: Release
) -> None:
    kubectl.until_ready(RESOURCE, timeout_s=180)
    before = uids(kubectl)
    limits = {
        "limits": [
            {
                "type": "Container",
                "max": {"memory": "1Gi"},
                "default": {"memory": "1Gi"},
                "defaultRequest": {"memory": "32Mi"},
            }
        ]
    }
    kubectl.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": limits})
    kubectl.apply(cluster(release, resources={**SMALL, "limits": {"memory": "2Gi"}}))
    kubectl.until_condition(RESOURCE, status="False", reason="PodsRefused", timeout_s=180)
    brokers = {f"{CLUSTER}-broker-0", f"{CLUSTER}-broker-1"}
    (other,) = brokers & uids(kubectl).keys()
    kubectl.exec(other, "python3", "-c", "import os; os.kill(1, 15)", container="bmq")

    def again() -> bool:
        (found,) = kubectl.json("get", "pod", other)["status"].get("containerStatuses", [{}])
        return bool(found.get("ready") and found["restartCount"])

    kubectl.until(f"{other} has started again", again, timeout_s=60)
    assert uids(kubectl)[other] == before[other]
    kubectl.apply(cluster(release))
    kubectl.until_ready(RESOURCE, timeout_s=180)
    assert {name for name, uid in uids(kubectl).items() if uid != before[name]} == brokers - {other}
    kubectl("delete", "limitrange", "small")


def test_a_drained_broker_whose_stateful_set_is_deleted_gets_partitions_again_and_a_cordoned_one_is_told(
    kubectl: Kubectl, release: Release
) -> None:
    kubectl.until_ready(RESOURCE, timeout_s=180)
    noted = "bmq.io/drained-by-operator"
    kubectl(
        "patch",
        RESOURCE,
        "--type=merge",
        "--patch",
        '{"spec": {"brokers": {"resources": {"limits": {"memory": "700Mi"}}}}}',
    )
    kubectl.until(
        "a broker is drained",
        lambda: noted in kubectl.json("get", RESOURCE)["metadata"].get("annotations", {}),
        timeout_s=120,
    )
    kubectl("delete", "statefulset", *(f"{CLUSTER}-{role}" for role in ("controller", "broker", "proxy")))
    kubectl.until(
        "it is in use again",
        lambda: noted not in kubectl.json("get", RESOURCE)["metadata"].get("annotations", {}),
        timeout_s=180,
    )
    kubectl.until_ready(RESOURCE, timeout_s=180)
    shown = status_of(kubectl, RESOURCE)["conditions"]
    assert not [one for one in shown if one["type"] == "BrokersInUse"]
    drain = 'BMQ_TOKEN="$BMQ_ADMIN_TOKEN" exec bmq cluster drain 1001'
    kubectl.exec(f"{CLUSTER}-controller-0", "sh", "-c", drain, container="bmq")
    told = kubectl.until_condition(RESOURCE, kind="BrokersInUse", status="False", reason="Cordoned", timeout_s=120)
    assert f"kubectl bmq drain {CLUSTER}-broker-1 --undo" in told["message"]
