"""What a lane, and the base, see of a cluster's metadata."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from bmq.errors import BmqError
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import AnyRecord, LaneDeclared, LaneDeleted, TopicCreated, TopicDeleted
from bmq.naming.lanes import overlay_id
from bmq.values import TopicId
from bmq_proxy.lanes.by_lane import ByLane
from bmq_proxy.lanes.rate import RateCap
from bmq_proxy.lanes.views import BaseView, LaneView
from bmq_proxy.topics import find_topic


class Node:
    """A node's metadata, to which records come."""

    def __init__(self, *records: AnyRecord) -> None:
        self.image = Image(cluster_id="c")
        self._changed: list[Callable[[Image, Image], None]] = []
        self.then(*records)

    def then(self, *records: AnyRecord) -> None:
        before, self.image = self.image, apply(self.image, self.image.position + 1, records)
        for changed in self._changed:
            changed(before, self.image)

    def subscribe(self, changed: Callable[[Image, Image], None]) -> Callable[[], None]:
        self._changed.append(changed)
        return lambda: self._changed.remove(changed)

    async def wait_for(self, position: int) -> Image:
        return self.image


def topic(number: int, name: str, partitions: int = 1, **more: Any) -> TopicCreated:
    return TopicCreated(
        topic_id=UUID(int=number), name=name, partitions=partitions, leader_epoch=more.pop("leader_epoch", 0), **more
    )


def lane(name: str, number: int, *, reads: tuple[str, ...] = ()) -> LaneDeclared:
    return LaneDeclared(name=name, number=number, created_ms=0, reads_base=reads, reads_base_bytes_per_s=1024)


def seen(view: BaseView | LaneView) -> dict[str, int]:
    """The topics that are listed, by name, and that both mappings agree."""
    image = view.image
    assert {found.name: topic_id for topic_id, found in image.topics.items()} == dict(image.topic_ids)
    return {name: topic_id.int for name, topic_id in image.topic_ids.items()}


def test_without_lanes_the_base_sees_the_nodes_own_image() -> None:
    node = Node(topic(1, "orders"))
    assert BaseView(node).image is node.image


def test_each_sees_its_own_and_nothing_else_by_any_name_or_id() -> None:
    node = Node(
        topic(1, "orders"),
        lane("dev", 1),
        lane("test", 2),
        topic(2, "dev:orders"),
        topic(3, "test:orders"),
        topic(4, "test:only"),
    )
    base, dev, test = (
        BaseView(node),
        LaneView(node, "dev", ByLane(), own_only=False),
        LaneView(node, "test", ByLane(), own_only=True),
    )
    assert (seen(base), seen(dev), seen(test)) == ({"orders": 1}, {"orders": 2}, {"orders": 3, "only": 4})
    for view, strange in (
        (base, ("dev:orders", "only", 2, 3, 4)),
        (dev, ("dev:orders", "test:only", "only", 1, 3, 4)),
        (test, ("dev:orders", 1, 2)),
    ):
        for key in strange:
            with pytest.raises(BmqError):
                find_topic(view.image, key if isinstance(key, str) else UUID(int=key))


def test_what_did_not_change_is_the_same_object_so_that_answers_may_be_kept() -> None:
    node = Node(topic(1, "orders"), lane("dev", 1), topic(2, "dev:orders"))
    for view in (
        BaseView(node),
        LaneView(node, "dev", ByLane(), own_only=False),
        LaneView(node, "dev", ByLane(), own_only=True),
    ):
        before = view.image
        node.then(lane(f"other-{node.image.position}", node.image.next_lane))
        assert view.image is not before
        assert view.image.topics is before.topics
        node.then(topic(node.image.position + 10, f"dev:t{node.image.position}"))
        assert view.image.topics.keys() != before.topics.keys() or isinstance(view, BaseView)


def test_who_subscribes_misses_no_change() -> None:
    """A feed publishes at once, and tells a turn of the loop later: who subscribes in between is told of what comes
    then.
    """

    async def test() -> None:
        feed = MetadataFeed(apply(Image(cluster_id="c"), 1, [topic(1, "orders")]))
        base = BaseView(feed)
        then = apply(feed.image, 2, [topic(2, "payments")])
        feed.publish(then)
        told: list[Image] = []
        base.subscribe(lambda _, new: told.append(new))
        assert base.image is then
        await asyncio.sleep(0)
        feed.publish(apply(then, 3, [topic(3, "refunds")]))
        await asyncio.sleep(0)
        assert told == [feed.image]

    asyncio.run(test())


def test_a_topic_of_the_base_is_foretold_unlisted_with_its_shape_and_the_id_that_the_first_write_gives_it() -> None:
    node = Node(
        topic(1, "orders", 3, leader_epoch=7, configs={"retention.ms": "5", "bmq.pool": "p"}),
        topic(9, "__consumer_offsets"),
        lane("dev", 4),
    )
    view = LaneView(node, "dev", ByLane(), own_only=False)
    found = find_topic(view.image, "orders")
    assert (len(found.partitions), found.configs, found.topic_id) == (
        3,
        {"retention.ms": "5"},
        overlay_id("c", 4, "orders", 0, base_id=UUID(int=1)),
    )
    assert min(meta.leader_epoch for meta in found.partitions) > 7
    assert seen(view) == {}
    assert find_topic(LaneView(node, "dev", ByLane(), own_only=False).image, found.topic_id) == found, (
        "another proxy has told it"
    )
    for key in ("__consumer_offsets", "nothing", UUID(int=1)):
        with pytest.raises(BmqError):
            find_topic(view.image, key)
    with pytest.raises(BmqError):
        find_topic(LaneView(node, "dev", ByLane(), own_only=True).image, "orders")
    assert (view.is_written(found.topic_id), view.base_name_of("orders"), view.base_name_of(found.topic_id)) == (
        False,
        "orders",
        "orders",
    )
    node.then(TopicCreated(topic_id=found.topic_id, name="dev:orders", partitions=3, leader_epoch=8))
    assert (seen(view), view.is_written(found.topic_id), view.base_name_of("orders")) == (
        {"orders": found.topic_id.int},
        True,
        None,
    )
    node.then(TopicDeleted(topic_id=found.topic_id, name="dev:orders", last_leader_epoch=9))
    again = find_topic(view.image, "orders")
    assert again.topic_id != found.topic_id, "an id is never used again"
    with pytest.raises(BmqError):
        find_topic(view.image, found.topic_id)


def test_a_lane_reads_what_matches_until_it_has_its_own() -> None:
    node = Node(
        topic(1, "orders"), topic(2, "private"), topic(3, "__consumer_offsets"), lane("dev", 1, reads=("ord*", "__*"))
    )
    view, own = LaneView(node, "dev", ByLane(), own_only=False), LaneView(node, "dev", ByLane(), own_only=True)
    assert (seen(view), seen(own), view.is_own(TopicId(UUID(int=1)))) == ({"orders": 1}, {}, False)
    node.then(topic(5, "dev:orders"))
    assert (seen(view), seen(own)) == ({"orders": 5}, {"orders": 5})
    node.then(TopicDeleted(topic_id=UUID(int=5), name="dev:orders", last_leader_epoch=0), lane("dev", 1, reads=("*",)))
    assert (seen(view), seen(own)) == ({"orders": 1, "private": 2}, {})


def test_a_lane_that_is_gone_sees_nothing_and_who_watches_is_told_what_is_seen() -> None:
    node = Node(topic(1, "orders"), lane("dev", 1), topic(2, "dev:orders"))
    view = LaneView(node, "dev", ByLane(), own_only=False)
    steps: list[tuple[int, int]] = []
    stop = view.subscribe(lambda old, new: steps.append((len(old.topics), len(new.topics))))
    node.then(
        TopicDeleted(topic_id=UUID(int=2), name="dev:orders", last_leader_epoch=0), LaneDeleted(name="dev", number=1)
    )
    stop()
    node.then(lane("dev", 2))
    assert steps == [(1, 0)]
    with pytest.raises(BmqError):
        find_topic(LaneView(Node(topic(1, "orders")), "dev", ByLane(), own_only=False).image, "orders")


def test_a_capped_rate_holds_in_the_long_run_whatever_the_size_of_a_batch() -> None:
    cap = RateCap(1_000)
    now_s, used = 0.0, 0
    while now_s < 100:
        granted = cap.grant(now_s)
        if granted:
            used += 7_000
            cap.settle(granted, 7_000)
        now_s += max(0.001, cap.wait_s(now_s))
    assert 92_000 <= used <= 108_000
    assert cap.grant(now_s + 3_600) == 1_000, "after a rest a second's worth at once, and no more"
    cap.settle(1_000, 0)
    assert cap.grant(now_s + 3_600) == 1_000, "what was not used may be used later"


def nested(name: str, number: int, parent: str) -> LaneDeclared:
    return LaneDeclared(name=name, number=number, created_ms=0, falls_back=True, parent=parent)


def test_a_nested_lane_foretells_what_the_lanes_beneath_have_under_an_id_that_stays() -> None:
    node = Node(
        topic(1, "orders", 3),
        nested("boe", 1, ""),
        nested("ppe", 2, "boe"),
        nested("dev", 3, "ppe"),
        nested("beside", 4, ""),
        topic(2, "boe:only", 5, configs={"retention.ms": "5"}),
    )
    view = LaneView(node, "dev", ByLane(), own_only=False)
    orders, only = find_topic(view.image, "orders"), find_topic(view.image, "only")
    assert (only.name, len(only.partitions), only.configs) == ("only", 5, {"retention.ms": "5"})
    assert (len(orders.partitions), view.base_name_of(only.topic_id), view.is_unwritten("only")) == (3, "only", True)
    assert seen(view) == {}, "what nobody has written to is in no list"
    for name in ("only", "boe:only", "ppe:only"):
        with pytest.raises(BmqError):
            find_topic(LaneView(node, "beside", ByLane(), own_only=False).image, name)

    node.then(topic(3, "ppe:orders", 4), topic(4, "ppe:only", 6), topic(5, "boe:orders", 7))
    for found, partitions in ((orders, 4), (only, 6)):
        other = LaneView(node, "dev", ByLane(), own_only=False)  # another proxy is asked for what one told
        for one in (view, other):
            assert len(find_topic(one.image, found.topic_id).partitions) == partitions
            assert find_topic(one.image, found.name).topic_id == found.topic_id
    node.then(TopicDeleted(topic_id=UUID(int=4), name="ppe:only", last_leader_epoch=0))
    assert len(find_topic(view.image, only.topic_id).partitions) == 5
    node.then(TopicDeleted(topic_id=UUID(int=2), name="boe:only", last_leader_epoch=0))
    for key in ("only", only.topic_id):
        with pytest.raises(BmqError):
            find_topic(view.image, key)


def test_a_lane_that_comes_to_be_in_itself_by_a_leader_of_before_ends_no_look() -> None:
    """One that knows of no nesting deletes a lane that another one is nested in, and there is a new one of its name."""
    node = Node(nested("ppe", 1, ""), nested("dev", 2, "ppe"))
    node.then(LaneDeleted(name="ppe", number=1), nested("ppe", 3, "dev"), topic(1, "orders"))
    view = LaneView(node, "dev", ByLane(), own_only=False)
    assert find_topic(view.image, "orders").name == "orders"
    with pytest.raises(BmqError):
        find_topic(view.image, "nothing")
