"""Topics on a real API server: what it refuses, what the operator does, what a deletion spares."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from e2e_kubectl import Kubectl, Refused
from e2e_running import Running, topic

CHECKS = Path(__file__).parents[2] / "resources" / "tests" / "test_resources_checks.py"


@pytest.fixture(scope="module")
def ready(running: Running) -> Kubectl:
    """kubectl where a Cluster and a pod for clients are."""
    return running.with_client()


def described(kubectl: Kubectl, name: str) -> dict[str, Any]:
    [found] = json.loads(kubectl.exec("client", "bmq", "topics", "describe", name, "-o", "json"))
    return dict(found)


def configs(kubectl: Kubectl, name: str) -> dict[str, str]:
    return {one["name"]: one["value"] for one in described(kubectl, name)["configuration"] if one["source"] == "topic"}


def names(kubectl: Kubectl) -> set[str]:
    return {one["name"] for one in json.loads(kubectl.exec("client", "bmq", "topics", "list", "-o", "json"))}


def test_the_api_server_refuses_what_bmq_apply_refuses(ready: Kubectl, kubectl: Kubectl) -> None:
    """In a namespace in which nothing has the names of the checks' documents."""
    spec = importlib.util.spec_from_file_location("the_checks", CHECKS)
    assert spec is not None and spec.loader is not None
    checks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checks)
    accepted = []
    for kind, part, field, _, _ in checks.CASES:
        try:
            kubectl.apply(checks.document(kind, part), dry_run=True)
        except Refused as refused:
            assert re.search("ValidationError|is invalid|strict decoding|typed patch", str(refused)), refused
        else:
            accepted.append((kind.__name__, field))
    assert accepted == []
    for kind, part in checks.GOOD:
        kubectl.apply(checks.document(kind, part), dry_run=True)


def test_a_topic_grows_and_neither_shrinks_nor_changes_its_name(ready: Kubectl) -> None:
    ready.apply(topic("grows", partitions=2, config={"retention.ms": "1000000"}))
    ready.until_ready("topics.bmq.io/grows")
    ready.apply(topic("grows", partitions=4, config={"max.message.bytes": "500000"}))
    ready.until_ready("topics.bmq.io/grows")
    assert len(described(ready, "grows")["partitions"]) == 4
    assert configs(ready, "grows") == {"max.message.bytes": "500000"}
    with pytest.raises(Refused, match="partitions can only grow"):
        ready.apply(topic("grows", partitions=3))
    with pytest.raises(Refused, match="topicName cannot be changed"):
        ready.apply(topic("grows", partitions=4, topicName="other"))


def test_what_the_cluster_refuses_is_quoted_and_put_right_later(ready: Kubectl) -> None:
    ready.apply(topic("wrong", config={"retention.ms": "soon"}))
    said = ready.until_condition("topics.bmq.io/wrong", status="False", reason="Refused")["message"]
    assert "retention.ms=soon" in said
    ready.apply(topic("wrong", config={"retention.ms": "1000000"}))
    ready.until_ready("topics.bmq.io/wrong")


def test_of_two_for_one_name_one_waits_until_the_other_is_gone(ready: Kubectl) -> None:
    ready.apply(topic("first", topicName="Both"))
    ready.until_ready("topics.bmq.io/first")
    ready.apply(topic("second", topicName="Both", existing="Adopt"))
    assert "/first" in ready.until_condition("topics.bmq.io/second", status="False", reason="Collision")["message"]
    ready("delete", "topics.bmq.io/first", "--timeout=60s")
    ready.until_ready("topics.bmq.io/second")


def test_a_topic_that_was_there_is_adopted_when_it_is_told_to_be(ready: Kubectl) -> None:
    ready.exec("client", "bmq", "topics", "create", "there", "--partitions", "2")
    ready.apply(topic("there", partitions=3))
    ready.until_condition("topics.bmq.io/there", status="False", reason="AlreadyExists")
    assert len(described(ready, "there")["partitions"]) == 2
    ready.apply(topic("there", partitions=3, existing="Adopt"))
    ready.until_ready("topics.bmq.io/there")
    assert len(described(ready, "there")["partitions"]) == 3


def test_drift_is_put_back_and_a_lost_topic_made_again_each_with_an_event(ready: Kubectl) -> None:
    ready.apply(topic("drifts", config={"retention.ms": "1000000"}), topic("lost"))
    ready.until_ready("topics.bmq.io/drifts", "topics.bmq.io/lost")
    ready.exec("client", "bmq", "topics", "alter", "drifts", "--config", "retention.ms=7")
    ready.exec("client", "bmq", "topics", "delete", "lost", "--yes")
    ready.until("it is put back", lambda: configs(ready, "drifts") == {"retention.ms": "1000000"}, timeout_s=120)
    ready.until("it is made again", lambda: "lost" in names(ready), timeout_s=120)

    def told() -> bool:
        reasons = {(one["involvedObject"]["name"], one["reason"]) for one in ready.json("get", "events")["items"]}
        return {("drifts", "DriftPutBack"), ("lost", "TopicLost")} <= reasons

    ready.until("events tell of it", told)


def test_records_are_spared_until_their_loss_is_confirmed(ready: Kubectl) -> None:
    ready.apply(topic("spared", deletionPolicy="Delete"), topic("empty", deletionPolicy="Delete"), topic("retained"))
    ready.until_ready("topics.bmq.io/spared", "topics.bmq.io/empty", "topics.bmq.io/retained")
    ready.exec("client", "bmq", "produce", "spared", given="a record\n")
    ready("delete", "topics.bmq.io/spared", "topics.bmq.io/empty", "topics.bmq.io/retained", "--wait=false")
    ready.until_condition("topics.bmq.io/spared", status="False", reason="DataProtected")
    ready("wait", "--for=delete", "topics.bmq.io/empty", "topics.bmq.io/retained", "--timeout=60s")
    assert {"spared", "retained"} <= names(ready) and "empty" not in names(ready)
    ready("annotate", "topics.bmq.io/spared", "bmq.io/delete-data=true")
    ready("wait", "--for=delete", "topics.bmq.io/spared", "--timeout=60s")
    assert "spared" not in names(ready)


def test_a_topic_without_its_cluster_waits_and_goes_at_once(ready: Kubectl) -> None:
    manifest = topic("alone", deletionPolicy="Delete")
    manifest["spec"]["clusterRef"]["name"] = "nobody"
    ready.apply(manifest)
    assert "nobody" in ready.until_condition("topics.bmq.io/alone", status="False", reason="ClusterMissing")["message"]
    ready("delete", "topics.bmq.io/alone", "--timeout=60s")


def test_the_operator_outlives_a_namespace_that_it_looked_after(ready: Kubectl) -> None:
    """The one that test_e2e_deleted deletes: its watches are refused from then on."""
    [pod] = ready.json("get", "pods", "--selector=app.kubernetes.io/name=bmq-operator")["items"]
    ended = [
        status.get("lastState", {}).get("terminated", {}).get("message", "")
        for status in pod["status"]["containerStatuses"]
    ]
    assert not any("is forbidden" in message for message in ended), ended
