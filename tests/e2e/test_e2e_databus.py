"""Sidecars of Databus that come into pods by themselves: an application that speaks HTTP loses nothing that was
accepted, whatever ends; Jobs end; a webhook that is down keeps no pod back.
"""

import pytest
from e2e_databus import (
    ENABLED,
    LABEL,
    SET,
    accepted,
    channel_set,
    consumed,
    job,
    named,
    pod,
    restart_cluster,
    sidecar_of,
    waiting,
)
from e2e_release import CLUSTER, Release

KILL = """
import os, signal, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    line = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")
    if b"databus" in line and b"serve" in line:
        os.kill(int(pid), signal.SIGKILL)
        sys.exit()
sys.exit("there is none")
"""


@pytest.fixture(scope="module")
def ready(release: Release) -> Release:
    """With the webhook, a Cluster, and a channel set for it."""
    kubectl = release.kubectl
    release.install(ENABLED)
    kubectl("label", "namespace", release.namespace, LABEL)
    kubectl.apply(release.example("cluster.yaml"), channel_set())
    kubectl.until_ready(f"clusters.bmq.io/{CLUSTER}", timeout_s=180)
    return release


def test_nothing_that_was_accepted_is_lost_though_the_sidecar_is_killed_and_the_cluster_is_restarted(
    ready: Release,
) -> None:
    kubectl = ready.kubectl
    kubectl.apply(named("app", pod(ready.images, "clicks", "0", shareProcessNamespace=True)))
    kubectl("wait", "pod/app", "--for=condition=Ready", "--timeout=90s")
    kubectl.until("it writes", lambda: len(accepted(kubectl, "app")) > 20)
    for restarts in (1, 2):
        kubectl.exec("app", "python3", "-c", KILL, container="app")
        kubectl.until("the sidecar is started again", lambda n=restarts: _restarts(ready) == n)  # type: ignore[misc]
        before = len(accepted(kubectl, "app"))
        kubectl.until("it writes again", lambda n=before: len(accepted(kubectl, "app")) > n + 20)  # type: ignore[misc]
    restart_cluster(ready)
    before = len(accepted(kubectl, "app"))
    kubectl.until("it writes still", lambda: len(accepted(kubectl, "app")) > before + 20)
    found = kubectl.json("get", "pod", "app")["status"]
    [application] = found["containerStatuses"]
    assert application["restartCount"] == 0, "the application was touched"
    known = accepted(kubectl, "app")
    kubectl.until(
        "the cluster has all of it", lambda: set(known) <= set(consumed(kubectl, "app", "clicks")), timeout_s=90
    )
    at_first = [one for one in dict.fromkeys(consumed(kubectl, "app", "clicks")) if one in set(known)]
    assert at_first == known, "their order is another one"


def _restarts(ready: Release) -> int:
    found = sidecar_of(ready.kubectl, "app")
    assert found is not None
    return int(found["restartCount"]) if found.get("ready") else -1


def test_what_a_pod_accepted_is_in_the_cluster_when_it_is_gone(ready: Release) -> None:
    kubectl = ready.kubectl
    kubectl.apply(named("leaving", pod(ready.images, "clicks", "0", "leaving")))
    kubectl("wait", "pod/leaving", "--for=condition=Ready", "--timeout=90s")
    kubectl.until("it writes", lambda: len(accepted(kubectl, "leaving")) > 50)
    known = accepted(kubectl, "leaving")
    kubectl("delete", "pod", "leaving", "--timeout=60s")
    assert set(known) <= set(consumed(kubectl, "app", "clicks"))


def test_the_sidecar_has_neither_token_nor_privileges_and_the_application_has_its_token(ready: Release) -> None:
    kubectl = ready.kubectl
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert "token" in kubectl.exec("app", "ls", folder, container="app")
    assert kubectl.exec("app", "ls", folder, container="bmq-databus") == ""
    said = kubectl.exec("app", "sh", "-c", "id -u; touch /x 2>&1 || true", container="bmq-databus")
    assert said.startswith("10001\n") and "Read-only" in said


def test_a_job_with_a_sidecar_ends_and_all_that_it_wrote_is_in_the_topic(ready: Release) -> None:
    kubectl = ready.kubectl
    for channel in ("orders", "clicks"):
        kubectl.apply(job(f"of-{channel}", pod(ready.images, channel, "30", f"job-{channel}")))
    for channel in ("orders", "clicks"):
        kubectl("wait", f"job/of-{channel}", "--for=condition=Complete", "--timeout=120s", timeout_s=150)
        wanted = {f"job-{channel}-{number}" for number in range(30)}
        assert wanted <= set(consumed(kubectl, "app", channel))
    [made] = kubectl.json("get", "pods", "--selector=job-name=of-orders")["items"]
    assert made["status"]["phase"] == "Succeeded" and made["metadata"]["labels"]["bmq.io/databus-injected"] == "true"


def test_a_channel_set_that_is_not_there_is_told_and_the_pod_runs(ready: Release) -> None:
    kubectl = ready.kubectl
    manifest = named("mistaken", pod(ready.images, "clicks", "0"))
    manifest["metadata"]["annotations"] = {"bmq.io/databus": "no-such"}
    kubectl.apply(manifest)
    kubectl("wait", "pod/mistaken", "--for=condition=Ready", "--timeout=60s")
    made = kubectl.json("get", "pod", "mistaken")
    assert "there is no ConfigMap 'no-such'" in made["metadata"]["annotations"]["bmq.io/databus-refused"]
    assert sidecar_of(kubectl, "mistaken") is None


def test_a_running_sidecar_gets_the_operators_image_while_the_application_goes_on(ready: Release) -> None:
    kubectl = ready.kubectl
    kubectl("set", "image", "pod/app", "bmq-databus=bmq:missing")

    def is_back() -> bool:
        found = kubectl.json("get", "pod", "app")
        [sidecar] = [one for one in found["spec"]["initContainers"] if one["name"] == "bmq-databus"]
        told = sidecar_of(kubectl, "app")
        return sidecar["image"] == ready.images.bmq and bool(told and told.get("ready"))

    kubectl.until("the sidecar runs with the operator's image", is_back, timeout_s=120)
    [application] = kubectl.json("get", "pod", "app")["status"]["containerStatuses"]
    assert application["restartCount"] == 0
    before = len(accepted(kubectl, "app"))
    kubectl.until("it writes again", lambda: len(accepted(kubectl, "app")) > before + 20)
    assert "a sidecar of Databus gets another image" in ready.operator_log()


def test_without_an_operator_pods_start_with_and_without_the_annotation_and_with_it_again_they_have_sidecars(
    ready: Release,
) -> None:
    kubectl, operator = ready.kubectl, f"deployment/{ready.name}-bmq"
    kubectl("scale", operator, "--replicas=0")
    kubectl.until(
        "the operator is gone",
        lambda: not kubectl.json("get", "pods", "--selector=app.kubernetes.io/name=bmq-operator")["items"],
    )
    for name, asks in (("asks", True), ("does-not", False)):
        kubectl.apply(named(name, pod(ready.images, "clicks", "0", asks=asks)))
    for name in ("asks", "does-not"):
        kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
        assert sidecar_of(kubectl, name) is None
    assert waiting(kubectl, "app") >= 0, "a sidecar that is there goes on"
    kubectl("scale", operator, "--replicas=1")
    kubectl("wait", operator, "--for=condition=Available", "--timeout=90s")
    kubectl.apply(named("later", pod(ready.images, "clicks", "0", "later")))
    kubectl("wait", "pod/later", "--for=condition=Ready", "--timeout=60s")
    assert sidecar_of(kubectl, "later") is not None


def test_an_uninstall_leaves_nothing_of_it_and_pods_go_on(ready: Release) -> None:
    kubectl = ready.kubectl
    ready.uninstall()
    found = kubectl("get", "mutatingwebhookconfigurations,clusterroles,clusterrolebindings", "--output=name")
    assert not [one for one in found.split() if f"{ready.namespace}-" in one and "databus" in one]
    left = kubectl("get", "secrets,services,roles,rolebindings", "--output=name").split()
    assert not [one for one in left if "databus" in one]
    before = len(accepted(kubectl, "app"))
    kubectl.until("it writes still", lambda: len(accepted(kubectl, "app")) > before)
    assert SET in kubectl("get", "configmaps", "--output=name")
