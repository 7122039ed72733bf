"""Which Kubernetes the tests run on: KUBECONFIG's, else kind where Docker works, else localkube where it is beside the
checkout.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from e2e_kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
KIND_CLUSTER = "bmq-e2e"


class NoCluster(Exception):
    """Why there is none, and what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """A cluster that answers."""

    kubectl: Kubectl
    images: Literal["localkube", "kind", "pulled"]
    """How it gets images."""
    ours: bool = False
    """It was started for these tests, and nobody else uses it."""
    folder: Path | None = None
    """localkube's."""

    def stop(self) -> None:
        """Ends one that was started for these tests; its images are kept."""
        if self.ours and self.folder and not os.environ.get("BMQ_E2E_KEEP"):
            subprocess.run(
                [localkube(), "down"],
                check=False,
                capture_output=True,
                env=os.environ | {"LOCALKUBE_DIR": str(self.folder)},
            )


def localkube() -> Path:
    """Where the command is, if it is."""
    return Path(os.environ.get("LOCALKUBE", ROOT / ".." / "shared" / "tools" / "localkube" / "localkube")).resolve()


def find() -> Kubernetes:
    """The cluster, started where that is needed. Raises NoCluster."""
    if given := os.environ.get("KUBECONFIG"):
        return _given(Path(given).absolute())
    if shutil.which("kind") and shutil.which("kubectl") and _docker_works():
        return _kind()
    if localkube().is_file():
        return _localkube()
    raise NoCluster("no Kubernetes: set KUBECONFIG, or install kind (https://kind.sigs.k8s.io), kubectl and Docker")


def _given(kubeconfig: Path) -> Kubernetes:
    beside = kubeconfig.parent / "bin" / "localkube-node"
    command = shutil.which("kubectl") or (str(kubeconfig.parent / "kubectl") if beside.exists() else "")
    if not command:
        raise NoCluster("KUBECONFIG is set, and there is no kubectl: install it")
    kubectl = Kubectl(command=Path(command), kubeconfig=kubeconfig)
    answered = subprocess.run(
        kubectl.line("get", "--raw", "/readyz"), capture_output=True, text=True, check=False, env=kubectl.environment
    )
    if answered.returncode:
        raise NoCluster(f"the cluster of KUBECONFIG={kubeconfig} does not answer: {answered.stderr.strip()}")
    if beside.exists():
        return Kubernetes(kubectl=kubectl, images="localkube", folder=kubeconfig.parent)
    context = subprocess.run(
        kubectl.line("config", "current-context"), capture_output=True, text=True, check=False, env=kubectl.environment
    )
    return Kubernetes(kubectl=kubectl, images="kind" if context.stdout.startswith("kind-") else "pulled")


def _docker_works() -> bool:
    return (
        bool(shutil.which("docker"))
        and not subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    )


def _kind() -> Kubernetes:
    kubeconfig = CACHE / "kind" / "kubeconfig"
    kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    clusters = subprocess.run(["kind", "get", "clusters"], capture_output=True, text=True, check=True).stdout.split()
    action = ["export", "kubeconfig"] if KIND_CLUSTER in clusters else ["create", "cluster", "--wait", "120s"]
    made = subprocess.run(
        ["kind", *action, "--name", KIND_CLUSTER, "--kubeconfig", str(kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise NoCluster(f"kind could not make a cluster: {made.stderr.strip()}")
    return Kubernetes(
        kubectl=Kubectl(command=Path(shutil.which("kubectl") or ""), kubeconfig=kubeconfig), images="kind"
    )


def _localkube() -> Kubernetes:
    folder = Path(os.environ.get("LOCALKUBE_DIR", CACHE / "localkube"))
    environment = os.environ | {"LOCALKUBE_DIR": str(folder)}
    if os.geteuid():
        raise NoCluster("localkube needs root: run the tests as root, or set KUBECONFIG")
    ran = not subprocess.run([localkube(), "status"], capture_output=True, check=False, env=environment).returncode
    started = subprocess.run([localkube(), "up"], capture_output=True, text=True, check=False, env=environment)
    if started.returncode:
        raise NoCluster(f"localkube did not start: {started.stderr.strip()}")
    kubectl = Kubectl(command=folder / "kubectl", kubeconfig=Path(started.stdout.split()[-1]))
    return Kubernetes(kubectl=kubectl, images="localkube", ours=not ran, folder=folder)
