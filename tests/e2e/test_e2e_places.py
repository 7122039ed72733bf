"""Whose a table is, on a real API server: with the Spark Operator's kinds and without it, as nothing has to run for
that.
"""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from chart_helm import ROOT
from e2e_kubectl import Kubectl, Manifest
from e2e_release import CLUSTER, Release
from e2e_spark import APPLICATIONS, crds

CRDS = ROOT / ".cache" / "tools" / "spark-operator.src" / "config" / "crd" / "bases"
FORBIDDEN = {"sparkConf": {"spark.jars": "http://evil.example/x.jar"}}


@pytest.fixture
def kubectl(release: Release) -> Iterator[Kubectl]:
    """With the kinds of applications, and a Cluster that is left alone."""
    kubectl = release.kubectl
    before = crds(kubectl)
    subprocess.run([ROOT / "tools" / "get", "spark-operator"], check=True)
    for file in sorted(CRDS.glob("*.yaml")):
        kubectl.apply(file)
    meta = {"name": CLUSTER}
    kubectl.apply(
        {
            "apiVersion": "bmq.io/v1alpha1",
            "kind": "Cluster",
            "metadata": meta,
            "spec": {"store": {"url": "s3://b"}, "paused": True},
        }
    )
    yield kubectl
    for name in crds(kubectl):
        if name not in before:
            kubectl("delete", "crd", name, "--ignore-not-found", "--timeout=60s")


def sink(name: str, **spec: Any) -> Manifest:
    table = {
        "topics": ["orders"],
        "oneTable": True,
        "output": "s3a://lake/orders",
        "continuous": {},
        "store": {"endpoint": "http://s3"},
    }
    return {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "ParquetSink",
        "metadata": {"name": name},
        "spec": {**table, **spec},
    }


def writers(kubectl: Kubectl) -> list[str]:
    return [one["metadata"]["name"] for one in kubectl.json("get", APPLICATIONS)["items"]]


def test_an_older_sink_that_was_refused_takes_no_running_table_and_has_it_once_that_is_gone(kubectl: Kubectl) -> None:
    elder, lake = "parquetsinks.bmq.io/elder", "parquetsinks.bmq.io/lake"
    kubectl.apply(sink("elder", **FORBIDDEN))
    kubectl.until_condition(elder, status="False", reason="NotAllowed")
    kubectl.apply(sink("lake"))
    kubectl.until("the younger one writes", lambda: writers(kubectl) == ["lake-sink"], timeout_s=60)
    kubectl.apply(sink("elder", sparkConf={}))
    taken = kubectl.until_condition(elder, status="False", reason="OutputTaken", timeout_s=60)
    assert f"is the table of ParquetSink {kubectl.namespace}/lake, which writes it" in taken["message"]
    uid = kubectl.json("get", APPLICATIONS, "lake-sink")["metadata"]["uid"]
    kubectl("annotate", lake, "look=again")
    assert kubectl.json("get", APPLICATIONS, "lake-sink")["metadata"]["uid"] == uid
    assert writers(kubectl) == ["lake-sink"]
    kubectl("delete", lake, "--timeout=60s")
    kubectl.until("the older one writes", lambda: writers(kubectl) == ["elder-sink"], timeout_s=60)
