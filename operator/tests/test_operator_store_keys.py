"""The Secret with the keys to the store: what of it is needed by which store, and what a Cluster says where that is not there."""

import asyncio
import base64
from dataclasses import replace
from typing import Any

import pytest
from kube_of_a_test import CLUSTER, KubeOfATest, context_of

from bmq.resources.cluster import Cluster
from bmq.runtime.system import SystemRng
from bmq_operator.clusters.existing import Existing
from bmq_operator.clusters.gathering import NotToBe, gather
from bmq_operator.clusters.inputs import Inputs

GS, AZ, S3 = "gs://bucket", "az://container?account=me", "s3://bucket?region=eu-1"


def gathered(url: str, **keys: str) -> Inputs:
    spec = {"store": {"url": url, "credentials": {"secretName": "keys"}}}
    cluster = Cluster.model_validate({**CLUSTER, "metadata": {**CLUSTER["metadata"], "uid": "u-1"}, "spec": spec})
    data = {name: base64.b64encode(value.encode()).decode() for name, value in keys.items()}
    secret: dict[str, Any] = {"kind": "Secret", "metadata": {"name": "keys", "namespace": "shop", "labels": {"bmq.io/use": "allowed"}}, "data": data}
    auth = {name: base64.b64encode(b"c" * 32).decode() for name in ("cluster-secret", "admin-token")}
    kube = KubeOfATest(secret, {"kind": "Secret", "metadata": {"name": "bmq-auth", "namespace": "shop"}, "data": auth})

    async def main() -> Inputs:
        return await gather(replace(context_of(kube, "", {}), rng=SystemRng()), cluster, Existing(objects={}, pods=()), advertised={})

    return asyncio.run(main())


@pytest.mark.parametrize(("url", "key"), [(S3, "AWS_ACCESS_KEY_ID"), (GS, "GOOGLE_SERVICE_ACCOUNT_KEY"), (AZ, "AZURE_STORAGE_ACCOUNT_KEY")])
def test_a_secret_without_the_key_of_its_store_is_told_with_what_it_has(url: str, key: str) -> None:
    with pytest.raises(NotToBe, match=rf"the Secret 'keys' has no key '{key}' \(it has: OTHER\): add it, or name another") as raised:
        gathered(url, OTHER="x")
    assert raised.value.finding.reason == "SecretKeyMissing"


def test_nodes_start_anew_with_the_key_that_changes_and_not_with_others() -> None:
    first = gathered(AZ, AZURE_STORAGE_ACCOUNT_KEY="one")
    assert gathered(AZ, AZURE_STORAGE_ACCOUNT_KEY="one", OTHER="x").credentials_digest == first.credentials_digest
    assert gathered(AZ, AZURE_STORAGE_ACCOUNT_KEY="two").credentials_digest != first.credentials_digest
