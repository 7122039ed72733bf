"""A broker's pod is killed: no client sees an error, and nothing is lost."""

from e2e_load import load
from e2e_running import Running


def test_a_killed_broker_costs_no_client_an_error(running: Running) -> None:
    kubectl = running.kubectl
    with load(running) as producing:
        for pod in ("bmq-broker-0", "bmq-broker-1"):
            uid = kubectl.json("get", "pod", pod)["metadata"]["uid"]
            kubectl("delete", "pod", pod, "--grace-period=0", "--force")
            producing.goes_on()
            kubectl.until(f"{pod} is another one", lambda pod=pod, uid=uid: _other(kubectl.json("get", "pod", pod), uid))


def _other(pod: dict[str, object], uid: str) -> bool:
    metadata, status = pod["metadata"], pod["status"]
    assert isinstance(metadata, dict)
    assert isinstance(status, dict)
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
    return metadata["uid"] != uid and ready
