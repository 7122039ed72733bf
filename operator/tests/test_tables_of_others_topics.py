"""A table that was begun is looked after whosever its topic is by now; a new one is begun of a Topic that owns its
topic, or manages none.
"""

from collections.abc import Iterator

import pytest
from real_bmq import bmq_with_token
from tables_of_a_test import STREAM
from tables_world import ready
from tests.started_bmq import StartedBmq
from topic_table_world import World, run

from bmq_operator.conditions import timestamp
from bmq_operator.outcome import Outcome
from bmq_operator.tables.desired import FAILURES
from bmq_operator.topics.known import topics_of


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq")) as started:
        yield started


def said(outcome: Outcome) -> tuple[str, str]:
    return ready(outcome).reason, ready(outcome, "ParquetReady").reason


async def begun(world: World) -> None:
    """By a Topic that manages nothing, and then says that it does."""
    await world.client.post("topics", body={"name": world.name, "partitions": 1, "configs": {}})
    assert said(await world.look(managed=False, parquet=STREAM)) == ("Unmanaged", "Submitting")


def test_a_table_of_a_topic_that_is_not_the_resources_own_is_suspended_changed_and_begun_anew(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        await begun(world)
        stream = f"{world.name}-topic"
        assert said(await world.look(parquet={**STREAM, "suspend": True})) == ("AlreadyExists", "Suspended")
        assert world.kube.manifests["SparkApplication", "shop", stream]["spec"]["suspend"] is True
        assert said(await world.look(parquet={**STREAM, "continuous": {"trigger": "5m"}}))[0] == "AlreadyExists"
        assert "--trigger=5m" in world.kube.manifests["SparkApplication", "shop", stream]["spec"]["arguments"]
        ended = timestamp(world.kube.clock.ms)
        world.kube.says(
            "SparkApplication",
            stream,
            applicationState={"state": "FAILED"},
            lastSubmissionAttemptTime=ended,
            terminationTime=ended,
        )
        world.kube.clock.ms += 60_000
        await world.look(parquet={**STREAM, "continuous": {"trigger": "5m"}})
        assert (
            world.kube.manifests["SparkApplication", "shop", stream]["spec"]["driver"]["annotations"][FAILURES] == "1"
        )

    run(bmq, "begun", use)


def test_a_table_of_a_topic_that_is_gone_is_suspended(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        await begun(world)
        await world.client.delete("topics", world.name)
        topics_of(world.context.known, world.client).forget()
        assert said(await world.look(managed=False, parquet={**STREAM, "suspend": True})) == (
            "TopicMissing",
            "Suspended",
        )

    run(bmq, "missing", use)


def test_no_table_is_begun_of_a_topic_that_is_not_the_resources_own_and_it_says_what_helps(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        await begun(world)
        for kind in ("SparkApplication", "ScheduledSparkApplication"):
            for name in world.kube.names(kind):
                world.kube.drop(kind, "shop", name)
        waits = await world.look(parquet=STREAM)
        assert said(waits) == ("AlreadyExists", "TopicNotReady")
        assert "this resource's own, or managed is false" in ready(waits, "ParquetReady").message
        assert world.objects == set()
        assert not world.status["table"]["application"], "it was looked for, and is gone"

    run(bmq, "unbegun", use)
