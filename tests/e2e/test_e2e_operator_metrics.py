"""The operator's dashboard and alerts, against a real Prometheus that scrapes a real operator at work on a real API
server.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from compat_server import ROOT
from dashboard_files import OF_THE_OPERATOR, alerts, dashboards, metrics_in, queries
from e2e_kubectl import Kubectl
from free_ports import free_port
from prometheus_process import Prometheus, Target, filled_in
from scraping import scraped
from tests.waiting import until
from tools.metrics_page import SECTIONS, metrics_of

OPERATOR = Path(sys.executable).with_name("bmq-operator")
VARIABLES = {"namespace": "bmq-system", "instance": ".*", "__rate_interval": "15s"}
WITHIN_S = 60
RESOURCES = [
    {"kind": "Cluster", "metadata": {"name": "demo"}, "spec": {"paused": True, "store": {"url": "s3://bucket"}}},
    {"kind": "Topic", "metadata": {"name": "orders"}, "spec": {"clusterRef": {"name": "missing"}}},
    {"kind": "Lane", "metadata": {"name": "dev"}, "spec": {"clusterRef": {"name": "missing"}}},
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def operator(kubectl: Kubectl, tmp_path: Path) -> Iterator[str]:
    """The address of its metrics. It looks after this namespace alone."""
    kubectl.apply(*sorted((ROOT / "crds").glob("*.yaml")))
    kubectl.apply(*({"apiVersion": "bmq.io/v1alpha1", **one} for one in RESOURCES))
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "NAMESPACES": kubectl.namespace,
        "NAMESPACE": kubectl.namespace,
        "LISTEN": address,
        "RESYNC_SECONDS": "2",
    }
    log = tmp_path / "operator.log"
    with log.open("wb") as output:
        environment = {**kubectl.environment, **{f"BMQ_OPERATOR_{key}": value for key, value in settings.items()}}
        process = subprocess.Popen(
            [str(OPERATOR)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=tmp_path
        )
    try:
        until(
            lambda: leads(address),
            "the operator to lead",
            WITHIN_S,
            unless=lambda: process.poll() is not None,
            shows=log.read_text,
        )
        yield address
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if not os.environ.get("BMQ_E2E_KEEP"):
            for one in RESOURCES:  # whatever finalizers they have: nobody is left to take them off
                name = f"{str(one['kind']).lower()}.bmq.io/{one['metadata']['name']}"  # type: ignore[index]
                kubectl("patch", name, "--type=merge", "--patch", '{"metadata": {"finalizers": null}}')


def leads(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/metrics", timeout=5) as answer:
            return any(one.name == "bmq_operator_leader" and one.value == 1 for one in scraped(answer.read().decode()))
    except OSError:
        return False


def test_every_query_on_the_operator_returns_data_and_its_alerts_find_their_metrics(
    operator: str, tmp_path: Path
) -> None:
    prometheus = Prometheus(
        tmp_path, [Target(address=operator, pod="bmq-operator-0", cluster="", namespace="bmq-system")]
    )
    try:
        asked = list(queries(dashboards()[OF_THE_OPERATOR]))
        assert len(asked) > 15
        prometheus.until_data({filled_in(one.expression, VARIABLES): one.panel for one in asked}, WITHIN_S)

        rules = alerts()[OF_THE_OPERATOR]
        taken = {metric for rule in rules for metric in metrics_in(rule["expr"])}
        assert taken <= prometheus.names()
        firing = {rule["alert"] for rule in rules if prometheus.query(rule["expr"])}
        assert firing == {"BmqResourceNotReady"}, "none of the resources has what it needs"

        listed = {
            one.name
            for title, modules in SECTIONS
            if title == "The operator"
            for module in modules
            for one in metrics_of(module)
        }
        told = {name for name in prometheus.names() if name.startswith("bmq_")}
        assert {name for name in told if name not in listed and name.rpartition("_")[0] not in listed} == set()
    finally:
        prometheus.close()
