"""Which tables a resource asks for, and what each needs of its Cluster. Values and pure functions."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from bmq_operator.clusters.configuration import server_of, store_options, store_url
from bmq_operator.clusters.names import KAFKA_PORT, MINIO_PORT, Names
from bmq_operator.clusters.store_keys import store_keys
from bmq_resources.base import ObjectMeta
from bmq_resources.cluster import Cluster
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.tables import Table
from bmq_resources.topic import Topic

S3_ENDPOINT: Final = "AWS_ENDPOINT_URL_S3"
"""The endpoint of S3 alone: by AWS_ENDPOINT_URL the proof of the pods' own identity would go to an address that is
written in a resource, too."""
NAME_LENGTH_MAX: Final = 40
"""A run of a schedule has 20 characters more, and 63 is what a label may have."""
_DIGEST_LENGTH: Final = 8
GROUP_LENGTH_MAX: Final = 249
"""As the jobs cut the names of their groups."""

Part = Literal["write", "compact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anew:
    """How often in a row a stream was begun anew, and the end of the run before (RFC 3339); never: 0 and empty."""

    failures: int = 0
    after: str = ""


NEVER: Final = Anew()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUse:
    """How pods reach the bucket: variables, and variables from keys of Secrets."""

    env: Mapping[str, str]
    secret_keys: Mapping[str, tuple[str, str]]
    """Variable to Secret and key."""
    of_cluster: bool = False
    """Whether the keys are the Cluster's."""
    elsewhere: bool = False
    """Whether the Cluster has keys, which are left out as the table writes another endpoint than the Cluster's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The resource that a table belongs to."""

    api_version: str
    kind: Literal["Topic", "ParquetSink"]
    meta: ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJob:
    """One table: the topics that go there, and what its runs need."""

    owner: Owner
    name: str
    """The name of the application that writes it."""
    topics: tuple[str, ...]
    output: str
    """Its place; of Iceberg its name in the catalog."""
    table: Table
    cluster: str
    bootstrap_servers: str
    cluster_store: str
    """The Cluster's store, as `bmq up --store` takes it."""
    store: StoreUse

    @property
    def compact_name(self) -> str:
        """The name of the application that merges its small files."""
        return f"{self.name}-compact"

    @property
    def compacted(self) -> bool:
        """Whether small files are merged by runs of their own."""
        compact = self.table.compact
        wanted = compact.mode == "Always" or (compact.mode == "Auto" and self.table.continuous is not None)
        return wanted and self.table.iceberg is None


def jobs_of_topic(topic: Topic, cluster: Cluster) -> list[TableJob]:
    """At most one."""
    table = topic.spec.parquet
    if table is None:
        return []
    owner = Owner(api_version=topic.api_version, kind="Topic", meta=topic.metadata)
    return [
        _job(
            owner,
            table,
            cluster,
            topics=(topic.topic_name,),
            output=_place(table),
            name=_name(topic.metadata.name, "topic"),
        )
    ]


def jobs_of_sink(sink: ParquetSink, cluster: Cluster) -> list[TableJob]:
    """One for each topic, or one for all of them."""
    spec, meta = sink.spec, sink.metadata
    owner = Owner(api_version=sink.api_version, kind="ParquetSink", meta=meta)
    if spec.one_table or spec.iceberg is not None:
        return [
            _job(owner, spec, cluster, topics=tuple(spec.topics), output=_place(spec), name=_name(meta.name, "sink"))
        ]
    tables = [(one, _of_topic(spec, one), f"{spec.output.rstrip('/')}/{one}") for one in spec.topics]
    return [
        _job(owner, table, cluster, topics=(one,), output=output, name=_name(meta.name, "sink", one))
        for one, table, output in tables
    ]


def _of_topic(table: Table, topic: str) -> Table:
    """One of several tables: it has a place in its topic, and a group to show it, that no other has."""
    checkpoint = f"{table.checkpoint.rstrip('/')}/{topic}" if table.checkpoint else ""
    group = f"{table.group}-{topic}"[:GROUP_LENGTH_MAX] if table.group else ""
    return table.model_copy(update={"checkpoint": checkpoint, "group": group})


def _job(owner: Owner, table: Table, cluster: Cluster, *, topics: tuple[str, ...], output: str, name: str) -> TableJob:
    names = Names.of(cluster)
    return TableJob(
        owner=owner,
        name=name,
        topics=topics,
        output=output,
        table=table,
        cluster=names.cluster,
        bootstrap_servers=f"{names.host(names.bootstrap)}:{KAFKA_PORT}",
        cluster_store=store_url(cluster),
        store=store_use(table, cluster, namespace=owner.meta.namespace),
    )


def _place(table: Table) -> str:
    return table.iceberg.table if table.iceberg is not None else table.output


def _name(resource: str, suffix: str, topic: str = "") -> str:
    """A DNS label. What had to be changed for that is told apart by a digest, and so is each of several tables."""
    whole = "-".join(part for part in (resource, suffix, topic) if part)
    plain = re.sub(r"[^a-z0-9-]", "-", whole.lower())
    plain = plain if plain[0].isalpha() else f"t-{plain}"
    room = NAME_LENGTH_MAX - len("-compact")
    if plain == whole and len(plain) <= room and not topic:
        return plain
    digest = hashlib.sha256(f"{resource}/{suffix}/{topic}".encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{plain[: room - _DIGEST_LENGTH - 1].rstrip('-')}-{digest}"


def store_use(table: Table, cluster: Cluster, *, namespace: str) -> StoreUse:
    """The table's own keys, else those of a Cluster of the same namespace, for its own server alone, else the pods'
    identity alone.
    """
    access = table.store
    written = {S3_ENDPOINT: access.endpoint, "AWS_REGION": access.region}
    keys: dict[str, tuple[str, str]] = {}
    if access.secret_name:
        keys = {
            "AWS_ACCESS_KEY_ID": (access.secret_name, access.access_key_id_key),
            "AWS_SECRET_ACCESS_KEY": (access.secret_name, access.secret_access_key_key),
        }
        return StoreUse(env=_written(written), secret_keys=keys)
    if namespace != cluster.metadata.namespace:
        return StoreUse(env=_written(written), secret_keys={})
    names, store = Names.of(cluster), cluster.spec.store
    if store.minio.embedded:
        keys = {"AWS_ACCESS_KEY_ID": (names.minio, "user"), "AWS_SECRET_ACCESS_KEY": (names.minio, "password")}
        own = {S3_ENDPOINT: f"http://{names.host(names.minio)}:{MINIO_PORT}"}
    elif store.url.startswith("s3://"):
        keys = {one.variable: (store.credentials.secret_name, one.key) for one in store_keys(store)}
        options = store_options(cluster)
        own = {S3_ENDPOINT: options.get("endpoint", ""), "AWS_REGION": options.get("region", "")}
    else:
        own = {}
    elsewhere = bool(keys and access.endpoint) and not _same_server(
        access.endpoint, own.get(S3_ENDPOINT, ""), namespace=namespace
    )
    return StoreUse(
        env=_written(own) | _written(written),
        secret_keys={} if elsewhere else keys,
        of_cluster=bool(keys),
        elsewhere=elsewhere,
    )


def _same_server(one: str, other: str, *, namespace: str) -> bool:
    try:
        return server_of(one, namespace=namespace) == server_of(other, namespace=namespace)
    except ValueError:
        return False


def _written(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
