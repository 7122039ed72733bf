"""A change that starts every pod anew, under load: one broker at a time, no client error; though the operator dies in
the middle of it. Clients outside come in all the while, though their listener has another port.
"""

import json
from time import monotonic

from e2e_clients import write
from e2e_load import load
from e2e_release import CLUSTER, status_of
from e2e_running import OUTSIDE, RESOURCE, Running

CONNECTING_S = 20
"""librdkafka waits 30 s for an answer from an address at which nobody is any more."""
OTHER_PORT = 9096
FROM_OUTSIDE = "from-outside"
ROLES = ("controllers", "brokers", "proxies")


def test_a_rolling_upgrade_costs_no_client_an_error_though_the_operator_is_killed(running: Running) -> None:
    kubectl = running.kubectl
    with load(running) as producing:
        change = {"settings": {"logLevel": "warning"}, "listeners": [{**OUTSIDE, "port": OTHER_PORT}]}
        kubectl("patch", RESOURCE, "--type=merge", "--patch", json.dumps({"spec": change}))
        kubectl.until("the first broker was changed", lambda: status_of(kubectl, RESOURCE)["brokers"]["updated"] == 1)
        (port,) = kubectl.json("get", f"service/{CLUSTER}-outside-bootstrap")["spec"]["ports"]
        assert port["port"] == OTHER_PORT
        began_s = monotonic()
        write(running.outside, FROM_OUTSIDE, "while no proxy has it yet")
        assert monotonic() - began_s < CONNECTING_S, "clients outside were led to a port at which nobody listens yet"
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
