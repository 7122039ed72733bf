"""The drill of docs/backup.md: a copy of a bucket while clients write, and another Cluster over the copy with the same keys."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from e2e_clients import read_all
from e2e_kubectl import Manifest, Refused
from e2e_running import Running
from e2e_second import in_second, second, store_secret, store_url

pytestmark = pytest.mark.usefixtures("leaves_no_second")
BEFORE = 500


@pytest.fixture
def leaves_no_second(running: Running) -> Iterator[None]:
    """Whatever became of the test: others expect one Cluster."""
    yield
    with suppress(Refused):  # where it is gone
        running.kubectl("annotate", "clusters.bmq.io/second", "bmq.io/delete-data=true")
    running.kubectl("delete", "clusters.bmq.io", "second", "--ignore-not-found", "--timeout=60s")
    running.kubectl("delete", "secret", "second-auth", "--ignore-not-found")


class Writer:
    """Writes numbers until it is told to stop; counts those that are acknowledged, which come in order."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._ending = threading.Event()
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0

    def __enter__(self) -> "Writer":
        self._thread.start()
        assert self._enough.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(90)

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            self._producer.produce("orders", b"%d" % number, partition=0, on_delivery=self._told)
            number += 1
            if number % 20 == 0:
                self._producer.poll(0.05)
        assert self._producer.flush(60) == 0

    def _told(self, error: object, _: object) -> None:
        assert error is None, error
        self.acknowledged += 1
        if self.acknowledged >= BEFORE:
            self._enough.set()


def auth(running: Running) -> Manifest:
    """The first one's keys, as they were put away, for the second."""
    found = running.kubectl.json("get", "secret", "bmq-auth")
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "second-auth"}, "data": found["data"]}


def test_a_cluster_over_a_copy_has_what_was_acknowledged_before_the_copy_and_the_old_keys(running: Running) -> None:
    kubectl = running.kubectl
    running.topic("orders")
    with Writer(running.outside) as writer:
        before = writer.acknowledged
        said = running.bmq("store", "copy", "--store", store_url(running, "bmq"), "--to", store_url(running, "second"))
    assert "no faults" in said
    written = read_all(running.outside, "orders")
    kept = auth(running)
    kubectl.apply(store_secret(running), kept, second(running))
    kubectl.until_ready("clusters.bmq.io/second", timeout_s=180)
    restored = [int(line) for line in in_second(kubectl, "consume", "orders").split()]
    assert restored == list(range(len(restored)))
    assert before <= len(restored) <= len(written), "what was acknowledged before the copy is missing"
    assert kubectl.json("get", "secret", "second-auth")["data"] == kept["data"]
