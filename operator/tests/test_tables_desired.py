"""Which objects a table is, without an API server: reviewed ones, names, keys, and what the Spark Operator's own CRDs
say of them.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from tables_of_a_test import HOURLY, STREAM, cluster, misfits, sink, spark_schema, topic

from bmq_operator.spark_settings import SparkSettings
from bmq_operator.tables.desired import desired
from bmq_operator.tables.jobs import Anew, TableJob, jobs_of_sink, jobs_of_topic
from bmq_operator.tables.places import KIND_LABEL, NAME_LABEL, OWNER_LABEL

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = SparkSettings(
    image="bmq-spark:1.2.3", event_log="s3a://logs/spark", pull_secrets=("registry",), conf={"spark.log.level": "WARN"}
)
JSON = {"format": "json", "schema": {"text": "id BIGINT, name STRING"}}
RICH: dict[str, Any] = {
    "format": "avro",
    "schema": {"configMapKeyRef": {"name": "schemas", "key": "order.avsc"}},
    "checkpoint": "s3a://warehouse/checkpoints/orders",
    "keyFormat": "string",
    "partitionBy": "date",
    "targetFileSize": "64MiB",
    "retention": "30d",
    "source": "bmq",
    "startingOffsets": "latest",
    "lane": "dev",
    "group": "lake",
    "acceptLoss": True,
    "consumerConfig": {"fetch.max.bytes": "1048576"},
    "compact": {"mode": "Always", "schedule": "5 2 * * *", "minFiles": 8},
    "resources": {
        "driver": {"memory": "2g", "coreLimit": "2"},
        "executor": {"instances": 4, "cores": 2, "memoryOverhead": "3g"},
    },
    "placement": {
        "nodeSelector": {"pool": "spark"},
        "tolerations": [{"key": "spark", "operator": "Exists"}],
        "priorityClassName": "low",
        "annotations": {"a": "b"},
        "labels": {"team": "data"},
        "env": [{"name": "TZ", "value": "UTC"}],
    },
    "sparkConf": {"spark.sql.shuffle.partitions": "8"},
    "image": "mine:1",
    "serviceAccount": "mine",
}
ICEBERG = {
    "schedule": "@daily",
    "iceberg": {
        "table": "lake.shop.orders",
        "catalogType": "rest",
        "catalogUri": "http://rest:8181",
        "upsertKey": "key",
    },
}
JOBS: dict[str, list[TableJob]] = {
    "table-of-topic": jobs_of_topic(topic(**HOURLY, **RICH), cluster(store={"url": "s3://bmq/data?region=eu-west-1"})),
    "tables-of-sink": jobs_of_sink(
        sink(topics=["orders", "Pay_ments"], **STREAM, **JSON), cluster(store={"minio": {"embedded": True}})
    ),
    "table-in-iceberg": jobs_of_sink(sink(**ICEBERG), cluster(namespace="prod")),
}
MADE = {name: [one for job in jobs for one in desired(job, SETTINGS)] for name, jobs in JOBS.items()}
MADE["begun-anew"] = desired(
    JOBS["tables-of-sink"][0], SparkSettings(), anew=Anew(failures=2, after="2026-01-01T00:00:00Z")
)


@pytest.mark.parametrize("name", JOBS)
def test_a_table_makes_the_expected_objects(name: str) -> None:
    made = yaml.safe_dump_all(MADE[name], sort_keys=False, width=140)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("BMQ_WRITE_GOLDEN"):
        file.write_text(made)
    assert made == file.read_text()


@pytest.mark.timeout(900)  # the first one fetches the Spark Operator's own sources
@pytest.mark.parametrize("name", MADE)
def test_the_spark_operators_own_schemas_know_all_of_it(name: str) -> None:
    checked = [(one, spark_schema(one["kind"])) for one in MADE[name] if one["kind"] != "ConfigMap"]
    assert checked
    assert [found for one, schema in checked for found in misfits(one, schema)] == []


@pytest.mark.timeout(900)
def test_the_check_against_the_schemas_finds_what_is_wrong() -> None:
    (made,) = (one for one in MADE["begun-anew"] if one["kind"] == "SparkApplication")
    spec = made["spec"]
    for wrong, says in (
        ({"restartPolicy": {"type": "Sometimes"}}, "none of"),
        ({"drivers": {}}, "not known"),
        ({"arguments": [1]}, "is no string"),
        ({"executor": {**spec["executor"], "instances": 0}}, "less than 1"),
    ):
        assert any(
            says in one for one in misfits({**made, "spec": {**spec, **wrong}}, spark_schema("SparkApplication"))
        )
    without = {key: value for key, value in spec.items() if key != "driver"}
    assert list(misfits({**made, "spec": without}, spark_schema("SparkApplication"))) == [".spec.driver is missing"]


def test_names_are_labels_whatever_the_resources_are_called() -> None:
    long = "a" * 253
    jobs = [
        *jobs_of_topic(topic("orders.v1", **STREAM), cluster()),
        *jobs_of_topic(topic("orders-v1", **STREAM), cluster()),
        *jobs_of_topic(topic("1st", **STREAM), cluster()),
        *jobs_of_topic(topic(long, **STREAM), cluster()),
        *jobs_of_topic(topic(f"{long[:-1]}b", **STREAM), cluster()),
        *jobs_of_sink(sink("orders-v1", topics=["a", "A", "a.b", "a-b", "compact"], **STREAM), cluster()),
        *jobs_of_sink(sink("orders-v1", topics=["a", "b"], oneTable=True, **STREAM), cluster()),
    ]
    names = [name for job in jobs for name in (job.name, job.compact_name)]
    assert len(names) == len(set(names))
    for name in names:
        assert len(name) <= 43, "a run of a schedule adds 20 characters"
        assert name[0].isalpha()
        assert name.replace("-", "a").isalnum() and name == name.lower() and not name.endswith("-")
    assert jobs[1].name == "orders-v1-topic"


def test_one_table_has_all_topics_and_else_each_has_its_own_below() -> None:
    spec = {**STREAM, "topics": ["orders", "payments"]}
    assert [(job.topics, job.output) for job in jobs_of_sink(sink(**spec), cluster())] == [
        (("orders",), "s3a://warehouse/tables/orders"),
        (("payments",), "s3a://warehouse/tables/payments"),
    ]
    named = jobs_of_sink(sink(**spec, checkpoint="s3a://warehouse/places/", group="lake"), cluster())
    assert [(job.table.checkpoint, job.table.group) for job in named] == [
        ("s3a://warehouse/places/orders", "lake-orders"),
        ("s3a://warehouse/places/payments", "lake-payments"),
    ], "two jobs never share a place"
    (together,) = jobs_of_sink(sink(**spec, oneTable=True), cluster())
    assert (together.topics, together.output) == (("orders", "payments"), "s3a://warehouse/tables")


def test_small_files_of_streams_are_merged_unless_somebody_says_otherwise() -> None:
    def compacted(spec: dict[str, Any], mode: str) -> bool:
        (job,) = jobs_of_sink(sink(**spec, compact={"mode": mode}), cluster())
        return len([one for one in desired(job, SETTINGS) if one["metadata"]["name"] == job.compact_name]) == 1

    found = [[compacted(spec, mode) for mode in ("Auto", "Always", "Never")] for spec in (STREAM, HOURLY, ICEBERG)]
    assert found == [[True, True, False], [False, True, False], [False, False, False]]


MINIO = {"store": {"minio": {"embedded": True}}}
OWN_KEYS = {
    "store": {
        "url": "s3://bmq?endpoint=http://minio:9000",
        "credentials": {"secretName": "bmq-keys", "accessKeyIdKey": "id"},
    }
}


@pytest.mark.parametrize(
    ("access", "spec", "namespace", "env", "keys"),
    [
        (
            {},
            MINIO,
            "shop",
            {"AWS_ENDPOINT_URL_S3": "http://bmq-minio.shop.svc:9000"},
            {("bmq-minio", "user"), ("bmq-minio", "password")},
        ),
        ({}, MINIO, "prod", {}, set()),
        (
            {},
            OWN_KEYS,
            "shop",
            {"AWS_ENDPOINT_URL_S3": "http://minio:9000"},
            {("bmq-keys", "id"), ("bmq-keys", "AWS_SECRET_ACCESS_KEY")},
        ),
        (
            {"region": "eu-west-1"},
            {"store": {"url": "s3://bmq?region=us-west-2"}},
            "shop",
            {"AWS_REGION": "eu-west-1"},
            set(),
        ),
        ({}, {"store": {"url": "gs://bmq", "credentials": {"secretName": "google"}}}, "shop", {}, set()),
        (
            {"secretName": "mine"},
            OWN_KEYS,
            "shop",
            {},
            {("mine", "AWS_ACCESS_KEY_ID"), ("mine", "AWS_SECRET_ACCESS_KEY")},
        ),
    ],
)
def test_keys_are_the_tables_own_else_the_clusters_of_the_same_namespace(
    access: dict[str, str], spec: dict[str, Any], namespace: str, env: dict[str, str], keys: set[tuple[str, str]]
) -> None:
    (job,) = jobs_of_sink(sink(**{**STREAM, "store": access}), cluster(namespace=namespace, **spec))
    assert (dict(job.store.env), set(job.store.secret_keys.values())) == (env, keys)


def test_an_event_of_any_object_or_pod_finds_its_resource() -> None:
    for one in MADE["tables-of-sink"]:
        assert (one["metadata"]["labels"][KIND_LABEL], one["metadata"]["labels"][NAME_LABEL]) == ("ParquetSink", "lake")
        assert [owner["uid"] for owner in one["metadata"]["ownerReferences"]] == ["uid-lake"]
    (job,) = jobs_of_topic(topic("a" * 100, **STREAM), cluster())
    assert all(
        len(value) <= 63
        for one in desired(job, SETTINGS)
        for name, value in one["metadata"]["labels"].items()
        if name != OWNER_LABEL
    )
