"""Which resources claim which place of a table. A place is the same value whoever names it, and however. Pure.

What writes a table says by an annotation which place that is, so that whoever writes keeps it, whatever is written into
resources meanwhile.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import ValidationError

from bmq_operator.clusters.configuration import server_of
from bmq_operator.clusters.existing import owner_of
from bmq_operator.kube import Manifest
from bmq_operator.references import allowed
from bmq_operator.rivals import Rival
from bmq_operator.tables.jobs import S3_ENDPOINT, TableJob, jobs_of_sink, jobs_of_topic
from bmq_resources.base import Resource
from bmq_resources.cluster import Cluster
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.topic import Topic

Place: TypeAlias = tuple[str, ...]
"""Where a table is: a folder of a store, or a name in a catalog."""
PLACE: Final = "bmq.io/place"
"""Annotation of an application: a digest of the place that it writes."""
OWNER_LABEL: Final = "bmq.io/table-owner"
"""The resource's uid: by it the operator finds all that belongs to it."""
KIND_LABEL: Final = "bmq.io/table-kind"
"""Topic or ParquetSink: whose table it is. With the next one it is how an event finds its resource."""
NAME_LABEL: Final = "bmq.io/table-name"
REFUSED: Final = frozenset(
    ("NotAllowed", "SecretMissing", "ConfigMapMissing", "ServiceAccountMissing", "NameTaken", "Refused")
)
"""Reasons of resources of which nothing is made. Where nothing was made before either, they stand in nobody's way."""
_DIGEST_LENGTH: Final = 32
_POSTGRESQL_PORT: Final = ":5432"
"""What its driver takes where none is written."""
_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec")


def place_of(job: TableJob) -> Place:
    """Where its rows go. Servers are as its pods find them: a name without a dot is one of their namespace."""
    namespace = job.owner.meta.namespace
    endpoint, iceberg = _server(_endpoint(job), namespace), job.table.iceberg
    if iceberg is None:
        return ("parquet", endpoint, _folder(job.output))
    # How the catalog is called is each user's own choice, but for one in a database, whose tables are kept under that
    # name.
    catalog, _, name = iceberg.table.partition(".")
    match iceberg.catalog_type:
        case "hadoop":
            return ("hadoop", endpoint, _folder(iceberg.warehouse), name)
        case "rest":
            return ("rest", _page(iceberg.catalog_uri, namespace), iceberg.warehouse, name)
        case "sql":
            return ("sql", _database(iceberg.catalog_uri, namespace), catalog, name)


def place_marked_before(job: TableJob) -> Place:
    """The same as operators before marked it, who compared servers by how they are written."""
    endpoint, iceberg = _endpoint(job).rstrip("/"), job.table.iceberg
    if iceberg is None:
        return ("parquet", endpoint, _folder(job.output))
    catalog, _, name = iceberg.table.partition(".")
    uri = iceberg.catalog_uri.rstrip("/")
    match iceberg.catalog_type:
        case "hadoop":
            return ("hadoop", endpoint, _folder(iceberg.warehouse), name)
        case "rest":
            return ("rest", uri, iceberg.warehouse, name)
        case "sql":
            return ("sql", uri.partition("?")[0], catalog, name)


def digest_of(place: Place) -> str:
    """As the annotation has it."""
    return hashlib.sha256("\0".join(place).encode()).hexdigest()[:_DIGEST_LENGTH]


def claims(
    *,
    topics: Sequence[Manifest],
    sinks: Sequence[Manifest],
    clusters: Sequence[Manifest],
    applications: Sequence[Manifest] = (),
    unseen: Set[str] = frozenset(),
) -> dict[str, list[Rival]]:
    """By the digest of a place, of all resources as the API server lists them. Those that are not understood, that a
    Cluster does not take, or that are refused claim nothing but what they write already. `unseen`: namespaces of which
    it is not known what is written, which may be all."""
    there = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in clusters}
    jobs: list[TableJob] = []
    refused: set[str] = set()
    for manifest in topics:
        if manifest.get("spec", {}).get("parquet") and isinstance(topic := _read(Topic, manifest), Topic):
            jobs += _taken(topic, jobs_of_topic(topic, _cluster(topic, there)), there)
            refused |= _refused(manifest, "ParquetReady")
    for manifest in sinks:
        if isinstance(sink := _read(ParquetSink, manifest), ParquetSink):
            jobs += _taken(sink, jobs_of_sink(sink, _cluster(sink, there)), there)
            refused |= _refused(manifest, "Ready")
    found: defaultdict[str, dict[str, Rival]] = defaultdict(dict)
    unmarked: set[tuple[str, str]] = set()
    for one, kind, owner in _written(
        applications, [*(("Topic", one) for one in topics), *(("ParquetSink", one) for one in sinks)]
    ):
        uid, place = owner["uid"], (one["metadata"].get("annotations") or {}).get(PLACE, "")
        if not place:
            unmarked.add((uid, one["metadata"]["name"]))  # an older operator's
        else:
            created = owner.get("creationTimestamp") or ""
            found[place][uid] = Rival(
                kind=kind, namespace=owner["namespace"], name=owner["name"], uid=uid, created=created, owned=True
            )
    for job in jobs:
        meta, place = job.owner.meta, digest_of(place_of(job))
        before = found.get(digest_of(place_marked_before(job)), {})
        owned = (
            meta.uid in found[place]
            or meta.uid in before
            or (meta.uid, job.name) in unmarked
            or meta.namespace in unseen
        )
        if owned or meta.uid not in refused:
            found[place][meta.uid] = claimant(job, owned=owned)
    return {place: list(rivals.values()) for place, rivals in found.items() if rivals}


def _written(
    applications: Sequence[Manifest], resources: Sequence[tuple[str, Manifest]]
) -> Iterator[tuple[Manifest, str, Manifest]]:
    """What writes a table, with the kind and metadata of the resource that it is of: by its controller, or that of the
    schedule whose run it is. What an application says of itself by labels anybody may have written."""
    owners = {
        (one["metadata"]["namespace"], one["metadata"].get("uid", "")): (kind, one["metadata"])
        for kind, one in resources
    }
    controllers = {
        (one["metadata"]["namespace"], one["metadata"].get("uid", "")): owner_of(one) for one in applications
    }
    for one in applications:
        namespace, controller = one["metadata"]["namespace"], owner_of(one)
        found = owners.get((namespace, controller)) or owners.get(
            (namespace, controllers.get((namespace, controller), ""))
        )
        if controller and found is not None:
            yield one, *found


def claimant(job: TableJob, *, owned: bool) -> Rival:
    """The resource of this table. `owned`: it writes the place."""
    meta = job.owner.meta
    return Rival(
        kind=job.owner.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        created=meta.creation_timestamp,
        owned=owned,
    )


def _refused(manifest: Manifest, type_: str) -> set[str]:
    """Its uid, where it says of its present spec that nothing is made of it."""
    meta, conditions = manifest["metadata"], (manifest.get("status") or {}).get("conditions") or ()
    said: Manifest = next((one for one in conditions if one.get("type") == type_), {})
    newest = said.get("observedGeneration", 0) == meta.get("generation", 0)
    return {meta["uid"]} if said.get("status") == "False" and newest and said.get("reason") in REFUSED else set()


def _taken(
    resource: Topic | ParquetSink, jobs: list[TableJob], clusters: Mapping[tuple[str, str], Manifest]
) -> list[TableJob]:
    return jobs if allowed(_cluster(resource, clusters), resource.metadata.namespace) else []


def _cluster(resource: Topic | ParquetSink, clusters: Mapping[tuple[str, str], Manifest]) -> Cluster:
    """The one that it refers to. Where that is gone, what was begun goes on: its name and the table's own store are
    known all the same.
    """
    reference = resource.spec.cluster_ref
    namespace, name = reference.namespace or resource.metadata.namespace, reference.name
    manifest = clusters.get((namespace, name))
    found = None if manifest is None else _read(Cluster, manifest)
    return (
        found
        if isinstance(found, Cluster)
        else Cluster.model_validate({"metadata": {"name": name, "namespace": namespace}})
    )


def _read(kind: type[Resource], manifest: Manifest) -> Resource | None:
    try:
        return kind.model_validate({key: manifest[key] for key in _FIELDS if key in manifest})
    except ValidationError:
        return None


def _endpoint(job: TableJob) -> str:
    variables = {**job.store.env, **{one.name: one.value for one in job.table.placement.env}}
    return variables.get(S3_ENDPOINT) or variables.get("AWS_ENDPOINT_URL", "")


def _server(url: str, namespace: str) -> str:
    """HOST:PORT; empty: the cloud's own."""
    try:
        found = server_of(url, namespace=namespace)
    except ValueError:
        return url.rstrip("/")  # none that its pods could use
    return "" if found == ":0" else found


def _page(url: str, namespace: str) -> str:
    try:
        path = urlsplit(url).path.rstrip("/")
    except ValueError:
        return url.rstrip("/")
    return f"{_server(url, namespace)}{path}"


def _database(uri: str, namespace: str) -> str:
    """The database that a JDBC URL names. How it is reached beyond its servers does not make it another one."""
    where = uri.partition("?")[0].rstrip("/")
    driver, slashes, rest = where.partition("://")
    servers, _, name = rest.partition("/")
    found = (_server(f"//{one.removesuffix(_POSTGRESQL_PORT)}", namespace) for one in servers.split(","))
    return f"{driver}://{','.join(found)}/{name}" if slashes else where


def _folder(uri: str) -> str:
    """s3:// and s3a:// are one store's."""
    scheme, _, path = uri.partition("://")
    return f"{scheme.removesuffix('a')}://{'/'.join(part for part in path.split('/') if part)}"
