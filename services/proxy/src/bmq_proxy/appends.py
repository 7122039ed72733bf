"""Submits batches to owners, and again what was certainly not applied, so that a client does not see a failover as an error.

While something of a partition waits to be sent again, everything later of that partition waits behind it: order is kept. What an append
holds in memory is counted by its request's lease, so the queues are bounded with it.
"""

import asyncio
from bisect import insort
from collections.abc import Callable
from itertools import count

from typing_extensions import Buffer

from bmq.errors import BmqError, NotOwner, NotReady, UnknownTopic
from bmq.roles.controller import Metadata
from bmq.roles.owner import Appended, Owner
from bmq.values import TopicPartition

RETRY_FIRST_S = 0.02
RETRY_MAX_S = 0.5


class Append:
    """One payload on its way. `done` resolves as Owner.append's future does; cancelled: it was given up and is not sent (again)."""

    __slots__ = ("done", "give_up_at", "number", "produce_version", "records", "tp")

    def __init__(
        self, number: int, tp: TopicPartition, records: Buffer, *, produce_version: int, give_up_at: float, done: asyncio.Future[Appended]
    ) -> None:
        self.number = number
        self.tp = tp
        self.records = records
        self.produce_version = produce_version
        self.give_up_at = give_up_at
        self.done = done

    def __lt__(self, other: "Append") -> bool:
        return self.number < other.number


class _Queue:
    """What of one partition waits to be sent again, in order of arrival."""

    __slots__ = ("delay_s", "timer", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Append] = []
        self.delay_s = RETRY_FIRST_S
        self.timer: asyncio.TimerHandle | None = None


class Appends:
    """All appends of one proxy."""

    def __init__(self, owner_for: Callable[[TopicPartition], Owner], metadata: Metadata) -> None:
        self._owner_for = owner_for
        self._metadata = metadata
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._numbers = count()
        self._queues: dict[TopicPartition, _Queue] = {}

    def submit(self, tp: TopicPartition, records: Buffer, *, produce_version: int, give_up_at: float) -> Append:
        """Sends a payload before it returns, or puts it behind what waits. Not applied by `give_up_at` (loop time): its `done` says why."""
        append = Append(next(self._numbers), tp, records, produce_version=produce_version, give_up_at=give_up_at, done=self._loop.create_future())
        queue = self._queues.get(tp)
        if queue is not None:
            queue.waiting.append(append)
        else:
            self._send(append)
        return append

    def give_up(self, append: Append) -> None:
        """Does not send it again. What is with its owner already stays there, and `done` still tells how it ends."""
        append.give_up_at = float("-inf")
        queue = self._queues.get(append.tp)
        if queue is not None and append in queue.waiting:
            queue.waiting.remove(append)
            append.done.cancel()

    def close(self) -> None:
        """Gives up what waits."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            if queue.timer is not None:
                queue.timer.cancel()
            for append in queue.waiting:
                _fail(append, NotOwner(f"{append.tp}: the proxy is stopping"))

    def _send(self, append: Append) -> None:
        try:
            if self._metadata.image.partition(append.tp) is None:
                raise UnknownTopic(f"partition {append.tp} does not exist (any more)")
            future = self._owner_for(append.tp).append(append.tp, append.records, produce_version=append.produce_version)
        except BmqError as error:
            self._failed(append, error)
            return
        if future.done():
            self._settled(append, future)
        else:
            future.add_done_callback(lambda done: self._settled(append, done))

    def _settled(self, append: Append, future: asyncio.Future[Appended]) -> None:
        if future.cancelled():
            self._failed(append, NotReady(f"{append.tp}: the owner gave the batch up"))
            return
        error = future.exception()
        if error is None:
            if not append.done.done():
                append.done.set_result(future.result())
        elif isinstance(error, BmqError):
            self._failed(append, error)
        elif not append.done.done():
            append.done.set_exception(error)

    def _failed(self, append: Append, error: BmqError) -> None:
        loop = self._loop
        if append.done.done():
            return
        if not isinstance(error, NotOwner | NotReady) or loop.time() >= append.give_up_at:
            _fail(append, error)
            return
        queue = self._queues.get(append.tp)
        if queue is None:
            queue = self._queues[append.tp] = _Queue()
        insort(queue.waiting, append)
        if queue.timer is None:
            queue.timer = loop.call_later(queue.delay_s, self._send_again, append.tp)
            queue.delay_s = min(2 * queue.delay_s, RETRY_MAX_S)

    def _send_again(self, tp: TopicPartition) -> None:
        queue = self._queues[tp]
        queue.timer = None
        while queue.waiting and queue.timer is None:
            self._send(queue.waiting.pop(0))
        if not queue.waiting and queue.timer is None:
            del self._queues[tp]


def _fail(append: Append, error: BmqError) -> None:
    if not append.done.done():
        append.done.set_exception(error)
