"""What one proxy does for lanes that fall back, put together."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from bmq.roles.controller import Metadata
from bmq.roles.lane_leases import LaneLeases
from bmq.roles.lane_turns import LaneControl
from bmq_proxy.fetch.reader import FetchReader
from bmq_proxy.lanes.controller import BaseController
from bmq_proxy.lanes.fallback.closing import Closings
from bmq_proxy.lanes.fallback.idle import MakeTopics
from bmq_proxy.lanes.fallback.turns import LaneTurns
from bmq_proxy.lanes.fallback.worker import FallbackWorker
from bmq_proxy.lanes.overlays import LaneTopics
from bmq_proxy.lanes.views import BaseView
from bmq_proxy.proxy import Proxy

BENEATH: Final = "lanes beneath others"
"""What is made for all of them counts as what one address makes: who made the topics above is not known any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """What this proxy does for lanes that fall back."""

    leases: LaneLeases
    closings: Closings
    turns: LaneTurns
    worker: FallbackWorker
    topics: LaneTopics
    """Makes those of lanes that others are nested in."""

    @classmethod
    def of(cls, proxy: Proxy, control: LaneControl, metadata: Metadata) -> "Fallback":
        """Put together; the worker is yet to be started."""
        assert isinstance(proxy.metadata, BaseView)
        assert isinstance(proxy.reader, FetchReader)
        assert isinstance(proxy.controller, BaseController)
        topics = LaneTopics(proxy.controller.real, metadata, quota=proxy.quota, limits=proxy.settings.limits)

        def topics_of(lane: str) -> MakeTopics:
            return partial(topics.make, lane, address=BENEATH)

        leases = LaneLeases(control, metadata)
        closings = Closings(control, metadata, proxy.owner_for)
        worker = FallbackWorker(
            node_id=proxy.settings.node_id,
            control=control,
            metadata=metadata,
            by_lane=proxy.metadata.by_lane,
            owner_for=proxy.owner_for,
            reader=proxy.reader,
            opener=proxy.proofs.opener,
            closings=closings,
            topics_of=topics_of,
            look_every_s=proxy.settings.lane_look_ms / 1000,
        )
        turns = LaneTurns(metadata, leases, closings.begin)
        return cls(leases=leases, closings=closings, turns=turns, worker=worker, topics=topics)

    async def close(self) -> None:
        """Ends what is under way; other proxies go on with it."""
        await self.worker.close()
        await self.topics.close()
        await self.closings.close()
        await self.leases.close()
