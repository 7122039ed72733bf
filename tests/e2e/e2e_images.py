"""The images that the cluster runs: built once, loaded where the cluster takes them from this machine."""

import os
import shutil
import subprocess
from dataclasses import dataclass

from e2e_cluster import KIND_CLUSTER, ROOT, Kubernetes, NoCluster, localkube


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Their names, with tags."""

    bmq: str
    minio: str

    @property
    def repository(self) -> str:
        """bmq's name without its tag."""
        return self.bmq.rpartition(":")[0]

    @property
    def tag(self) -> str:
        """bmq's tag."""
        return self.bmq.rpartition(":")[2]


def loaded(kubernetes: Kubernetes) -> Images:
    """The images, in the cluster. Raises NoCluster where it cannot have them."""
    if kubernetes.images == "pulled":
        if not (bmq := os.environ.get("BMQ_E2E_IMAGE")):
            raise NoCluster("this cluster takes no images from here: push one (make image), and name it by BMQ_E2E_IMAGE=REPOSITORY:TAG")
        return Images(bmq=bmq, minio=os.environ.get("BMQ_E2E_MINIO_IMAGE", "minio/minio:RELEASE.2025-09-07T16-13-09Z"))
    if kubernetes.images == "kind" and shutil.which("docker"):
        return _built_by_docker()
    environment = os.environ | {"LOCALKUBE": str(localkube()), "LOCALKUBE_DIR": str(kubernetes.folder), "KIND_CLUSTER": KIND_CLUSTER}
    return Images(bmq=_packed("bmq", kubernetes, environment), minio=_packed("minio", kubernetes, environment))


def _packed(what: str, kubernetes: Kubernetes, environment: dict[str, str]) -> str:
    done = subprocess.run([ROOT / "tools" / "image", what, "--load", kubernetes.images], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise NoCluster(f"the image could not be packed: {done.stderr.strip()[-2000:]}")
    return done.stdout.split()[-1]


def _built_by_docker() -> Images:
    images = Images(bmq="bmq:e2e", minio="minio/minio:RELEASE.2025-09-07T16-13-09Z")
    subprocess.run(["docker", "build", "--quiet", "--tag", images.bmq, ROOT], check=True, capture_output=True)
    subprocess.run(["kind", "load", "docker-image", images.bmq, "--name", KIND_CLUSTER], check=True, capture_output=True)
    return images
