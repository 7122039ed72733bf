"""Which resources claim which place of a table. A place is the same value whoever names it, and however. Pure.

What writes a table says by an annotation which place that is, so that whoever writes keeps it, whatever is written into
resources meanwhile.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from bmq_operator.answers import part_of
from bmq_operator.clusters.configuration import server_of
from bmq_operator.clusters.existing import owner_of
from bmq_operator.kube import Manifest
from bmq_operator.references import allowed
from bmq_operator.rivals import Rival
from bmq_operator.tables.jobs import S3_ENDPOINT, TableJob, jobs_of_sink, jobs_of_topic
from bmq_operator.understood import which
from bmq_resources.base import Resource
from bmq_resources.cluster import Cluster, ClusterSpec
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.topic import Topic

AnyTables = TypeVar("AnyTables", Topic, ParquetSink)
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
_UID_MAX: Final = 100
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What a resource claims, and nothing else of it."""

    meta: Rival
    """The resource; owned: not known."""
    places: tuple[tuple[str, str, str], ...]
    """Digests of the place of each table, as it is marked and as it was before, and its application's name."""
    refused: bool
    """Whether it says of its present spec that nothing is made of it."""
    generation: int


def claimed_by(manifest: Manifest, clusters: Mapping[tuple[str, str], Cluster]) -> Claimed:
    """What a Topic or ParquetSink claims. One that is not understood, or that its Cluster does not take, claims no
    place.
    """
    jobs: list[TableJob] = []
    topic = manifest["kind"] == "Topic"
    if not topic or manifest.get("spec", {}).get("parquet"):
        match _read(Topic if topic else ParquetSink, manifest):
            case Topic() as found:
                jobs = _taken(found, clusters, jobs_of_topic)
            case ParquetSink() as found:
                jobs = _taken(found, clusters, jobs_of_sink)
            case _:
                pass
    meta = manifest["metadata"]
    return Claimed(
        meta=Rival(
            kind=manifest["kind"],
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta.get("uid", ""),
            created=meta.get("creationTimestamp") or "",
            owned=False,
        ),
        places=tuple((digest_of(place_of(job)), digest_of(place_marked_before(job)), job.name) for job in jobs),
        refused=_refused(manifest, "ParquetReady" if topic else "Ready"),
        generation=meta.get("generation", 0),
    )


def cluster_of_tables(manifest: Manifest) -> Cluster | None:
    """What tables need to know of a Cluster; None: it is not understood."""
    found = _read(Cluster, manifest)
    if not isinstance(found, Cluster):
        return None
    spec = ClusterSpec().model_copy(update={"store": found.spec.store, "topics_from": found.spec.topics_from})
    return Cluster(metadata=which(found.metadata)).model_copy(update={"spec": spec})


def writer(manifest: Manifest) -> Manifest:
    """What tells of an application whose table it writes, and nothing else of it."""
    meta = manifest["metadata"]
    # Anybody may have written both, and longer.
    place, owner = (meta.get("annotations") or {}).get(PLACE, "")[: _DIGEST_LENGTH + 1], owner_of(manifest)[:_UID_MAX]
    owners = [{"uid": owner, "controller": True}] if owner else []
    return {"metadata": part_of(manifest)["metadata"] | {"annotations": {PLACE: place}, "ownerReferences": owners}}


def claims(
    claimed: Sequence[Claimed], applications: Sequence[Manifest] = (), *, unseen: Set[str] = frozenset()
) -> dict[str, list[Rival]]:
    """By the digest of a place, of what all Topics and ParquetSinks claim. Those that are refused claim nothing but
    what they write already. `unseen`: namespaces of which it is not known what is written, which may be all."""
    found: defaultdict[str, dict[str, Rival]] = defaultdict(dict)
    unmarked: set[tuple[str, str]] = set()
    for one, owner in _written(applications, claimed):
        place = (one["metadata"].get("annotations") or {}).get(PLACE, "")
        if not place:
            unmarked.add((owner.uid, one["metadata"]["name"]))  # an older operator's
        else:
            found[place][owner.uid] = replace(owner, owned=True)
    for resource in claimed:
        meta = resource.meta
        for place, marked_before, name in resource.places:
            owned = (
                meta.uid in found[place]
                or meta.uid in found.get(marked_before, {})
                or (meta.uid, name) in unmarked
                or meta.namespace in unseen
            )
            if owned or not resource.refused:
                found[place][meta.uid] = replace(meta, owned=owned)
    return {place: list(rivals.values()) for place, rivals in found.items() if rivals}


def _written(applications: Sequence[Manifest], claimed: Sequence[Claimed]) -> Iterator[tuple[Manifest, Rival]]:
    """What writes a table, with the resource that it is of: by its controller, or that of the schedule whose run it is.
    What an application says of itself by labels anybody may have written."""
    owners = {(one.meta.namespace, one.meta.uid): one.meta for one in claimed}
    controllers = {
        (one["metadata"]["namespace"], one["metadata"].get("uid", "")): owner_of(one) for one in applications
    }
    for one in applications:
        namespace, controller = one["metadata"]["namespace"], owner_of(one)
        found = owners.get((namespace, controller)) or owners.get(
            (namespace, controllers.get((namespace, controller), ""))
        )
        if controller and found is not None:
            yield one, found


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


def _refused(manifest: Manifest, type_: str) -> bool:
    meta, conditions = manifest["metadata"], (manifest.get("status") or {}).get("conditions") or ()
    said: Manifest = next((one for one in conditions if one.get("type") == type_), {})
    newest = said.get("observedGeneration", 0) == meta.get("generation", 0)
    return said.get("status") == "False" and newest and said.get("reason") in REFUSED


def _taken(
    resource: AnyTables,
    clusters: Mapping[tuple[str, str], Cluster],
    jobs_of: Callable[[AnyTables, Cluster], list[TableJob]],
) -> list[TableJob]:
    """The tables of a resource that its Cluster takes. Where that is gone, what was begun goes on: its name and the
    table's own store are known all the same.
    """
    reference = resource.spec.cluster_ref
    namespace, name = reference.namespace or resource.metadata.namespace, reference.name
    cluster = clusters.get((namespace, name)) or Cluster.model_validate(
        {"metadata": {"name": name, "namespace": namespace}}
    )
    return jobs_of(resource, cluster) if allowed(cluster, resource.metadata.namespace) else []


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
