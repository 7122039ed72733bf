"""What `bmq_resources.checks` refuses without an API server; that the server refuses the same is tried on a real one
(tests/e2e).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from bmq_resources import KINDS, Cluster, Lane, ParquetSink, Topic
from bmq_resources.affinity import CHARS_MAX, PARTS_MAX, with_affinity
from bmq_resources.base import Resource
from bmq_resources.checks import RULES, Finding, check, needs_old, rules_of
from bmq_resources.crd import crd
from bmq_resources.schema import structural


def document(kind: type[Resource], spec: Any, *, name: str = "orders", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "bmq.io/v1alpha1", "kind": kind.__name__, "metadata": {"name": name}, "spec": spec, **more}


def only(found: Resource | list[Finding]) -> Finding:
    assert isinstance(found, list), found
    [one] = found
    return one


def test_every_rule_that_needs_no_old_object_has_its_twin_and_no_twin_is_left_over() -> None:
    schemas = [crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS]
    rules = {rule for schema in schemas for rule in rules_of(schema)}

    assert {rule for rule in rules if not needs_old(rule)} == set(RULES)


def test_a_document_becomes_its_resource_and_its_status_is_not_looked_at() -> None:
    found = check(Topic, document(Topic, {"partitions": 3, "config": {"retention.ms": "1"}}, status={"whatever": 1}))

    assert isinstance(found, Topic)
    assert (found.spec.partitions, found.topic_name) == (3, "orders")


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


EMBEDDED = {"store": {"minio": {"embedded": True}}}


SINK = {"topics": ["orders"], "output": "s3a://warehouse/tables", "schedule": "@hourly"}
ICEBERG = {"table": "lake.shop.orders", "warehouse": "s3a://warehouse/lake"}
REST = {"table": "lake.shop.orders", "catalogType": "rest", "catalogUri": "http://rest:8181"}
UPSERT = {"output": "", "iceberg": {**ICEBERG, "upsertKey": "key"}}


CASES: list[tuple[type[Resource], Any, str, str | None, str]] = [
    (Topic, {"partitons": 3}, "spec.partitons", "3", "write partitions"),
    (Topic, {"topic_name": "x"}, "spec.topic_name", "x", "write topicName"),
    (Topic, {"partitions": "3"}, "spec.partitions", "3", "without quotes"),
    (Topic, {"partitions": True}, "spec.partitions", "true", "a whole number"),
    (Topic, {"partitions": 0}, "spec.partitions", "0", "1 or more"),
    (Topic, {"partitions": 10_001}, "spec.partitions", "10001", "10000 or less"),
    (
        Topic,
        {"config": {"retention.ms": 86400000}},
        "spec.config.retention.ms",
        "86400000",
        'put it in quotes: "86400000"',
    ),
    (Topic, {"config": "x"}, "spec.config", "x", "fields of its own"),
    (Topic, {"topicName": "a b"}, "spec.topicName", "a b", "Kafka refuses"),
    (Topic, {"topicName": "a\n"}, "spec.topicName", "a\n", "Kafka refuses"),
    (Topic, {"topicName": ".."}, "spec.topicName", "..", "Kafka refuses"),
    (Topic, {"topicName": "__x"}, "spec.topicName", "__x", "internal topics"),
    (Topic, {"existing": "Steal"}, "spec.existing", "Steal", "'Refuse' or 'Adopt'"),
    (Topic, {"clusterRef": {"nam": "x"}}, "spec.clusterRef.nam", "x", "write name"),
    (Lane, {"fallback": "other"}, "spec.fallback", "other", "'none' or 'base'"),
    (Lane, {"laneName": "A"}, "spec.laneName", "A", "does not match"),
    (Lane, {"reads": {"base": {"bytesPerSecond": 1}}}, "spec.reads.base.bytesPerSecond", "1", "1024 or more"),
    (Cluster, {"store": {"url": "s3://x", "minio": {"embedded": True}}}, "spec.store", None, "not both"),
    (Cluster, {"store": {"minio": {"embedded": False}}}, "spec.store", None, "not both"),
    (Cluster, {"store": {"url": "/tmp/x"}}, "spec.store.url", "/tmp/x", "s3://BUCKET"),
    (Cluster, {"store": {"url": "azure://x"}}, "spec.store.url", "azure://x", "az://CONTAINER"),
    (
        Cluster,
        {**EMBEDDED, "proxies": {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}},
        "spec.proxies.autoscaling",
        None,
        "maxReplicas",
    ),
    (Cluster, {**EMBEDDED, "listeners": [{"name": "internal"}]}, "spec.listeners[0]", None, "is taken"),
    (
        Cluster,
        {**EMBEDDED, "listeners": [{"type": "LoadBalancer", "nodePort": 31000}]},
        "spec.listeners[0]",
        None,
        "leave it out",
    ),
    (
        Cluster,
        {**EMBEDDED, "listeners": [{"advertisedHost": "http://h"}]},
        "spec.listeners[0].advertisedHost",
        None,
        "a name or an address",
    ),
    (
        Cluster,
        {**EMBEDDED, "listeners": [{"advertisedHost": "k.example\n"}]},
        "spec.listeners[0].advertisedHost",
        None,
        "a name or an address",
    ),
    (
        Cluster,
        {**EMBEDDED, "listeners": [{"advertisedHost": "{node}.example"}]},
        "spec.listeners[0].advertisedHost",
        None,
        "a name or an address",
    ),
    (
        Cluster,
        {**EMBEDDED, "listeners": [{"advertisedHost": "[fd00::1]"}]},
        "spec.listeners[0].advertisedHost",
        None,
        "a name or an address",
    ),
    (
        Cluster,
        {**EMBEDDED, "listeners": [{"advertisedHost": "0.0.0.0"}]},
        "spec.listeners[0].advertisedHost",
        None,
        "a name or an address",
    ),
    (Cluster, {**EMBEDDED, "listeners": [{"port": 9092}]}, "spec.listeners", None, "are taken"),
    (Cluster, {**EMBEDDED, "listeners": [{"name": "a"}, {"name": "b"}]}, "spec.listeners", None, "a port of its own"),
    (
        Cluster,
        {**EMBEDDED, "listeners": [{"port": 9094}, {"port": 9095}]},
        "spec.listeners[1]",
        None,
        "name external already",
    ),
    (Cluster, {**EMBEDDED, "settings": {"env": {"PATH": "x"}}}, "spec.settings.env", None, "begin with BMQ_"),
    (Cluster, {**EMBEDDED, "settings": {"env": {"BMQ_STORE": "x"}}}, "spec.settings.env", None, "the operator's"),
    (
        Cluster,
        {**EMBEDDED, "brokers": {"resources": {"requests": {"cpu": "lots"}}}},
        "spec.brokers.resources.requests.cpu",
        "lots",
        "match",
    ),
    (ParquetSink, {**SINK, "topics": []}, "spec", None, "name one or more"),
    (ParquetSink, {**SINK, "topics": ["a", "a"]}, "spec.topics", None, "leave one of the two out"),
    (ParquetSink, {**SINK, "topics": ["a b"]}, "spec.topics[0]", "a b", "match"),
    (ParquetSink, {**SINK, "output": "/data"}, "spec.output", "/data", "s3a://BUCKET"),
    (ParquetSink, {**SINK, "output": "s3a://warehouse?x"}, "spec.output", None, "s3a://BUCKET"),
    (ParquetSink, {**SINK, "checkpoint": "gs://x"}, "spec.checkpoint", "gs://x", "s3a://BUCKET"),
    (ParquetSink, {**SINK, "iceberg": ICEBERG}, "spec", None, "leave the other out"),
    (
        ParquetSink,
        {**SINK, "output": "", "topics": ["a", "b"], "iceberg": ICEBERG},
        "spec",
        None,
        "a ParquetSink for each topic",
    ),
    (ParquetSink, {**SINK, "output": "", "iceberg": {}}, "spec.iceberg", None, "iceberg.warehouse"),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": {"catalogType": "rest"}},
        "spec.iceberg",
        None,
        "iceberg.catalogUri",
    ),
    (ParquetSink, {**SINK, "output": "", "iceberg": {"table": "orders"}}, "spec.iceberg.table", "orders", "match"),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": {"catalogType": "sql", "catalogUri": "jdbc:a"}},
        "spec.iceberg",
        None,
        "iceberg.warehouse",
    ),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": {**REST, "catalogUri": "rest:8181"}},
        "spec.iceberg",
        None,
        "http://HOST:8181",
    ),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": {**ICEBERG, "catalogType": "sql", "catalogUri": "a.db"}},
        "spec.iceberg",
        None,
        "jdbc:postgresql",
    ),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": {**ICEBERG, "catalogUri": "http://rest"}},
        "spec.iceberg",
        None,
        "catalogType: rest or sql",
    ),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": {**ICEBERG, "table": "a-b.c.d"}},
        "spec.iceberg.table",
        "a-b.c.d",
        "match",
    ),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": {**ICEBERG, "table": "spark_catalog.a.b"}},
        "spec.iceberg.table",
        None,
        "another name",
    ),
    (ParquetSink, {**SINK, **UPSERT, "retention": "30d"}, "spec", None, "partitionBy hour or date and no upsertKey"),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": ICEBERG, "retention": "30d", "partitionBy": "none"},
        "spec",
        None,
        "partitionBy hour or date",
    ),
    (ParquetSink, {**SINK, **UPSERT, "format": "json"}, "spec", None, "write schema"),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": {**ICEBERG, "upsertKey": "id"}},
        "spec",
        None,
        "write upsertKey key",
    ),
    (
        ParquetSink,
        {**SINK, "format": "json", "registry": "http://registry"},
        "spec",
        None,
        "for avro and protobuf alone",
    ),
    (ParquetSink, {**SINK, "consumerConfig": {"kafka.group.id": "a"}}, "spec.consumerConfig", None, "leave them out"),
    (ParquetSink, {**SINK, "consumerConfig": {"a=b": "c"}}, "spec.consumerConfig", None, "correct the name"),
    (ParquetSink, {**SINK, "topics": [None]}, "spec.topics[0]", "None", "text"),
    (ParquetSink, {**SINK, "nothing": None}, "spec.nothing", "None", "leave it out"),
    (ParquetSink, None, "spec", None, "write one"),
    (ParquetSink, {**SINK, "continuous": {}}, "spec", None, "leave the other out"),
    (ParquetSink, {**SINK, "schedule": ""}, "spec", None, "leave the other out"),
    (ParquetSink, {**SINK, "schedule": "hourly"}, "spec.schedule", "hourly", "match"),
    (
        ParquetSink,
        {**SINK, "schedule": "", "continuous": {"trigger": "soon"}},
        "spec.continuous.trigger",
        "soon",
        "match",
    ),
    (ParquetSink, {**SINK, "format": "avro"}, "spec", None, "write schema or registry"),
    (
        ParquetSink,
        {**SINK, "format": "protobuf", "registry": "http://registry", "message": "A B"},
        "spec.message",
        "A B",
        "match",
    ),
    (ParquetSink, {**SINK, "format": "json", "message": "A"}, "spec", None, "write format: protobuf"),
    (ParquetSink, {**SINK, "schema": {"text": "{}"}}, "spec", None, "write json, avro or protobuf"),
    (ParquetSink, {**SINK, "consumerConfig": {"group.id": "a"}}, "spec.consumerConfig", None, "leave them out"),
    (
        ParquetSink,
        {**SINK, "format": "avro", "registry": "registry:8081"},
        "spec.registry",
        "registry:8081",
        "http://HOST:PORT",
    ),
    (ParquetSink, {**SINK, "format": "json", "schema": {}}, "spec.schema", None, "write one of them"),
    (
        ParquetSink,
        {**SINK, "format": "json", "schema": {"text": "{}", "uri": "s3a://a/b"}},
        "spec.schema",
        None,
        "write one of them",
    ),
    (
        ParquetSink,
        {**SINK, "format": "json", "schema": {"uri": "s3a://bucket"}},
        "spec.schema.uri",
        "s3a://bucket",
        "s3a://BUCKET/FILE",
    ),
    (ParquetSink, {**SINK, "store": {"endpoint": "minio"}}, "spec.store.endpoint", "minio", "http://HOST:PORT"),
    (ParquetSink, {**SINK, "sparkConf": {"executor.memory": "1g"}}, "spec.sparkConf", None, "begin with spark."),
    (ParquetSink, {**SINK, "targetFileSize": "128"}, "spec.targetFileSize", "128", "match"),
    (ParquetSink, {**SINK, "resources": {"driver": {"memory": "1Gi"}}}, "spec.resources.driver.memory", "1Gi", "match"),
    (
        ParquetSink,
        {**SINK, "resources": {"executor": {"instances": 1001}}},
        "spec.resources.executor.instances",
        "1001",
        "1000 or less",
    ),
    (
        Topic,
        {"parquet": {"output": "s3a://b", "schedule": "@daily", "formatt": "json"}},
        "spec.parquet.formatt",
        "json",
        "write format",
    ),
    (Topic, {"parquet": {}}, "spec.parquet", None, "leave the other out"),
]
GOOD: list[tuple[type[Resource], Any]] = [
    (Topic, {"topicName": "A.b_c-9", "partitions": 10_000, "config": {"retention.ms": "86400000"}}),
    (Lane, {"laneName": "a", "reads": {"base": {"enabled": True, "bytesPerSecond": 1024}}}),
    (
        Cluster,
        {
            "store": {"url": "s3://bucket/prefix?region=r", "minio": {"embedded": False}},
            "settings": {"env": {"BMQ_FLUSH_BYTES": "8MiB"}},
        },
    ),
    (
        Cluster,
        {
            **EMBEDDED,
            "listeners": [
                {"name": "a", "port": 9094, "nodePort": 31000},
                {"name": "b", "port": 9095, "type": "LoadBalancer"},
            ],
        },
    ),
    (Cluster, {**EMBEDDED, "listeners": [{"advertisedHost": "kafka-{ordinal}.example.com"}]}),
    (Cluster, {**EMBEDDED, "listeners": [{"advertisedHost": "fd00::1"}]}),
    (Cluster, {**EMBEDDED, "brokers": {"resources": {"requests": {"cpu": 1, "memory": "1.5Gi"}}}}),
    (ParquetSink, SINK),
    (ParquetSink, {**SINK, "output": "", "iceberg": ICEBERG}),
    (ParquetSink, {**SINK, "output": "", "iceberg": REST, "retention": "30d"}),
    (
        ParquetSink,
        {**SINK, "output": "", "iceberg": {**ICEBERG, "catalogType": "sql", "catalogUri": "jdbc:postgresql://db/lake"}},
    ),
    (ParquetSink, {**SINK, **UPSERT}),
    (ParquetSink, {**SINK, "consumerConfig": {"fetch.max.bytes": "1", "kafka.max.poll.records": "5"}}),
    (ParquetSink, {**SINK, "schedule": "", "continuous": {}}),
    (ParquetSink, {**SINK, "output": "", "topics": ["a", "b"], "oneTable": True, "iceberg": ICEBERG}),
    (
        ParquetSink,
        {
            **SINK,
            "schedule": "*/5 8-18 * * 1-5",
            "format": "protobuf",
            "schema": {"text": "message A {}"},
            "message": "A",
        },
    ),
    (
        Topic,
        {
            "parquet": {
                "output": "s3://b/t",
                "continuous": {"trigger": "30s"},
                "format": "avro",
                "registry": "http://registry:8081",
            }
        },
    ),
]


@pytest.mark.parametrize(("kind", "spec", "field", "value", "said"), CASES)
def test_what_cannot_be_is_refused_with_field_value_and_remedy(
    kind: type[Resource], spec: Any, field: str, value: str | None, said: str
) -> None:
    found = check(kind, document(kind, spec))
    assert isinstance(found, list)
    first = found[0]
    assert (first.field, said in f"{first.why}: {first.remedy}") == (field, True), first
    if value is not None:
        assert first.value == value


@pytest.mark.parametrize(("kind", "spec"), GOOD)
def test_what_can_be_is_taken(kind: type[Resource], spec: Any) -> None:
    assert isinstance(check(kind, document(kind, spec)), kind)


def test_a_null_is_as_if_the_field_were_not_written() -> None:
    nulls = {
        "iceberg": None,
        "schema": None,
        "group": None,
        "sparkConf": {"spark.a": None},
        "placement": {"nodeSelector": None},
    }
    found = check(ParquetSink, document(ParquetSink, {**SINK, **nulls}))
    assert isinstance(found, ParquetSink)
    assert found == check(ParquetSink, document(ParquetSink, {**SINK, "sparkConf": {}}))
    assert isinstance(
        check(
            Topic, {**document(Topic, None), "metadata": {"name": "orders", "labels": None, "annotations": {"a": None}}}
        ),
        Topic,
    )
    forever = {"tolerations": [{"key": "a", "tolerationSeconds": None}]}
    assert isinstance(check(ParquetSink, document(ParquetSink, {**SINK, "placement": forever})), ParquetSink), (
        "where null is a value, it is taken"
    )


def test_all_that_is_wrong_is_found_at_once() -> None:
    found = check(Topic, document(Topic, {"partitions": 0, "existing": "Steal"}))
    assert isinstance(found, list)
    assert [one.field for one in found] == ["spec.partitions", "spec.existing"]


def test_a_name_that_stands_for_the_topics_or_the_lanes_has_to_be_one() -> None:
    assert "249" in only(check(Topic, document(Topic, {}, name="a" * 250))).why
    assert only(check(Lane, document(Lane, {}, name="a.b"))).field == "metadata.name"
    assert isinstance(check(Lane, document(Lane, {"laneName": "ab"}, name="a.b")), Lane)
    assert "no dot" in only(check(Cluster, document(Cluster, EMBEDDED, name="a.b"))).why


def test_a_document_without_metadata_is_told_so() -> None:
    found = only(check(Topic, {"apiVersion": "bmq.io/v1alpha1", "kind": "Topic"}))
    assert (found.field, found.why) == ("metadata", "it is missing")


WRONG: tuple[Any, ...] = (
    None,
    [],
    {},
    "",
    "x" * 200_000,
    "\ud800",
    "a b",
    -1,
    2**70,
    True,
    1.5,
    [None],
    [[]],
    {"a": None},
    {"a": 1},
    [1] * 1000,
)
WRONG_MAPS: tuple[Any, ...] = ({"": ""}, {"x" * 300: "y"}, {str(number): "a" for number in range(500)})
NOT_OURS = (
    "Input should",
    "input should",
    "String should",
    "string should",
    "List should",
    "Extra inputs",
    "cannot be used (",
    "valid",
)
"""Words of the library that reads documents."""


def places(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All fields, * for a list's items."""
    for name, part in schema.get("properties", {}).items():
        yield (*path, name)
        yield from places(part, (*path, name))
    if "items" in schema:
        yield (*path, "*")
        yield from places(schema["items"], (*path, "*"))


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_wrong_with_a_field_is_said_in_sentences_with_a_remedy(kind: type[Resource]) -> None:
    spec = kind.model_fields["spec"].annotation
    assert isinstance(spec, type) and issubclass(spec, BaseModel)
    refused = 0
    for path in places(with_affinity(structural(spec))):
        for wrong in (*WRONG, *WRONG_MAPS):
            written = wrong
            for step in reversed(path):
                written = [written] if step == "*" else {step: written}
            found = check(kind, document(kind, written))
            for one in found if isinstance(found, list) else []:
                refused += 1
                assert not [words for words in NOT_OURS if words in one.why], (path, one.why)
                assert one.field and one.why and one.remedy and len(one.value) <= 60
    assert refused > 500


@pytest.mark.parametrize(
    "junk",
    [[[]] * PARTS_MAX, "x" * (CHARS_MAX + 1), {"x" * (CHARS_MAX + 1): 1}, nested(40)],
    ids=["many", "long", "a long name", "deep"],
)
def test_an_affinity_has_a_size(junk: Any) -> None:
    found = only(check(Lane, document(Lane, {"proxies": {"placement": {"affinity": {"junk": junk}}}})))
    assert (found.field, found.value) == ("spec.proxies.placement.affinity", "")
    assert f"more than {PARTS_MAX} names and values" in found.why and found.remedy == "leave some out"


def variables(*lengths: int) -> list[dict[str, str]]:
    return [{"name": f"BMQ_{number}", "value": "x" * length} for number, length in enumerate(lengths)]


@pytest.mark.parametrize(
    "placement",
    [
        {"env": variables(32_768, 32_768)},
        {"env": variables(32_768), "annotations": {"prometheus.io/a": "x" * 32_768}},
        {"labels": {"x" * 65_536: "y"}},
        {"nodeSelector": {"x": "y" * 65_536}},
    ],
    ids=["variables", "with annotations", "a name", "a selector"],
)
@pytest.mark.parametrize("part", ["proxies", "brokers"])
def test_what_a_placement_says_has_a_size_in_all(placement: dict[str, Any], part: str) -> None:
    found = only(check(Lane, document(Lane, {part: {"placement": placement}})))
    assert (found.field, found.value) == (f"spec.{part}.placement", "")
    assert found.why == "its nodeSelector, annotations, labels and env have more than 65536 characters in all"
    assert found.remedy == "shorten them, or leave some out"


def test_a_placement_may_say_much_in_one_variable() -> None:
    spec = {"proxies": {"placement": {"env": variables(32_768, 32_000), "nodeSelector": {"disk": "fast"}}}}
    assert isinstance(check(Lane, document(Lane, spec)), Lane)


def test_an_affinity_to_hundreds_of_machines_is_taken() -> None:
    values = [f"machine-{number}.region.provider.example" for number in range(900)]
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": values}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    assert isinstance(check(Lane, document(Lane, {"proxies": {"placement": {"affinity": affinity}}})), Lane)


@pytest.mark.parametrize(
    ("affinity", "field", "why", "remedy"),
    [
        ({"nodeAfinity": {}}, "nodeAfinity", "there is no such field", "write nodeAffinity, or leave it out"),
        ({"podAffinity": 3}, "podAffinity", "it has to have fields of its own", "write them below it"),
        (
            {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": [None]}]}},
            "podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaces[0]",
            "it has to be text",
            "put it in quotes",
        ),
        (
            {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1 << 31}]}},
            "podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
            "it has to be 2147483647 or less",
            "lower it",
        ),
        (
            {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}] * 65}},
            "podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            "it has more than 64 entries",
            "leave some out",
        ),
    ],
    ids=["unknown", "no object", "null in a list", "too large a number", "too many"],
)
def test_an_affinity_is_what_kubernetes_knows(affinity: Any, field: str, why: str, remedy: str) -> None:
    found = only(check(Lane, document(Lane, {"proxies": {"placement": {"affinity": affinity}}})))
    assert found.field == f"spec.proxies.placement.affinity.{field}"
    assert found.why == why and found.remedy.startswith(remedy)


def test_a_null_in_an_affinity_is_as_if_it_were_not_written() -> None:
    terms = [{"topologyKey": None, "labelSelector": None, "namespaces": None}, None]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}, "nodeAffinity": None}
    found = check(Lane, document(Lane, {"proxies": {"placement": {"affinity": affinity}}}))
    assert isinstance(found, Lane), found
