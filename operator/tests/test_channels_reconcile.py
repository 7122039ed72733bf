"""Channels declared in a started bmq; the API server alone is the test's own."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from real_bmq import TOKEN, bmq_with_token
from reconciled_world import CREATED, World, Worlds, message, said
from tests.started_bmq import StartedBmq

from bmq_admin import pages
from bmq_admin.errors import AdminProblem, AdminUnreachable
from bmq_admin.requests import Request
from bmq_operator.channels.reconcile import holds
from bmq_operator.intents import Intents
from bmq_resources.channel import Channel


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq")) as started:
        yield started


WORLDS = Worlds("Channel")


async def present(world: World, name: str) -> Any:
    """As the cluster has it, if it does."""
    try:
        return await world.client.ask(pages.channel(name))
    except AdminProblem as problem:
        assert problem.code == "UnknownChannel", problem
        return None


def test_a_channel_is_declared_changed_left_alone_and_goes(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("life", channelName="life-1", topic="raw", acknowledgement="accepted")
        assert said(await world.look("life")) == ("True", "AsWritten")
        made = await present(world, "life-1")
        assert made["spec"] == {"topic": "raw", "acknowledgement": "accepted"}
        kept = Channel.model_validate(world.manifest("life"))
        assert holds(kept) and (kept.status.channel_name, kept.status.topic_name) == ("life-1", "raw")

        world.write("life", channelName="life-1", topic="raw", enabled=False, key={"field": "$.id"})
        assert said(await world.look("life")) == ("True", "AsWritten")
        now = await present(world, "life-1")
        assert now["spec"] == {"topic": "raw", "enabled": False, "key": {"field": "$.id"}}
        assert now["created_ms"] == made["created_ms"]

        world.asked.clear()
        again = await world.look("life")
        assert (again.events, world.asked) == ((), ["GET channels/life-1"]), "nothing is written"

        gone = await world.look("life", deletionTimestamp=CREATED)
        assert gone.finished and await present(world, "life-1") is None
        assert [event.reason for event in gone.events] == ["ChannelDeleted"]

    WORLDS.run(bmq, use)


def test_what_somebody_else_did_by_rest_is_put_back_and_told(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("drift", topic="a")
        await world.look("drift")
        await world.client.ask(pages.change_channel("drift", {"topic": "b"}, version=None))
        assert [event.reason for event in (await world.look("drift")).events] == ["DriftPutBack"]
        assert (await present(world, "drift"))["spec"] == {"topic": "a"}
        await world.client.ask(pages.delete_channel("drift"))
        assert [event.reason for event in (await world.look("drift")).events] == ["ChannelLost"]
        assert (await present(world, "drift"))["spec"] == {"topic": "a"}

    WORLDS.run(bmq, use)


def test_a_channel_that_was_there_before_is_left_alone_and_adopted_where_that_is_written(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        theirs = await world.client.ask(pages.create_channel("theirs", {"topic": "b"}))
        world.write("theirs", topic="a")
        assert said(await world.look("theirs")) == ("False", "AlreadyExists")
        gone = await world.look("theirs", deletionTimestamp=CREATED)
        assert gone.finished and (await present(world, "theirs"))["version"] == theirs["version"]
        world.write("theirs", topic="a", existing="Adopt")
        found = await world.look("theirs")
        assert (said(found), [event.reason for event in found.events]) == (("True", "AsWritten"), ["Adopted"])
        assert (await present(world, "theirs"))["spec"] == {"topic": "a"}

    WORLDS.run(bmq, use)


def test_what_the_cluster_refuses_is_told_in_its_words_and_claims_nothing(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("large", schema={"json": {"description": "x" * 20_000}})
        refused = await world.look("large")
        assert said(refused) == ("False", "Refused") and "channel_bytes_max" in message(refused)
        assert (await world.look("large")).status == refused.status
        await world.client.ask(pages.create_channel("large", {}))
        world.write("large")
        assert said(await world.look("large")) == ("False", "AlreadyExists")

    WORLDS.run(bmq, use)


def test_a_declaration_whose_answer_was_lost_is_its_own_also_after_the_operator_was_started_anew(
    bmq: StartedBmq,
) -> None:
    async def use(world: World) -> None:
        world.write("unanswered", topic="a")
        await world.intends("unanswered")
        client = world.context.admin(bmq.admin, TOKEN)
        ask = client.ask

        async def loses(request: Request[Any]) -> Any:
            found = await ask(request)
            if request.method == "POST":
                client.ask = ask  # type: ignore[method-assign]
                raise AdminUnreachable("the answer was lost")
            return found

        client.ask = loses  # type: ignore[method-assign]
        assert said(await world.look("unanswered"))[1] in ("ClusterNotReady", "AsWritten")
        world.context.known.intents = Intents()
        assert said(await world.look("unanswered")) == ("True", "AsWritten")

    WORLDS.run(bmq, use)


def test_of_two_resources_that_come_at_once_one_declares_the_channel(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("first", channelName="both", topic="a")
        world.write("second", channelName="both", topic="b")
        outcomes = await asyncio.gather(world.look("first"), world.look("second"))
        assert sorted(map(said, outcomes)) == [("False", "Collision"), ("True", "AsWritten")]

    WORLDS.run(bmq, use)
