"""`/v1/routes/TOPIC` and `/v1/lanes/LANE/routes/TOPIC`: who handles what is written to a topic now, in the base and in
lanes, and what waits.

Whose turn it is the metadata says; the owners of the lane's and the base's partitions say what waits, and coordinators
who consumes. What one of them does not answer is not known, and told as that.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from fastapi import FastAPI, Query, Response

from bmq.errors import UnknownTopic
from bmq.fairness.turns import Places
from bmq.metadata.image import Image, Turn
from bmq.metadata.records import Whose
from bmq.naming.lanes import BASE, lane_of, overlay_name
from bmq.naming.names import is_internal
from bmq.values import TopicPartition
from bmq_controller.api.coordinators import topic_consumers
from bmq_controller.api.lanes import find
from bmq_controller.api.paging import Continue, Page, numbered_page, page
from bmq_controller.api.parameters import MISSING, Address
from bmq_controller.api.route_models import (
    ConsumersView,
    LaneRouteView,
    PartitionRouteView,
    RouteView,
    TurnsView,
    WaitingView,
)
from bmq_controller.api.route_progress import Place, Progress, ends_of, first_places, places_of, progress_of, tps_of
from bmq_controller.api.sources import ApiSources, in_thread
from bmq_controller.machine.routes import Consumers, Route, of_partition, route_of, verdict

ROUTES_AT_ONCE: Final = 2
"""Coordinators and owners are asked for each page: so many are put together at a time, and one for each address."""
LANES_MAX: Final = 100
"""A page has no more: of each all partitions are looked at in the metadata."""
COUNTED_MAX: Final = 200_000
"""Partitions of a page's lanes together, so a page may have fewer."""
PARTITIONS_MAX: Final = 100
"""A page has no more: of each that is the base's two owners are asked, one of which looks at the store."""

Lanes = Annotated[int, Query(alias="limit", ge=1, le=LANES_MAX, description="How many lanes at most")]
Partitions = Annotated[int, Query(alias="limit", ge=1, le=PARTITIONS_MAX, description="How many partitions at most")]
OnePartition = Annotated[int | None, Query(ge=0, description="Only this one")]


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that show where messages of a topic go."""

    at_once = Places(ROUTES_AT_ONCE, leaving=True)

    @app.get("/v1/routes/{topic}", tags=["lanes"], responses=MISSING, response_model=Page[RouteView])
    async def list_routes(topic: str, address: Address, limit: Lanes = LANES_MAX, after: Continue = None) -> Response:
        """Who handles what is written to a topic now: in the base, which comes first, and in each lane."""
        _check_name(topic)
        async with at_once.holding(party=address):
            return await _listed(sources, topic, limit=limit, after=after)

    @app.get("/v1/lanes/{name}/routes/{topic}", tags=["lanes"], responses=MISSING, response_model=LaneRouteView)
    async def get_route(
        name: str,
        topic: str,
        *,
        address: Address,
        limit: Partitions = PARTITIONS_MAX,
        after: Continue = None,
        partition: OnePartition = None,
    ) -> Response:
        """Who handles what is written to a topic in one lane now, with its partitions, so many at a time."""
        _check_name(topic)
        async with at_once.holding(party=address):
            return await _shown(sources, topic, name, limit=limit, after=after, partition=partition)


async def _listed(sources: ApiSources, topic: str, *, limit: int, after: str | None) -> Response:
    image = sources.image

    def chosen() -> tuple[list[Route], dict[str, list[Place]], str | None]:
        lanes = _lanes(image, topic, limit=limit, after=after)
        routes = [route_of(image, image.lanes.get(name), topic) for name in lanes.items]
        return routes, first_places(image, routes), lanes.next_token

    routes, places, next_token = await in_thread(chosen)
    consumers = await _consumers(sources, topic, routes)
    progress = await progress_of(sources, [one for some in places.values() for one in some])
    grace_s = sources.leader().lane_grace_s

    def encoded() -> bytes:
        items = [
            _view(route, consumers[route.lane_name], _waiting(places[route.lane_name], progress), grace_s)
            for route in routes
        ]
        return Page(items=items, next_token=next_token).model_dump_json(by_alias=True).encode()

    return Response(await in_thread(encoded), media_type="application/json")


async def _shown(
    sources: ApiSources, topic: str, name: str, *, limit: int, after: str | None, partition: int | None
) -> Response:
    image = sources.image
    lane = find(image, name)
    route = await in_thread(lambda: route_of(image, lane, topic))
    if route.own is None and route.base is None:
        raise _unknown()
    shown = _indexes(route, limit=limit, after=after, partition=partition)
    consumers = (await _consumers(sources, topic, [route]))[name]
    places = places_of(image, route, shown.items)
    progress = await progress_of(sources, places)
    progress |= await ends_of(sources, route, shown.items, progress)
    summary = _view(route, consumers, _waiting(places, progress), sources.leader().lane_grace_s)
    view = LaneRouteView(
        **summary.model_dump(),
        items=[
            _partition(route, tp.partition, image.turn(tp), consumers, progress.get(tp, Progress()))
            for tp in tps_of(route, shown.items)
        ],
        next_token=shown.next_token,
    )
    return Response(view.model_dump_json(by_alias=True), media_type="application/json")


def _lanes(image: Image, topic: str, *, limit: int, after: str | None) -> Page[str]:
    """By name; the base, which is called "", is first."""
    if image.topic(topic) is None and not any(overlay_name(name, topic) in image.topic_ids for name in image.lanes):
        raise _unknown()
    names = [BASE] if is_internal(topic) else [BASE, *image.lanes]
    own = (image.topic(overlay_name(name, topic)) for name in image.lanes)
    widest = max((len(one.partitions) for one in own if one is not None), default=1)
    return page(
        names,
        key=lambda name: (name,),
        view=lambda name: name,
        limit=min(limit, max(1, COUNTED_MAX // widest)),
        after=after,
        kind=f"routes of {topic}",
    )


def _check_name(topic: str) -> None:
    if lane_of(topic) != BASE:
        raise UnknownTopic(
            "it is the name of no topic of the base: name it as the lane's clients do, and the lane besides"
        )


def _unknown() -> UnknownTopic:
    return UnknownTopic("neither the base nor a lane that is asked for has it: list the topics, or write to it")


def _indexes(route: Route, *, limit: int, after: str | None, partition: int | None) -> Page[int]:
    count = 0 if route.own is None else len(route.own.partitions)
    if partition is not None:
        if partition >= count:
            raise UnknownTopic(f"it has {count} partitions, from 0 on: name one of them")
        return Page(items=[partition])
    kind = f"partitions of {route.name} in {route.lane_name}"
    return numbered_page(count, view=lambda at: at, limit=limit, after=after, kind=kind)


async def _consumers(sources: ApiSources, topic: str, routes: Sequence[Route]) -> dict[str, Consumers]:
    numbers = {route.lane_name: 0 if route.lane is None else route.lane.number for route in routes}
    found = await topic_consumers(sources, topic, numbers)
    told = {route.lane_name: route.own.topic_id for route in routes if route.own is not None and _falls_back(route)}
    seen = dict(zip(told, sources.leader().seen_consumers(list(told.values())), strict=True))
    return {
        name: Consumers(groups=one.groups, count=one.count, is_known=one.is_known, seen=seen.get(name))
        for name, one in found.items()
    }


def _falls_back(route: Route) -> bool:
    return route.lane is not None and route.lane.falls_back


def _waiting(places: Sequence[Place], progress: Mapping[TopicPartition, Progress]) -> WaitingView:
    asked = [progress[place.tp] for place in places if place.turn.whose is Whose.BASE]
    known = [one for one in asked if one.waiting_records is not None]
    behind = [one for one in known if one.waiting_records]
    ages = [one.waiting_seconds for one in behind if one.waiting_seconds is not None]
    return WaitingView(
        partitions=len(asked),
        unknown=len(asked) - len(known),
        records=sum(one.waiting_records or 0 for one in known),
        seconds=max(ages, default=0.0 if not behind and len(known) == len(asked) else None),
    )


def _view(route: Route, consumers: Consumers, waiting: WaitingView, grace_s: float) -> RouteView:
    said = verdict(route, consumers, grace_s=grace_s)
    lane, turns, seen = route.lane, route.turns, consumers.seen
    return RouteView(
        lane=route.lane_name,
        topic=route.name,
        handled_by=said.handler,
        reason=said.reason,
        why=said.why,
        fallback="" if lane is None else "base" if lane.falls_back else "none",
        parent=route.parent,
        partitions=None if route.own is None else len(route.own.partitions),
        base_partitions=None if route.base is None else len(route.base.partitions),
        turns=TurnsView(lane=turns.lane, base=turns.base, closing=turns.closing, stay=turns.stay),
        consumers=ConsumersView(
            groups=list(consumers.groups),
            group_count=consumers.count,
            known=consumers.is_known,
            consumed_s_ago=None if seen is None else seen.consumed_s_ago,
        ),
        waiting=waiting,
    )


def _partition(route: Route, index: int, turn: Turn, consumers: Consumers, found: Progress) -> PartitionRouteView:
    handler, reason = of_partition(route, index, turn, consumers)
    return PartitionRouteView(
        partition=index,
        handled_by=handler,
        reason=reason,
        since_offset=turn.begin,
        turn=turn.generation,
        end_offset=found.end_offset,
        base_next_offset=found.base_next_offset,
        waiting_records=found.waiting_records,
        waiting_seconds=found.waiting_seconds,
    )
