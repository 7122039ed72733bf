"""Which resources claim which place of a table. A place is the same value whoever names it, and however. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from pydantic import ValidationError

from bmq.resources.base import Resource
from bmq.resources.cluster import Cluster
from bmq.resources.parquet_sink import ParquetSink
from bmq.resources.topic import Topic
from bmq_operator.kube import Manifest
from bmq_operator.references import allowed
from bmq_operator.rivals import Rival
from bmq_operator.tables.jobs import S3_ENDPOINT, TableJob, jobs_of_sink, jobs_of_topic

Place: TypeAlias = tuple[str, ...]
"""Where a table is: a folder of a store, or a name in a catalog."""
_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec")


def place_of(job: TableJob) -> Place:
    """Where its rows go."""
    variables = {**job.store.env, **{one.name: one.value for one in job.table.placement.env}}
    endpoint = (variables.get(S3_ENDPOINT) or variables.get("AWS_ENDPOINT_URL", "")).rstrip("/")
    iceberg = job.table.iceberg
    if iceberg is None:
        return ("parquet", endpoint, _folder(job.output))
    # How the catalog is called is each user's own choice, but for one in a database, whose tables are kept under that name.
    catalog, _, name = iceberg.table.partition(".")
    uri = iceberg.catalog_uri.rstrip("/")
    match iceberg.catalog_type:
        case "hadoop":
            return ("hadoop", endpoint, _folder(iceberg.warehouse), name)
        case "rest":
            return ("rest", uri, iceberg.warehouse, name)
        case "sql":
            # How the database is reached does not make it another one.
            return ("sql", uri.partition("?")[0], catalog, name)


def claims(*, topics: Iterable[Manifest], sinks: Iterable[Manifest], clusters: Iterable[Manifest]) -> dict[Place, list[Rival]]:
    """By place, of all resources as the API server lists them. Those that are not understood, or that a Cluster does not take, claim nothing."""
    there = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in clusters}
    jobs: list[TableJob] = []
    for manifest in topics:
        if manifest.get("spec", {}).get("parquet") and isinstance(topic := _read(Topic, manifest), Topic):
            jobs += _taken(topic, jobs_of_topic(topic, _cluster(topic, there)), there)
    for manifest in sinks:
        if isinstance(sink := _read(ParquetSink, manifest), ParquetSink):
            jobs += _taken(sink, jobs_of_sink(sink, _cluster(sink, there)), there)
    found: defaultdict[Place, list[Rival]] = defaultdict(list)
    for job in jobs:
        meta = job.owner.meta
        found[place_of(job)].append(
            Rival(kind=job.owner.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid, created=meta.creation_timestamp, owned=False)
        )
    return dict(found)


def _taken(resource: Topic | ParquetSink, jobs: list[TableJob], clusters: Mapping[tuple[str, str], Manifest]) -> list[TableJob]:
    return jobs if allowed(_cluster(resource, clusters), resource.metadata.namespace) else []


def _cluster(resource: Topic | ParquetSink, clusters: Mapping[tuple[str, str], Manifest]) -> Cluster:
    """The one that it refers to. Where that is gone, what was begun goes on: its name and the table's own store are known all the same."""
    reference = resource.spec.cluster_ref
    namespace, name = reference.namespace or resource.metadata.namespace, reference.name
    manifest = clusters.get((namespace, name))
    found = None if manifest is None else _read(Cluster, manifest)
    return found if isinstance(found, Cluster) else Cluster.model_validate({"metadata": {"name": name, "namespace": namespace}})


def _read(kind: type[Resource], manifest: Manifest) -> Resource | None:
    try:
        return kind.model_validate({key: manifest[key] for key in _FIELDS if key in manifest})
    except ValidationError:
        return None


def _folder(uri: str) -> str:
    """s3:// and s3a:// are one store's."""
    scheme, _, path = uri.partition("://")
    return f"{scheme.removesuffix('a')}://{'/'.join(part for part in path.split('/') if part)}"
