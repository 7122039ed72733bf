"""`/v1/topics`: list, get, create, delete, partitions."""

from typing import Annotated

from fastapi import FastAPI, Query, Response

from bmq.config.topic_config import pinned
from bmq.errors import UnknownTopic
from bmq.metadata.image import Image, Topic
from bmq.naming.lanes import lane_of, overlay_name
from bmq.naming.names import is_internal
from bmq.roles.controller import NewTopic
from bmq.values import TopicPartition
from bmq_controller.api.configs import config_text
from bmq_controller.api.coordinators import partition_statuses
from bmq_controller.api.lists import listed
from bmq_controller.api.models import NewTopicAsked, PartitionsAsked, PartitionView, TopicSummary, TopicView
from bmq_controller.api.paging import Continue, Limit, Page, as_json, numbered_page, page
from bmq_controller.api.parameters import CHANGED, MISSING, IfMatch, InLane, ValidateOnly
from bmq_controller.api.sources import ApiSources
from bmq_controller.api.versions import etag, holds, topic_version


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that list, show, create and delete topics, and list and add partitions."""

    @app.get("/v1/topics", tags=["topics"], response_model=Page[TopicSummary])
    async def list_topics(
        limit: Limit = 100,
        after: Continue = None,
        prefix: Annotated[str, Query(description="Only names that begin so")] = "",
        lane: InLane = "",
    ) -> Response:
        """Topics by name, internal ones too. A lane's topic has the name LANE:NAME here."""
        image = sources.image
        stored_prefix = overlay_name(lane, prefix)
        return await listed(
            lambda: page(
                (name for name in image.topic_ids if lane_of(name) == lane and name.startswith(stored_prefix)),
                key=lambda name: (name,),
                view=as_json(lambda name: _summary(find(image, name))),
                limit=limit,
                after=after,
                kind="topics",
            )
        )

    @app.post("/v1/topics", tags=["topics"], status_code=201)
    async def create_topic(asked: NewTopicAsked, response: Response, validate_only: ValidateOnly = False) -> TopicView:
        """Creates a topic. Its partitions are placed by bmq, and readable and writable once this is answered."""
        configs = {name: config_text(value) for name, value in asked.configs.items()}
        new = NewTopic(name=asked.name, partitions=asked.partitions, configs=configs, lane=asked.lane)
        [result] = await sources.leader().create_topics([new], validate_only=validate_only)
        if result.error is not None:
            raise result.error
        if validate_only:
            response.status_code = 200
            return TopicView(
                name=overlay_name(asked.lane, result.name),
                lane=asked.lane,
                topic_id="",
                partitions=result.partitions,
                internal=False,
                version="",
                created_ms=0,
                configs={name: value for name, value in configs.items() if value is not None},
            )
        response.headers["Location"] = f"/v1/topics/{overlay_name(asked.lane, asked.name)}"
        return _shown(sources, overlay_name(asked.lane, asked.name), response)

    @app.get("/v1/topics/{name}", tags=["topics"], responses=MISSING)
    async def get_topic(name: str, response: Response) -> TopicView:
        """One topic."""
        return _shown(sources, name, response)

    @app.delete("/v1/topics/{name}", tags=["topics"], status_code=204, responses=CHANGED)
    async def delete_topic(name: str, if_match: IfMatch = None) -> None:
        """Deletes a topic with its records. Its objects go a minute later, for readers that have yet to hear of it."""
        topic = find(sources.image, name)
        leader = sources.leader().when(holds(if_match, lambda image: _version(image, name)))
        [result] = await leader.delete_topics([topic.topic_id])
        if result.error is not None:
            raise result.error

    @app.get("/v1/topics/{name}/partitions", tags=["topics"], responses=MISSING)
    async def list_partitions(name: str, limit: Limit = 100, after: Continue = None) -> Page[PartitionView]:
        """A topic's partitions, with the offsets and sizes that their owners tell."""
        topic = find(sources.image, name)
        views = numbered_page(
            len(topic.partitions),
            view=lambda index: PartitionView(
                partition=index,
                owner=topic.partitions[index].node_id,
                leader_epoch=topic.partitions[index].leader_epoch,
            ),
            limit=limit,
            after=after,
            kind=f"partitions of {name}",
        )
        statuses = await partition_statuses(
            sources, [TopicPartition(topic.topic_id, view.partition) for view in views.items]
        )
        for view in views.items:
            status = statuses.get(TopicPartition(topic.topic_id, view.partition))
            if status is not None:
                view.log_start, view.high_watermark = status.log_start, status.high_watermark
                view.tail_bytes, view.segment_bytes, view.segment_count = (
                    status.tail_bytes,
                    status.segment_bytes,
                    status.segment_count,
                )
        return views

    @app.post("/v1/topics/{name}/partitions", tags=["topics"], responses=CHANGED)
    async def grow_topic(
        name: str,
        asked: PartitionsAsked,
        response: Response,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> TopicView:
        """Gives a topic more partitions. It can only grow."""
        leader = sources.leader().when(holds(if_match, lambda image: _version(image, name)))
        await leader.create_partitions(name, asked.total, validate_only=validate_only)
        return _shown(sources, name, response)


def find(image: Image, name: str) -> Topic:
    """The topic of this name. Raises UnknownTopic."""
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopic("there is no such topic: list the topics")
    return topic


def _version(image: Image, name: str) -> str | None:
    topic = image.topic(name)
    return None if topic is None else topic_version(topic)


def _summary(topic: Topic) -> TopicSummary:
    return TopicSummary(
        name=topic.name,
        lane=lane_of(topic.name),
        topic_id=str(topic.topic_id),
        partitions=len(topic.partitions),
        internal=is_internal(topic.name),
        version=topic_version(topic),
    )


def _shown(sources: ApiSources, name: str, response: Response) -> TopicView:
    topic = find(sources.image, name)
    summary = _summary(topic)
    response.headers["ETag"] = etag(summary.version)
    return TopicView(
        **summary.model_dump(), created_ms=topic.created_ms, configs=dict(pinned(topic.name, topic.configs))
    )
