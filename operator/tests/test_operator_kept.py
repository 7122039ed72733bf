"""What one look keeps of the objects that it lists has a bound, as anybody may have written them; who has more is told
so.
"""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from clusters_world import World, cluster, run
from kube_of_a_test import context_of
from served import served
from tables_world import SparkKube

from bmq_operator.answers import KEPT_BYTES_MAX, Allowance, TooMuch, weight_bytes, without_fields
from bmq_operator.clusters.existing import read_existing
from bmq_operator.clusters.listed import kept_of_pod
from bmq_operator.kube import Kube, KubeProblem
from bmq_operator.tables import existing as tables
from bmq_operator.tables.desired import selector
from bmq_operator.tables.places import PLACE, writer
from bmq_operator.understood import understood, which
from bmq_resources.cluster import Cluster

KEYS = {f"key-{number}": "" for number in range(1_000)}
"""Of an object of some 100 kB."""
MANY = 2 * KEPT_BYTES_MAX // weight_bytes(KEYS)


def of_somebody(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """What anybody may make who may make objects beside a Cluster."""
    meta = {"name": name, "namespace": "shop", "labels": {"bmq.io/cluster": "prod"}}
    return {"kind": kind, "metadata": {**meta, **more.pop("meta", {})}, **more}


def owned_by(uid: str) -> dict[str, Any]:
    return {"ownerReferences": [{"uid": uid, "controller": True}]}


def test_a_cluster_with_more_objects_than_are_kept_is_told_so_and_nothing_more_is_read() -> None:
    async def use(world: World) -> None:
        assert (await world.look("prod"))[1] != "TooMuchToRead"
        for number in range(MANY):
            world.kube.keep(of_somebody("ConfigMap", f"c{number}", data=dict(KEYS), meta=owned_by("uid-of-prod")))
        with pytest.raises(KubeProblem) as raised:
            await world.look("prod")
        assert raised.value.too_large
        status, reason, message = world.ready("prod")
        assert (status, reason) == ("Unknown", "TooMuchToRead")
        assert "objects in shop with the label bmq.io/cluster=prod" in message and "delete those" in message

    run(use, cluster())


@pytest.mark.parametrize("kind", ["Pod", "StatefulSet"])
def test_of_pods_and_stateful_sets_that_only_carry_the_label_little_is_kept(kind: str) -> None:
    container = {"name": "a", "image": "x", "env": [{"name": key} for key in KEYS]}
    spec = {"containers": [container], "volumes": [{"name": key} for key in KEYS]}
    one = of_somebody(kind, "s", spec=spec, meta={"annotations": KEYS, "managedFields": [KEYS]})
    one["metadata"]["labels"] |= {"app.kubernetes.io/component": "broker"}

    async def use(world: World) -> None:
        world.kube.keep(one)
        found = await read_existing(world.kube, understood(Cluster, world.there("Cluster", "prod")))  # type: ignore[arg-type]
        kept = found.strangers if kind == "Pod" else found.orphans
        assert len(kept) == 1 and weight_bytes(kept[0]) < 8_000

    run(use, cluster())


def test_of_schemas_it_is_kept_which_they_are_and_a_table_with_too_many_objects_is_refused() -> None:
    async def read(*found: dict[str, Any]) -> tables.Existing:
        context = context_of(SparkKube(*found), "http://127.0.0.1:1", {})
        return await tables.read_existing(context, "shop", "uid-1")

    meta = {"labels": selector("uid-1"), "uid": "uid-2", **owned_by("uid-1")}
    schemas = [of_somebody("ConfigMap", f"c{number}", data=dict(KEYS), meta=meta) for number in range(20)]
    runs = [of_somebody("SparkApplication", f"r{number}", spec=dict(KEYS), meta=meta) for number in range(MANY)]

    async def main() -> None:
        kept = (await read(*schemas)).schemas
        assert len(kept) == 20 and weight_bytes(list(kept)) < 20 * 2_000
        with pytest.raises(KubeProblem) as raised:
            await read(*runs)
        assert raised.value.too_large and "bmq.io/table-owner=uid-1" in raised.value.message

    asyncio.run(main())


def test_an_allowance_that_is_used_up_stays_so() -> None:
    allowance = Allowance(left_bytes=1_000)
    assert allowance.keep({"a": "b"}) == {"a": "b"}
    for _ in range(2):
        with pytest.raises(TooMuch):
            allowance.keep("x" * 1_000)


def test_managers_stay_where_they_are_without_their_fields() -> None:
    fields = {"f:spec": {"f:replicas": {}, "f:template": KEYS}}
    managers = [
        {"manager": "a", "operation": "Apply", "time": "t", "fieldsV1": fields},
        {"manager": "b", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": KEYS}},
    ]
    kept = without_fields({"kind": "StatefulSet", "metadata": {"name": "x", "managedFields": managers}})
    assert kept["metadata"]["managedFields"] == [
        {"manager": "a", "operation": "Apply", "time": "t", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "b", "operation": "Update", "subresource": "status"},
    ]


def test_there_is_no_call_that_lists_whole_objects() -> None:
    """Each one says what it keeps."""
    assert not hasattr(Kube, "list")


def test_of_a_resource_no_labels_are_remembered_and_of_annotations_those_of_bmq() -> None:
    annotations = {**KEYS, "bmq.io/delete-data": "true"}
    found = understood(Cluster, cluster(meta={"labels": KEYS, "annotations": annotations}))
    assert (found.metadata.labels, found.metadata.annotations) == ({}, {"bmq.io/delete-data": "true"})


@pytest.mark.parametrize(("kind", "too_large"), [("Secret", True), ("Cluster", False)])
def test_an_object_that_takes_too_much_memory_is_not_held_unless_it_is_a_resource(kind: str, too_large: bool) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(
            {"kind": kind, "metadata": {"name": "a"}, "data": dict.fromkeys(map(str, range(90_000)), "")}
        )

    async def main() -> None:
        async with served(answer) as kube:
            if not too_large:
                assert await kube.get(kind, "shop", "a")
                return
            with pytest.raises(KubeProblem, match="takes more than 4 MiB") as raised:
                await kube.get(kind, "shop", "a")
            assert raised.value.too_large

    asyncio.run(main())


def test_there_is_room_for_a_cluster_as_large_as_one_may_be() -> None:
    at = "2026-11-27T09:11:33Z"
    conditions = [{"type": f"Condition-{n}", "status": "True", "lastTransitionTime": at} for n in range(5)]
    image = {"image": "registry.example/bmq:1", "imageID": "x" * 100, "containerID": "y" * 80}
    running = {"name": "bmq", **image, "restartCount": 1, "state": {"running": {"startedAt": at}}, "lastState": {}}

    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        pod = world.there("Pod", "prod-broker-0")
        pod |= {"status": {"conditions": conditions, "containerStatuses": [running]}}
        brokers_and_proxies, services = 2 * 1_000, 1_000
        pods = brokers_and_proxies * weight_bytes(kept_of_pod(pod))
        assert pods + services * weight_bytes(world.there("Service", "prod-internal-0")) < KEPT_BYTES_MAX

    run(use, cluster())


def test_of_another_ones_resource_and_of_what_writes_a_table_it_is_kept_which_it_is() -> None:
    meta = {"finalizers": [*KEYS], "annotations": {"bmq.io/note": "x" * 100_000}}
    assert weight_bytes(which(understood(Cluster, cluster(meta=meta)).metadata).model_dump()) < 4_000
    owner = {"controller": True, "uid": "u" * 100_000, "name": "n" * 100_000}
    application = of_somebody("SparkApplication", "a", meta={"ownerReferences": [owner], **meta})
    application["metadata"]["annotations"] = {PLACE: "p" * 100_000}
    assert weight_bytes(writer(application)) < 4_000
