"""Which handlers serve a client in a lane: the lane's, or those that refuse a lane which does not exist. Never the
base's.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog
from prometheus_client import Counter

from bmq.fairness.log_limit import RateLimited
from bmq.metadata.image import Lane
from bmq.naming.lanes import BASE
from bmq.roles.controller import Metadata
from bmq.storage.durable import cancelled
from bmq.wire.apis import ApiKey
from bmq_proxy import metrics
from bmq_proxy.api import Route
from bmq_proxy.calls import Call
from bmq_proxy.dispatch import routes
from bmq_proxy.fetch.reader import FetchReader
from bmq_proxy.lanes.by_lane import Names
from bmq_proxy.lanes.controller import BaseController, LaneController
from bmq_proxy.lanes.fallback.turns import LaneTurns
from bmq_proxy.lanes.groups import BaseGroups, LaneGroups
from bmq_proxy.lanes.names import APART, Apart
from bmq_proxy.lanes.overlays import Overlays
from bmq_proxy.lanes.quotas import Paces
from bmq_proxy.lanes.reading import BaseEnds, LaneReader
from bmq_proxy.lanes.refusing import refusing_routes
from bmq_proxy.lanes.unwritten import owner_in_lane
from bmq_proxy.lanes.views import BaseView, LaneView
from bmq_proxy.lanes.writing import LaneProduce
from bmq_proxy.proxy import Proxy

COMPLAIN_EVERY_S: Final = 10.0
NAMES_PER_REQUEST: Final = 25
"""A lane's first request since topics came or went has what its clients see made, of its own names and those that it
reads of the base: so many count as one request more."""
_METADATA_CACHE_SHARE: Final = 16
"""Answers that are kept for a lane have at most so large a part of what those of the base have, and a smaller one where
there are more lanes."""
_WRITES: Final = tuple(key for key, apart in APART.items() if Apart.WRITES in apart and key != ApiKey.PRODUCE)
"""What changes or deletes: served by handlers that see the lane's own topics alone. (Produce, too.)"""

_log = structlog.get_logger("bmq.proxy.lanes")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTable:
    """How one lane's clients are served. `lane` "": they are refused."""

    lane: str
    number: int
    routes: Mapping[int, Route]
    bytes_in: Counter
    bytes_out: Counter


class LaneTables:
    """One proxy's."""

    def __init__(self, proxy: Proxy, base: Mapping[int, Route], turns: LaneTurns) -> None:
        """`proxy` and `base` are the base's; behind what the base sees is what every lane is made of. `turns`: when
        clients of lanes that fall back may consume.
        """
        assert isinstance(proxy.metadata, BaseView)
        assert isinstance(proxy.controller, BaseController)
        assert isinstance(proxy.coordinators, BaseGroups)
        assert isinstance(proxy.reader, FetchReader)
        self._proxy = proxy
        self._turns = turns
        self._own_lane = proxy.settings.lane
        self._reader = proxy.reader
        self._real = proxy.metadata.real
        self._by_lane = proxy.metadata.by_lane
        self._coordinators = proxy.coordinators.real
        self._controller = proxy.controller.real
        self._ends = BaseEnds()
        self._tables: dict[str, LaneTable] = {}
        self._names: Names | None = None
        self._seen_by: set[str] = set()
        """Lanes whose views are of these names, or are being made."""
        self._refusing = _table(BASE, 0, refusing_routes(proxy, base))
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)
        self._tasks: set[asyncio.Task[None]] = set()
        """What is under way for all lanes, also for those that are gone: first writes that wait for their topics, and
        topics that are being made."""

    async def close(self) -> None:
        """Ends what is under way. What waits for its topic was not begun, and is not begun any more."""
        await cancelled(self._tasks)

    def of(self, asked: str | None, call: Call) -> LaneTable:
        """Who says `lane=asked`, or (None) is in the lane that this proxy serves alone."""
        name = self._own_lane if asked is None else asked
        lane = self._real.image.lanes.get(name)
        if lane is None or (self._own_lane and name != self._own_lane):
            self._complain(name, call, exists=lane is not None)
            return self._refusing
        table = self._tables.get(name)
        if table is None or table.number != lane.number:
            self._forget_gone()
            self._seen_by.discard(name)
            table = self._tables[name] = _table(name, lane.number, self._routes(lane))
        return table

    def requests_more(self, table: LaneTable) -> float:
        """As how many requests more one of this lane counts now."""
        if table is self._refusing:
            return 0
        image = self._real.image
        names = self._by_lane.names(image)
        if names is not self._names:
            self._names, self._seen_by = names, set()
        if table.lane in self._seen_by:
            return 0
        self._seen_by.add(table.lane)
        reads_base = bool(image.lanes[table.lane].reads_base)
        return (len(names.of(table.lane)) + reads_base * len(names.base)) / NAMES_PER_REQUEST

    def _routes(self, lane: Lane) -> dict[int, Route]:
        view = LaneView(self._real, lane.name, self._by_lane, own_only=False)
        own_view = LaneView(self._real, lane.name, self._by_lane, own_only=True)
        controller = LaneController(self._controller, lane.name)
        settings = self._proxy.settings
        paces = Paces(self._real, lane.name)
        overlays = Overlays(
            controller, self._real, lane.name, self._tasks, quota=self._proxy.quota, limits=settings.limits
        )
        reading = replace(
            self._proxy,
            front=self._proxy,
            lane_number=lane.number,
            metadata=view,
            controller=controller,
            coordinators=LaneGroups(
                self._coordinators, view, lane.number, overlays.make, self._proxy.owner_for, bulk=self._proxy.bulk
            ),
            owner_for=owner_in_lane(view, self._proxy.owner_for),
            reader=LaneReader(
                self._reader,
                view,
                self._ends,
                self._turns,
                opener=self._proxy.proofs.opener,
                bytes_per_s=self._base_bytes_per_s(lane.name),
                pace=paces.read,
            ),
            settings=replace(
                settings,
                metadata_cache_bytes=max(
                    1, settings.metadata_cache_bytes // max(_METADATA_CACHE_SHARE, len(self._real.image.lanes))
                ),
            ),
            produced_bytes=metrics.PRODUCED_BYTES.labels(lane.name),
        )
        writing = replace(reading, metadata=own_view, owner_for=self._proxy.owner_for)
        table = routes(reading)
        written = routes(writing)
        table |= {int(key): written[key] for key in _WRITES}
        table[ApiKey.PRODUCE] = LaneProduce(writing, view, overlays, paces.write, self._tasks).route()
        return table

    def _base_bytes_per_s(self, name: str) -> "_Rate":
        return _Rate(self._real, name)

    def _forget_gone(self) -> None:
        for name in [name for name in self._tables if name not in self._real.image.lanes]:
            table = self._tables.pop(name)
            self._seen_by.discard(name)
            for counter in (metrics.BYTES_IN, metrics.BYTES_OUT, metrics.PRODUCED_BYTES):
                counter.remove(table.lane)
            metrics.forget_throttled(table.lane)

    def _why_unknown(self, name: str) -> str:
        meant = next(
            (lane for lane in self._real.image.lanes if name.startswith(f"{lane}-") or name.lower() == lane), None
        )
        if meant is None:
            return "there is no such lane: create it, or correct lane=NAME"
        return (
            f"there is no such lane, but a lane {meant}: where something is appended to the client.id, write "
            f"lane={meant},APP"
        )

    def _complain(self, name: str, call: Call, *, exists: bool) -> None:
        left_out = self._complaints.due((call.client_host, exists), now=self._proxy.loop.time())
        if left_out is not None:
            why = f"this proxy serves lane {self._own_lane} alone" if exists else self._why_unknown(name)
            _log.warning(
                "client refused",
                lane=name[:64],
                client_id=call.client_id[:200],
                peer=call.client_host,
                reason=why,
                left_out=left_out,
            )


class _Rate:
    """How much may be read of the base now."""

    def __init__(self, real: Metadata, name: str) -> None:
        self._real = real
        self._name = name

    def __call__(self) -> int:
        lane = self._real.image.lanes.get(self._name)
        return 0 if lane is None else lane.reads_base_bytes_per_s


def _table(lane: str, number: int, table: Mapping[int, Route]) -> LaneTable:
    return LaneTable(
        lane=lane,
        number=number,
        routes=table,
        bytes_in=metrics.BYTES_IN.labels(lane),
        bytes_out=metrics.BYTES_OUT.labels(lane),
    )
