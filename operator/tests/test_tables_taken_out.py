"""A Topic that asks for a table no more has none, whatever its status tells; and what is there is never said to be gone
by who could not look.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from kube_of_a_test import CLUSTER
from real_bmq import bmq_with_token
from tables_of_a_test import STREAM
from tables_world import ACCOUNT, KEYS, ready
from tests.started_bmq import StartedBmq
from topic_table_world import OBJECTS, World, run, types

from bmq_operator.kube import KubeProblem, KubeUnreachable
from bmq_operator.tables import existing

WITH_SCHEMA = {**STREAM, "format": "avro", "schema": {"text": '"string"'}}


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq")) as started:
        yield started


def test_a_table_that_no_status_tells_of_goes_with_parquet(bmq: StartedBmq) -> None:
    """As where an operator ended between making it and telling so."""

    async def use(world: World) -> None:
        before = (await world.made()).status
        await world.look(parquet=WITH_SCHEMA)
        assert len(world.objects) == 3
        assert before is not None
        world.status = before.written()
        world.forget()
        assert types(await world.look()) == ["Ready"]
        assert world.objects == set()

    run(bmq, "untold", use)


def test_a_table_of_which_a_part_was_refused_goes_with_parquet(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.kube.refuses = {"refused-topic-compact"}
        await world.made(parquet=WITH_SCHEMA)
        refused = await world.look(parquet=WITH_SCHEMA)
        assert ready(refused, "ParquetReady").reason == "Refused"
        assert (world.status["table"]["kind"], world.status["table"]["application"]) == (
            "SparkApplication",
            "refused-topic",
        )
        await world.look()
        assert world.objects == set()

    run(bmq, "refused", use)


def test_the_schema_of_a_table_that_was_never_begun_goes_with_parquet(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.kube.refuses = {"schema-topic"}
        await world.made(parquet=WITH_SCHEMA)
        assert world.objects == {"ConfigMap schema-topic-schema"}
        await world.look()
        assert world.objects == set()

    run(bmq, "schema", use)


@pytest.mark.parametrize("spec", [None, {"topicsFrom": {"namespaces": []}}], ids=["gone", "namespace-not-taken"])
def test_a_cluster_out_of_sight_wipes_nothing_of_what_is_told_of_a_table(
    bmq: StartedBmq, spec: dict[str, Any] | None
) -> None:
    name = "sight" if spec is None else "taken"

    async def use(world: World) -> None:
        world.meta["namespace"] = "dev"
        for one in (ACCOUNT, KEYS):
            world.kube.keep({**one, "metadata": {**one["metadata"], "namespace": "dev"}})
        elsewhere = {"clusterRef": {"namespace": "shop"}}
        world.kube.keep({**CLUSTER, "spec": {**CLUSTER["spec"], "topicsFrom": {"namespaces": ["dev"]}}})
        await world.made(**elsewhere, parquet=STREAM)
        told = (await world.look(**elsewhere, parquet=STREAM)).status.table  # type: ignore[union-attr]
        assert told.application == f"{name}-topic"
        world.kube.drop("Cluster", "shop", "bmq")
        if spec is not None:
            world.kube.keep({**CLUSTER, "spec": {**CLUSTER["spec"], **spec}})
        world.forget()
        unseen = await world.look(**elsewhere, parquet=STREAM)
        assert (ready(unseen, "ParquetReady").status, ready(unseen, "ParquetReady").reason) == (
            "Unknown",
            "TopicNotReady",
        )
        assert unseen.status.table == told  # type: ignore[union-attr]
        await world.look(**elsewhere)
        assert world.objects == set()

    run(bmq, name, use)


def test_a_topic_whose_deletion_waits_says_that_its_table_goes_on_and_what_is_there(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        spec = {"deletionPolicy": "Delete", "parquet": STREAM}
        await world.made(**spec)
        told = (await world.look(**spec)).status.table  # type: ignore[union-attr]
        world.meta["deletionTimestamp"] = "2001-09-09T02:46:40Z"
        world.kube.drop("Secret", "shop", "bmq-auth")
        world.forget()
        waits = await world.look(**spec)
        assert not waits.finished and ready(waits).reason == "ClusterNotReady"
        assert (ready(waits, "ParquetReady").status, ready(waits, "ParquetReady").reason) == ("Unknown", "Deleting")
        assert waits.status.table == told and told.application  # type: ignore[union-attr]

    run(bmq, "waits", use)


def test_topics_that_never_had_a_table_cost_few_lists(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        await world.made()
        world.forget()
        world.kube.lists = 0
        for _ in range(20):
            await world.look()
        assert world.kube.lists == len(OBJECTS)

    run(bmq, "cheap", use)


@pytest.mark.parametrize(
    "error",
    [KubeUnreachable("its webhook"), KubeProblem(status=403, reason="Forbidden", message="no"), None],
    ids=["unreachable", "forbidden", "hangs"],
)
def test_a_topic_that_never_had_a_table_is_not_kept_waiting_by_kinds_that_cannot_be_listed(
    bmq: StartedBmq, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(world: World) -> None:
        listed = world.kube.list

        async def fails(kind: str, namespace: str = "", **more: Any) -> list[dict[str, Any]]:
            if kind not in existing.KINDS:
                return await listed(kind, namespace, **more)
            if error is None:
                await asyncio.Event().wait()
            assert error is not None
            raise error

        monkeypatch.setattr(existing, "LOOK_S", 0.05)
        monkeypatch.setattr(world.kube, "list", fails)
        outcome = await world.made()
        assert (ready(outcome).reason, types(outcome)) == ("AsWritten", ["Ready"])

    run(bmq, f"unlisted-{type(error).__name__.lower()}", use)
