"""Channels as resources: a pod that names a Cluster writes to them by HTTP, and they come, change and go under it
within seconds; what its sidecar presents opens nothing else. Services of a chain write by them, and a lane has one of
these.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_databus import ENABLED, LABEL, named, pod, sidecar_of
from e2e_images import Images
from e2e_kubectl import Kubectl, Manifest
from e2e_release import CLUSTER, Release, status_of

SECONDS = 10
"""Within which a sidecar knows of a change."""
ASK = """
import sys, urllib.error, urllib.request
url, token, body, lane = sys.argv[1:5]
headers = {"content-type": "text/plain"} | ({"authorization": f"Bearer {token}"} if token else {})
headers |= {"x-lane": lane} if lane else {}
request = urllib.request.Request(url, headers=headers, data=body.encode() or None)
try:
    answer = urllib.request.urlopen(request, timeout=20)
    print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
"""What `curl` would do; bmq's image has none."""
CHAINED = (Path(__file__).parent / "fixtures" / "chained.py").read_text()


def channel(name: str, **spec: Any) -> Manifest:
    meta = {"name": name}
    return {"apiVersion": "bmq.io/v1alpha1", "kind": "Channel", "metadata": meta, "spec": spec}


def lane(name: str, **spec: Any) -> Manifest:
    return {"apiVersion": "bmq.io/v1alpha1", "kind": "Lane", "metadata": {"name": name}, "spec": spec}


def chained(images: Images, *arguments: str) -> Manifest:
    """A service of a chain: fixtures/chained.py."""
    name, in_lane, topic, answers = arguments
    made = pod(images, "none", "0")
    made["metadata"]["annotations"] = {"bmq.io/databus-cluster": CLUSTER}
    servers = f"{CLUSTER}-bootstrap:9092"
    made["spec"]["containers"][0]["command"] = ["python3", "-c", CHAINED, name, in_lane, servers, topic, answers]
    return made


def asked(
    kubectl: Kubectl, url: str, *, token: str = "", body: str = "", lane: str = "", pod: str = "app"
) -> tuple[int, str]:
    """Status and body of a request from within the application's container."""
    said = kubectl.exec(pod, "python3", "-c", ASK, url, token, body, lane, container="app")
    status, _, text = said.partition(" ")
    return int(status), text


def written(kubectl: Kubectl, channel: str, text: str, *, lane: str = "", pod: str = "app") -> int:
    url = f"http://127.0.0.1:8600/v1/channels/{channel}/messages"
    return asked(kubectl, url, body=text, lane=lane, pod=pod)[0]


def consumed(kubectl: Kubectl, topic: str) -> list[str]:
    return kubectl.exec("app", "bmq", "consume", topic, "-b", f"{CLUSTER}-bootstrap:9092", container="app").split()


@pytest.fixture(scope="module")
def ready(release: Release) -> Iterator[Release]:
    """With the webhook, a Cluster, a Channel that came before it, and a pod that follows it."""
    kubectl = release.kubectl
    release.install(ENABLED)
    kubectl("label", "namespace", release.namespace, LABEL)
    made = pod(release.images, "none", "0")
    made["metadata"]["annotations"] = {"bmq.io/databus-cluster": CLUSTER}
    made["spec"]["containers"][0]["command"] = ["sleep", "infinity"]
    kubectl.apply(channel("orders"), channel("clicks", topic="clicks-raw", acknowledgement="accepted"))
    kubectl.apply(named("app", made))
    kubectl.apply(release.example("cluster.yaml"))
    kubectl.until_ready(f"clusters.bmq.io/{CLUSTER}", timeout_s=240)
    for name in ("orders", "clicks"):
        kubectl.until_ready(f"channels.bmq.io/{name}", timeout_s=60)
    yield release
    kubectl("delete", "channels.bmq.io", "--all", "--timeout=60s")


def test_a_pod_that_came_before_its_cluster_writes_to_channels_that_are_resources(ready: Release) -> None:
    kubectl = ready.kubectl
    # Its Secret had a token that opens nothing; the kubelet looks for another one about once a minute.
    kubectl("wait", "pod/app", "--for=condition=Ready", "--timeout=180s", timeout_s=200)
    assert sidecar_of(kubectl, "app") is not None
    assert written(kubectl, "orders", "one") == 200
    assert written(kubectl, "clicks", "two") == 202
    assert consumed(kubectl, "orders") == ["one"]
    kubectl.until("it is sent", lambda: consumed(kubectl, "clicks-raw") == ["two"])
    status = status_of(kubectl, "channels.bmq.io/clicks")
    assert (status["channelName"], status["topicName"], status["owned"]) == ("clicks", "clicks-raw", True)


def test_a_channel_that_is_made_changed_and_deleted_is_so_at_the_sidecar_within_seconds(ready: Release) -> None:
    kubectl = ready.kubectl

    def becomes(status: int) -> None:
        kubectl.until(f"it answers {status}", lambda: written(kubectl, "late", "x") == status, timeout_s=SECONDS)

    assert written(kubectl, "late", "x") == 404
    kubectl.apply(channel("late", topic="late-raw"))
    becomes(200)
    kubectl("patch", "channels.bmq.io", "late", "--type=merge", "--patch", json.dumps({"spec": {"enabled": False}}))
    becomes(403)
    kubectl("delete", "channels.bmq.io", "late", "--timeout=30s")
    becomes(404)


def test_what_somebody_changes_by_other_means_is_put_back_and_what_is_refused_is_told(ready: Release) -> None:
    kubectl = ready.kubectl
    token = kubectl.exec(f"{CLUSTER}-controller-0", "sh", "-c", "echo $BMQ_ADMIN_TOKEN").strip()
    admin = ["--admin", f"http://{CLUSTER}-admin:9080", "--token", token]
    kubectl.exec("app", "bmq", "channels", "create", "theirs", *admin, container="app")
    kubectl.apply(channel("theirs", topic="ours"))
    kubectl.until("it is told", lambda: "AlreadyExists" in _reasons(kubectl, "theirs"), timeout_s=30)
    kubectl("patch", "channels.bmq.io", "theirs", "--type=merge", "--patch", '{"spec": {"existing": "Adopt"}}')
    kubectl.until_ready("channels.bmq.io/theirs", timeout_s=30)
    shown = kubectl.exec("app", "bmq", "channels", "describe", "theirs", *admin, container="app")
    assert "ours" in shown
    kubectl.exec("app", "bmq", "channels", "delete", "theirs", "--yes", *admin, container="app")
    kubectl("annotate", "channels.bmq.io/theirs", "look=again")
    kubectl.until("it is there again", lambda: written(kubectl, "theirs", "x") == 200, timeout_s=30)


def _reasons(kubectl: Kubectl, name: str) -> list[str]:
    return [one["reason"] for one in status_of(kubectl, f"channels.bmq.io/{name}").get("conditions", [])]


def test_what_a_sidecar_presents_watches_channels_and_opens_nothing_else(ready: Release) -> None:
    kubectl, url = ready.kubectl, f"http://{CLUSTER}-admin:9080/v1"
    path = "/etc/bmq-databus-control-plane/token"
    token = kubectl.exec("app", "cat", path, container="bmq-databus").strip()
    assert asked(kubectl, f"{url}/watch/channels?wait_seconds=0", token=token)[0] == 200
    for closed in ("topics", "channels", "channels/orders", "nodes", "self"):
        assert asked(kubectl, f"{url}/{closed}", token=token)[0] == 401, closed
    assert kubectl.exec("app", "sh", "-c", f"cat {path} 2>&1 || true", container="app").strip() != token


def test_metrics_and_health_are_at_the_pods_address_and_nothing_else_is(ready: Release) -> None:
    kubectl = ready.kubectl
    address = kubectl.json("get", "pod", "app")["status"]["podIP"]
    status, text = asked(kubectl, f"http://{address}:8601/metrics")
    assert status == 200 and 'bmq_databus_messages_total{channel="orders",status="200"}' in text
    assert asked(kubectl, f"http://{address}:8601/readyz")[0] == 200
    assert asked(kubectl, f"http://{address}:8601/v1/channels")[0] == 404
    assert asked(kubectl, f"http://{address}:8601/v1/channels/orders/messages", body="x")[0] == 404


def test_each_message_of_a_chain_of_services_is_handled_in_the_lane_or_in_the_base(ready: Release) -> None:
    """A writes orders, B makes payments of them, C receipts of those, each by its pod's sidecar. A lane has a B of its
    own: that one alone takes orders of the lane, and the base's C takes its payments. Once it is gone the base's B does
    its work.
    """
    kubectl, by_header = ready.kubectl, {"header": "x-lane"}
    for topic in ("chained-orders", "chained-payments", "chained-receipts"):
        create = ("bmq", "topics", "create", topic, "--partitions", "1", "-b", f"{CLUSTER}-bootstrap:9092")
        kubectl.exec("app", *create, container="app")
        kubectl.apply(channel(topic, lane=by_header))
    kubectl.apply(lane("dev", fallback="base", proxies={"replicas": 0}))
    kubectl.until_ready("lanes.bmq.io/dev")
    for topic in ("chained-orders", "chained-payments", "chained-receipts"):
        kubectl.until_ready(f"channels.bmq.io/{topic}")
    orders, payments, receipts = "chained-orders", "chained-payments", "chained-receipts"
    for pod_name, *arguments in (
        ("b", "b", "", orders, payments),
        ("b-dev", "b", "dev", orders, payments),
        ("c", "c", "", payments, receipts),
    ):
        kubectl.apply(named(pod_name, chained(ready.images, *arguments)))
    for pod_name in ("b", "b-dev", "c"):
        kubectl("wait", f"pod/{pod_name}", "--for=condition=Ready", "--timeout=180s", timeout_s=200)
    token = kubectl.exec(f"{CLUSTER}-controller-0", "sh", "-c", "echo $BMQ_ADMIN_TOKEN").strip()

    def handled_by_the_lane() -> bool:
        admin = ("--admin", f"http://{CLUSTER}-admin:9080", "--token", token, "-o", "json")
        routes = json.loads(kubectl.exec("app", "bmq", "lanes", "routes", orders, *admin, container="app"))
        return any(one["lane"] == "dev" and one["handled_by"] == "lane" for one in routes)

    kubectl.until("the lane has a B", handled_by_the_lane, timeout_s=60)
    assert written(kubectl, orders, "1") == 200
    assert written(kubectl, orders, "2", lane="dev") == 200
    kubectl.until("the base's C takes both payments", lambda: len(took(kubectl, "c")) == 2, timeout_s=150)
    assert took(kubectl, "b") == ["1 of base"]
    assert took(kubectl, "b-dev") == ["2 of dev"]
    assert sorted(took(kubectl, "c")) == ["b(1) of base", "b(2) of dev"]

    kubectl("delete", "pod", "b-dev", "--grace-period=1", "--timeout=60s")
    assert written(kubectl, orders, "3", lane="dev") == 200
    kubectl.until("the base's B takes its order", lambda: "3 of dev" in took(kubectl, "b"), timeout_s=150)
    kubectl.until("the base's C takes that payment", lambda: "b(3) of dev" in took(kubectl, "c"), timeout_s=60)
    kubectl.until("all receipts are in the base", lambda: len(consumed(kubectl, receipts)) == 3, timeout_s=150)
    assert took(kubectl, "b") == ["1 of base", "3 of dev"]
    assert took(kubectl, "c") == [*took(kubectl, "c")[:2], "b(3) of dev"], "nothing twice"
    assert sorted(consumed(kubectl, receipts)) == ["c(b(1))", "c(b(2))", "c(b(3))"]
    kubectl("delete", "pod", "b", "c", "--grace-period=1", "--timeout=60s")
    kubectl("delete", "lanes.bmq.io/dev", "--timeout=60s")


def took(kubectl: Kubectl, pod_name: str) -> list[str]:
    """What a service of the chain says that it took, in its order."""
    lines = kubectl("logs", pod_name, "--container=app").splitlines()
    return [line.removeprefix("took ") for line in lines if line.startswith("took ")]


def test_a_sidecar_serves_by_what_it_knows_while_no_node_answers(ready: Release) -> None:
    kubectl = ready.kubectl
    kubectl("delete", "pods", "--selector", f"bmq.io/cluster={CLUSTER}", "--wait=false", "--grace-period=1")
    assert written(kubectl, "clicks", "three") == 202
    kubectl.until_ready(f"clusters.bmq.io/{CLUSTER}", timeout_s=240)
    kubectl.until("it is sent", lambda: "three" in consumed(kubectl, "clicks-raw"), timeout_s=120)
