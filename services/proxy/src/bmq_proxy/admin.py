"""The admin address: health, metrics, and the start of the REST API. Runs in the process's own event loop, behind `admin_front`.

It listens before the proxy serves; until then every page but health and metrics says that it is not ready.
"""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from bmq.errors import BmqError, UnknownTopic
from bmq.metadata.image import Topic
from bmq.names import is_internal
from bmq.values import TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.admin_front import AdminSources
from bmq_proxy.admin_models import (
    ClusterView,
    GroupOffsetView,
    GroupSummary,
    GroupView,
    MemberView,
    NodeView,
    PartitionView,
    Problem,
    TopicSummary,
    TopicView,
)
from bmq_proxy.admin_page import DOCS_PAGE
from bmq_proxy.group_calls import fields_of
from bmq_proxy.group_lag import describe_group, group_offsets, list_groups
from bmq_proxy.handlers.k35_describe_log_dirs import partition_statuses
from bmq_proxy.proxy import Proxy

_NO_GROUP_STATES = ("Dead", "")


def build_admin(sources: AdminSources) -> FastAPI:
    """The application for uvicorn."""
    app = FastAPI(
        title="bmq", description="The REST API of a bmq node.", version="1", docs_url=None, redoc_url=None, responses={503: {"model": Problem}}
    )

    def proxy() -> Proxy:
        if sources.proxy is None:
            raise HTTPException(503, "this node has no proxy: ask one that has" if sources.started else "starting")
        return sources.proxy

    app.exception_handler(BmqError)(_failed)
    _add_health(app, sources)
    _add_rest(app, proxy)
    return app


def _add_health(app: FastAPI, sources: AdminSources) -> None:
    @app.get("/livez", response_class=PlainTextResponse, tags=["health"])
    async def livez() -> str:
        """The process runs and its event loop turns."""
        return "ok\n"

    @app.get("/readyz", response_class=PlainTextResponse, tags=["health"])
    async def readyz() -> PlainTextResponse:
        """Clients can be served: 200; else 503 and what is missing."""
        missing = sources.not_ready()
        return PlainTextResponse("ok\n" if missing is None else f"{missing}\n", 200 if missing is None else 503)

    @app.get("/metrics", response_class=PlainTextResponse, tags=["health"])
    async def metrics() -> Response:
        """Metrics in the Prometheus text format."""
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> str:
        return DOCS_PAGE


def _add_rest(app: FastAPI, proxy: Callable[[], Proxy]) -> None:
    serving = Annotated[Proxy, Depends(proxy)]
    missing: dict[int | str, dict[str, Any]] = {404: {"model": Problem}}

    @app.get("/v1/cluster", tags=["cluster"])
    async def cluster(node: serving) -> ClusterView:
        """The cluster's id, nodes and size."""
        return _cluster(node)

    @app.get("/v1/topics", tags=["topics"])
    async def topics(node: serving) -> list[TopicSummary]:
        """All topics by name, internal ones too."""
        return _topics(node)

    @app.get("/v1/topics/{name}", tags=["topics"], responses=missing)
    async def topic(name: str, node: serving) -> TopicView:
        """One topic with its partitions' offsets and sizes."""
        return await _topic(node, name)

    @app.get("/v1/groups", tags=["groups"])
    async def groups(node: serving) -> list[GroupSummary]:
        """All consumer groups by name."""
        return [
            GroupSummary(group_id=one["group_id"], state=one.get("group_state") or "", protocol_type=one.get("protocol_type") or "")
            for one in await list_groups(node)
        ]

    @app.get("/v1/groups/{group_id:path}", tags=["groups"], responses=missing)
    async def group(group_id: str, node: serving) -> GroupView:
        """One group with its members, committed offsets and lag."""
        return await _group(node, group_id)


async def _failed(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 404 if isinstance(error, UnknownTopic) else 503)


def _cluster(proxy: Proxy) -> ClusterView:
    image = proxy.image
    return ClusterView(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        metadata_position=image.position,
        nodes=[
            NodeView(node_id=node.node_id, roles=list(node.roles), host=node.host, port=node.port, rack=node.rack)
            for _, node in sorted(image.nodes.items())
        ],
        topics=len(image.topics),
        partitions=sum(len(topic.partitions) for topic in image.topics.values()),
        features=dict(image.features),
    )


def _topics(proxy: Proxy) -> list[TopicSummary]:
    return [
        TopicSummary(name=topic.name, topic_id=str(topic.topic_id), partitions=len(topic.partitions), internal=is_internal(topic.name))
        for topic in sorted(proxy.image.topics.values(), key=lambda topic: topic.name)
    ]


async def _topic(proxy: Proxy, name: str) -> TopicView:
    topic = proxy.image.topic(name)
    if topic is None:
        raise UnknownTopic(f"topic {name!r} does not exist")
    return TopicView(
        name=topic.name,
        topic_id=str(topic.topic_id),
        internal=is_internal(topic.name),
        created_ms=topic.created_ms,
        configs=dict(topic.configs),
        partitions=await _partitions(proxy, topic),
    )


async def _partitions(proxy: Proxy, topic: Topic) -> list[PartitionView]:
    statuses = await partition_statuses(proxy, [(topic, index) for index in range(len(topic.partitions))])
    views = []
    for index, partition in enumerate(topic.partitions):
        view = PartitionView(partition=index, owner=partition.node_id, leader_epoch=partition.leader_epoch)
        status = statuses.get(TopicPartition(topic.topic_id, index))
        if status is not None:
            view.log_start, view.high_watermark = status.log_start, status.high_watermark
            view.tail_bytes, view.segment_bytes, view.segment_count = status.tail_bytes, status.segment_bytes, status.segment_count
        views.append(view)
    return views


async def _group(proxy: Proxy, group_id: str) -> GroupView:
    found = await describe_group(proxy, group_id)
    code = found.get("error_code", 0)
    offsets = await group_offsets(proxy, group_id)
    if code not in (0, ErrorCode.group_id_not_found):
        raise HTTPException(503, f"the coordinator of group {group_id!r} answers {ErrorCode(code).name}")
    if not offsets and (code or (found.get("group_state") or "") in _NO_GROUP_STATES):
        raise HTTPException(404, f"group {group_id!r} does not exist")
    views = [
        GroupOffsetView(
            topic=one.topic,
            partition=one.partition,
            committed_offset=one.committed_offset,
            metadata=one.metadata,
            log_start=one.log_start,
            high_watermark=one.high_watermark,
            lag_records=one.lag_records,
            lag_seconds=one.lag_seconds,
        )
        for one in offsets
    ]
    return GroupView(
        group_id=group_id,
        state=found.get("group_state") or "",
        protocol_type=found.get("protocol_type") or "",
        protocol=found.get("protocol_data") or "",
        members=[_member(fields_of(one)) for one in found.get("members") or []],
        offsets=views,
        lag_records=sum(one.lag_records or 0 for one in views),
        lag_seconds=max((one.lag_seconds or 0.0 for one in views), default=0.0),
    )


def _member(one: dict[str, Any]) -> MemberView:
    return MemberView(
        member_id=one["member_id"],
        instance_id=one.get("group_instance_id"),
        client_id=one.get("client_id") or "",
        client_host=one.get("client_host") or "",
    )
