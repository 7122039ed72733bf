"""One table that several resources name is written by the oldest of them."""

from typing import Any

import pytest
from kube_of_a_test import CLUSTER
from tables_of_a_test import HOURLY, STREAM
from tables_world import World, ready, run, sink

from bmq.resources.tables import TableStatus


def older(kind: str, namespace: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": "older", "namespace": namespace, "uid": "uid-older", "creationTimestamp": "2001-01-01T00:00:00Z"}
    return {"apiVersion": "bmq.io/v1alpha1", "kind": kind, "metadata": meta, "spec": {"clusterRef": {"namespace": "shop"}, **spec}}


@pytest.mark.parametrize(
    "first",
    [
        older("ParquetSink", "prod", topics=["a"], oneTable=True, **{**STREAM, "output": "s3://warehouse/tables/orders/"}),
        older("Topic", "shop", parquet={**HOURLY, "output": "s3a://warehouse/tables/orders"}),
    ],
    ids=["sink", "topic"],
)
def test_of_two_resources_for_one_table_the_younger_waits_for_the_older_to_go(first: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        topics = ("orders", "payments")
        world.kube.keep({**CLUSTER, "spec": {"topicsFrom": {"namespaces": ["prod"]}}})
        world.kube.keep({"kind": "ParquetSink", **sink(STREAM, topics=topics).model_dump(mode="json", by_alias=True)})
        await world.look(STREAM, topics=topics)
        assert len(world.kube.names("SparkApplication")) == 2
        world.kube.keep(first)
        world.context.known.table_claims.forget("claims")
        taken = await world.look(STREAM, topics=topics)
        assert (ready(taken).status, ready(taken).reason) == ("False", "OutputTaken")
        title = f"{first['kind']} {first['metadata']['namespace']}/older"
        assert f"s3a://warehouse/tables/orders is the table of {title}" in ready(taken).message and "write another output" in ready(taken).message
        [kept] = world.kube.names("SparkApplication")
        assert "payments" in kept, "the other table goes on"
        assert taken.again_after_s is not None and taken.again_after_s <= 10
        assert world.status.tables[0] == TableStatus(output="s3a://warehouse/tables/orders")
        world.kube.drop(first["kind"], first["metadata"]["namespace"], "older")
        world.context.known.table_claims.forget("claims")
        await world.look(STREAM, topics=topics)
        assert all(one.application for one in world.status.tables)
        assert len(world.kube.names("SparkApplication")) == 2

    run(use)


def test_a_sink_that_was_made_after_the_last_look_at_all_meets_an_older_one() -> None:
    async def use(world: World) -> None:
        await world.look(STREAM, oneTable=True)  # reads who claims what
        world.kube.keep(older("ParquetSink", "shop", topics=["a"], oneTable=True, **STREAM))
        assert ready(await world.look(STREAM, oneTable=True)).reason == "OutputTaken", "nothing was known of this one: all are read anew"

    run(use)
