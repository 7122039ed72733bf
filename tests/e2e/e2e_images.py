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


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkImages:
    """The Spark of the jobs, and the Spark Operator; None: the one that its chart names."""

    jobs: str
    operator: str | None


def loaded(kubernetes: Kubernetes) -> Images:
    """The images, in the cluster. Raises NoCluster where it cannot have them."""
    if kubernetes.images == "pulled":
        if not (bmq := os.environ.get("BMQ_E2E_IMAGE")):
            raise NoCluster(
                "this cluster takes no images from here: push one (make image), and name it by "
                "BMQ_E2E_IMAGE=REPOSITORY:TAG"
            )
        return Images(bmq=bmq, minio=os.environ.get("BMQ_E2E_MINIO_IMAGE", "minio/minio:RELEASE.2025-09-07T16-13-09Z"))
    if kubernetes.images == "kind" and shutil.which("docker"):
        return _built_by_docker()
    return Images(bmq=_packed("bmq", kubernetes), minio=_packed("minio", kubernetes))


def spark_loaded(kubernetes: Kubernetes) -> SparkImages:
    """Spark's images, in the cluster. Raises NoCluster where it cannot have them."""
    if kubernetes.images == "pulled":
        if not (jobs := os.environ.get("BMQ_E2E_SPARK_IMAGE")):
            raise NoCluster(
                "this cluster takes no images from here: push spark-apps/Dockerfile's, and name it by "
                "BMQ_E2E_SPARK_IMAGE=REPOSITORY:TAG"
            )
        return SparkImages(jobs=jobs, operator=None)
    if kubernetes.images == "kind" and shutil.which("docker"):
        subprocess.run(
            [
                "docker",
                "build",
                "--quiet",
                "--file",
                ROOT / "spark-apps" / "Dockerfile",
                "--tag",
                "bmq-spark:e2e",
                ROOT,
            ],
            check=True,
            capture_output=True,
        )
        subprocess.run(
            ["kind", "load", "docker-image", "bmq-spark:e2e", "--name", KIND_CLUSTER], check=True, capture_output=True
        )
        return SparkImages(jobs="bmq-spark:e2e", operator=None)
    return SparkImages(jobs=_packed("spark", kubernetes), operator=_packed("spark-operator", kubernetes))


def _packed(what: str, kubernetes: Kubernetes) -> str:
    environment = os.environ | {
        "LOCALKUBE": str(localkube()),
        "LOCALKUBE_DIR": str(kubernetes.folder),
        "KIND_CLUSTER": KIND_CLUSTER,
    }
    done = subprocess.run(
        [ROOT / "tools" / "image", what, "--load", kubernetes.images],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise NoCluster(f"the image could not be packed: {done.stderr.strip()[-2000:]}")
    return done.stdout.split()[-1]


def _built_by_docker() -> Images:
    images = Images(bmq="bmq:e2e", minio="minio/minio:RELEASE.2025-09-07T16-13-09Z")
    subprocess.run(["docker", "build", "--quiet", "--tag", images.bmq, ROOT], check=True, capture_output=True)
    subprocess.run(
        ["kind", "load", "docker-image", images.bmq, "--name", KIND_CLUSTER], check=True, capture_output=True
    )
    return images
