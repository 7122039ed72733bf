"""Looks after the lanes that fall back: each has one proxy that gives turns away, ends them and hands over, as far as
all proxies have the same image. Where they do not, two do the same, and nothing is wrong with that.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import structlog

from bmq.errors import BmqError
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.opening import Opener
from bmq.metadata.image import Image, Lane, Topic
from bmq.metadata.records import Whose
from bmq.metadata.shared_map import differences
from bmq.naming.lanes import lane_of
from bmq.roles.controller import Metadata
from bmq.roles.lane_turns import LaneControl
from bmq.roles.owner import Owner
from bmq.storage.durable import cancelled
from bmq.values import TopicPartition
from bmq_proxy import metrics
from bmq_proxy.fetch.reader import FetchReader
from bmq_proxy.lanes.by_lane import ByLane
from bmq_proxy.lanes.fallback.closing import Closings
from bmq_proxy.lanes.fallback.idle import IdleTopics, MakeTopics, may_go_on
from bmq_proxy.lanes.fallback.pump import LanePump
from bmq_proxy.lanes.fallback.waits import LaneWaits

COMPLAIN_EVERY_S: Final = 10.0
LOOKED_AT_ONCE: Final = 4
"""Lanes of which all coordinators are asked at a time: the others wait, and none is too late for waiting."""
REWRITTEN_AT_ONCE: Final = 4
"""Partitions of all lanes that hand on at a time. How many of their batches are open is up to `Opener`."""

_log = structlog.get_logger("bmq.lanes")


@dataclass(frozen=True, slots=True)
class _Looked:
    """After a lane."""

    number: int
    tasks: tuple["asyncio.Task[None]", ...]


class FallbackWorker:
    """One proxy's."""

    def __init__(
        self,
        *,
        node_id: int,
        control: LaneControl,
        metadata: Metadata,
        by_lane: ByLane,
        owner_for: Callable[[TopicPartition], Owner],
        reader: FetchReader,
        opener: Opener,
        closings: Closings,
        topics_of: Callable[[str], MakeTopics],
        look_every_s: float,
    ) -> None:
        """`topics_of` a lane makes topics of its own."""
        self._node_id = node_id
        self._control = control
        self._metadata = metadata
        self._by_lane = by_lane
        self._owner_for = owner_for
        self._reader = reader
        self._opener = opener
        self._closings = closings
        self._topics_of = topics_of
        self._look_every_s = look_every_s
        self._rewriting = asyncio.Semaphore(REWRITTEN_AT_ONCE)
        self._looking = asyncio.Semaphore(LOOKED_AT_ONCE)
        self._lanes: dict[str, _Looked] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)
        self._unsubscribe: Callable[[], None] = lambda: None
        self._changed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """By lane: something changed in its topics or their turns."""

    def start(self) -> None:
        """Looks after what is this proxy's from now on."""
        self._unsubscribe = self._metadata.subscribe(self._image_changed)
        self._share(self._metadata.image)

    async def close(self) -> None:
        """Looks after nothing any more; others do."""
        self._unsubscribe()
        self._unsubscribe = lambda: None
        for name in tuple(self._lanes):
            self._leave(name)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _image_changed(self, old: Image, new: Image) -> None:
        if old.lanes is not new.lanes or old.nodes is not new.nodes:
            self._share(new)
        if self._changed:
            for name in changed_lanes(old, new):
                if (changed := self._changed.pop(name, None)) is not None:
                    changed.set()

    def _share(self, image: Image) -> None:
        """Which lanes are this proxy's."""
        mine = {
            name: lane
            for name, lane in image.lanes.items()
            if lane.falls_back and looks_after(image, name) in (self._node_id, None)
        }
        for name, looked in tuple(self._lanes.items()):
            if name not in mine or mine[name].number != looked.number:
                self._leave(name)
        for name, lane in mine.items():
            if name not in self._lanes:
                self._take(lane)

    def _take(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        waits = LaneWaits(loop.time)
        metrics.tell_waits(lane.name, records=waits.records, seconds=waits.seconds)
        pump = LanePump(
            lane.name,
            control=self._control,
            metadata=self._metadata,
            owner_for=self._owner_for,
            reader=self._reader,
            rewriting=self._rewriting,
            opener=self._opener,
            waits=waits,
        )
        idle = IdleTopics(
            lane,
            control=self._control,
            metadata=self._metadata,
            owner_for=self._owner_for,
            reader=self._reader,
            goes_on_at=lambda tp: pump.goes_on_at.get(tp, 0),
            make=self._topics_of(lane.parent),
        )
        tasks = (
            loop.create_task(self._pump(lane, pump, waits), name=f"hand over of lane {lane.name}"),
            loop.create_task(self._look(lane, idle, waits), name=f"turns of lane {lane.name}"),
        )
        for task in tasks:
            task.add_done_callback(_report_failure)
        self._lanes[lane.name] = _Looked(lane.number, tasks)

    def _leave(self, name: str) -> None:
        looked = self._lanes.pop(name)
        self._changed.pop(name, None)
        metrics.forget_waits(name)
        ending = asyncio.get_running_loop().create_task(cancelled(looked.tasks), name=f"end of lane {name}")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        if name not in self._metadata.image.lanes:
            metrics.forget_handed_over(name)

    def _topics(self, lane: Lane) -> list[Topic]:
        image = self._metadata.image
        ids = self._by_lane.names(image).of(lane.name)
        return [image.topics[topic_id] for topic_id in ids.values()]

    def _partitions(self, lane: Lane, whose: Whose) -> list[TopicPartition]:
        image = self._metadata.image
        if not image.turns:
            return []
        return [
            tp
            for topic in self._topics(lane)
            for index in range(len(topic.partitions))
            if image.turn(tp := TopicPartition(topic.topic_id, index)).whose is whose
        ]

    async def _pump(self, lane: Lane, pump: LanePump, waits: LaneWaits) -> None:
        while True:
            changed = self._changed[lane.name]
            tps = self._partitions(lane, Whose.BASE)
            if tps:
                await pump.hand_over(tps, changed)
            else:
                waits.keep(())
                await changed.wait()

    async def _look(self, lane: Lane, idle: IdleTopics, waits: LaneWaits) -> None:
        while True:
            self._closings.begin(self._partitions(lane, Whose.CLOSING))
            try:
                async with self._looking:
                    image = self._metadata.image
                    await idle.give_away([topic for topic in self._topics(lane) if may_go_on(image, topic)])
                waits.looked(is_told=True)
            except (BmqError, TimeoutError) as error:
                waits.looked(is_told=False)
                left_out = self._complaints.due(type(error).__name__, now=asyncio.get_running_loop().time())
                if left_out is not None:
                    _log.warning(
                        "it cannot be told whether anybody in a lane consumes",
                        lane=lane.name,
                        error=str(error) or "no answer in time",
                        left_out=left_out,
                    )
            await asyncio.sleep(self._look_every_s)


def changed_lanes(old: Image, new: Image) -> set[str]:
    """The lanes of whose topics some came or went, or have another turn."""
    topics, turns = differences(old.topic_ids, new.topic_ids), differences(old.turns, new.turns)
    names = [name for name, _ in topics.gone] + [name for name, _, _ in topics.changed]
    for tp in [tp for tp, _ in turns.gone] + [tp for tp, _, _ in turns.changed]:
        topic = new.topics.get(tp.topic_id) or old.topics.get(tp.topic_id)
        if topic is not None:
            names.append(topic.name)
    return set(map(lane_of, names))


def looks_after(image: Image, lane: str) -> int | None:
    """The proxy that looks after a lane; None: whoever asks. Few lanes change theirs where proxies come and go."""
    proxies = [node.node_id for node in image.nodes.values() if "proxy" in node.roles]
    return max(proxies, key=lambda node_id: blake2b(f"{node_id}/{lane}".encode()).digest(), default=None)


def _report_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        asyncio.get_running_loop().call_exception_handler({"message": "a lane is not looked after", "exception": error})
