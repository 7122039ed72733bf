"""Which tables are one table, however resources name them, and whose it is."""

from typing import Any

import pytest
from tables_of_a_test import HOURLY, STREAM, claims_of, cluster, sink, topic

from bmq_operator.clusters.configuration import server_of
from bmq_operator.tables.jobs import jobs_of_sink, jobs_of_topic
from bmq_operator.tables.places import PLACE, Place, digest_of, place_of
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.topic import Topic

LAKE = {"table": "lake.shop.orders", "warehouse": "s3a://warehouse/lake"}
REST = {"table": "lake.shop.orders", "catalogType": "rest", "catalogUri": "http://rest:8181"}
SQL = {**LAKE, "catalogType": "sql", "catalogUri": "jdbc:postgresql://db/lake"}


def place(spec: dict[str, Any], *, store: dict[str, Any] | None = None, namespace: str = "shop") -> Place:
    [job] = jobs_of_sink(sink(**spec, oneTable=True), cluster(namespace=namespace, store=store or {"url": "s3://bmq"}))
    return place_of(job)


def iceberg(**spec: Any) -> dict[str, Any]:
    return {"schedule": "@daily", "iceberg": spec}


def at(output: str, **more: Any) -> dict[str, Any]:
    return {**HOURLY, "output": output, **more}


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("s3.amazonaws.com", ""),
        ("s3.amazonaws.com.cn", ""),
        ("s3.dualstack.eu-west-1.amazonaws.com", ""),
        ("s3-us-west-2.amazonaws.com", ""),
        ("bucket.s3.amazonaws.com", ""),
        ("s3.bucket.s3-eu-west-1.amazonaws.com", ""),
        ("s3.b_b.s3.amazonaws.com", ""),
        ("s3.b_b.amazonaws.com", "s3.b_b.amazonaws.com"),
        ("ec2.amazonaws.com", "ec2.amazonaws.com"),
        ("s3x.amazonaws.com", "s3x.amazonaws.com"),
        ("s3.amazonaws.com.evil.example", "s3.amazonaws.com.evil.example"),
        # A pattern that tries each s3. anew would look at this one for a quarter of an hour.
        ("s3." * 100_000 + "x", "s3." * 100_000 + "x"),
    ],
    ids=lambda value: value[:40],
)
def test_what_is_the_clouds_own_is_known_by_its_host(host: str, found: str) -> None:
    assert server_of(f"https://{host}", namespace="shop") == (f"{found}:443" if found else ":0")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (at("s3a://warehouse/tables"), at("s3://warehouse//tables/")),
        (at("s3a://warehouse/tables"), {**STREAM, "format": "string", "topics": ["payments"]}),
        (
            at("s3a://b/t", store={"endpoint": "http://minio:9000"}),
            at("s3a://b/t", store={"endpoint": "http://minio:9000/"}),
        ),
        (
            at("s3a://b/t", store={"endpoint": "http://minio.shop.svc:9000"}),
            at("s3a://b/t", store={"endpoint": "http://minio:9000"}),
        ),
        (
            at("s3a://b/t", store={"endpoint": "HTTP://MinIO.s.svc.cluster.local:9000"}),
            at("s3a://b/t", store={"endpoint": "http://minio.s:9000"}),
        ),
        (at("s3a://b/t", store={"endpoint": "https://s3.eu-west-1.amazonaws.com"}), at("s3a://b/t")),
        (iceberg(**LAKE), iceberg(table="other.shop.orders", warehouse="s3://warehouse/lake/")),
        (iceberg(**REST), iceberg(**{**REST, "table": "other.shop.orders", "catalogUri": "http://rest:8181/"})),
        (iceberg(**REST), iceberg(**{**REST, "catalogUri": "http://rest.shop.svc:8181"})),
        (iceberg(**SQL), iceberg(**{**SQL, "catalogUri": "jdbc:postgresql://db/lake?sslmode=require"})),
        (iceberg(**SQL), iceberg(**{**SQL, "catalogUri": "jdbc:postgresql://db.shop.svc.cluster.local:5432/lake"})),
    ],
)
def test_one_place_has_many_names(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert place(one) == place(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (at("s3a://warehouse/tables"), at("s3a://warehouse/tables/orders")),
        (at("s3a://b/t", store={"endpoint": "http://minio:9000"}), at("s3a://b/t")),
        (iceberg(**LAKE), iceberg(**{**LAKE, "table": "lake.shop.payments"})),
        (iceberg(**SQL), iceberg(**{**SQL, "table": "other.shop.orders"})),
        (iceberg(**REST), iceberg(**{**REST, "warehouse": "s3a://prod"})),
        (iceberg(**LAKE), at("s3a://warehouse/lake/shop/orders")),
        (
            at("s3a://b/t", store={"endpoint": "http://minio:9000"}),
            at("s3a://b/t", store={"endpoint": "http://minio:9001"}),
        ),
        (iceberg(**REST), iceberg(**{**REST, "catalogUri": "http://rest:8181/other"})),
        (iceberg(**SQL), iceberg(**{**SQL, "catalogUri": "jdbc:postgresql://db/pond"})),
        (iceberg(**SQL), iceberg(**{**SQL, "catalogUri": "jdbc:postgresql://db:5433/lake"})),
    ],
)
def test_places_that_look_alike_are_told_apart(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert place(one) != place(other)


def test_a_bucket_of_one_name_in_the_minio_of_each_namespace_is_another_bucket() -> None:
    minio = {"minio": {"embedded": True}}
    spec = {**HOURLY, "store": {}}
    [here], [there] = (
        jobs_of_sink(_in(namespace, spec), cluster(namespace=namespace, store=minio)) for namespace in ("shop", "dev")
    )
    assert place_of(here) != place_of(there)


def test_an_address_that_nobody_could_use_is_a_place_all_the_same() -> None:
    for uri in ("http://[", "http://rest:port"):
        assert place(iceberg(**{**REST, "catalogUri": uri})) != place(iceberg(**REST))


def test_a_server_of_one_name_in_each_namespace_is_another_server() -> None:
    spec = {**HOURLY, "store": {"endpoint": "http://minio:9000", "secretName": "keys"}}
    [here], [there] = (
        jobs_of_sink(_in(namespace, spec), cluster(store={"url": "s3://bmq"})) for namespace in ("shop", "dev")
    )
    assert place_of(here) != place_of(there)


def test_what_an_older_operator_made_writes_its_place_though_that_was_marked_otherwise() -> None:
    """Else an older resource that waits would have the table as soon as the operator is upgraded."""
    spec = {**HOURLY, "store": {"endpoint": "http://minio:9000", "secretName": "keys"}}
    mine, other = sink("younger", **spec), sink("older", **spec)
    [job] = jobs_of_sink(mine, cluster(store={"url": "s3://bmq"}))
    marked_before = digest_of(("parquet", "http://minio:9000", "s3://warehouse/tables/orders"))
    assert marked_before != digest_of(place_of(job))
    owner = {"controller": True, "uid": "uid-younger", "kind": "ParquetSink"}
    meta = {
        "name": job.name,
        "namespace": "shop",
        "uid": "uid-run",
        "annotations": {PLACE: marked_before},
        "ownerReferences": [owner],
    }
    bmq = {"kind": "Cluster", "metadata": {"name": "bmq", "namespace": "shop"}, "spec": {"store": {"url": "s3://bmq"}}}
    found = claims_of(
        topics=[], sinks=[written(mine), written(other)], clusters=[bmq], applications=[{"metadata": meta}]
    )
    assert {one.name: one.owned for one in found[digest_of(place_of(job))]} == {"younger": True, "older": False}


def _in(namespace: str, spec: dict[str, Any]) -> ParquetSink:
    meta = {"name": "lake", "namespace": namespace, "uid": f"uid-{namespace}"}
    return ParquetSink.model_validate({"metadata": meta, "spec": {"topics": ["orders"], **spec}})


def written(resource: Topic | ParquetSink) -> dict[str, Any]:
    return {
        "kind": resource.kind,
        "metadata": resource.metadata.model_dump(by_alias=True),
        "spec": resource.spec.written(),
    }


def test_all_that_write_are_claimants_and_nobody_else() -> None:
    bmq = {"kind": "Cluster", "metadata": {"name": "bmq", "namespace": "shop"}, "spec": {"store": {"url": "s3://bmq"}}}
    [of_topic] = jobs_of_topic(
        topic(**{**STREAM, "output": "s3a://warehouse/tables/orders"}), cluster(store={"url": "s3://bmq"})
    )
    topics = [
        written(topic(**{**STREAM, "output": "s3a://warehouse/tables/orders"})),
        written(topic("plain")) | {"spec": {}},
        {
            "kind": "Topic",
            "metadata": {"name": "wrong", "namespace": "shop"},
            "spec": {"parquet": {"format": "nothing"}},
        },
    ]
    stranger = written(_in("elsewhere", HOURLY))
    stranger["spec"]["clusterRef"] = {"name": "bmq", "namespace": "shop"}
    found = claims_of(
        topics=topics, sinks=[written(sink(**STREAM, topics=["orders", "payments"])), stranger], clusters=[bmq]
    )
    assert [one.title for one in found[digest_of(place_of(of_topic))]] == ["Topic shop/orders", "ParquetSink shop/lake"]
    assert {one.title for rivals in found.values() for one in rivals} == {"Topic shop/orders", "ParquetSink shop/lake"}
    without = claims_of(topics=[], sinks=[written(sink(**STREAM))], clusters=[])
    assert len(without) == 1, "what was begun goes on without its Cluster"
