"""What a deletion takes with it under both policies, and that none of it hangs."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from e2e_clients import read_all, write
from e2e_kubectl import Refused
from e2e_running import Running, topic
from e2e_second import in_second, second, store_secret

CONFIRMED = "bmq.io/delete-data=true"


@pytest.fixture
def leaves_no_second(running: Running) -> Iterator[None]:
    """Whatever became of the test: others expect one Cluster."""
    yield
    with suppress(Refused):  # where it is gone
        running.kubectl("annotate", "clusters.bmq.io/second", CONFIRMED)
    running.kubectl("delete", "clusters.bmq.io", "second", "thief", "--ignore-not-found", "--timeout=60s")


def test_a_topic_stays_when_its_resource_goes(running: Running) -> None:
    running.topic("kept")
    write(running.outside, "kept", "still here")
    running.kubectl("delete", "topics.bmq.io/kept", "--timeout=30s")
    assert read_all(running.outside, "kept") == [b"still here"]


def test_a_topic_with_records_goes_only_once_that_is_confirmed(running: Running) -> None:
    running.topic("goes", deletionPolicy="Delete")
    write(running.outside, "goes", "precious")
    running.kubectl("delete", "topics.bmq.io/goes", "--wait=false")
    found = running.kubectl.until_condition("topics.bmq.io/goes", status="False")
    assert "bmq.io/delete-data" in found["message"]
    assert read_all(running.outside, "goes") == [b"precious"]
    running.kubectl("annotate", "topics.bmq.io/goes", CONFIRMED)
    running.kubectl("wait", "--for=delete", "topics.bmq.io/goes", "--timeout=30s")
    assert "goes" not in running.bmq("topics", "list")


@pytest.mark.usefixtures("leaves_no_second")
def test_a_cluster_is_erased_only_once_that_is_confirmed_and_comes_back_whole_before(running: Running) -> None:
    kubectl = running.kubectl
    kubectl.apply(store_secret(running), second(running, deletionPolicy="Retain"))
    kubectl.until_ready("clusters.bmq.io/second", timeout_s=180)
    in_second(kubectl, "topics", "create", "orders")
    in_second(kubectl, "produce", "orders", given="survives\n")
    kubectl("delete", "clusters.bmq.io/second", "--timeout=60s")
    kubectl.until(
        "its pods are gone", lambda: not kubectl.json("get", "pods", "--selector=bmq.io/cluster=second")["items"]
    )

    kubectl.apply(second(running, deletionPolicy="Delete"))
    kubectl.until_ready("clusters.bmq.io/second", timeout_s=180)
    assert "survives" in in_second(kubectl, "consume", "orders")
    kubectl("delete", "clusters.bmq.io/second", "--wait=false")
    found = kubectl.until_condition("clusters.bmq.io/second", status="False", reason="DeletionUnconfirmed")
    assert "bmq.io/delete-data" in found["message"]
    kubectl("annotate", "clusters.bmq.io/second", CONFIRMED)
    kubectl("wait", "--for=delete", "clusters.bmq.io/second", "--timeout=120s")
    assert running.objects("second") == {}


@pytest.mark.usefixtures("leaves_no_second")
def test_a_cluster_over_the_bucket_of_another_says_so(running: Running) -> None:
    by_ip = running.kubectl.json("get", "service/bmq-minio")["spec"]["clusterIP"]
    for host, reason, says in (
        ("bmq-minio", "StoreShared", "is the MinIO of Cluster"),
        (by_ip, "StoreOfAnotherCluster", "belongs to cluster"),
    ):
        store = {
            "url": f"s3://bmq/?endpoint=http://{host}:9000&region=us-east-1",
            "credentials": {"secretName": "second-store"},
        }
        running.kubectl.apply(store_secret(running), second(running, store=store) | {"metadata": {"name": "thief"}})
        found = running.kubectl.until_condition("clusters.bmq.io/thief", status="False", reason=reason)
        assert says in found["message"]
        running.kubectl("delete", "clusters.bmq.io/thief", "--timeout=60s")


def test_a_namespace_is_deleted_at_once_whatever_is_in_it(running: Running) -> None:
    doomed = running.doomed
    there = running.release.namespace
    doomed.apply(
        topic("doomed", cluster_namespace=there, deletionPolicy="Delete"),
        second(running, deletionPolicy="Delete"),
        {
            "apiVersion": "bmq.io/v1alpha1",
            "kind": "Lane",
            "metadata": {"name": "doomed"},
            "spec": {"clusterRef": {"name": "bmq", "namespace": there}, "proxies": {"replicas": 0}},
        },
    )
    doomed.until_ready("topics.bmq.io/doomed", "lanes.bmq.io/doomed")
    write(running.outside, "doomed", "stays")
    running.kubectl.within("")("delete", "namespace", doomed.namespace, "--timeout=90s")
    assert read_all(running.outside, "doomed") == [b"stays"]
