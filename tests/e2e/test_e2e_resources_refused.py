"""What a Cluster, Topic, Lane, Channel or ParquetSink may not say is refused by the API server, with a message that
names the field and the remedy.
"""

import json
import re
import subprocess
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]
from e2e_bounds import broken, messages, with_null
from e2e_cluster import ROOT, Kubernetes
from e2e_kubectl import Kubectl, Manifest, Refused

import bmq_resources as resources
from bmq_resources.checks import check

Spec = dict[str, Any]
KINDS: Final = {kind.__name__: kind for kind in resources.KINDS}
PLURALS: Final = {
    "Cluster": "clusters",
    "Topic": "topics",
    "Lane": "lanes",
    "Channel": "channels",
    "ParquetSink": "parquetsinks",
}
MINIO: Final[Spec] = {"store": {"minio": {"embedded": True}}}
S3: Final[Spec] = {"store": {"url": "s3://bucket"}}
TABLE: Final[Spec] = {"output": "s3a://bucket/table", "schedule": "@hourly"}
LAKE: Final[Spec] = {"warehouse": "s3a://bucket/lake"}
TABLES: Final[list[tuple[Spec, str]]] = [
    ({"schedule": "@hourly"}, "the table is at output or in iceberg"),
    ({**TABLE, "continuous": {}}, "the table is written by a schedule or is continuous"),
    ({**TABLE, "format": "avro"}, "format avro and protobuf need a schema"),
    ({**TABLE, "registry": "http://registry"}, "format bytes and string have no schema"),
    ({**TABLE, "format": "json", "message": "a.B"}, "message is for protobuf alone"),
    ({**TABLE, "consumerConfig": {"group.id": "a"}}, "consumerConfig: servers, group, first offsets"),
    ({**TABLE, "output": "/data"}, "output is in a bucket"),
    ({**TABLE, "checkpoint": "/data"}, "checkpoint is in a bucket"),
    ({"schedule": "@hourly", "iceberg": {}}, "iceberg of catalogType hadoop and sql needs a warehouse"),
    (
        {"schedule": "@hourly", "iceberg": {"catalogType": "sql", "catalogUri": "jdbc:a"}},
        "iceberg of catalogType hadoop and sql needs a warehouse",
    ),
    (
        {"schedule": "@hourly", "iceberg": {"catalogType": "rest", "catalogUri": "rest:8181"}},
        "iceberg of catalogType rest needs its server's address",
    ),
    (
        {"schedule": "@hourly", "iceberg": {**LAKE, "catalogType": "sql", "catalogUri": "a.db"}},
        "iceberg of catalogType sql needs its database",
    ),
    (
        {"schedule": "@hourly", "iceberg": {**LAKE, "catalogUri": "http://rest"}},
        "iceberg of catalogType hadoop has no catalogUri",
    ),
    (
        {"schedule": "@hourly", "iceberg": {**LAKE, "table": "spark_catalog.a.b"}},
        "iceberg.table: spark_catalog is Spark's own",
    ),
    (
        {"schedule": "@hourly", "iceberg": {**LAKE, "upsertKey": "key"}, "retention": "1d"},
        "retention takes whole partitions out of an Iceberg table",
    ),
    (
        {"schedule": "@hourly", "iceberg": LAKE, "partitionBy": "none", "retention": "1d"},
        "retention takes whole partitions out of an Iceberg table",
    ),
    (
        {"schedule": "@hourly", "iceberg": {**LAKE, "upsertKey": "key"}, "format": "json"},
        "iceberg.upsertKey with format json needs a schema",
    ),
    ({"schedule": "@hourly", "iceberg": {**LAKE, "upsertKey": "id"}}, "iceberg.upsertKey names a field"),
    ({**TABLE, "format": "json", "registry": "http://registry"}, "registry is for avro and protobuf alone"),
    ({**TABLE, "consumerConfig": {"kafka.group.id": "a"}}, "consumerConfig: servers, group, first offsets"),
    ({**TABLE, "consumerConfig": {"a=b": "c"}}, "consumerConfig: names are of letters"),
    ({"schedule": "@hourly", "iceberg": {"warehouse": "/data"}}, "iceberg.warehouse is in a bucket"),
    ({**TABLE, "format": "json", "schema": {}}, "schema is text, configMapKeyRef or uri"),
    ({**TABLE, "format": "json", "schema": {"uri": "s3a://bucket"}}, "schema.uri is a file in a bucket"),
    ({**TABLE, "format": "avro", "registry": "registry:8081"}, "registry is an address"),
    ({**TABLE, "store": {"endpoint": "minio:9000"}}, "store.endpoint is an address"),
    ({**TABLE, "sparkConf": {"executor.memory": "1g"}}, "sparkConf: names begin with spark."),
    (
        {**TABLE, "placement": {"env": [{"name": "BMQ_STORE", "value": "s3://b"}]}},
        "placement.env: roles, node ids, store",
    ),
]

NEW: Final[list[tuple[str, Spec, str]]] = [
    ("Cluster", {}, "spec.store: Required value"),
    ("Cluster", {"store": {}}, "store needs either url or minio.embedded: true"),
    (
        "Cluster",
        {"store": {"url": "s3://bucket", "minio": {"embedded": True}}},
        "store needs either url or minio.embedded: true",
    ),
    ("Cluster", {"store": {"url": "file:///data"}}, "store.url has to be s3://BUCKET"),
    ("Cluster", {"store": {"url": "s3://"}}, "store.url has to be s3://BUCKET"),
    (
        "Cluster",
        {**S3, "proxies": {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}},
        "proxies.autoscaling.minReplicas is above maxReplicas",
    ),
    (
        "Cluster",
        {**S3, "listeners": [{"name": "a", "port": 9100}, {"name": "b", "port": 9100}]},
        "listeners: two have one port",
    ),
    ("Cluster", {**S3, "listeners": [{"name": "a", "port": 9190}]}, "listeners: ports 9080, 9092 and 9190 are taken"),
    ("Cluster", {**S3, "listeners": [{"name": "internal"}]}, "listeners: the name internal is taken"),
    (
        "Cluster",
        {**S3, "listeners": [{"name": "a", "advertisedHost": "http://h"}]},
        "listeners: advertisedHost is no host",
    ),
    (
        "Cluster",
        {**S3, "listeners": [{"name": "a", "advertisedHost": "0.0.0.0"}]},
        "listeners: advertisedHost is no host",
    ),
    (
        "Cluster",
        {**S3, "listeners": [{"name": "a", "type": "LoadBalancer", "nodePort": 30000}]},
        "listeners: nodePort is for the type NodePort alone",
    ),
    ("Cluster", {**S3, "settings": {"env": {"PATH": "/"}}}, "settings.env: names begin with BMQ_"),
    ("Cluster", {**S3, "settings": {"env": {"BMQ_NODE_ID": "7"}}}, "settings.env: roles, node ids, store"),
    (
        "Cluster",
        {**S3, "brokers": {"placement": {"env": [{"name": "BMQ_STORE", "value": "s3://b"}]}}},
        "placement.env: roles, node ids, store",
    ),
    (
        "Lane",
        {"proxies": {"placement": {"env": [{"name": "BMQ_NODE_ID", "value": "7"}]}}},
        "placement.env: roles, node ids, store",
    ),
    *(
        (
            kind,
            {**base, part: {"resources": {which: {"x" * 318: "1"}}}},
            f"{which}: a name has more than 317 characters",
        )
        for kind, base, part in (("Cluster", S3, "brokers"), ("Lane", {}, "proxies"))
        for which in ("requests", "limits")
    ),
    ("Topic", {"topicName": "a b"}, "topicName is one that Kafka refuses"),
    ("Topic", {"topicName": ".."}, "topicName is one that Kafka refuses"),
    ("Topic", {"topicName": "__secret"}, "topicName begins with __"),
    ("Channel", {"topic": "a", "targets": [{"topic": "b"}]}, "targets stand in the place of topic"),
    ("Channel", {"key": {"field": "$.a", "header": "b"}}, "a key comes from one of field, header and constant"),
    ("Channel", {"lane": {}}, "a lane comes from one of header and baggage"),
    ("Channel", {"rate": {"burstSeconds": 2}}, "it bounds nothing"),
    ("Channel", {"rate": {"messagesPerSecond": 0.0001}}, "a rate is 0.001 a second at least"),
    ("Channel", {"redact": {"text": "x"}}, "it names nothing"),
    ("Lane", {"quota": {"readBytesPerSecond": 1}}, "a rate is 1024 bytes a second at least"),
    ("Lane", {"quota": {"storageBytes": 1 << 20}}, "storageBytes is for so many partitions"),
    ("Lane", {"quota": {"storageBytes": 1 << 20, "partitions": 17}}, "storageBytes is for so many partitions"),
    *(("Topic", {"parquet": table}, says) for table, says in TABLES),
    *(("ParquetSink", {"topics": ["orders"], **table}, says) for table, says in TABLES),
    ("ParquetSink", TABLE, "topics is empty"),
    ("ParquetSink", {**TABLE, "topics": ["a", "a"]}, "topics: one stands there twice"),
    (
        "ParquetSink",
        {"schedule": "@hourly", "topics": ["a", "b"], "iceberg": {"warehouse": "s3a://bucket"}},
        "iceberg names one table",
    ),
]
CHANGED: Final[list[tuple[str, Spec, Spec, str]]] = [
    ("Cluster", {**S3, "clusterId": "one"}, {"clusterId": "two"}, "clusterId cannot be changed: the store has it"),
    (
        "Cluster",
        MINIO,
        {"store": {"url": "s3://bucket", "minio": {"embedded": False}}},
        "store.minio.embedded cannot be changed",
    ),
    ("Cluster", S3, {"store": {"url": "s3://another"}}, "store.url cannot be changed"),
    ("Cluster", MINIO, {"store": {"minio": {"bucket": "another"}}}, "store.minio.bucket cannot be changed"),
    ("Topic", {}, {"clusterRef": {"name": "another"}}, "clusterRef cannot be changed"),
    ("Topic", {"topicName": "One"}, {"topicName": "Two"}, "topicName cannot be changed"),
    ("Topic", {"partitions": 3}, {"partitions": 2}, "partitions can only grow"),
    ("Lane", {}, {"clusterRef": {"namespace": "another"}}, "clusterRef cannot be changed"),
    ("Lane", {"laneName": "one"}, {"laneName": "two"}, "laneName cannot be changed"),
    ("Lane", {"fallback": "base"}, {"fallback": "none"}, "fallback cannot be changed"),
    ("Lane", {"parent": "one"}, {"parent": "two"}, "parent cannot be changed"),
    ("Channel", {}, {"clusterRef": {"name": "another"}}, "clusterRef cannot be changed"),
    ("Channel", {"channelName": "one"}, {"channelName": "two"}, "channelName cannot be changed"),
    (
        "ParquetSink",
        {**TABLE, "topics": ["a"]},
        {"clusterRef": {"namespace": "another"}},
        "clusterRef cannot be changed",
    ),
]


def resource(kind: str, name: str, spec: Spec) -> Manifest:
    """A resource. Nobody looks after it: the namespace has no operator."""
    return {"apiVersion": "bmq.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def crds(kubernetes: Kubernetes) -> dict[str, dict[str, Any]]:
    """The schemas of the specs by kind, known to the API server."""
    files = sorted((ROOT / "crds").glob("*.yaml"))
    kubectl = kubernetes.kubectl
    kubectl(
        "apply", "--server-side", "--force-conflicts", *(part for file in files for part in ("--filename", str(file)))
    )
    kubectl(
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        *(f"customresourcedefinition/{plural}.bmq.io" for plural in PLURALS.values()),
    )
    documents = [yaml.safe_load(file.read_text()) for file in files]
    return {
        one["spec"]["names"]["kind"]: one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for one in documents
    }


def test_every_bound_of_every_field_is_kept(kubectl: Kubectl, crds: dict[str, dict[str, Any]]) -> None:
    wanted = {
        f"b{number}": (kind, one)
        for number, (kind, one) in enumerate((kind, one) for kind, schema in crds.items() for one in broken(schema))
    }
    assert len(wanted) > 100
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [resource(kind, name, one.spec) for name, (kind, one) in wanted.items()],
    }
    line = kubectl.line("create", "--dry-run=server", "--validate=false", "--filename", "-")
    done = subprocess.run(
        line,
        input=json.dumps(listed),
        capture_output=True,
        text=True,
        check=False,
        env=kubectl.environment,
        timeout=120,
    )
    assert done.stdout == "", f"accepted: {done.stdout}"
    refused = _by_name(done.stderr)
    for name, (kind, one) in wanted.items():
        said = refused.get(name, "")
        named = (one.path, re.sub(r"\.key\b", "", one.path))  # a map's key is in no path
        assert any(path in said for path in named), f"{kind} {one.path} beyond its {one.bound}: {said!r}"


def _by_name(errors: str) -> dict[str, str]:
    """What was said of each resource: …: Cluster.bmq.io "NAME" is invalid: …"""
    return dict(re.findall(r'\.bmq\.io "([^"]+)" is invalid: (.*)', errors))


@pytest.mark.parametrize(
    ("kind", "spec", "says"), NEW, ids=[f"{kind}-{says[:30]}-{n}" for n, (kind, _, says) in enumerate(NEW)]
)
def test_a_new_resource_that_breaks_a_rule_is_refused(
    kubernetes: Kubernetes, crds: dict[str, dict[str, Any]], kind: str, spec: Spec, says: str
) -> None:
    # kubectl would look itself where it does not know yet that the server does, and say it otherwise.
    line = ["apply", "--server-side", "--validate=false", "--dry-run=server", "--filename", "-"]
    with pytest.raises(Refused) as refused:
        kubernetes.kubectl.within("default")(*line, given=json.dumps(resource(kind, "refused", spec)))
    assert says in str(refused.value)


def test_a_change_that_breaks_a_rule_is_refused(kubectl: Kubectl, crds: dict[str, dict[str, Any]]) -> None:
    kubectl.apply(*(resource(kind, f"c{number}", spec) for number, (kind, spec, _, _) in enumerate(CHANGED)))
    for number, (kind, _, change, says) in enumerate(CHANGED):
        with pytest.raises(Refused) as refused:
            kubectl(
                "patch",
                PLURALS[kind] + ".bmq.io",
                f"c{number}",
                "--type=merge",
                "--patch",
                json.dumps({"spec": change}),
            )
        assert says in str(refused.value)


def test_every_rule_is_broken_by_one_of_these_tests(crds: dict[str, dict[str, Any]]) -> None:
    tried = {(kind, says) for kind, _, says in NEW} | {(kind, says) for kind, _, _, says in CHANGED}
    for kind, schema in crds.items():
        untried = {
            message
            for message in messages(schema)
            if not any(one == kind and message.startswith(says) for one, says in tried)
        }
        assert not untried


def test_a_null_is_taken_by_the_api_server_where_bmq_apply_takes_it(
    kubectl: Kubectl, crds: dict[str, dict[str, Any]]
) -> None:
    whole: dict[str, Spec] = {
        "Cluster": S3,
        "Topic": {"parquet": TABLE},
        "Lane": {},
        "Channel": {},
        "ParquetSink": {**TABLE, "topics": ["orders"]},
    }
    wanted = {
        f"n{number}": one
        for number, one in enumerate(
            (kind, spec) for kind, schema in crds.items() for spec in with_null(schema, whole[kind])
        )
    }
    assert len(wanted) > 300
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [resource(kind, name, spec) for name, (kind, spec) in wanted.items()],
    }
    line = kubectl.line("create", "--dry-run=server", "--validate=false", "--filename", "-", "--output=name")
    done = subprocess.run(
        line,
        input=json.dumps(listed),
        capture_output=True,
        text=True,
        check=False,
        env=kubectl.environment,
        timeout=120,
    )
    by_server = {one.rpartition("/")[2] for one in done.stdout.split()}
    by_us = {
        name
        for name, (kind, spec) in wanted.items()
        if isinstance(check(KINDS[kind], resource(kind, name, spec)), KINDS[kind])
    }
    assert {name: wanted[name] for name in by_server ^ by_us} == {}, done.stderr[:2000]
    assert len(by_us) > 200 and len(by_server) < len(wanted)


@pytest.mark.parametrize("kind", PLURALS)
def test_a_field_that_nobody_knows_is_refused(
    kubernetes: Kubernetes, crds: dict[str, dict[str, Any]], kind: str
) -> None:
    with pytest.raises(Refused, match="unknownField"):
        kubernetes.kubectl.within("default").apply(resource(kind, "refused", {"unknownField": 1}), dry_run=True)


def test_examples_are_accepted_as_they_are(kubectl: Kubectl, crds: dict[str, dict[str, Any]]) -> None:
    files = sorted((ROOT / "examples").glob("*.yaml"))
    assert files
    kubectl.apply(*files, dry_run=True)
