"""The drill of docs/backup.md: a copy of a bucket while clients write, and another Cluster over the copy with the same
id and keys.
"""

import base64
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_clients import read_all
from e2e_clients import write as write_all
from e2e_kubectl import Manifest
from e2e_running import RESOURCE, Running, topic
from e2e_second import in_second, second, store_secret, store_url

BUCKET = "restored"
BEFORE = 500


@pytest.fixture
def leaves_no_second(running: Running) -> Iterator[None]:
    """Whatever became of the test: others expect one Cluster."""
    yield
    kubectl = running.kubectl
    kubectl("delete", "lanes.bmq.io", "drill", "drill-restored", "--ignore-not-found", "--timeout=60s")
    kubectl("delete", "topics.bmq.io", "drill", "drill-restored", "--ignore-not-found", "--timeout=60s")
    kubectl("delete", "clusters.bmq.io", "second", "--ignore-not-found", "--timeout=60s")
    kubectl("delete", "secret", "second-auth", "--ignore-not-found")


class Writer:
    """Writes numbers until it is told to stop; counts those that are acknowledged, which come in order."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._ending = threading.Event()
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: list[str] = []
        self.acknowledged = 0

    def __enter__(self) -> "Writer":
        self._thread.start()
        assert self._enough.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(90)
        assert self._failed == []

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            self._producer.produce("drill", b"%d" % number, partition=0, on_delivery=self._told)
            number += 1
            if number % 20 == 0:
                self._producer.poll(0.05)
        if left := self._producer.flush(60):
            self._failed.append(f"{left} records were not acknowledged")

    def _told(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(str(error))
            return
        self.acknowledged += 1
        if self.acknowledged >= BEFORE:
            self._enough.set()


def auth(running: Running) -> Manifest:
    """The first one's keys as docs/backup.md has them put away: the data alone, for the second."""
    found = running.kubectl.json("get", "secret", "bmq-auth")
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "second-auth"}, "data": found["data"]}


def lane(name: str, *, cluster: str, **spec: object) -> Manifest:
    own = {"clusterRef": {"name": cluster}, "proxies": {"replicas": 0}, **spec}
    return {"apiVersion": "bmq.io/v1alpha1", "kind": "Lane", "metadata": {"name": name}, "spec": own}


@pytest.mark.usefixtures("leaves_no_second")
def test_a_cluster_over_a_copy_has_what_was_acknowledged_before_the_copy_and_the_old_keys(running: Running) -> None:
    kubectl = running.kubectl
    running.topic("drill", partitions=2)
    kubectl.apply(lane("drill", cluster="bmq"))
    kubectl.until_ready("lanes.bmq.io/drill")
    write_all(running.outside, "drill", *"abcde", client_id="lane=drill")
    with Writer(running.outside) as writer:
        running.bmq("consume", "drill", "--group", "billing", "--count", "100")
        before = writer.acknowledged
        said = running.bmq("store", "copy", "--store", store_url(running, "bmq"), "--to", store_url(running, BUCKET))
    assert "no faults" in said
    written = read_all(running.outside, "drill")

    kept, cluster_id = auth(running), kubectl.json("get", RESOURCE)["status"]["clusterId"]
    store = {"url": store_url(running, BUCKET), "credentials": {"secretName": "second-store"}}
    kubectl.apply(store_secret(running), kept, second(running, store=store, clusterId=cluster_id))
    kubectl.until_ready("clusters.bmq.io/second", timeout_s=180)
    found = kubectl.until(
        "partitions of a broker that is not there have an heir",
        lambda: in_second(kubectl, "consume", "drill"),
        timeout_s=60,
    )
    restored = [int(line) for line in found.split()]
    assert restored == list(range(len(restored)))
    assert before <= len(restored) <= len(written), "what was acknowledged before the copy is missing"
    assert sorted(in_second(kubectl, "consume", "drill", "--lane", "drill").split()) == list("abcde"), (
        "the lane's records"
    )
    rest = in_second(kubectl, "consume", "drill", "--group", "billing").split()
    assert rest[0] == "100", "the group goes on where it was"

    data = kubectl.json("get", "secret", "second-auth")["data"]
    assert data == kept["data"], "nobody needs another token"
    token = base64.b64decode(data["admin-token"]).decode()
    nodes = kubectl.exec("second-controller-0", "bmq", "cluster", "nodes", "--token", token, container="bmq")
    assert "broker" in nodes

    of_second: dict[str, Any] = {"clusterRef": {"name": "second"}, "topicName": "drill", "partitions": 2}
    kubectl.apply(topic("drill-restored", **of_second), lane("drill-restored", cluster="second", laneName="drill"))
    for resource in ("topics.bmq.io/drill-restored", "lanes.bmq.io/drill-restored"):
        told = kubectl.until_condition(resource, status="False", reason="AlreadyExists")
        assert "write existing: Adopt" in told["message"]
    kubectl.apply(
        topic("drill-restored", **of_second, existing="Adopt"),
        lane("drill-restored", cluster="second", laneName="drill", existing="Adopt"),
    )
    kubectl.until_ready("topics.bmq.io/drill-restored", "lanes.bmq.io/drill-restored")
    assert sorted(in_second(kubectl, "consume", "drill", "--lane", "drill").split()) == list("abcde"), (
        "adopted as it was"
    )
