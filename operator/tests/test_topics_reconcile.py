"""Topics brought about in a started bmq; the API server alone is the test's own."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from kube_of_a_test import CLUSTER
from real_bmq import TOKEN, bmq_with_token
from reconciled_world import CREATED, World, Worlds, message, said
from tests.started_bmq import StartedBmq

from bmq_admin.errors import AdminProblem, AdminUnreachable
from bmq_admin.requests import Request
from bmq_operator.topics.known import topics_of
from bmq_operator.topics.reconcile import holds, reconcile
from bmq_resources.topic import Topic, TopicStatus


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq"), "--config", "auto.create.topics.enable=true") as started:
        yield started


WORLDS = Worlds("Topic")


def test_a_topic_is_made_grown_changed_and_then_left_alone(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("life", topicName="Life_1", partitions=2, config={"retention.ms": "1000"})
        outcome = await world.look("life")
        assert said(outcome) == ("True", "AsWritten")
        made = await world.client.get("topics", "Life_1")
        assert outcome.status == TopicStatus(
            topic_name="Life_1",
            topic_id=made["topic_id"],
            partitions=2,
            owned=True,
            observed_generation=1,
            conditions=outcome.status.conditions,
        )

        world.write("life", topicName="Life_1", partitions=4, config={"max.message.bytes": "9999"})
        assert said(await world.look("life")) == ("True", "AsWritten")
        now = await world.client.get("topics", "Life_1")
        assert (now["partitions"], now["configs"], now["topic_id"]) == (
            4,
            {"max.message.bytes": "9999"},
            made["topic_id"],
        )

        world.asked.clear()
        again = await world.look("life")
        assert (said(again), again.events, world.asked) == (("True", "AsWritten"), (), []), (
            "nothing is asked, let alone written"
        )

    WORLDS.run(bmq, use)


@pytest.mark.parametrize("value", [" 1000", "1000\n", "\t1000 "], ids=["before", "a block's new line", "both"])
def test_blanks_around_a_value_are_no_difference(bmq: StartedBmq, value: str) -> None:
    """The cluster keeps values without them."""

    async def use(world: World) -> None:
        name = f"blank-{len(value)}-{value.index('1')}"
        world.write(name, config={"retention.ms": value})
        assert said(await world.look(name)) == ("True", "AsWritten")
        world.asked.clear()
        assert said(await world.look(name)) == ("True", "AsWritten")
        assert world.asked == []
        assert (await world.client.get("topics", name))["configs"] == {"retention.ms": "1000"}
        world.write(name, config={"retention.ms": "2000 "})
        assert said(await world.look(name)) == ("True", "AsWritten")
        assert (await world.client.get("topics", name))["configs"] == {"retention.ms": "2000"}

    WORLDS.run(bmq, use)


def test_a_hundred_topics_cost_few_lists(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        for index in range(100):
            world.write(f"many-{index}")
        await asyncio.gather(*(world.look(f"many-{index}") for index in range(100)))
        world.asked.clear()
        world.kube.lists = 0
        world.context.known.claims.forget("claims")
        topics_of(world.context.known, world.context.admin(bmq.admin, TOKEN)).forget()
        outcomes = await asyncio.gather(*(world.look(f"many-{index}") for index in range(100)))
        assert {said(outcome) for outcome in outcomes} == {("True", "AsWritten")}
        assert (world.asked, world.kube.lists) == (["GET topics"], 1)

    WORLDS.run(bmq, use)


def test_drift_is_put_back_and_told(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("drift", config={"retention.ms": "1000"})
        await world.look("drift")
        await world.client.patch("topics", "drift", "configs", body={"retention.ms": "7", "max.message.bytes": "9999"})
        topics_of(world.context.known, world.context.admin(bmq.admin, TOKEN)).forget()
        outcome = await world.look("drift")
        assert [event.reason for event in outcome.events] == ["DriftPutBack"]
        assert (await world.client.get("topics", "drift"))["configs"] == {"retention.ms": "1000"}

    WORLDS.run(bmq, use)


def test_a_creation_that_was_refused_leaves_no_claim_to_what_somebody_else_makes_later(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("payments", config={"retention.ms": "nonsense"}, deletionPolicy="Delete")
        refused = await world.look("payments")
        assert said(refused) == ("False", "Refused")
        assert (await world.look("payments")).status == refused.status, (
            "a status that changes would have it looked at again at once"
        )
        configs = {"retention.ms": "-1", "max.message.bytes": "9999999"}
        made = await world.client.post("topics", body={"name": "payments", "partitions": 3, "configs": configs})
        topics_of(world.context.known, world.context.admin(bmq.admin, TOKEN)).forget()
        world.write("payments", config={}, deletionPolicy="Delete")
        assert said(await world.look("payments")) == ("False", "AlreadyExists")
        gone = await world.look("payments", deletionTimestamp=CREATED, annotations={"bmq.io/delete-data": "true"})
        there = await world.client.get("topics", "payments")
        assert gone.finished and (there["topic_id"], there["configs"]) == (made["topic_id"], configs)

    WORLDS.run(bmq, use)


def test_what_somebody_else_makes_between_the_intent_and_the_creation_is_not_its_own_though_it_looks_the_same(
    bmq: StartedBmq,
) -> None:
    async def use(world: World) -> None:
        world.write("meanwhile", partitions=3, deletionPolicy="Delete")
        await world.intends("meanwhile")
        made = await world.client.post("topics", body={"name": "meanwhile", "partitions": 3, "configs": {}})
        assert said(await world.look("meanwhile")) == ("False", "AlreadyExists")
        assert (
            await world.look("meanwhile", deletionTimestamp=CREATED, annotations={"bmq.io/delete-data": "true"})
        ).finished
        assert (await world.client.get("topics", "meanwhile"))["topic_id"] == made["topic_id"]

    WORLDS.run(bmq, use)


def test_what_may_have_been_made_by_a_creation_whose_answer_was_lost_is_its_own(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("unanswered", partitions=3)
        await world.intends("unanswered")
        client = world.context.admin(bmq.admin, TOKEN)
        ask = client.ask

        async def loses(request: Request) -> Any:
            found = await ask(request)
            if request.method == "POST":
                client.ask = ask  # type: ignore[method-assign]
                raise AdminUnreachable("the answer was lost")
            return found

        client.ask = loses  # type: ignore[method-assign]
        assert said(await world.look("unanswered"))[1] in ("ClusterNotReady", "AsWritten")
        assert said(await world.look("unanswered")) == ("True", "AsWritten")

    WORLDS.run(bmq, use)


def test_a_value_that_the_cluster_refuses_is_quoted_and_corrected_later(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("wrong", config={"retention.ms": "soon"})
        outcome = await world.look("wrong")
        assert said(outcome) == ("False", "Refused")
        assert "retention.ms" in message(outcome) and "soon" in message(outcome)
        world.write("wrong", config={"retention.ms": "5"})
        assert said(await world.look("wrong")) == ("True", "AsWritten")
        world.write("wrong", config={"retention.ms": "later"}, partitions=3)
        refused = await world.look("wrong")
        assert (said(refused), refused.status and refused.status.partitions) == (("False", "Refused"), 3), (
            "what can be done is done"
        )
        assert (await world.client.get("topics", "wrong"))["configs"] == {"retention.ms": "5"}

    WORLDS.run(bmq, use)


def test_names_that_metrics_cannot_tell_apart_are_refused_with_the_clusters_words(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("dots", topicName="one.two")
        await world.look("dots")
        world.write("lines", topicName="one_two")
        outcome = await world.look("lines")
        assert (said(outcome), "collides" in message(outcome)) == (("False", "Refused"), True)

    WORLDS.run(bmq, use)


def test_a_topic_that_was_there_is_refused_then_adopted(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        await world.client.post("topics", body={"name": "old", "partitions": 5, "configs": {"retention.ms": "5"}})
        world.write("old", partitions=3)
        assert said(await world.look("old")) == ("False", "AlreadyExists")
        world.write("old", partitions=3, existing="Adopt")
        assert said(await world.look("old")) == ("False", "ConfigDiffers")
        assert (await world.client.get("topics", "old"))["configs"] == {"retention.ms": "5"}
        world.write("old", partitions=3, existing="Adopt", config={"retention.ms": "7"})
        outcome = await world.look("old")
        assert said(outcome) == ("False", "MorePartitions")
        assert [event.reason for event in outcome.events] == ["Adopted"]
        assert (await world.client.get("topics", "old"))["configs"] == {"retention.ms": "7"}

    WORLDS.run(bmq, use)


def test_a_topic_deleted_behind_our_back_is_made_again_and_told_once(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("lost")
        before = (await world.look("lost")).status
        await world.client.delete("topics", "lost")
        topics_of(world.context.known, world.context.admin(bmq.admin, TOKEN)).forget()
        outcome = await world.look("lost")
        assert [event.reason for event in outcome.events] == ["TopicLost"]
        assert outcome.status is not None and before is not None
        assert outcome.status.topic_id not in ("", before.topic_id)
        assert (await world.look("lost")).events == ()

    WORLDS.run(bmq, use)


def test_an_answer_that_is_about_something_else_says_nothing_of_the_topic(bmq: StartedBmq) -> None:
    """As what stands before the API may answer."""

    async def use(world: World) -> None:
        world.write("hidden")
        before = (await world.look("hidden")).status
        client = world.context.admin(bmq.admin, TOKEN)
        ask = client.ask

        async def hides(request: Request) -> Any:
            if request.target == "/v1/topics/hidden":
                raise AdminProblem(status=404, code="UnknownRoute", what="w", why="there is no such page", remedy="r")
            return await ask(request)

        client.ask = hides  # type: ignore[method-assign]
        topics_of(world.context.known, client)._views.clear()
        outcome = await world.look("hidden")
        assert (said(outcome), outcome.events) == (("Unknown", "ClusterNotReady"), ())
        assert outcome.status is not None and before is not None and outcome.status.topic_id == before.topic_id

    WORLDS.run(bmq, use)


def test_two_topics_for_one_name_have_one_winner_and_after_it_is_gone_the_other_one_takes_over(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("one", topicName="both", created="2026-01-01T00:00:00Z")
        world.write("two", topicName="both", created="2026-01-02T00:00:00Z", existing="Adopt")
        assert said(await world.look("two")) == ("False", "Collision")
        assert said(await world.look("one")) == ("True", "AsWritten")
        assert "Topic shop/one" in message(await world.look("two"))
        world.kube.drop("Topic", "shop", "one")
        world.context.known.claims.forget("claims")
        assert said(await world.look("two")) == ("True", "AsWritten")

    WORLDS.run(bmq, use)


def test_a_topic_that_was_just_taken_is_not_taken_by_another_one(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("taker")
        await world.look("taker")
        world.write("elder", topicName="taken", created="2026-01-02T00:00:00Z")
        await world.look("elder")
        world.write("a-younger", topicName="taken", created="2026-01-02T00:00:00Z", existing="Adopt")
        assert said(await world.look("a-younger")) == ("False", "Collision")

    WORLDS.run(bmq, use)


def test_who_took_a_topic_and_does_not_own_it_is_in_nobodys_way_once_every_list_tells(bmq: StartedBmq) -> None:
    """Else two Topics would say Collision of each other for as long as the operator lives."""

    async def use(world: World) -> None:
        world.write("younger", topicName="fought", created="2026-01-02T00:00:00Z", config={"retention.ms": "nonsense"})
        assert said(await world.look("younger")) == ("False", "Refused")
        world.write("older", topicName="fought", created="2026-01-01T00:00:00Z")
        assert said(await world.look("older")) == ("False", "Collision")
        await world.client.post("topics", body={"name": "fought", "partitions": 1, "configs": {}})
        topics_of(world.context.known, world.context.admin(bmq.admin, TOKEN)).forget()
        assert said(await world.look("younger"))[1] in ("AlreadyExists", "Collision")
        every_list_tells(world)
        assert said(await world.look("older")) == ("False", "AlreadyExists")
        assert said(await world.look("younger")) == ("False", "Collision")

    WORLDS.run(bmq, use)


def every_list_tells(world: World) -> None:
    """Who took a topic long ago: it is not to be remembered any more."""
    world.context.known.taken.kept_s = -1.0
    world.context.known.claims.forget("claims")


def test_of_topics_that_are_made_in_the_same_moment_one_takes_the_topic(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        names = [f"at-once-{index}" for index in range(8)]
        for name in names:
            world.write(name, topicName="at-once", existing="Adopt")
        outcomes = await asyncio.gather(*(world.look(name) for name in names))
        assert sorted(said(outcome)[1] for outcome in outcomes) == ["AsWritten", *["Collision"] * 7]

    WORLDS.run(bmq, use)


def produce(bmq: StartedBmq, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bmq.kafka})
    producer.produce(topic, b"x")
    assert producer.flush(10) == 0


def test_deletion_spares_records_until_it_is_told_otherwise(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("spared", deletionPolicy="Delete")
        outcome = await world.look("spared")
        assert outcome.status is not None
        assert holds(Topic.model_validate(world.manifest("spared")))
        await asyncio.to_thread(produce, bmq, "spared")
        gone = {"deletionTimestamp": "2026-03-03T00:00:00Z"}
        waiting = await world.look("spared", **gone)
        assert (waiting.finished, said(waiting)) == (False, ("False", "DataProtected"))
        done = await world.look("spared", annotations={"bmq.io/delete-data": "true"})
        assert (done.finished, [event.reason for event in done.events]) == (True, ["TopicDeleted"])
        assert "spared" not in [topic["name"] async for topic in world.client.items("topics")]

    WORLDS.run(bmq, use)


def test_an_empty_topic_goes_at_once_and_a_retained_one_is_not_held(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("empty", deletionPolicy="Delete", partitions=2)
        world.write("kept")
        for name in ("empty", "kept"):
            await world.look(name)
        assert not holds(Topic.model_validate(world.manifest("kept")))
        for name in ("empty", "kept"):
            assert (await world.look(name, deletionTimestamp="2026-03-03T00:00:00Z")).finished
        names = [topic["name"] async for topic in world.client.items("topics")]
        assert ("empty" in names, "kept" in names) == (False, True)

    WORLDS.run(bmq, use)


def test_a_cluster_that_is_not_there_does_not_answer_or_refuses_the_token_is_waited_for(bmq: StartedBmq) -> None:
    async def unreachable(world: World) -> None:
        world.write("waits")
        outcome = await world.look("waits")
        assert (said(outcome), "is not reached" in message(outcome)) == (("Unknown", "ClusterNotReady"), True)
        assert outcome.again_after_s

    async def refuses(world: World) -> None:
        world.write("waits")
        outcome = await world.look("waits")
        assert said(outcome) == ("Unknown", "ClusterNotReady"), outcome

    async def missing(world: World) -> None:
        world.kube.drop("Cluster", "shop", "bmq")
        world.write("waits")
        assert said(await world.look("waits")) == ("False", "ClusterMissing")
        world.kube.keep({**CLUSTER, "metadata": {**CLUSTER["metadata"], "deletionTimestamp": "2026-03-03T00:00:00Z"}})
        world.context.known.clusters.forget(("shop", "bmq"))
        assert said(await world.look("waits")) == ("False", "ClusterEnding")
        world.kube.keep(CLUSTER)
        world.kube.drop("Secret", "shop", "bmq-auth")
        world.context.known.clusters.forget(("shop", "bmq"))
        outcome = await world.look("waits")
        assert (said(outcome), "no Secret" in message(outcome)) == (("Unknown", "ClusterNotReady"), True)

    WORLDS.run(bmq, unreachable, url="http://127.0.0.1:1")
    WORLDS.run(bmq, refuses, token="not-the-token-of-it")
    WORLDS.run(bmq, missing)


def test_a_namespace_that_the_cluster_does_not_accept_is_told_and_its_topics_are_no_rivals(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("mine", created="2026-01-05T00:00:00Z")
        stranger = Topic.model_validate(world.manifest("mine")).metadata.model_dump(by_alias=True)
        stranger |= {"namespace": "strangers", "uid": "s", "creationTimestamp": "2026-01-01T00:00:00Z"}
        manifest = {
            "apiVersion": "bmq.io/v1alpha1",
            "kind": "Topic",
            "metadata": stranger,
            "spec": {"clusterRef": {"name": "bmq", "namespace": "shop"}},
        }
        world.kube.keep(manifest)
        outcome = await reconcile(world.context, Topic.model_validate(manifest))
        assert said(outcome) == ("False", "NamespaceNotAllowed")
        assert "strangers" in message(outcome)
        assert said(await world.look("mine")) == ("True", "AsWritten")
        world.kube.keep({**CLUSTER, "spec": {"topicsFrom": {"namespaces": ["*"]}}})
        world.context.known.claims.forget("claims")
        world.context.known.clusters.forget(("shop", "bmq"))
        assert said(await reconcile(world.context, Topic.model_validate(manifest))) == ("False", "Collision")

    WORLDS.run(bmq, use)
