"""A Cluster whose topics become tables by Spark: its bucket from outside, and the applications that belong to a
resource.
"""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import e2e_records
from chart_helm import ROOT
from confluent_kafka import Consumer, TopicPartition
from e2e_images import SparkImages
from e2e_kubectl import Kubectl, Manifest
from e2e_release import CLUSTER, Release
from e2e_spark import APPLICATIONS, pods_of
from minio import Minio

BUCKET = "warehouse"
SPARK = ROOT / ".cache" / "spark" / "bin" / "python"
_POD = {"cores": 1, "coreRequest": "200m", "memory": "600m", "memoryOverhead": "600m"}
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SMALL = {
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.sql.shuffle.partitions": "2",
}
"""Spark's settings for a small machine: the JVM does not compile as well as it could, and is ready sooner."""


def values(images: SparkImages) -> dict[str, Any]:
    """The chart's, for a small machine."""
    repository, _, tag = images.jobs.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag},
        "driver": _POD,
        "executor": {**_POD, "instances": 1},
        "conf": SMALL,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The Cluster's MinIO at a port of this machine."""

    port: int
    user: str
    password: str

    @classmethod
    @contextmanager
    def of(cls, kubectl: Kubectl) -> Iterator["Bucket"]:
        """With a bucket for tables, made where it is missing."""
        secret = kubectl.json("get", f"secret/{CLUSTER}-minio")["data"]
        user, password = (base64.b64decode(secret[key]).decode() for key in ("user", "password"))
        with kubectl.forwarded(f"service/{CLUSTER}-minio", [":9000"]) as (port,):
            bucket = cls(port=port, user=user, password=password)
            bucket.make(BUCKET)
            yield bucket

    @property
    def client(self) -> Minio:
        """By its own protocol."""
        return Minio(f"127.0.0.1:{self.port}", access_key=self.user, secret_key=self.password, secure=False)

    def make(self, name: str) -> None:
        """A bucket, where it is missing."""
        if not self.client.bucket_exists(name):
            self.client.make_bucket(name)

    def keys(self, name: str) -> Manifest:
        """A Secret with the keys to all buckets."""
        data = {"AWS_ACCESS_KEY_ID": self.user, "AWS_SECRET_ACCESS_KEY": self.password}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {"bmq.io/use": "allowed"}},
            "stringData": data,
        }

    def fetched(self, name: str, prefix: str, folder: Path) -> list[Path]:
        """The Parquet files below a prefix, on this machine."""
        found = [one.object_name for one in self.client.list_objects(name, prefix=prefix, recursive=True)]
        files = {key: folder / key for key in found if key.endswith(".parquet")}
        for key, file in files.items():
            self.client.fget_object(name, key, str(file))
        return list(files.values())

    def commits(self, table: str) -> int:
        """How many commits a table has."""
        found = self.client.list_objects(BUCKET, prefix=f"{table}/_bmq/log/", recursive=True)
        return sum(1 for one in found if one.object_name.endswith(".json"))

    def compared(self, table: str, *, count: int, first_ms: int, folder: Path) -> dict[str, int]:
        """What e2e_records says of a table."""
        environment = {
            "PYTHONPATH": f"{ROOT}/spark-apps/src:{ROOT}/core/src",
            "AWS_ACCESS_KEY_ID": self.user,
            "AWS_SECRET_ACCESS_KEY": self.password,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
        }
        command = [
            str(SPARK),
            str(e2e_records.__file__),
            str(count),
            str(first_ms),
            f"s3a://{BUCKET}/{table}",
            str(folder),
        ]
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert not done.returncode, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The Cluster of `release`, Ready, which clients outside reach at `outside`."""

    release: Release
    outside: str
    bucket: Bucket

    @property
    def kubectl(self) -> Kubectl:
        """In the Cluster's namespace."""
        return self.release.kubectl

    def applications(self, owner: str) -> list[Manifest]:
        """The applications of a resource that write, by name."""
        found = self.kubectl.json("get", APPLICATIONS)["items"]
        return [one for one in found if owner in {of["name"] for of in one["metadata"].get("ownerReferences", [])}]

    def application(self, owner: str) -> str:
        """The name of the one that a resource has; waits until it has it."""
        names = self.kubectl.until(
            f"{owner} has an application", lambda: [str(one["metadata"]["name"]) for one in self.applications(owner)]
        )
        return names[0]

    def killed(self, application: str, role: str) -> None:
        """Kills a pod of a running application, and waits until another one runs in its place."""
        [pod, *_] = self.kubectl.until(f"{application} has a {role}", lambda: pods_of(self.kubectl, application, role))
        self.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
        gone = pod["metadata"]["uid"]
        self.kubectl.until(
            f"{application} has another {role}",
            lambda: [one for one in pods_of(self.kubectl, application, role) if one["metadata"]["uid"] != gone],
            timeout_s=180,
        )

    def committed(self, group: str, topic: str, *, partitions: int = e2e_records.PARTITIONS) -> int:
        """Offsets that a group has committed, of all partitions of a topic."""
        consumer = Consumer({"bootstrap.servers": self.outside, "group.id": group})
        try:
            asked = [TopicPartition(topic, number) for number in range(partitions)]
            return sum(max(one.offset, 0) for one in consumer.committed(asked, timeout=30))
        finally:
            consumer.close()
