"""A Cluster whose admin API does not answer: one who refers to it waits for that, and the others go by it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kube_of_a_test import CLUSTER, KubeOfATest, auth_secret, context_of

from bmq_admin.client import AdminClient
from bmq_admin.errors import NotReached, TimedOut
from bmq_operator.clusters.asking import ask_state
from bmq_operator.context import Context
from bmq_operator.due import Due
from bmq_operator.hearing import Hearing
from bmq_operator.lanes import reconcile as lanes
from bmq_operator.outcome import Outcome
from bmq_operator.silences import LASTS_S, SILENT_S, Silences
from bmq_operator.topics import reconcile as topics
from bmq_operator.workqueue import Key, WorkQueue
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane
from bmq_resources.topic import Topic

BMQ = (CLUSTER["metadata"]["namespace"], CLUSTER["metadata"]["name"])
URL = "http://127.0.0.1:1"


def lane(name: str) -> Lane:
    meta = {"name": name, "namespace": BMQ[0], "uid": f"uid-{name}"}
    return Lane.model_validate({"metadata": meta, "spec": {"clusterRef": {"name": BMQ[1]}}})


def topic(name: str) -> Topic:
    meta = {"name": name, "namespace": BMQ[0], "uid": f"uid-{name}"}
    return Topic.model_validate({"metadata": meta, "spec": {"clusterRef": {"name": BMQ[1]}, "partitions": 1}})


class World:
    """A Cluster whose admin API fails in this way."""

    def __init__(self, failure: Exception) -> None:
        clients: dict[tuple[str, str], AdminClient] = {}
        self.context: Context = context_of(KubeOfATest(CLUSTER, auth_secret("t")), URL, clients)
        self.asked = 0

        async def ask(_: Any) -> Any:
            self.asked += 1
            raise failure

        self.context.admin(URL, "t").ask = ask  # type: ignore[method-assign]

    async def looks(self) -> list[Outcome]:
        """Of three Lanes and two Topics, one after the other."""
        found = [await lanes.reconcile(self.context, lane(name)) for name in "abc"]
        return [*found, *[await topics.reconcile(self.context, topic(name)) for name in "de"]]


@pytest.mark.parametrize(
    ("failure", "asked"), [(TimedOut(URL), 1), (NotReached(URL, "connection refused"), 4)], ids=["silent", "refuses"]
)
def test_of_all_that_refer_to_a_cluster_that_does_not_answer_in_time_one_waits_for_it(
    failure: Exception, asked: int
) -> None:
    async def main() -> None:
        world = World(failure)
        for outcome in await world.looks():
            assert outcome.status is not None
            [told] = outcome.status.conditions
            assert (told.status, told.reason) == ("Unknown", "ClusterNotReady")
            assert str(failure) in told.message
        assert world.asked == asked

    asyncio.run(main())


def test_its_own_look_tells_those_that_refer_to_it_and_asks_whatever_they_met() -> None:
    async def main() -> None:
        world, cluster = World(TimedOut(URL)), Cluster.model_validate(CLUSTER)
        for _ in range(2):
            assert (await ask_state(world.context, cluster)).state is None
        assert world.asked == 2
        await world.looks()
        assert world.asked == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    "ends",
    [
        lambda context: context.known.silences.end(BMQ),
        lambda context: Due(WorkQueue(), Hearing(), context.known).by_cluster(
            Key("Cluster", *BMQ), {"generation": 2}, gone=False
        ),
    ],
    ids=["it answers", "it was changed"],
)
def test_it_is_asked_again_once_it_answers_its_own_look_or_was_changed(ends: Callable[[Context], None]) -> None:
    async def main() -> None:
        world = World(TimedOut(URL))
        await world.looks()
        ends(world.context)
        await lanes.reconcile(world.context, lane("a"))
        assert world.asked == 2

    asyncio.run(main())


def test_a_silence_is_believed_for_a_while_and_one_finds_out_again() -> None:
    silences = Silences()
    silences.begin(BMQ, "no answer", now_s=100.0)
    assert (silences.why(BMQ, now_s=99.9 + SILENT_S), silences.why(BMQ, now_s=100.0 + SILENT_S)) == ("no answer", "")
    assert silences.lasts(BMQ, now_s=99.9 + LASTS_S) and not silences.lasts(BMQ, now_s=100.0 + LASTS_S)
    assert silences.why(("shop", "other"), now_s=100.0) == ""
    silences.end(BMQ)
    assert not silences.lasts(BMQ, now_s=100.0)
