"""What the owners of partitions say of what a lane's topic has for the base: how far that got, and what waits. What one
of them does not answer is not known.
"""

import asyncio
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from bmq.errors import BmqError
from bmq.metadata.image import Image, Turn
from bmq.metadata.records import Whose
from bmq.storage.durable import together
from bmq.values import TopicPartition
from bmq_controller.api.coordinators import partition_statuses
from bmq_controller.api.sources import ApiSources
from bmq_controller.machine.routes import Route

ASKED_OF_A_LANE: Final = 8
ASKED_OF_A_PAGE: Final = 64
"""Partitions of all its lanes together: of each two owners are asked, one of which looks at the store."""
ASKED_AT_ONCE: Final = 16
PATIENCE_S: Final = 5.0
"""For where partitions end, and once more for how far the base got in all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A lane's partition in the base's turn, or one that closes."""

    tp: TopicPartition
    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the base got there. None: it is not known now."""

    end_offset: int | None = None
    base_next_offset: int | None = None
    waiting_records: int | None = None
    waiting_seconds: float | None = None


def tps_of(route: Route, indexes: Sequence[int]) -> list[TopicPartition]:
    """Partitions of the topic that is written to; none where it is not made yet."""
    return [] if route.own is None else [TopicPartition(route.own.topic_id, index) for index in indexes]


def places_of(image: Image, route: Route, indexes: Sequence[int]) -> list[Place]:
    """Those of these partitions that are the base's, or close."""
    turns = ((tp, image.turn(tp)) for tp in tps_of(route, indexes))
    return [Place(tp=tp, turn=turn) for tp, turn in turns if turn.whose is not Whose.LANE]


def first_places(image: Image, routes: Sequence[Route]) -> dict[str, list[Place]]:
    """The first few of each lane's that are the base's, as many of all lanes as a page may ask for."""
    left = ASKED_OF_A_PAGE
    found: dict[str, list[Place]] = {}
    for route in routes:
        wanted = min(left, ASKED_OF_A_LANE, route.turns.base)
        found[route.lane_name] = list(islice(_of_base(image, route), wanted)) if wanted else []
        left -= len(found[route.lane_name])
    return found


def _of_base(image: Image, route: Route) -> Iterator[Place]:
    if route.own is not None:
        for index in range(len(route.own.partitions)):
            tp = TopicPartition(route.own.topic_id, index)
            if (turn := image.turn(tp)).whose is Whose.BASE:
                yield Place(tp=tp, turn=turn)


async def progress_of(sources: ApiSources, places: Sequence[Place]) -> dict[TopicPartition, Progress]:
    """How far the base got in each, and what waits."""
    if not places:
        return {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            statuses = await partition_statuses(sources, [place.tp for place in places])
    except TimeoutError:
        statuses = {}
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)
    until_s = asyncio.get_running_loop().time() + PATIENCE_S

    async def ask(place: Place) -> Progress:
        status = statuses.get(place.tp)
        if status is None:
            return Progress()
        if status.high_watermark <= place.turn.begin:
            # Nothing was written since the turn began: nobody has to be asked for what is known.
            return _waits(place, status.high_watermark, place.turn.begin, 0, 0.0)
        async with at_once:
            count = await _count(sources, place, until_s)
            if count is None:
                return Progress(end_offset=status.high_watermark)
            base_next = place.turn.begin + count
            records = max(0, status.high_watermark - max(base_next, status.log_start))
            seconds = await _age(sources, place.tp, max(base_next, status.log_start), until_s) if records else 0.0
        return _waits(place, status.high_watermark, base_next, records, seconds)

    return dict(zip([place.tp for place in places], await together(map(ask, places)), strict=True))


def _waits(place: Place, end: int, base_next: int, records: int, seconds: float | None) -> Progress:
    """What is behind a turn that closes is the lane's to handle: it waits for nothing."""
    if place.turn.whose is not Whose.BASE:
        return Progress(end_offset=end, base_next_offset=base_next)
    return Progress(end_offset=end, base_next_offset=base_next, waiting_records=records, waiting_seconds=seconds)


async def _count(sources: ApiSources, place: Place, until_s: float) -> int | None:
    """How many messages the base has of the turn."""
    base_id = place.turn.base_topic_id
    base = None if base_id is None else sources.image.topics.get(base_id)
    if base is None or place.tp.partition >= len(base.partitions):
        return None  # it was deleted, and the turn ends
    base_tp = TopicPartition(base.topic_id, place.tp.partition)
    try:
        async with asyncio.timeout_at(until_s):
            found = await sources.owner_for(base_tp).handed_over(base_tp, place.turn.producer_id)
    except (BmqError, TimeoutError):
        return None
    return found.count


async def _age(sources: ApiSources, tp: TopicPartition, offset: int, until_s: float) -> float | None:
    try:
        async with asyncio.timeout_at(until_s):
            return await sources.age_of(tp, offset)
    except (BmqError, TimeoutError):
        return None


async def ends_of(
    sources: ApiSources, route: Route, indexes: Sequence[int], asked: Container[TopicPartition]
) -> dict[TopicPartition, Progress]:
    """Where the partitions end of which nobody was asked yet."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            statuses = await partition_statuses(sources, [tp for tp in tps_of(route, indexes) if tp not in asked])
    except TimeoutError:
        return {}
    return {tp: Progress(end_offset=status.high_watermark) for tp, status in statuses.items()}
