"""One table that several resources name is written by whoever writes it already; of those that have yet to begin, by
the oldest.
"""

from dataclasses import replace
from typing import Any

import pytest
from kube_of_a_test import CLUSTER
from tables_of_a_test import HOURLY, STREAM
from tables_world import World, ready, run, sink

from bmq_operator.known import PLACE_TAKEN_S
from bmq_operator.kube import KubeProblem, KubeUnreachable
from bmq_operator.outcome import Outcome
from bmq_operator.tables.places import PLACE
from bmq_operator.tables.reconcile import reconcile
from bmq_operator.takers import Takers
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.tables import TableStatus

FORBIDDEN = {**STREAM, "sparkConf": {"spark.jars": "http://evil.example/x.jar"}}


def older(kind: str, namespace: str, **spec: Any) -> dict[str, Any]:
    meta = {
        "name": "older",
        "namespace": namespace,
        "uid": "uid-older",
        "generation": 1,
        "creationTimestamp": "2001-01-01T00:00:00Z",
    }
    return {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": kind,
        "metadata": meta,
        "spec": {"clusterRef": {"namespace": "shop"}, **spec},
    }


OF_ITS_OWN = ("SparkApplication", "ScheduledSparkApplication", "ConfigMap")
OF_ALL = ("Topic", "ParquetSink", "Cluster", "SparkApplication", "ScheduledSparkApplication")
"""What is listed of all resources to tell whose a place is."""
SINK = older("ParquetSink", "shop", topics=["a"], oneTable=True, **STREAM)


async def look(world: World, manifest: dict[str, Any]) -> Outcome:
    """At a ParquetSink, keeping its status as the operator would."""
    outcome = await reconcile(world.context, ParquetSink.model_validate(manifest))
    assert outcome.status is not None
    manifest["status"] = outcome.status.written()
    return outcome


def written(world: World, **spec: Any) -> dict[str, Any]:
    """The younger one, as the API server has it."""
    manifest = {"kind": "ParquetSink", **sink({**STREAM, **spec}, oneTable=True).model_dump(mode="json", by_alias=True)}
    world.kube.keep(manifest)
    return manifest


def writers(world: World) -> set[str]:
    return world.kube.names("SparkApplication")


@pytest.mark.parametrize(
    "first",
    [
        older(
            "ParquetSink", "prod", topics=["a"], oneTable=True, **{**STREAM, "output": "s3://warehouse/tables/orders/"}
        ),
        older("Topic", "shop", parquet={**HOURLY, "output": "s3a://warehouse/tables/orders"}),
    ],
    ids=["sink", "topic"],
)
def test_of_two_resources_that_have_yet_to_begin_the_younger_waits_for_the_older_to_go(first: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        topics = ("orders", "payments")
        world.kube.keep({**CLUSTER, "spec": {"topicsFrom": {"namespaces": ["prod"]}}})
        world.kube.keep({"kind": "ParquetSink", **sink(STREAM, topics=topics).model_dump(mode="json", by_alias=True)})
        world.kube.keep(first)
        taken = await world.look(STREAM, topics=topics)
        assert (ready(taken).status, ready(taken).reason) == ("False", "OutputTaken")
        title = f"{first['kind']} {first['metadata']['namespace']}/older"
        assert f"s3a://warehouse/tables/orders is the table of {title}, which is older" in ready(taken).message
        assert "write another output" in ready(taken).message
        [kept] = writers(world)
        assert "payments" in kept, "the other table goes on"
        assert taken.again_after_s is not None and taken.again_after_s <= 10
        assert world.status.tables[0] == TableStatus(output="s3a://warehouse/tables/orders")
        world.kube.drop(first["kind"], first["metadata"]["namespace"], "older")
        world.context.known.table_claims.forget("claims")
        await world.look(STREAM, topics=topics)
        assert all(one.application for one in world.status.tables)
        assert len(writers(world)) == 2

    run(use)


@pytest.mark.parametrize("marked", [True, False], ids=["", "by an older operator"])
@pytest.mark.parametrize("first", [SINK, {**SINK, "spec": {**SINK["spec"], **FORBIDDEN}}], ids=["allowed", "refused"])
def test_who_writes_a_table_keeps_it_from_an_older_resource(first: dict[str, Any], marked: bool) -> None:
    async def use(world: World) -> None:
        lake = written(world)
        await look(world, lake)
        [application] = writers(world)
        if not marked:
            del world.kube.manifests["SparkApplication", "shop", application]["metadata"]["annotations"][PLACE]
        another = {**first}
        world.kube.keep(another)
        world.context.known.places_taken = Takers(kept_s=PLACE_TAKEN_S)  # as after another operator led
        for _ in range(2):
            world.context.known.table_claims.forget("claims")
            taken = await look(world, another)
            assert (
                ready(taken).reason == "OutputTaken"
                and "is the table of ParquetSink shop/lake, which writes it" in ready(taken).message
            )
            assert ready(await look(world, lake)).reason != "OutputTaken"
            assert writers(world) == {application}

    run(use)


def test_a_resource_of_which_nothing_is_made_stands_in_nobodys_way_and_waits_once_it_may_write() -> None:
    async def use(world: World) -> None:
        another = {**SINK, "spec": {**SINK["spec"], **FORBIDDEN}}
        world.kube.keep(another)
        lake = written(world)
        assert ready(await look(world, another)).reason == "NotAllowed"
        world.context.known.table_claims.forget("claims")
        assert ready(await look(world, lake)).reason != "OutputTaken"
        assert writers(world) == {"lake-sink"}
        another["spec"] = SINK["spec"]
        another["metadata"] = {**another["metadata"], "generation": 2}
        assert ready(await look(world, another)).reason == "OutputTaken", (
            "what was read before the younger one began says nothing of that"
        )
        assert writers(world) == {"lake-sink"}

    run(use)


def test_what_the_api_server_refuses_takes_no_place() -> None:
    async def use(world: World) -> None:
        another, lake = {**SINK}, written(world)
        world.kube.keep(another)
        world.kube.refuses.add("older-sink")
        assert ready(await look(world, another)).reason == "Refused"
        world.context.known.table_claims.forget("claims")
        await look(world, lake)
        assert writers(world) == {"lake-sink"}

    run(use)


def test_who_took_a_place_and_writes_nothing_is_in_nobodys_way_once_all_that_is_read_tells() -> None:
    async def use(world: World) -> None:
        lake = written(world)
        world.kube.refuses, world.kube.refusal = {"lake-sink"}, KubeUnreachable("the answer was lost")  # type: ignore[assignment]
        with pytest.raises(KubeUnreachable):
            await look(world, lake)
        world.kube.refuses = set()
        another = {**SINK}
        world.kube.keep(another)
        world.context.known.table_claims.forget("claims")
        assert ready(await look(world, another)).reason == "OutputTaken", "it may be written already"
        world.context.known.places_taken.kept_s = -1.0  # all that is read tells it by now
        world.context.known.table_claims.forget("claims")
        assert ready(await look(world, another)).reason != "OutputTaken"
        assert writers(world) == {"older-sink"}
        assert ready(await look(world, lake)).reason == "OutputTaken"

    run(use)


def test_a_place_that_is_still_written_is_kept_though_its_resource_names_another_one_by_now() -> None:
    async def use(world: World) -> None:
        lake = written(world)
        await look(world, lake)
        lake["spec"] |= {**FORBIDDEN, "output": "s3a://warehouse/elsewhere"}
        lake["metadata"]["generation"] = 2
        assert ready(await look(world, lake)).reason == "NotAllowed"
        another = {**SINK}
        world.kube.keep(another)
        world.context.known.table_claims.forget("claims")
        assert "is the table of ParquetSink shop/lake, which writes it" in ready(await look(world, another)).message
        assert writers(world) == {"lake-sink"}

    run(use)


def test_a_sink_that_was_made_after_the_last_look_at_all_meets_an_older_one() -> None:
    async def use(world: World) -> None:
        world.kube.keep({**CLUSTER})
        await world.look({**STREAM, "output": "s3a://warehouse/else"}, oneTable=True)  # reads who claims what
        world.kube.keep(SINK)
        assert ready(await world.look(STREAM, oneTable=True)).reason == "OutputTaken", (
            "nothing was known of this one: all are read anew"
        )

    run(use)


def test_what_somebody_elses_application_says_of_itself_takes_no_table_from_what_writes_it() -> None:
    async def use(world: World) -> None:
        lake = written(world)
        for _ in range(2):
            world.context.known.table_claims.forget("claims")
            await look(world, lake)
        before = writers(world)
        place = world.kube.manifests["SparkApplication", "shop", "lake-sink"]["metadata"]["annotations"][PLACE]
        labels = {"bmq.io/table-owner": "made-up", "bmq.io/table-kind": "Topic", "bmq.io/table-name": "x"}
        for owner in ("", "made-up", lake["metadata"]["uid"]):
            owners = [{"kind": "ParquetSink", "name": "lake", "uid": owner, "controller": True}] if owner else []
            meta = {
                "name": "pi",
                "namespace": "dev",
                "uid": "u-pi",
                "creationTimestamp": "2000-01-01T00:00:00Z",
                "labels": labels,
            }
            meta |= {"annotations": {PLACE: place}, "ownerReferences": owners}
            world.kube.keep({"kind": "SparkApplication", "metadata": meta, "spec": {"suspend": True}})
            world.context.known.table_claims.forget("claims")
            world.context.known.places_taken = Takers(kept_s=PLACE_TAKEN_S)
            outcome = await look(world, lake)
            assert ready(outcome).reason != "OutputTaken"
            assert writers(world) == before | {"pi"}

    run(use)


@pytest.mark.parametrize(
    ("gone", "kind"), [(True, "SparkApplication"), (True, "ScheduledSparkApplication"), (False, "SparkApplication")]
)
def test_a_watched_namespace_that_gives_no_right_to_look_keeps_no_table_elsewhere_from_being_looked_after(
    gone: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was deleted, is being deleted, or was made anew and has yet to get the chart's roles."""

    async def use(world: World) -> None:
        world.context = replace(
            world.context, settings=world.context.settings.model_copy(update={"namespaces": ("shop", "other")})
        )
        if not gone:
            world.kube.keep({"kind": "Namespace", "metadata": {"name": "other", "namespace": ""}})
        forbidden(world, kind, monkeypatch)
        await world.look(STREAM)
        assert writers(world)

    run(use)


def test_of_a_namespace_that_gives_no_right_to_look_all_tables_count_as_being_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def use(world: World) -> None:
        world.context = replace(
            world.context, settings=world.context.settings.model_copy(update={"namespaces": ("shop", "other")})
        )
        world.kube.keep({"kind": "Namespace", "metadata": {"name": "other", "namespace": ""}})
        world.kube.keep({**CLUSTER, "spec": {"topicsFrom": {"namespaces": ["other"]}}})
        younger = older("ParquetSink", "other", topics=["a"], oneTable=True, **STREAM)
        younger["metadata"] |= {"name": "younger", "uid": "uid-younger", "creationTimestamp": "2020-01-01T00:00:00Z"}
        world.kube.keep(younger)
        forbidden(world, "SparkApplication", monkeypatch)
        assert ready(await look(world, written(world))).reason == "OutputTaken"
        assert not writers(world)
        assert ready(await look(world, written(world, output="s3a://warehouse/others"))).reason == "Submitting"

    run(use)


def forbidden(world: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = world.kube.list

    async def by_rights(found: str, namespace: str = "", **more: Any) -> list[dict[str, Any]]:
        if (found, namespace) == (kind, "other"):
            raise KubeProblem(status=403, reason="Forbidden", message="cannot list in the namespace other")
        return await listed(found, namespace, **more)

    monkeypatch.setattr(world.kube, "list", by_rights)


@pytest.mark.parametrize("spec", [{}, {"image": "evil.example/x:1"}], ids=["allowed", "refused"])
def test_all_is_listed_once_for_all_tables_of_a_resource_whatever_is_said_of_it(spec: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        topics = tuple(f"topic-{index}" for index in range(64))
        manifest = {
            "kind": "ParquetSink",
            **sink({**STREAM, **spec}, topics=topics).model_dump(mode="json", by_alias=True),
        }
        world.kube.keep(manifest)
        for _ in range(3):
            world.context.known.table_claims.forget("claims")
            world.kube.lists = 0
            await look(world, manifest)
            assert world.kube.lists <= len(OF_ITS_OWN) + len(OF_ALL)
        world.kube.lists = 0
        await look(world, manifest)
        assert world.kube.lists <= len(OF_ITS_OWN) + (0 if spec else len(OF_ALL)), "what was read is new enough"

    run(use)
