"""The Spark Operator itself, in a namespace of its own, for applications in one other; and what it says of an
application.
"""

import subprocess
from dataclasses import dataclass
from typing import Any

from chart_helm import ROOT, helm
from e2e_images import SparkImages
from e2e_kubectl import Kubectl, Manifest, Refused

CHART = ROOT / ".cache" / "tools" / "spark-operator.src" / "charts" / "spark-operator-chart"
GROUP = "sparkoperator.k8s.io"
APPLICATIONS = f"sparkapplications.{GROUP}"
SERVICE_ACCOUNT = "spark-operator-spark"
ENDED = ("COMPLETED", "FAILED", "SUBMISSION_FAILED")
_SMALL = {"requests": {"cpu": "50m", "memory": "256Mi"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOperator:
    """A release of its chart. `kubectl` is in its namespace, `jobs` in that of the applications."""

    kubectl: Kubectl
    jobs: Kubectl
    images: SparkImages

    @property
    def name(self) -> str:
        """Of the release; parts of it are not in any namespace."""
        return self.kubectl.namespace[-40:].strip("-")

    def install(self) -> None:
        """Returns when it serves. The namespace of the applications has to be there."""
        values: dict[str, Any] = {
            "fullnameOverride": self.name,
            "spark": {"jobNamespaces": [self.jobs.namespace], "serviceAccount": {"name": SERVICE_ACCOUNT}},
            "controller": {"resources": _SMALL},
            "webhook": {"resources": _SMALL},
        }
        if self.images.operator:
            repository, _, tag = self.images.operator.rpartition(":")
            values["image"] = {
                "registry": "docker.io/library",
                "repository": repository,
                "tag": tag,
                "pullPolicy": "IfNotPresent",
            }
        subprocess.run([ROOT / "tools" / "get", "spark-operator"], check=True)
        try:
            wait = ["--wait", "--timeout", "180s"]
            arguments = ["upgrade", "--install", self.name, str(CHART), *wait, "--namespace", self.kubectl.namespace]
            helm(*arguments, values=values, environment=self.kubectl.environment)
        except Exception as problem:
            problem.add_note(self.kubectl.explanation())
            raise

    def leave(self, *, with_crds: bool) -> None:
        """Takes it away, and with its CRDs all applications."""
        arguments = [
            "uninstall",
            self.name,
            "--ignore-not-found",
            "--wait",
            "--timeout",
            "120s",
            "--namespace",
            self.kubectl.namespace,
        ]
        helm(*arguments, environment=self.kubectl.environment)
        if with_crds:
            for name in crds(self.kubectl):
                self.kubectl("delete", "crd", name, "--ignore-not-found", "--timeout=60s")

    def log(self) -> str:
        """What its controller said."""
        return self.kubectl("logs", f"deployment/{self.name}-controller", "--tail=200")


def crds(kubectl: Kubectl) -> list[str]:
    """The Spark Operator's, by name, that are there."""
    return [one["metadata"]["name"] for one in kubectl.json("get", "crds")["items"] if one["spec"]["group"] == GROUP]


def application(kubectl: Kubectl, name: str) -> Manifest:
    """An application as it is now; without anything where it is not there."""
    try:
        return dict(kubectl.json("get", APPLICATIONS, name))
    except Refused:
        return {}


def state_of(kubectl: Kubectl, name: str) -> str:
    """RUNNING and the like."""
    return str(application(kubectl, name).get("status", {}).get("applicationState", {}).get("state", ""))


def runs_of(kubectl: Kubectl, schedule: str) -> list[str]:
    """The names of the applications that a schedule made."""
    found = kubectl.json("get", APPLICATIONS, "--selector", f"{GROUP}/scheduled-app-name={schedule}")["items"]
    return sorted(one["metadata"]["name"] for one in found)


def pods_of(kubectl: Kubectl, name: str, role: str) -> list[Manifest]:
    """The pods of an application that run: its driver, or its executors."""
    selector = f"sparkoperator.k8s.io/app-name={name},spark-role={role}"
    found = kubectl.json("get", "pods", "--selector", selector)["items"]
    return [one for one in found if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]]
