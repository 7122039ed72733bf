"""What is interrupted in the middle: two Clusters of one name, one of which is deleted while it is rolled, and an
operator that dies while keys are replaced."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest
from e2e_images import Images
from e2e_kubectl import Kubectl
from e2e_observed import NEW_KEYS, RESOURCE, keys, read, replace_keys, uids, write
from e2e_release import CLUSTER, SMALL, Release, client_pod, kept, status_of
from e2e_running import topic

ROLES = ("controllers", "brokers", "proxies")


@dataclass(frozen=True, slots=True, kw_only=True)
class Two:
    """Two Clusters of one name, in two namespaces, of one operator in a third."""

    release: Release
    one: Kubectl
    other: Kubectl

    def cluster(self, kubectl: Kubectl, **spec: object) -> None:
        """Makes it, or makes it what is written."""
        roles = {role: {"replicas": 2 if role == "brokers" else 1, "resources": SMALL} for role in ROLES}
        kubectl.apply(self.release.example("cluster.yaml", **roles, **spec))


@pytest.fixture(scope="module")
def two(namespace: Callable[[str], AbstractContextManager[Kubectl]], images: Images) -> Iterator[Two]:
    """Both are Ready, with a topic and a client each."""
    with (
        namespace("interrupted") as within,
        namespace("interrupted-one") as one,
        namespace("interrupted-other") as other,
    ):
        release = Release(kubectl=within, images=images)
        release.install({"watchNamespaces": [one.namespace, other.namespace]})
        found = Two(release=release, one=one, other=other)
        for kubectl in (one, other):
            found.cluster(kubectl)
            kubectl.apply(topic("orders", partitions=4), client_pod(images))
        for kubectl in (one, other):
            kubectl.until_ready(RESOURCE, "topics.bmq.io/orders", timeout_s=240)
            kubectl("wait", "pod/client", "--for=condition=Ready", "--timeout=60s")
        yield found
        if not kept():
            for kubectl in (one, other):
                kubectl("delete", "topics.bmq.io,clusters.bmq.io", "--all", "--timeout=60s")
            release.leave()


def updated(kubectl: Kubectl) -> int:
    shown = status_of(kubectl, RESOURCE)
    return sum(shown[role]["updated"] for role in ROLES)


def until_a_node_is_replaced(kubectl: Kubectl) -> None:
    seen = set(uids(kubectl).values())
    kubectl.until("a node was replaced", lambda: set(uids(kubectl).values()) - seen, timeout_s=120)


def operators(two: Two) -> list[str]:
    return two.release.kubectl("get", "pods", "--selector=app.kubernetes.io/name=bmq-operator", "--output=name").split()


def test_two_clusters_of_one_name_have_nothing_in_common(two: Two) -> None:
    write(two.one, "of the one"), write(two.other, "of the other")
    assert (read(two.one), read(two.other)) == ({"of the one"}, {"of the other"})
    shown = [status_of(kubectl, RESOURCE) for kubectl in (two.one, two.other)]
    assert shown[0]["clusterId"] != shown[1]["clusterId"]
    assert not set(keys(two.one).values()) & set(keys(two.other).values())
    topics = [status_of(kubectl, "topics.bmq.io/orders")["topicId"] for kubectl in (two.one, two.other)]
    assert topics[0] != topics[1]


def test_an_operator_that_dies_while_keys_are_replaced_goes_on_where_it_was(two: Two) -> None:
    kubectl, words = two.one, {"of the one"}
    before, untouched = uids(kubectl), uids(two.other)
    replace_keys(kubectl, NEW_KEYS)
    for number in range(3):  # in each of the three rolls, as far as it comes
        until_a_node_is_replaced(kubectl)
        for operator in operators(two):
            two.release.kubectl("delete", operator, "--grace-period=0", "--force")
        words.add(write(kubectl, f"without an operator {number}"))

    def replaced() -> bool:
        words.add(write(kubectl, f"word {len(words)}"))
        shown = {one["type"]: one["status"] for one in status_of(kubectl, RESOURCE)["conditions"]}
        return (
            "KeysAsWritten" not in shown
            and shown["Ready"] == "True"
            and not set(before.values()) & set(uids(kubectl).values())
        )

    kubectl.until("all nodes have the new keys", replaced, timeout_s=300)
    environment = kubectl.exec(f"{CLUSTER}-broker-0", "cat", "/proc/1/environ", container="bmq").split("\0")
    assert f"BMQ_CLUSTER_SECRET={NEW_KEYS['cluster-secret']}" in environment
    assert not [
        one for one in environment if one.startswith(("BMQ_CLUSTER_SECRETS_ACCEPTED", "BMQ_ADMIN_TOKENS_ACCEPTED"))
    ]
    assert keys(kubectl) == NEW_KEYS
    assert words <= read(kubectl)
    assert uids(two.other) == untouched, "the other Cluster of that name was touched"


def test_a_cluster_that_is_deleted_in_the_middle_of_a_roll_goes_and_comes_back_whole(two: Two) -> None:
    kubectl, untouched = two.one, uids(two.other)
    words = read(kubectl) | {write(kubectl, "before it was deleted")}
    two.cluster(kubectl, settings={"logLevel": "warning"})
    kubectl.until("the roll is half done", lambda: 0 < updated(kubectl) < 4, timeout_s=60)
    kubectl("delete", RESOURCE, "--timeout=60s")
    kubectl.until("its pods are gone", lambda: not uids(kubectl), timeout_s=90)
    missing = kubectl.until_condition("topics.bmq.io/orders", status="False", reason="ClusterMissing", timeout_s=60)
    assert "create it" in missing["message"]
    two.cluster(kubectl)
    kubectl.until_ready(RESOURCE, "topics.bmq.io/orders", timeout_s=180)
    assert read(kubectl) == words
    assert words | {write(kubectl, "after it")} == read(kubectl)
    assert uids(two.other) == untouched, "the other Cluster of that name was touched"
    assert read(two.other) == {"of the other"}
