"""Produce in a lane: as everywhere, once the lane's own topics are there. The first write to one makes it; what comes
behind it keeps its order.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import replace
from functools import partial

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire.produce import ProduceRequest, TooManyPartitions
from bmq_proxy.api import Route
from bmq_proxy.calls import Answer, Call, Pending
from bmq_proxy.handlers import k00_produce
from bmq_proxy.lanes.overlays import Overlays
from bmq_proxy.lanes.quotas import Pace
from bmq_proxy.lanes.views import LaneView
from bmq_proxy.proxy import Proxy

_Waiting = tuple[Call, Buffer, "asyncio.Future[Answer]"]


class LaneProduce:
    """One lane's Produce requests. Each connection's start in the order in which they came."""

    def __init__(
        self, proxy: Proxy, view: LaneView, overlays: Overlays, pace: Pace, tasks: set[asyncio.Task[None]]
    ) -> None:
        """`proxy` sees the lane's own topics alone, `view` also those that a write would make. `pace`: how much the
        lane's clients may write. `tasks`: what is under way, for who ends it.
        """
        self._proxy = proxy
        self._view = view
        self._overlays = overlays
        self._pace = pace
        self._waiting: dict[Hashable, deque[_Waiting]] = {}
        self._tasks = tasks

    def route(self) -> Route:
        """Produce's, otherwise as everybody's."""
        usual = k00_produce.route(self._proxy)
        return replace(usual, begin=self.begin)

    def begin(self, call: Call, body: Buffer) -> Pending:
        """Raises WireError."""
        queue = self._waiting.get(call.origin)
        try:
            is_all_there = self._is_all_there(call, body)
        except WireError:
            if queue is None:
                raise
            is_all_there = False  # told in its turn
        if queue is None and is_all_there:
            return self._begin(call, body)
        answer: asyncio.Future[Answer] = self._proxy.loop.create_future()
        if queue is None:
            queue = self._waiting[call.origin] = deque()
            task = self._proxy.loop.create_task(
                self._start_in_order(call.origin, queue), name="Produce to a new topic of a lane"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        call.lease.hold()
        queue.append((call, body, answer))
        return answer

    def _is_all_there(self, call: Call, body: Buffer) -> bool:
        """Whether it can begin now, and how many partitions it counts as meanwhile. One with more than one turn of the
        loop begins is looked at later. Raises WireError.
        """
        partitions_max = self._proxy.settings.limits.produce_turn_partitions
        try:
            request = k00_produce.request_of(call, body, partitions_max=partitions_max)
        except TooManyPartitions:
            call.partitions = partitions_max
            return False
        call.partitions = k00_produce.partitions_of(call, request)
        return all(self._view.base_name_of(key) is None for key in self._not_own(request))

    def _not_own(self, request: ProduceRequest) -> list[object]:
        """Names and ids that are of no topic of the lane's."""
        own = self._proxy.image
        keys = dict.fromkeys(topic.name if topic.topic_id is None else topic.topic_id for topic in request.topics)
        keys.pop(None, None)  # no id at all, which is no topic's
        return [key for key in keys if (key not in own.topic_ids if isinstance(key, str) else key not in own.topics)]

    async def _missing(self, call: Call, request: ProduceRequest) -> list[str]:
        """Names that the base has, and the lane's clients have yet to write to. In turns: there may be thousands."""
        names = [self._view.base_name_of(key) async for key in self._proxy.bulk.paced(call, self._not_own(request))]
        return [name for name in names if name is not None]

    async def _start_in_order(self, origin: Hashable, queue: "deque[_Waiting]") -> None:
        try:
            while queue:
                call, body, answer = queue[0]
                try:
                    request = await self._proxy.bulk.apart(call, partial(k00_produce.request_of, call, body))
                except WireError as error:
                    queue.popleft()
                    _refuse(answer, error)
                    call.lease.let_go()
                    continue
                await self._overlays.make(await self._missing(call, request), call.client_host)
                queue.popleft()
                self._start(call, body, answer)
        finally:
            del self._waiting[origin]
            for call, _, answer in queue:
                call.lease.let_go()
                answer.cancel()

    def _begin(self, call: Call, body: Buffer) -> Pending:
        """Written in any case: what is over the lane's rate has its connection read no further for a while."""
        size_bytes = memoryview(body).nbytes if call.alike is None else call.lease.size_bytes
        self._pace.take(size_bytes)
        call.throttle_ms = self._pace.throttle_ms()
        return k00_produce.begin(self._proxy, call, body)

    def _start(self, call: Call, body: Buffer, answer: "asyncio.Future[Answer]") -> None:
        try:
            pending = self._begin(call, body)
        except Exception as error:  # noqa: BLE001 - told to whoever waits, as if it had not had to wait
            _refuse(answer, error)
        else:
            if isinstance(pending, Answer):
                _settle(answer, pending)
            else:
                pending.add_done_callback(partial(_settle_later, answer))
        finally:
            call.lease.let_go()


def _refuse(answer: "asyncio.Future[Answer]", error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


def _settle(answer: "asyncio.Future[Answer]", found: Answer) -> None:
    if not answer.done():
        answer.set_result(found)
    elif found.flushed is not None:
        found.flushed()


def _settle_later(answer: "asyncio.Future[Answer]", pending: "asyncio.Future[Answer]") -> None:
    if pending.cancelled():
        answer.cancel()
    elif (error := pending.exception()) is not None:
        _refuse(answer, error)
    else:
        _settle(answer, pending.result())
