"""A listener may have any name that its Cluster takes: probes and Services still reach the ports that are the proxies' own."""

import re
from typing import Any

import pytest
from kinds_of_a_test import INPUTS
from kube_of_a_test import TRIAL

from bmq.resources.cluster import Cluster
from bmq_operator.clusters.desired import desired

PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
"""What Kubernetes takes for a port's name."""


def with_listeners(*listeners: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    spec = {**TRIAL, "listeners": list(listeners)}
    meta = {"name": "bmq", "namespace": "shop", "uid": "uid-bmq"}
    return {(one["kind"], one["metadata"]["name"]): one for one in desired(Cluster.model_validate({"metadata": meta, "spec": spec}), INPUTS)}


@pytest.mark.parametrize("name", ["admin", "kafka", "bootstrap", "external", "a--b", "a" * 15])
def test_a_listeners_name_takes_no_port_that_probes_and_services_go_by(name: str) -> None:
    there = with_listeners({"name": name, "port": 9094})
    (container,) = there["StatefulSet", "bmq-proxy"]["spec"]["template"]["spec"]["containers"]
    named = {one["name"]: one["containerPort"] for one in container["ports"] if "name" in one}
    assert named.items() >= {"kafka": 9092, "internal": 9190, "admin": 9080}.items()
    assert [one["containerPort"] for one in container["ports"]] == [9092, 9190, 9080, 9094]
    assert all(PORT_NAME.fullmatch(one) for one in named)
    for service, port in (("bmq-bootstrap", 9092), ("bmq-internal-0", 9092), ("bmq-admin", 9080), (f"bmq-{name}-bootstrap", 9094)):
        (only,) = there["Service", service]["spec"]["ports"]
        assert named.get(only["targetPort"], only["targetPort"]) == port
