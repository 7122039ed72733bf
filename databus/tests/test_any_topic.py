"""Topics that are written by their names: how many are known, how the cluster is asked, and what is forgotten."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from bmq.errors import ConfigurationError
from bmq_databus import metrics
from bmq_databus.channels.topics import CONFIRMED_S, IDLE_S, KnownTopics, TooManyTopics, TopicRule, topic_rule
from bmq_databus.errors import NoSuchChannel, NothingKnown
from bmq_databus.producing.any_topic import AnyTopic
from bmq_databus.producing.settings import producer_settings, with_manner
from bmq_databus.requests.admission import Admission


class Cluster:
    """Has these topics, and says what it was asked."""

    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)
        self.asked: list[list[str]] = []
        self.why_away = ""

    async def look(self, names: Sequence[str]) -> Mapping[str, str | NothingKnown]:
        self.asked.append(list(names))
        await asyncio.sleep(0)
        if self.why_away:
            return dict.fromkeys(names, NothingKnown(self.why_away))
        return {name: "" if name in self.topics else "the cluster has none" for name in names}


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 10))


def any_topic(cluster: Cluster, *, renews: bool = True, topics_max: int = 3, given_max: int = 6) -> AnyTopic:
    return AnyTopic(
        TopicRule(),
        cluster.look,
        renew=lambda: renews,
        forgotten=lambda _: None,
        topics_max=topics_max,
        given_max=given_max,
    )


def test_the_one_that_was_not_written_for_longest_gives_way_and_no_other() -> None:
    known = KnownTopics(TopicRule(), topics_max=2)
    assert known.confirm("a", now_s=0) == known.confirm("b", now_s=1) == []
    assert known.used("a", now_s=IDLE_S) is not None
    with pytest.raises(TooManyTopics, match="declare a channel for topic c"):
        known.confirm("c", now_s=IDLE_S)
    assert known.confirm("c", now_s=IDLE_S + 1) == ["b"]
    assert sorted(known) == ["a", "c"] and known.used("b", now_s=IDLE_S + 1) is None


def test_what_the_cluster_said_holds_for_a_while() -> None:
    known = KnownTopics(TopicRule())
    known.confirm("a", now_s=0)
    assert known.is_confirmed("a", now_s=CONFIRMED_S - 1) and not known.is_confirmed("a", now_s=CONFIRMED_S)
    assert not known.is_confirmed("b", now_s=0)


def test_many_who_ask_at_once_are_one_question_and_each_is_told() -> None:
    async def test() -> None:
        cluster = Cluster("a", "b")
        topics = any_topic(cluster)
        names = ["a", "b", "nowhere", "a"]
        found = await asyncio.gather(*map(topics.named, names), return_exceptions=True)
        assert cluster.asked == [["a", "b", "nowhere"]]
        assert isinstance(found[2], NoSuchChannel) and "the cluster has none" in str(found[2])
        assert found[0] is found[3] and topics.names == ["a", "b"]
        await topics.named("a")
        assert len(cluster.asked) == 1

    run(test)


def test_a_cluster_that_is_away_does_not_take_away_what_is_known() -> None:
    async def test() -> None:
        cluster = Cluster("a")
        topics = any_topic(cluster)
        before = await topics.named("a")
        cluster.why_away = "nobody answers"
        topics._known._known["a"].confirmed_s -= CONFIRMED_S
        assert await topics.named("a") is before
        with pytest.raises(NothingKnown, match="nobody answers"):
            await topics.named("b")
        cluster.why_away, cluster.topics = "", set()
        with pytest.raises(NoSuchChannel):
            await topics.named("a")
        assert topics.get("a") is None

    run(test)


def test_one_who_leaves_takes_the_answer_from_nobody() -> None:
    async def test() -> None:
        topics = any_topic(Cluster("a"))
        left, stays = (asyncio.ensure_future(topics.named("a")) for _ in range(2))
        await asyncio.sleep(0)
        left.cancel()
        assert (await stays).name == "a"

    run(test)


def test_a_producer_that_cannot_be_made_anew_gets_no_further_topics() -> None:
    async def test() -> None:
        names = [f"t{at}" for at in range(6)]
        topics = any_topic(Cluster(*names), renews=False, topics_max=10, given_max=5)
        for name in names[:5]:
            await topics.named(name)
        with pytest.raises(TooManyTopics, match="keeps the producer from being made anew"):
            await topics.named("t5")
        assert (await topics.named("t1")).topic == "t1"

    run(test)


def test_topics_for_which_there_is_no_room_are_not_counted_as_given() -> None:
    async def test() -> None:
        names = [f"t{at}" for at in range(8)]
        topics = any_topic(Cluster(*names), renews=False, topics_max=3, given_max=4)
        for name in names[:3]:
            await topics.named(name)
        for name in names[3:]:
            with pytest.raises(TooManyTopics, match="3 topics were written within"):
                await topics.named(name)
        assert topics.names == names[:3]

    run(test)


def test_what_is_known_counts_for_the_producer_that_is_made_anew() -> None:
    async def test() -> None:
        names = [f"t{at}" for at in range(7)]
        topics = any_topic(Cluster(*names), topics_max=3, given_max=4)
        for name in names[:5]:
            await topics.named(name)
            for one in topics._known._known.values():
                one.used_s -= IDLE_S
        assert topics._given == {"t2", "t3", "t4"} | {"t1"}

    run(test)


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250, "__consumer_offsets"])
def test_the_cluster_is_not_asked_for_what_no_topic_is_called(name: str) -> None:
    async def test() -> None:
        cluster = Cluster(name)
        with pytest.raises(NoSuchChannel):
            await any_topic(cluster).named(name)
        assert cluster.asked == []

    run(test)


class Plane:
    """A control plane that names channels of which this sidecar makes none."""

    known: object | None = None
    names = frozenset({"orders", "orders-raw"})
    troubles: Mapping[str, str] = {"bills": "this and others are sent in 9 manners"}

    def status(self) -> Mapping[str, str]:
        return {}


def test_names_of_a_control_plane_are_never_topics_before_their_channels_are() -> None:
    async def test() -> None:
        cluster, plane = Cluster("orders", "orders-raw", "free"), Plane()
        admission = Admission({}, configuration=plane, any_topic=any_topic(cluster))
        with pytest.raises(NothingKnown):
            await admission.named("bills")
        with pytest.raises(NothingKnown):
            await admission.named("free")
        plane.known = plane
        for name in plane.names:
            with pytest.raises(NoSuchChannel, match="not written by its name"):
                await admission.named(name)
        assert (await admission.named("free")).is_declared is False
        assert cluster.asked == [["free"]]

    run(test)


def test_such_a_topic_is_made_by_nobody_who_writes_to_it() -> None:
    async def test() -> None:
        channel = await any_topic(Cluster("a")).named("a")
        assert with_manner(producer_settings({}, timeout_ms=1), channel.manner)["allow.auto.create.topics"] is False

    run(test)


def test_a_lanes_header_is_one() -> None:
    assert topic_rule("") == TopicRule()
    assert topic_rule("X-Lane").lane is not None
    with pytest.raises(ConfigurationError, match="write a header's name"):
        topic_rule("x lane")


def test_what_was_counted_of_a_topic_goes_with_it() -> None:
    for name in ("kept", "gone"):
        metrics.MESSAGES.labels(name, "200").inc()
    metrics.forget_channel("gone")
    names = {one.labels["channel"] for family in metrics.MESSAGES.collect() for one in family.samples}
    assert "kept" in names and "gone" not in names
