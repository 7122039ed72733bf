"""`/v1/nodes`: who is there, with what; drain, cordon, uncordon."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated, Final, Self

from fastapi import FastAPI, Path, Request, Response

from bmq.config.topic_config import pool_of
from bmq.metadata.image import Image, Topic
from bmq.roles.admin import AdminRequest
from bmq.values import NODE_ID_MAX, NodeId
from bmq_controller.api.lists import listed
from bmq_controller.api.node_models import NodeView
from bmq_controller.api.paging import Continue, Limit, Page, as_json, page
from bmq_controller.api.parameters import CHANGED, MISSING, IfMatch, Responses
from bmq_controller.api.problems import Refused
from bmq_controller.api.sources import ApiSources, in_thread
from bmq_controller.api.versions import etag, holds, node_version
from bmq_controller.controller import LeadingController
from bmq_controller.machine.placement import living_brokers

LIST_NODES: Final = "list the nodes (`bmq cluster nodes`)"

Number = Annotated[int, Path(ge=0, le=NODE_ID_MAX)]
_DRAINED: Final[Responses] = {**CHANGED, 409: {"description": "Nobody could take its partitions"}}
_SILENT_SHARE: Final = 0.5
"""The share of a lease: who was not heard for longer is shown as silent."""


class _Seen:
    """What the leader knows of all nodes at one moment. Made on the event loop, counted in a thread: that looks at
    every partition.
    """

    def __init__(self, leader: LeadingController, image: Image) -> None:
        self.image = image
        self.draining = leader.draining
        self.silent_s = leader.silent_s
        self.troubles = leader.troubles
        self.lease_s = leader.lease_s
        self._loads = leader.loads_later()
        self.bytes_per_s: dict[NodeId, float] = {}
        self.moving_here: Counter[NodeId] = Counter()
        self.moving_away: Counter[NodeId] = Counter()

    def counted(self) -> Self:
        image = self.image
        for tp, bytes_per_s in self._loads().items():
            meta = image.partition(tp)
            if meta is not None:
                self.bytes_per_s[meta.node_id] = self.bytes_per_s.get(meta.node_id, 0.0) + bytes_per_s
        for tp, to in image.moving.items():
            meta = image.partition(tp)
            if meta is not None and meta.node_id != to:
                self.moving_here[to] += 1
                self.moving_away[meta.node_id] += 1
        return self

    def view(self, node_id: NodeId) -> NodeView:
        image, node = self.image, self.image.nodes.get(node_id)
        heard = self.silent_s.get(node_id)
        return NodeView(
            node_id=node_id,
            roles=[] if node is None else list(node.roles),
            rack="" if node is None else node.rack,
            pool="" if node is None else node.pool,
            lane="" if node is None else node.lane,
            host="" if node is None else node.host,
            port=0 if node is None else node.port,
            listeners={}
            if node is None
            else {name: _address(*address) for name, address in sorted(node.listeners.items())},
            internal_address=""
            if node is None or not node.internal_host
            else _address(node.internal_host, node.internal_port),
            epoch=-1 if node is None else node.broker_epoch,
            state=self._state(node_id),
            trouble=self.troubles.get(node_id, ""),
            leads=node_id == image.controller_id,
            last_heard_s=None if heard is None else round(heard, 3),
            cordoned=node_id in image.cordoned,
            draining=node_id in self.draining,
            partitions=image.owned_counts.get(node_id, 0),
            moving_away=self.moving_away[node_id],
            moving_here=self.moving_here[node_id],
            bytes_per_s=round(self.bytes_per_s.get(node_id, 0.0), 1),
            version=node_version(image, node_id),
        )

    def _state(self, node_id: NodeId) -> str:
        if node_id not in self.image.nodes:
            return "gone"
        if node_id in self.image.fencing:
            return "fencing"
        return "silent" if self.silent_s.get(node_id, 0.0) > self.lease_s * _SILENT_SHARE else "alive"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that show nodes, and drain, cordon and uncordon them."""

    @app.get("/v1/nodes", tags=["nodes"], response_model=Page[NodeView])
    async def list_nodes(limit: Limit = 100, after: Continue = None) -> Response:
        """Nodes by their number: those that are registered, and those that are cordoned and not there."""
        seen = _Seen(sources.leader(), sources.image)
        known = {*seen.image.nodes, *seen.image.cordoned}

        return await listed(
            lambda: page(
                known,
                key=lambda node_id: (node_id,),
                view=as_json(seen.counted().view),
                limit=limit,
                after=after,
                kind="nodes",
            )
        )

    @app.get("/v1/nodes/{node_id}", tags=["nodes"], responses=MISSING)
    async def get_node(node_id: Number, response: Response) -> NodeView:
        """One node."""
        return await _shown(sources, NodeId(node_id), response)

    @app.post("/v1/nodes/{node_id}/drain", tags=["nodes"], status_code=202, responses=_DRAINED)
    async def drain(node_id: Number, response: Response, if_match: IfMatch = None) -> NodeView:
        """Cordons a broker and begins to move all its partitions to others; done once it shows no partitions. Uncordon
        ends it.
        """
        image, number = sources.image, NodeId(node_id)
        _check_known(image, number)
        if all(node.node_id != number for node in living_brokers(image)):
            raise Refused("NotABroker", "it is no registered broker, so there is nothing to drain", "drain one that is")
        avoid = sources.leader().avoided
        if (
            image.owned_counts.get(number, 0)
            and (stays := await in_thread(lambda: _without_heir(image, number, avoid=avoid))) is not None
        ):
            pool, remedy = pool_of(stays.configs), "start another one, or uncordon one, first"
            whose = f" of the pool {pool}, which topic {stays.name} is in," if pool else ""
            what = f"no other broker{whose} takes partitions"
            if pool != image.nodes[number].pool:
                raise Refused("NoHeirInPool", what, remedy)
            raise Refused("NoHeir", what, remedy)
        await _conditional(sources, number, if_match).drain(number)
        return await _shown(sources, number, response)

    @app.post("/v1/nodes/{node_id}/cordon", tags=["nodes"], responses=CHANGED)
    async def cordon(node_id: Number, response: Response, if_match: IfMatch = None) -> NodeView:
        """The node gets no new partitions; those that it has stay. Holds across its restarts."""
        return await _cordon(sources, NodeId(node_id), response, if_match, cordoned=True)

    @app.post("/v1/nodes/{node_id}/uncordon", tags=["nodes"], responses=CHANGED)
    async def uncordon(node_id: Number, response: Response, if_match: IfMatch = None) -> NodeView:
        """The node gets partitions again, and is no longer drained."""
        return await _cordon(sources, NodeId(node_id), response, if_match, cordoned=False)

    @app.get("/v1/nodes/{node_id}/self", tags=["nodes"], responses=MISSING)
    async def node_self(node_id: Number, request: Request) -> Response:
        """What a node says of itself (`/v1/self`), asked by the leader."""
        return await _asked(sources, NodeId(node_id), "/v1/self", request)

    @app.get("/v1/nodes/{node_id}/metrics", tags=["nodes"], responses=MISSING)
    async def node_metrics(node_id: Number, request: Request) -> Response:
        """A node's metrics in the Prometheus text format, asked by the leader."""
        return await _asked(sources, NodeId(node_id), "/metrics", request)


def _without_heir(image: Image, node_id: NodeId, *, avoid: Collection[NodeId]) -> Topic | None:
    """A topic with partitions on the node that no other broker of its pool could take, rather one of the node's own
    pool; those to `avoid` take none, nor do cordoned ones.
    """
    unwilling, own = {node_id, *image.cordoned, *avoid}, image.nodes[node_id].pool
    pools = {node.pool for node in living_brokers(image) if node.node_id not in unwilling}
    stays = [
        topic
        for topic in image.topics.values()
        if pool_of(topic.configs) not in pools and any(meta.node_id == node_id for meta in topic.partitions)
    ]
    return min(stays, key=lambda topic: pool_of(topic.configs) != own, default=None)


async def _cordon(
    sources: ApiSources, node_id: NodeId, response: Response, if_match: str | None, *, cordoned: bool
) -> NodeView:
    _check_known(sources.image, node_id)
    await _conditional(sources, node_id, if_match).cordon(node_id, cordoned)
    return await _shown(sources, node_id, response)


def _conditional(sources: ApiSources, node_id: NodeId, if_match: str | None) -> LeadingController:
    return sources.leader().when(holds(if_match, lambda image: node_version(image, node_id)))


async def _asked(sources: ApiSources, node_id: NodeId, path: str, request: Request) -> Response:
    _check_known(sources.image, node_id)
    token = request.headers.get("authorization")  # the other node asks for it, too
    headers = {} if token is None else {"authorization": token}
    reply = await sources.ask_node(node_id, AdminRequest(method="GET", path=path, headers=headers, trusted=True))
    return Response(reply.body, status_code=reply.status, headers=_kept(reply.headers))


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name in ("content-type", "retry-after")}


def _check_known(image: Image, node_id: NodeId) -> None:
    if node_id not in image.nodes and node_id not in image.last_epochs and node_id not in image.cordoned:
        raise Refused("UnknownNode", "no node of this number was ever registered", LIST_NODES)


async def _shown(sources: ApiSources, node_id: NodeId, response: Response) -> NodeView:
    image = sources.image
    if node_id not in image.nodes and node_id not in image.cordoned:
        raise Refused("UnknownNode", "no such node is registered", LIST_NODES)
    seen = _Seen(sources.leader(), image)
    view = await in_thread(lambda: seen.counted().view(node_id))
    response.headers["ETag"] = etag(view.version)
    return view
