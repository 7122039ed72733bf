"""`/v1/lanes`: list, get, create, change, delete."""

from collections import Counter, defaultdict

from fastapi import FastAPI, Response

from bmq.errors import UnknownLane
from bmq.metadata.image import Image, Lane
from bmq.metadata.records import LaneQuota
from bmq.naming.lanes import lane_of
from bmq.values import NodeId
from bmq_controller.api.lane_models import BaseReadsView, LaneAsked, LaneView, NewLaneAsked, QuotaView
from bmq_controller.api.lists import listed
from bmq_controller.api.paging import Continue, Limit, Page, as_json, page
from bmq_controller.api.parameters import CHANGED, MISSING, IfMatch
from bmq_controller.api.sources import ApiSources, in_thread
from bmq_controller.api.versions import etag, holds, lane_version
from bmq_controller.machine.lanes import LaneWanted, find_lane, pool_of_lane

_BYTES_PER_SECOND = 1_048_576


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that list, show, create, change and delete lanes."""

    @app.get("/v1/lanes", tags=["lanes"], response_model=Page[LaneView])
    async def list_lanes(limit: Limit = 100, after: Continue = None) -> Response:
        """Lanes by name."""
        image = sources.image
        return await listed(
            lambda: page(
                image.lanes.values(),
                key=lambda lane: (lane.name,),
                view=as_json(_Counted(image).view),
                limit=limit,
                after=after,
                kind="lanes",
            )
        )

    @app.post("/v1/lanes", tags=["lanes"], status_code=201)
    async def create_lane(asked: NewLaneAsked, response: Response) -> LaneView:
        """Creates a lane. Its topics come by themselves, when its clients ask for them or write to them."""
        await sources.leader().create_lane(_wanted(asked.name, asked))
        response.headers["Location"] = f"/v1/lanes/{asked.name}"
        return await _shown(sources, asked.name, response)

    @app.get("/v1/lanes/{name}", tags=["lanes"], responses=MISSING)
    async def get_lane(name: str, response: Response) -> LaneView:
        """One lane."""
        return await _shown(sources, name, response)

    @app.put("/v1/lanes/{name}", tags=["lanes"], responses=CHANGED)
    async def change_lane(name: str, asked: LaneAsked, response: Response, if_match: IfMatch = None) -> LaneView:
        """Makes a lane what is said; what is not said goes back to its default. Its time to live counts from its
        creation.
        """
        leader = sources.leader().when(holds(if_match, lambda image: _version(image, name)))
        await leader.change_lane(_wanted(name, asked))
        return await _shown(sources, name, response)

    @app.delete("/v1/lanes/{name}", tags=["lanes"], status_code=204, responses=CHANGED)
    async def delete_lane(name: str, if_match: IfMatch = None) -> None:
        """Deletes a lane with its topics and groups. Its clients are refused from then on. One that others are nested
        in is not deleted before those.
        """
        leader = sources.leader().when(holds(if_match, lambda image: _version(image, name)))
        await leader.delete_lane(name)


def find(image: Image, name: str) -> Lane:
    """The lane of this name. Raises UnknownLane."""
    try:
        return find_lane(image, name)
    except UnknownLane:
        raise UnknownLane("there is no such lane: list the lanes") from None


def _wanted(name: str, asked: LaneAsked) -> LaneWanted:
    reads = asked.reads_base
    return LaneWanted(
        name=name,
        ttl_s=asked.ttl_seconds,
        own_brokers=asked.own_brokers,
        reads_base=tuple(reads.topics) if reads.enabled else (),
        reads_base_bytes_per_s=reads.bytes_per_second if reads.enabled else 0,
        falls_back=asked.fallback == "base",
        parent=asked.parent,
        quota=LaneQuota(
            write_bytes_per_s=asked.quota.write_bytes_per_second,
            read_bytes_per_s=asked.quota.read_bytes_per_second,
            partitions=asked.quota.partitions,
            storage_bytes=asked.quota.storage_bytes,
        ),
    )


def _version(image: Image, name: str) -> str | None:
    lane = image.lanes.get(name)
    return None if lane is None else lane_version(lane)


async def _shown(sources: ApiSources, name: str, response: Response) -> LaneView:
    image = sources.image
    lane = find(image, name)
    view = await in_thread(lambda: _Counted(image).view(lane))
    response.headers["ETag"] = etag(view.version)
    return view


class _Counted:
    """What lanes have at one moment. Counted in a thread: that looks at every topic, and at every node once."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._topics = Counter(map(lane_of, image.topic_ids))
        self._proxies: defaultdict[str, list[NodeId]] = defaultdict(list)
        for node in image.nodes.values():
            if "proxy" in node.roles:
                self._proxies[node.lane].append(node.node_id)

    def view(self, lane: Lane) -> LaneView:
        """One of them, as it is shown."""
        return LaneView(
            name=lane.name,
            number=lane.number,
            version=lane_version(lane),
            created_ms=lane.created_ms,
            expires_ms=lane.expires_ms,
            ttl_seconds=lane.ttl_s,
            own_brokers=lane.own_brokers,
            pool=pool_of_lane(lane.name) if lane.own_brokers else "",
            reads_base=BaseReadsView(
                enabled=bool(lane.reads_base),
                topics=list(lane.reads_base) or ["*"],
                bytes_per_second=lane.reads_base_bytes_per_s or _BYTES_PER_SECOND,
            ),
            fallback="base" if lane.falls_back else "none",
            parent=lane.parent,
            quota=QuotaView(
                write_bytes_per_second=lane.quota.write_bytes_per_s,
                read_bytes_per_second=lane.quota.read_bytes_per_s,
                partitions=lane.quota.partitions,
                storage_bytes=lane.quota.storage_bytes,
            ),
            topics=self._topics[lane.name],
            partitions=self._image.lane_partitions.get(lane.name, 0),
            proxies=sorted(self._proxies.get(lane.name, ())),
        )
