"""Who handles what is written to a topic, and why: what is said of each case, of the topic and of a partition."""

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any, cast

import fastapi.routing
import pytest
from test_controller_lane_turns import Lane

from bmq.errors import BmqError, NotOwner, NotReady
from bmq.metadata.records import Whose
from bmq.roles.admin import AdminRequest
from bmq.roles.controller import NewTopic
from bmq.roles.owner import HandedOver, PartitionStatus
from bmq.values import Offset, TopicId, TopicPartition
from bmq_controller.api import routes
from bmq_controller.api.app import build_api
from bmq_controller.api.asgi import ADDRESS, call
from bmq_controller.api.route_progress import (
    ASKED_OF_A_LANE,
    ASKED_OF_A_PAGE,
    PATIENCE_S,
    Progress,
    first_places,
    places_of,
    progress_of,
)
from bmq_controller.api.routes import ROUTES_AT_ONCE
from bmq_controller.api.sources import ApiSources
from bmq_controller.expiry import count_turns
from bmq_controller.machine.lanes import LaneWanted, create_lane
from bmq_controller.machine.presence import Presence, Seen
from bmq_controller.machine.routes import Consumers, Handler, Reason, Route, of_partition, route_of, verdict
from bmq_sim.loop import on_virtual_time

NOBODY = Consumers(seen=Seen(consumed_s_ago=None, is_absent=False))
BILLING = Consumers(groups=["billing"], count=1, seen=Seen(consumed_s_ago=0.5, is_absent=False))


def of(lane: Lane, name: str = "dev", topic: str = "orders") -> Route:
    image = lane.cluster.image
    return route_of(image, image.lanes.get(name), topic)


def said(route: Route, consumers: Consumers = NOBODY) -> tuple[Handler, Reason]:
    found = verdict(route, consumers, grace_s=30)
    return found.handler, found.reason


def test_the_base_handles_what_is_written_to_it_and_its_groups_are_named() -> None:
    route = of(Lane(), "")
    assert said(route) == (Handler.BASE, Reason.BASE_ITSELF)
    many = Consumers(groups=["a", "b"], count=5)
    assert verdict(route, many, grace_s=30).why == "groups a, b and 3 more consume it"
    unknown = Consumers(is_known=False)
    assert "cannot be told" in verdict(route, unknown, grace_s=30).why


def test_what_is_the_lanes_says_who_consumes_it_or_what_it_waits_for() -> None:
    lane = Lane()
    assert said(of(lane), BILLING) == (Handler.LANE, Reason.CONSUMED)
    lately = Consumers(seen=Seen(consumed_s_ago=12.3, is_absent=False))
    assert said(of(lane), lately) == (Handler.LANE, Reason.CONSUMED_LATELY)
    assert "12 s ago" in verdict(of(lane), lately, grace_s=30).why
    gone = Consumers(seen=Seen(consumed_s_ago=40.0, is_absent=True))
    for consumers in (NOBODY, gone):
        assert said(of(lane), consumers) == (Handler.LANE, Reason.WAITING)
        assert "30 s" in verdict(of(lane), consumers, grace_s=30).why
    assert "cannot be told" in verdict(of(lane), Consumers(is_known=False), grace_s=30).why


def test_what_is_the_bases_or_closes_says_so_and_a_topic_whose_partitions_differ_does() -> None:
    lane = Lane()
    lane.next(Whose.BASE, 5)
    assert said(of(lane)) == (Handler.MIXED, Reason.UNCONSUMED)
    turns = [lane.turn(0), lane.turn(1)]
    assert [of_partition(of(lane), at, turn, NOBODY) for at, turn in enumerate(turns)] == [
        (Handler.BASE, Reason.UNCONSUMED),
        (Handler.LANE, Reason.WAITING),
    ]
    lane.next(Whose.BASE, 5, partition=1)
    assert said(of(lane)) == (Handler.BASE, Reason.UNCONSUMED)
    assert (of(lane).turns.base, of(lane).turns.lane) == (2, 0)
    lane.consume()
    assert said(of(lane), BILLING) == (Handler.CLOSING, Reason.CLOSING)
    lane.next(Whose.LANE, 9)
    assert said(of(lane), BILLING) == (Handler.MIXED, Reason.CLOSING)
    turns = [lane.turn(0), lane.turn(1)]
    assert [of_partition(of(lane), at, turn, BILLING) for at, turn in enumerate(turns)] == [
        (Handler.LANE, Reason.CONSUMED),
        (Handler.CLOSING, Reason.CLOSING),
    ]


def test_partitions_that_the_base_does_not_have_stay_in_the_lane() -> None:
    lane = Lane(base_partitions=1)
    assert of(lane).turns.stay == 1
    lane.next(Whose.BASE, 0)
    found = verdict(of(lane), NOBODY, grace_s=30)
    assert (found.handler, found.reason) == (Handler.MIXED, Reason.UNCONSUMED)
    assert "of 1 partitions" in found.why
    assert of_partition(of(lane), 1, lane.turn(1), NOBODY) == (Handler.LANE, Reason.NO_BASE_PARTITION)
    lane.cluster.create(NewTopic(name="own", lane="dev", partitions=3))
    assert said(of(lane, topic="own")) == (Handler.LANE, Reason.NO_BASE_PARTITION)
    assert (of(lane, topic="own").turns.stay, of(lane, topic="own").base) == (3, None)


def test_a_topic_that_is_not_made_yet_says_what_the_first_write_meets() -> None:
    lane = Lane()
    lane.cluster.create(NewTopic(name="fresh", partitions=2))
    route = of(lane, topic="fresh")
    assert (route.own, said(route)) == (None, (Handler.BASE, Reason.NOT_WRITTEN))
    assert said(route, BILLING) == (Handler.LANE, Reason.CONSUMED)


def test_lanes_without_fallback_keep_what_is_written_and_say_what_they_read() -> None:
    lane = Lane()
    for wanted in (
        LaneWanted(name="qa"),
        LaneWanted(name="rd", reads_base=("ord*",), reads_base_bytes_per_s=1 << 20),
    ):
        lane.cluster.commit(create_lane(lane.cluster.image, 1, wanted).records)
    assert said(of(lane, "qa")) == (Handler.LANE, Reason.NO_FALLBACK)
    assert said(of(lane, "rd")) == (Handler.LANE, Reason.READS_BASE)
    lane.cluster.create(NewTopic(name="orders", lane="rd"))
    assert said(of(lane, "rd")) == (Handler.LANE, Reason.NO_FALLBACK), "it reads its own"
    lane.cluster.create(NewTopic(name="payments"))
    assert said(of(lane, "rd", "payments")) == (Handler.LANE, Reason.NO_FALLBACK), "no pattern covers it"


def test_a_look_at_who_was_there_tells_nobody_to_be_present() -> None:
    lane = Lane()
    presence = Presence(1, grace_s=30)
    assert presence.seen(lane.topic_id, 100) == Seen(consumed_s_ago=None, is_absent=False)
    assert presence.seen(lane.topic_id, 500) == Seen(consumed_s_ago=None, is_absent=False), "nobody asked before"
    presence.tell([lane.topic_id], 500)
    assert presence.seen(lane.topic_id, 529) == Seen(consumed_s_ago=29, is_absent=False)
    assert presence.seen(lane.topic_id, 530) == Seen(consumed_s_ago=30, is_absent=True)
    assert presence.unconsumed(lane.topic_id, 530) is not None


def test_partitions_are_counted_by_lane_and_turn() -> None:
    lane = Lane()
    assert dict(count_turns(lane.cluster.image)) == {("dev", Whose.LANE): 2}
    lane.next(Whose.BASE, 0)
    lane.next(Whose.BASE, 0, partition=1)
    lane.consume()
    lane.next(Whose.LANE, 3)
    counts = count_turns(lane.cluster.image)
    assert [counts["dev", turn] for turn in Whose] == [{Whose.LANE: 1, Whose.CLOSING: 1}.get(turn, 0) for turn in Whose]


class Owners:
    """Of the lane's partitions and of the base's: the base has `count` of each turn, where it says anything."""

    def __init__(self, lane: Lane, *, end: int, count: int | BmqError, log_start: int = 0) -> None:
        self.lane, self.end, self.count, self.log_start = lane, end, count, log_start
        self.asked = 0
        self.has_owner = True
        self.hangs = False

    def sources(self) -> ApiSources:
        return cast(ApiSources, self)

    @property
    def image(self) -> Any:
        return self.lane.cluster.image

    def owner_for(self, tp: TopicPartition) -> Any:
        if not self.has_owner:
            raise NotOwner(f"{tp}: no broker owns it at present")
        return self

    async def status(self, tps: list[TopicPartition]) -> list[PartitionStatus]:
        return [
            PartitionStatus(
                tp=tp,
                log_start=Offset(self.log_start),
                high_watermark=Offset(self.end),
                tail_bytes=0,
                segment_bytes=0,
                segment_count=0,
            )
            for tp in tps
        ]

    async def handed_over(self, _tp: TopicPartition, _producer_id: int) -> HandedOver:
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(3_600)
        if isinstance(self.count, BmqError):
            raise self.count
        return HandedOver(count=self.count, is_final=False)

    async def age_of(self, _tp: TopicPartition, offset: int) -> float:
        return 100.0 - offset

    async def progress(self) -> Progress:
        route = of(self.lane)
        found = await progress_of(self.sources(), places_of(self.image, route, [0]))
        [one] = found.values()
        return one


@on_virtual_time
async def test_what_waits_is_what_lies_between_the_base_and_the_end_of_the_lanes_partition() -> None:
    lane = Lane()
    lane.next(Whose.BASE, 5)
    behind = await Owners(lane, end=12, count=3).progress()
    assert behind == Progress(end_offset=12, base_next_offset=8, waiting_records=4, waiting_seconds=92.0)
    done = await Owners(lane, end=12, count=7).progress()
    assert done == Progress(end_offset=12, base_next_offset=12, waiting_records=0, waiting_seconds=0.0)
    deleted = await Owners(lane, end=12, count=3, log_start=11).progress()
    assert deleted.waiting_records == 1, "what was deleted in the lane goes nowhere"
    lane.consume()
    closing = await Owners(lane, end=12, count=3).progress()
    assert closing == Progress(end_offset=12, base_next_offset=8), "what is behind it is the lane's"


@on_virtual_time
async def test_what_no_owner_says_is_not_known() -> None:
    lane = Lane()
    lane.next(Whose.BASE, 5)
    silent = await Owners(lane, end=12, count=NotReady("it is being opened")).progress()
    assert silent == Progress(end_offset=12)
    owners = Owners(lane, end=12, count=3)
    owners.has_owner = False
    assert await owners.progress() == Progress()


@on_virtual_time
async def test_owners_that_do_not_answer_are_waited_for_once_however_many_partitions_there_are() -> None:
    lane = Lane()
    lane.next(Whose.BASE, 5)
    owners = Owners(lane, end=12, count=3)
    owners.hangs = True
    [place] = places_of(owners.image, of(lane), [0])
    began_s = asyncio.get_running_loop().time()
    found = await progress_of(owners.sources(), [place] * 100)
    assert asyncio.get_running_loop().time() - began_s <= PATIENCE_S
    assert set(found.values()) == {Progress(end_offset=12)}


@on_virtual_time
async def test_nobody_is_asked_how_far_the_base_is_where_nothing_was_written_since_its_turn_began() -> None:
    lane = Lane()
    lane.next(Whose.BASE, 5)
    owners = Owners(lane, end=5, count=NotReady("it is being opened"))
    assert (await owners.progress()).waiting_records == 0
    assert not owners.asked


@pytest.mark.parametrize("lanes", [1, 20])
def test_of_many_partitions_and_lanes_few_are_asked(lanes: int) -> None:
    lane = Lane()
    for number in range(lanes):
        wanted = LaneWanted(name=f"l{number}", falls_back=True)
        lane.cluster.commit(create_lane(lane.cluster.image, 1, wanted).records)
        lane.cluster.create(NewTopic(name="wide", lane=f"l{number}", partitions=ASKED_OF_A_LANE * 2))
    lane.cluster.create(NewTopic(name="wide", partitions=ASKED_OF_A_LANE * 2))
    names = [f"l{number}" for number in range(lanes)]
    for name in names:
        topic = lane.cluster.image.topic(f"{name}:wide")
        assert topic is not None
        lane.topic_id = topic.topic_id
        for index in range(ASKED_OF_A_LANE * 2):
            lane.next(Whose.BASE, 0, partition=index)
    routes = [of(lane, name, "wide") for name in names]
    assert {route.turns.base for route in routes} == {ASKED_OF_A_LANE * 2}
    places = first_places(lane.cluster.image, routes)
    assert len(places["l0"]) == ASKED_OF_A_LANE
    assert sum(map(len, places.values())) == min(lanes * ASKED_OF_A_LANE, ASKED_OF_A_PAGE)


class Asked:
    """A node's sources whose coordinators take a while: how many pages ask them at a time."""

    def __init__(self, lane: Lane) -> None:
        self.image = lane.cluster.image
        self.lane_grace_s = 30.0
        self.at_once = self.most = self.pages = 0

    def leader(self) -> Any:
        return self

    def owner_for(self, tp: TopicPartition) -> Any:
        raise NotOwner(f"{tp}: no broker owns it at present")

    def seen_consumers(self, topic_ids: list[TopicId]) -> list[Seen]:
        return [Seen(consumed_s_ago=None, is_absent=False) for _ in topic_ids]

    async def consumers(self, _: Any, __: str, lanes: Mapping[str, int]) -> dict[str, Consumers]:
        self.pages += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        for _ in range(20):
            await asyncio.sleep(0)
        self.at_once -= 1
        return dict.fromkeys(lanes, Consumers())


@pytest.mark.parametrize("path", ["/v1/routes/orders", "/v1/lanes/dev/routes/orders"])
@pytest.mark.parametrize(("addresses", "most"), [(1, 1), (5, ROUTES_AT_ONCE)])
def test_an_address_has_one_page_of_routes_put_together_at_a_time_and_beside_the_event_loop(
    path: str, addresses: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def encoded(**_: Any) -> Any:
        pytest.fail("it is encoded in the event loop")

    async def main() -> None:
        app = build_api(cast(ApiSources, asked))
        requests = [
            AdminRequest(method="GET", path=path, query="", headers={ADDRESS: f"10.0.0.{number % addresses}"})
            for number in range(20)
        ]
        replies = await asyncio.gather(*(call(app, request) for request in requests))
        assert {reply.status for reply in replies} == {200}

    asked = Asked(Lane())
    monkeypatch.setattr(routes, "topic_consumers", asked.consumers)
    monkeypatch.setattr(fastapi.routing, "serialize_response", encoded)
    asyncio.run(main())
    assert (asked.most, asked.pages) == (most, 20)


def test_lanes_are_looked_through_in_the_thread_of_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    real = routes._lanes

    def lanes(*args: Any, **kwargs: Any) -> Any:
        looked.append(threading.current_thread().name)
        return real(*args, **kwargs)

    asked = Asked(Lane())
    monkeypatch.setattr(routes, "_lanes", lanes)
    monkeypatch.setattr(routes, "topic_consumers", asked.consumers)
    request = AdminRequest(method="GET", path="/v1/routes/orders", query="limit=1", headers={})
    reply = asyncio.run(call(build_api(cast(ApiSources, asked)), request))
    shown = json.loads(reply.body)
    assert [one["lane"] for one in shown["items"]] == [""] and shown["continue"]
    assert [name.startswith("admin page") for name in looked] == [True]
