"""A broker's pod is killed: no client sees an error, and nothing is lost."""

from functools import partial

from e2e_kubectl import Kubectl
from e2e_load import load
from e2e_running import Running


def test_a_killed_broker_costs_no_client_an_error(running: Running) -> None:
    kubectl = running.kubectl
    with load(running) as producing:
        for pod in ("bmq-broker-0", "bmq-broker-1"):
            uid = kubectl.json("get", "pod", pod)["metadata"]["uid"]
            kubectl("delete", "pod", pod, "--grace-period=0", "--force")
            producing.goes_on()
            kubectl.until(f"{pod} is another one", partial(_other, kubectl, pod, uid))


def _other(kubectl: Kubectl, name: str, uid: str) -> bool:
    pod = kubectl.json("get", "pod", name)
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    return bool(pod["metadata"]["uid"] != uid and ready)
