"""Keys of a Cluster reach a table only where the Cluster itself may have them, and go to the Cluster's own server
alone.
"""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kube_of_a_test import CLUSTER
from tables_world import World, ready, run

from bmq_operator.references import refer
from bmq_operator.tables.jobs import jobs_of_topic
from bmq_operator.tables.reconcile import _tables
from bmq_resources.topic import Topic

STREAM: dict[str, Any] = {"output": "s3a://b/lake", "continuous": {}}
SERVER = "http://store.example:9000"
KEYS = {"secretName": "db-admin", "accessKeyIdKey": "password", "secretAccessKeyKey": "password"}
S3: dict[str, Any] = {"url": f"s3://b?endpoint={SERVER}", "credentials": KEYS}
MINIO: dict[str, Any] = {"minio": {"embedded": True}}


def secret(name: str, *, owner: str = "", **labels: str) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": "shop",
        "labels": {key.replace("_", "/"): value for key, value in labels.items()},
    }
    owners = (
        {"ownerReferences": [{"controller": True, "kind": "Cluster", "name": "bmq", "uid": owner}]} if owner else {}
    )
    return {"kind": "Secret", "metadata": {**meta, **owners}, "data": {"password": "aHVudGVyMg=="}}


def in_world(store: dict[str, Any], *secrets: dict[str, Any], use: Callable[[World], Awaitable[None]]) -> None:
    async def begun(world: World) -> None:
        world.kube.keep({**CLUSTER, "metadata": {**CLUSTER["metadata"], "uid": "uid-bmq"}, "spec": {"store": store}})
        for one in secrets:
            world.kube.keep(copy.deepcopy(one))
        await use(world)

    run(begun)


UNLABELLED = secret("db-admin")
LABELLED = {**UNLABELLED, "metadata": {**UNLABELLED["metadata"], "labels": {"bmq.io/use": "allowed"}}}
REFUSED: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], str, str]] = {
    "a Secret that nobody labelled": (
        S3,
        [UNLABELLED],
        {},
        "NotAllowed",
        "store.credentials of Cluster shop/bmq.secretName",
    ),
    "no Secret": (S3, [], {}, "SecretMissing", "db-admin"),
    "another server": (S3, [LABELLED], {"endpoint": "http://attacker.example:9000"}, "NotAllowed", "store.endpoint"),
    "another port": (S3, [LABELLED], {"endpoint": "http://store.example:9001"}, "NotAllowed", "store.endpoint"),
    "a server instead of AWS": (
        {**S3, "url": "s3://b"},
        [LABELLED],
        {"endpoint": "http://attacker.example"},
        "NotAllowed",
        "store.endpoint",
    ),
    "another server than its MinIO": (
        MINIO,
        [secret("bmq-minio", owner="uid-bmq")],
        {"endpoint": SERVER},
        "NotAllowed",
        "store.endpoint",
    ),
    "somebody's Secret of the name": (MINIO, [secret("bmq-minio")], {}, "NotAllowed", "bmq-minio"),
    "another owner's": (MINIO, [secret("bmq-minio", owner="uid-of-another")], {}, "NotAllowed", "bmq-minio"),
    "none yet": (MINIO, [], {}, "SecretMissing", "bmq-minio"),
}


@pytest.mark.parametrize(("store", "secrets", "access", "reason", "word"), REFUSED.values(), ids=REFUSED)
def test_keys_that_a_cluster_may_not_have_are_not_had_by_way_of_it(
    store: dict[str, Any], secrets: list[dict[str, Any]], access: dict[str, Any], reason: str, word: str
) -> None:
    async def use(world: World) -> None:
        found = ready(await world.look({**STREAM, "store": access}))
        assert (found.status, found.reason) == ("False", reason)
        assert word in found.message
        assert world.kube.writes == []

    in_world(store, *secrets, use=use)


ALLOWED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "its own": (S3, LABELLED, {}),
    "its own server, written once more": (S3, LABELLED, {"endpoint": f"{SERVER}/"}),
    "its MinIO": (MINIO, secret("bmq-minio", owner="uid-bmq"), {}),
    "its MinIO by a longer name": (
        MINIO,
        secret("bmq-minio", owner="uid-bmq"),
        {"endpoint": "http://bmq-minio.shop.svc.cluster.local:9000"},
    ),
}


@pytest.mark.parametrize(("store", "keys", "access"), ALLOWED.values(), ids=ALLOWED)
def test_keys_that_a_cluster_may_have_are_a_tables_too(
    store: dict[str, Any], keys: dict[str, Any], access: dict[str, Any]
) -> None:
    async def use(world: World) -> None:
        assert ready(await world.look({**STREAM, "store": access}, oneTable=True)).reason != "NotAllowed"
        driver = world.kube.manifests["SparkApplication", "shop", "lake-sink"]["spec"]["driver"]
        assert {one["name"] for one in driver["envSecretKeyRefs"].values()} == {keys["metadata"]["name"]}

    in_world(store, keys, use=use)


def test_a_topics_table_borrows_by_the_same_rule() -> None:
    meta = {"name": "orders", "namespace": "shop", "uid": "uid-orders"}
    topic = Topic.model_validate({"metadata": meta, "spec": {"clusterRef": {"name": "bmq"}, "parquet": STREAM}})

    async def use(world: World) -> None:
        referred = await refer(world.context, topic.metadata, topic.spec.cluster_ref)
        assert referred.cluster is not None
        tables = await _tables(world.context, jobs_of_topic(topic, referred.cluster), referred, [], prefix="Parquet")
        assert [one.reason for one in tables.findings if one.type == "ParquetReady"] == ["NotAllowed"]
        assert world.kube.writes == []

    in_world(S3, UNLABELLED, use=use)
