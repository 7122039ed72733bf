"""The Secret with the keys to the store: what of it is needed by which store, and what a Cluster says where that is not
there.
"""

import asyncio
import base64
from dataclasses import replace
from typing import Any

import pytest
from kube_of_a_test import CLUSTER, KubeOfATest, context_of

from bmq.runtime.system import SystemRng
from bmq_operator.clusters.configuration import store_place
from bmq_operator.clusters.existing import Existing
from bmq_operator.clusters.gathering import gather
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.refused import NotToBe
from bmq_resources.cluster import Cluster

GS, AZ, S3 = "gs://bucket", "az://container?account=mine", "s3://bucket?region=eu-1"


def gathered(url: str, **keys: str) -> Inputs:
    spec = {"store": {"url": url, "credentials": {"secretName": "keys"}}}
    cluster = Cluster.model_validate({**CLUSTER, "metadata": {**CLUSTER["metadata"], "uid": "u-1"}, "spec": spec})
    data = {name: base64.b64encode(value.encode()).decode() for name, value in keys.items()}
    secret: dict[str, Any] = {
        "kind": "Secret",
        "metadata": {"name": "keys", "namespace": "shop", "labels": {"bmq.io/use": "allowed"}},
        "data": data,
    }
    auth = {name: base64.b64encode(b"c" * 32).decode() for name in ("cluster-secret", "admin-token")}
    kube = KubeOfATest(secret, {"kind": "Secret", "metadata": {"name": "bmq-auth", "namespace": "shop"}, "data": auth})

    async def main() -> Inputs:
        return await gather(
            replace(context_of(kube, "", {}), rng=SystemRng()), cluster, Existing(objects={}, pods=()), advertised={}
        )

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "key"), [(S3, "AWS_ACCESS_KEY_ID"), (GS, "GOOGLE_SERVICE_ACCOUNT_KEY"), (AZ, "AZURE_STORAGE_ACCOUNT_KEY")]
)
def test_a_secret_without_the_key_of_its_store_is_told_with_what_it_has(url: str, key: str) -> None:
    with pytest.raises(
        NotToBe, match=rf"the Secret 'keys' has no key '{key}' \(it has: OTHER\): add it, or name another"
    ) as raised:
        gathered(url, OTHER="x")
    assert raised.value.finding.reason == "SecretKeyMissing"


def place(url: str, *, namespace: str = "shop") -> tuple[str, ...]:
    spec = {"store": {"url": url} if url else {"minio": {"embedded": True}}}
    return store_place(
        Cluster.model_validate({**CLUSTER, "metadata": {"name": "bmq", "namespace": namespace}, "spec": spec})
    )


MINIO = "s3://bmq?endpoint=http://bmq-minio.shop.svc:9000"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("", MINIO),
        (MINIO, "s3://bmq/?region=eu-1&path_style=true&endpoint=http://bmq-minio.shop.svc.cluster.local:9000/"),
        (MINIO, "s3://bmq?endpoint=http%3A%2F%2FBMQ-minio.shop%3A9000"),
        (MINIO, "s3://bmq?endpoint=http://bmq-minio:9000"),
        ("s3://bucket/a/b", "s3://bucket//a/b/?region=eu-1"),
        ("s3://b?endpoint=https://s3.example", "s3://b?endpoint=https://s3.example:443"),
        ("s3://[b", "s3://[b"),
        ("s3://b?region=eu-west-1", "s3://b?region=eu-west-1&endpoint=https://s3.eu-west-1.amazonaws.com"),
        ("s3://b", "s3://b?endpoint=http://decoy&endpoint="),
        ("s3://b/p", "s3://b/p#?endpoint=http://decoy"),
        ("s3://b?endpoint=http://h:port", "s3://b?endpoint=http://h:port"),
    ],
)
def test_one_store_is_known_however_its_url_is_written(one: str, other: str) -> None:
    assert place(one) == place(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MINIO, "s3://other?endpoint=http://bmq-minio.shop.svc:9000"),
        (MINIO, "s3://bmq?endpoint=http://bmq-minio.prod.svc:9000"),
        (MINIO, "s3://bmq?endpoint=http://bmq-minio.shop.svc:9001"),
        (MINIO, "s3://bmq"),
        ("s3://bucket/a", "s3://bucket/b"),
        ("s3://bucket", "gs://bucket"),
        ("az://bmq?account=one", "az://bmq?account=two"),
        ("s3://b", "s3://b?endpoint=https://s3.example"),
        ("s3://b", "s3://b?endpoint=https://s3.amazonaws.com.evil.example"),
        ("s3://[b", "s3://[c"),
    ],
)
def test_stores_that_look_alike_are_told_apart(one: str, other: str) -> None:
    assert place(one) != place(other)


def test_a_bucket_in_the_minio_of_one_name_in_another_namespace_is_another_one() -> None:
    assert place("") != place("", namespace="prod")
    assert place("s3://bmq?endpoint=http://minio:9000") != place(
        "s3://bmq?endpoint=http://minio:9000", namespace="prod"
    )


def test_a_second_cluster_over_one_store_is_refused_however_its_url_is_written() -> None:
    first = {
        **CLUSTER,
        "metadata": {"name": "first", "namespace": "shop", "uid": "u-0"},
        "spec": {"store": {"url": MINIO}},
        "status": {"store": MINIO},
    }
    later = {"name": "later", "namespace": "shop", "uid": "u-1", "creationTimestamp": "2026-01-02T00:00:00Z"}
    url = "s3://bmq?region=eu-1&endpoint=http://bmq-minio.shop:9000"
    cluster = Cluster.model_validate(
        {**CLUSTER, "metadata": later, "spec": {"clusterId": "shop-first", "store": {"url": url}}}
    )
    with pytest.raises(NotToBe) as raised:
        asyncio.run(
            gather(context_of(KubeOfATest(first), "", {}), cluster, Existing(objects={}, pods=()), advertised="")
        )
    assert (raised.value.finding.reason, "is the store of Cluster shop/first" in raised.value.finding.message) == (
        "StoreShared",
        True,
    )


def test_nodes_start_anew_with_the_key_that_changes_and_not_with_others() -> None:
    first = gathered(AZ, AZURE_STORAGE_ACCOUNT_KEY="one")
    assert gathered(AZ, AZURE_STORAGE_ACCOUNT_KEY="one", OTHER="x").credentials_digest == first.credentials_digest
    assert gathered(AZ, AZURE_STORAGE_ACCOUNT_KEY="two").credentials_digest != first.credentials_digest
