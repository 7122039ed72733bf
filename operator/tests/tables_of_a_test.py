"""Clusters, Topics and ParquetSinks with tables, as tests write them; and the schemas of the Spark Operator's kinds,
from its sources.
"""

import functools
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from bmq_operator.rivals import Rival
from bmq_operator.tables.places import claimed_by, claims, cluster_of_tables, writer
from bmq_resources.cluster import Cluster
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.topic import Topic

ROOT = Path(__file__).parents[2]
CRDS = ROOT / ".cache" / "tools" / "spark-operator.src" / "config" / "crd" / "bases"
STREAM: dict[str, Any] = {
    "output": "s3a://warehouse/tables",
    "continuous": {"trigger": "30s"},
    "store": {"secretName": "keys"},
}
HOURLY: dict[str, Any] = {"output": "s3a://warehouse/tables", "schedule": "0 * * * *", "store": {"secretName": "keys"}}


def cluster(*, namespace: str = "shop", **spec: Any) -> Cluster:
    return Cluster.model_validate(
        {
            "metadata": {"name": "bmq", "namespace": namespace, "uid": "uid-bmq"},
            "spec": {"store": {"minio": {"embedded": True}}} | spec,
        }
    )


def sink(name: str = "lake", **spec: Any) -> ParquetSink:
    return ParquetSink.model_validate(
        {"metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"}, "spec": {"topics": ["orders"], **spec}}
    )


def topic(name: str = "orders", **parquet: Any) -> Topic:
    return Topic.model_validate(
        {"metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"}, "spec": {"parquet": parquet}}
    )


@functools.cache
def spark_schema(kind: str) -> dict[str, Any]:
    """The OpenAPI schema of a kind of the Spark Operator, as its CRD has it."""
    file = CRDS / f"sparkoperator.k8s.io_{kind.lower()}s.yaml"
    if not file.is_file():
        subprocess.run([ROOT / "tools" / "get", "spark-operator"], check=True, timeout=1200)
    (version,) = yaml.load(file.read_text(), yaml.CSafeLoader)["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
    "number": (int, float),
}


def misfits(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """What an API server would refuse or drop of a value: unknown fields, other types, what is missing, what is out of
    bounds.
    """
    expected = TYPES.get(schema.get("type", ""))
    if expected is not None and (not isinstance(value, expected) or (isinstance(value, bool) and expected is int)):
        yield f"{path}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: {value} is less than {schema['minimum']}"
    if isinstance(value, dict):
        yield from (f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, part in value.items():
            if not path and name == "metadata":
                continue  # the API server's own, of which the CRD says nothing
            if name in schema.get("properties", {}):
                yield from misfits(part, schema["properties"][name], f"{path}.{name}")
            elif isinstance(more := schema.get("additionalProperties"), dict):
                yield from misfits(part, more, f"{path}.{name}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{name} is not known"
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from misfits(item, schema.get("items", {}), f"{path}[{index}]")


def claims_of(
    *,
    topics: Sequence[dict[str, Any]] = (),
    sinks: Sequence[dict[str, Any]] = (),
    clusters: Sequence[dict[str, Any]] = (),
    applications: Sequence[dict[str, Any]] = (),
) -> dict[str, list[Rival]]:
    """Of resources as the API server lists them."""
    known = {
        (one.metadata.namespace, one.metadata.name): one
        for manifest in clusters
        if (one := cluster_of_tables(manifest)) is not None
    }
    claimed = [claimed_by(one, known) for one in (*topics, *sinks)]
    return claims(claimed, [writer(one) for one in applications])
