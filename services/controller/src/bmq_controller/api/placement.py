"""`/v1/placement`: which broker owns each partition, and moves; `/v1/load`: who takes how much."""

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from fastapi import FastAPI, Path, Query, Response

from bmq.errors import UnknownTopic
from bmq.metadata.image import Image
from bmq.values import NO_NODE, NodeId, TopicId, TopicPartition
from bmq_controller.api.lists import listed
from bmq_controller.api.node_models import BusyPartition, LoadView, MoveAsked, PlacementView, RangeView, ShareOfLoad
from bmq_controller.api.paging import LIMIT_MAX, Continue, Key, Limit, Page, as_json, ordered_page
from bmq_controller.api.parameters import CHANGED, MISSING, IfMatch, Responses
from bmq_controller.api.sources import ApiSources, in_thread
from bmq_controller.api.topics import find
from bmq_controller.api.versions import etag, holds, partition_version
from bmq_controller.machine.placement import living_brokers

Index = Annotated[int, Path(ge=0, le=1_000_000)]

MOVED: Final[Responses] = {**CHANGED, 429: {"description": "It was moved too often lately"}}


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that show partitions with their owners, move them, and show who takes how much."""

    @app.get("/v1/placement", tags=["placement"], responses=MISSING, response_model=Page[PlacementView])
    async def list_placement(
        limit: Limit = 100,
        after: Continue = None,
        topic: Annotated[str | None, Query(description="Only of this topic")] = None,
        node: Annotated[int | None, Query(description="Only what this node owns; -1: what nobody owns")] = None,
        moving: Annotated[bool, Query(description="Only what is being moved")] = False,
    ) -> Response:
        """Partitions by topic and number, with their owners."""
        leader, image = sources.leader(), sources.image
        if topic is not None:
            find(image, topic)
        loads = leader.loads_later()

        def chosen() -> Page[bytes]:
            known = loads()
            return ordered_page(
                lambda start: selected(image, start, topic=topic, node=node, moving=moving),
                key=lambda tp: (image.topics[tp.topic_id].name, tp.partition),
                view=as_json(lambda tp: _view(image, tp, known.get(tp, 0.0))),
                limit=limit,
                after=after,
                kind="placement",
            )

        return await listed(chosen)

    @app.get("/v1/placement/{topic}/{partition}", tags=["placement"], responses=MISSING)
    async def get_placement(topic: str, partition: Index, response: Response) -> PlacementView:
        """One partition's owner."""
        return await _shown(sources, _find(sources.image, topic, partition), response)

    @app.post("/v1/placement/{topic}/{partition}/move", tags=["placement"], status_code=202, responses=MOVED)
    async def move(
        topic: str, partition: Index, asked: MoveAsked, response: Response, if_match: IfMatch = None
    ) -> PlacementView:
        """Begins to move a partition; done once it shows the new owner. Nothing is copied. A later move leads it
        elsewhere.
        """
        tp = _find(sources.image, topic, partition)
        await sources.leader().when(holds(if_match, lambda image: _version(image, tp))).move(tp, NodeId(asked.to))
        return await _shown(sources, tp, response)

    @app.get("/v1/load", tags=["placement"])
    async def load(
        limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many partitions at most")] = 20,
    ) -> LoadView:
        """What is written per second: all brokers, and the busiest partitions."""
        leader, image = sources.leader(), sources.image
        loads = leader.loads_later()
        return await in_thread(lambda: _load(image, loads(), limit))


def selected(
    image: Image, start: Key | None, *, topic: str | None, node: int | None, moving: bool
) -> Iterator[TopicPartition]:
    """Those above the key `start` that are wanted, by the topic's name and the partition's number. Raises TypeError,
    ValueError for another key.
    """
    first_name, first_index = ("", -1) if start is None else start
    if not (isinstance(first_name, str) and isinstance(first_index, int)):
        raise TypeError
    named = image.topic_ids if topic is None else (topic,)
    names = sorted({image.topics[tp.topic_id].name for tp in image.moving}.intersection(named) if moving else named)
    for name in names[bisect_left(names, first_name) :]:
        found = image.topics[image.topic_ids[name]]
        for index in range(first_index + 1 if name == first_name else 0, len(found.partitions)):
            meta = found.partitions[index]
            if (node is None or meta.node_id == node) and (not moving or meta.moving_to != NO_NODE):
                yield TopicPartition(found.topic_id, index)


def _find(image: Image, topic: str, partition: int) -> TopicPartition:
    found = find(image, topic)
    if partition >= len(found.partitions):
        raise UnknownTopic(
            f"topic {topic} has {len(found.partitions)} partitions: name one from 0 to {len(found.partitions) - 1}"
        )
    return TopicPartition(found.topic_id, partition)


def _version(image: Image, tp: TopicPartition) -> str | None:
    meta = image.partition(tp)
    return None if meta is None else partition_version(tp.topic_id, tp.partition, meta)


async def _shown(sources: ApiSources, tp: TopicPartition, response: Response) -> PlacementView:
    loads = sources.leader().loads_later()
    view = _view(sources.image, tp, await in_thread(lambda: loads().get(tp, 0.0)))
    response.headers["ETag"] = etag(view.version)
    return view


def _view(image: Image, tp: TopicPartition, bytes_per_s: float) -> PlacementView:
    topic = image.topics[TopicId(tp.topic_id)]
    meta = topic.partitions[tp.partition]
    return PlacementView(
        topic=topic.name,
        topic_id=str(topic.topic_id),
        partition=tp.partition,
        owner=meta.node_id,
        owner_epoch=meta.broker_epoch,
        leader_epoch=meta.leader_epoch,
        moving_to=None if meta.moving_to == NO_NODE else meta.moving_to,
        ranges=[
            RangeView(
                node_id=part.node_id,
                epoch=part.broker_epoch,
                leader_epoch=part.leader_epoch,
                start=part.start,
                end=part.end,
            )
            for part in meta.ranges
        ],
        bytes_per_s=round(bytes_per_s, 1),
        version=partition_version(tp.topic_id, tp.partition, meta),
    )


def _load(image: Image, loads: Mapping[TopicPartition, float], limit: int) -> LoadView:
    known = [(bytes_per_s, tp) for tp, bytes_per_s in loads.items() if image.partition(tp) is not None]
    by_node: dict[NodeId, float] = {}
    for bytes_per_s, tp in known:
        owner = image.topics[tp.topic_id].partitions[tp.partition].node_id
        by_node[owner] = by_node.get(owner, 0.0) + bytes_per_s
    busiest = heapq.nlargest(limit, known)
    shares = [
        ShareOfLoad(
            node_id=node.node_id,
            rack=node.rack,
            partitions=image.owned_counts.get(node.node_id, 0),
            bytes_per_s=round(by_node.get(node.node_id, 0.0), 1),
        )
        for node in living_brokers(image)
    ]
    return LoadView(
        bytes_per_s=round(sum(bytes_per_s for bytes_per_s, _ in known), 1),
        brokers=sorted(shares, key=lambda share: (-share.bytes_per_s, share.node_id)),
        partitions=[
            BusyPartition(
                topic=image.topics[tp.topic_id].name,
                partition=tp.partition,
                owner=image.topics[tp.topic_id].partitions[tp.partition].node_id,
                bytes_per_s=round(bytes_per_s, 1),
            )
            for bytes_per_s, tp in busiest
        ],
    )
