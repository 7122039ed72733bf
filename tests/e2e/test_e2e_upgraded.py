"""A change that starts every pod anew, under load: one broker at a time, no client error; though the operator dies in
the middle of it.
"""

from e2e_load import load
from e2e_release import CLUSTER, status_of
from e2e_running import RESOURCE, Running

CONNECTING_S = 20
"""librdkafka waits 30 s for an answer from an address at which nobody is any more."""
ROLES = ("controllers", "brokers", "proxies")


def test_a_rolling_upgrade_costs_no_client_an_error_though_the_operator_is_killed(running: Running) -> None:
    kubectl = running.kubectl
    with load(running) as producing:
        kubectl("patch", RESOURCE, "--type=merge", "--patch", '{"spec": {"settings": {"logLevel": "warning"}}}')
        kubectl.until("the first broker was changed", lambda: status_of(kubectl, RESOURCE)["brokers"]["updated"] == 1)
        operator = kubectl("get", "pods", "--selector=app.kubernetes.io/name=bmq-operator", "--output=name").strip()
        kubectl("delete", operator, "--grace-period=0", "--force")
        producing.goes_on()

        def upgraded() -> bool:
            shown = status_of(kubectl, RESOURCE)
            return all(shown[role]["updated"] == shown[role]["ready"] == shown[role]["desired"] for role in ROLES)

        kubectl.until("all pods were changed", upgraded, timeout_s=240)
        kubectl.until_ready(RESOURCE)
    assert producing.result["longest_gap_s"] < CONNECTING_S, "clients were led to pods that were gone"
    pods = kubectl.json("get", "pods", f"--selector=bmq.io/cluster={CLUSTER},app.kubernetes.io/component!=minio")[
        "items"
    ]
    restarts = [status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]]
    assert restarts == [0] * len(pods), "a container ended by itself"
    mounted = {
        volume["configMap"]["name"] for pod in pods for volume in pod["spec"]["volumes"] if volume["name"] == "config"
    }
    [newest] = mounted
    assert "log_level: warning" in kubectl.json("get", "configmap", newest)["data"]["server.yaml"]
