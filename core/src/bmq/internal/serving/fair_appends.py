"""Appends of several proxies to one broker: those of greedy topics wait here for their turn, so that those of the
modest need not.

A topic's appends stay in their order: what comes behind one that waits waits too. What waits behind a refused one of
its partition is refused, and so is what comes before everybody has heard of that. Each proxy sees to its own clients
(bmq.fairness.fair_shares); only here are all of them seen, and topics are what is known of them.

What is for a partition that is not open yet goes to the owner at once, which has room of its own for what waits for
openings: here it would hold up what its topic has for open ones, and with that the connection.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from bmq.errors import NotReady
from bmq.fairness.fair_shares import Admitted, FairShares, Share
from bmq.roles.owner import Appended
from bmq.roles.unheard import REFUSALS, Settling, refused_unheard
from bmq.values import TopicId, TopicPartition

TOPICS_MAX: Final = 10_000
"""Topics that are remembered; one that nothing is under way of is forgotten first, the one known for longest."""

Submit = Callable[[], "asyncio.Future[Appended]"]
"""To the owner. Raises BmqError, or its future does."""


class _Append:
    """One of them. `done` is what its caller got where it has to wait, `future` the owner's once it was submitted."""

    __slots__ = ("done", "future", "size_bytes", "submit", "tp")

    def __init__(self, tp: TopicPartition, size_bytes: int, submit: Submit) -> None:
        self.tp = tp
        self.size_bytes = size_bytes
        self.submit = submit
        self.done: asyncio.Future[Appended] | None = None
        self.future: asyncio.Future[Appended]


class _Topic:
    """One topic's appends."""

    __slots__ = ("_waiting_of", "in_flight", "settling", "share", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.share: Share
        self.waiting: OrderedDict[_Append, None] = OrderedDict()
        """In the order in which they came."""
        self._waiting_of: dict[int, deque[_Append]] = {}
        """The same by partition."""
        self.in_flight: dict[int, list[_Append]] = {}
        """With the owner, by partition, in their order."""
        self.settling = Settling(loop)
        """Its partitions of which an append was refused in this turn of the loop."""

    def refuses(self, partition: int) -> bool:
        """Whether nothing of a partition may be taken now, because something before it was refused and not everybody
        has heard of it.
        """
        if partition in self.settling:
            return True
        in_flight = self.in_flight.get(partition)
        return in_flight is not None and refused_unheard(in_flight, REFUSALS)

    def waits_for(self, partition: int) -> bool:
        """Whether anything of a partition does."""
        return partition in self._waiting_of

    def wait(self, one: _Append) -> None:
        """It goes behind all that wait."""
        self.waiting[one] = None
        self._waiting_of.setdefault(one.tp.partition, deque()).append(one)

    def first_waits_no_more(self) -> None:
        """Its turn has come."""
        one, _ = self.waiting.popitem(last=False)
        of_partition = self._waiting_of[one.tp.partition]
        assert of_partition[0] is one, f"{one.tp}: an append overtakes another one"
        of_partition.popleft()
        if not of_partition:
            del self._waiting_of[one.tp.partition]

    def none_waits_of(self, partition: int) -> Iterable[_Append]:
        """Those that did, in order."""
        gone = self._waiting_of.pop(partition, ())
        for one in gone:
            del self.waiting[one]
        return gone

    def over(self, one: _Append) -> None:
        """The owner has answered."""
        in_flight = self.in_flight[one.tp.partition]
        in_flight.remove(one)
        if not in_flight:
            del self.in_flight[one.tp.partition]


class FairAppends:
    """All appends of one broker."""

    def __init__(self, *, bytes_max: int) -> None:
        """`bytes_max`: what the broker takes of all proxies together."""
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._shares = FairShares(sender_bytes_max=bytes_max, window_bytes_max=bytes_max, call_at=self._loop.call_at)
        self._topics: OrderedDict[TopicId, _Topic] = OrderedDict()

    def append(
        self, tp: TopicPartition, size_bytes: int, submit: Submit, *, is_open: bool = True
    ) -> "asyncio.Future[Appended]":
        """Submits now, or in its turn; now also where the partition is not open at the owner. Raises what `submit`
        raises, or the future does.
        """
        topic = self._topics.get(tp.topic_id)
        if topic is None:
            topic = self._open(tp.topic_id)
        one = _Append(tp, size_bytes, submit)
        if topic.refuses(tp.partition):
            one.done = self._loop.create_future()
            _fail(one, _behind_refused(tp))
            return one.done
        if not is_open and not topic.waits_for(tp.partition):
            return self._submit(topic, one, None, self._loop.time())
        if not topic.waiting:
            now = self._loop.time()
            admitted = self._shares.admit(topic.share, size_bytes, now)
            if admitted is not None:
                return self._submit(topic, one, admitted, now)
        topic.wait(one)
        one.done = self._loop.create_future()
        return one.done

    def _open(self, topic_id: TopicId) -> _Topic:
        topic = _Topic(self._loop)
        topic.share = self._shares.open(topic_id, partial(self._go_on, topic))
        self._topics[topic_id] = topic
        if len(self._topics) > TOPICS_MAX:
            oldest, idle = next(iter(self._topics.items()))
            if idle.waiting or idle.in_flight or idle.settling:
                self._topics.move_to_end(oldest)
            else:
                del self._topics[oldest]
                self._shares.close(idle.share, self._loop.time())
        return topic

    def _submit(self, topic: _Topic, one: _Append, admitted: Admitted | None, now: float) -> "asyncio.Future[Appended]":
        """`admitted` None: it counts among nobody's."""
        try:
            future = one.submit()
        except BaseException:
            if admitted is not None:
                self._shares.over(topic.share, one.size_bytes, admitted, took_s=None, now=now)
            raise
        if future.done():
            if admitted is not None:
                self._shares.over(topic.share, one.size_bytes, admitted, took_s=None, now=now)
        else:
            one.future = future
            topic.in_flight.setdefault(one.tp.partition, []).append(one)
            future.add_done_callback(partial(self._over, topic, one, admitted, now))
        return future

    def _over(
        self, topic: _Topic, one: _Append, admitted: Admitted | None, began_s: float, future: "asyncio.Future[Appended]"
    ) -> None:
        topic.over(one)
        if one.done is not None:
            _answered(one, future)
        if not future.cancelled() and isinstance(future.exception(), REFUSALS):
            self._refuse_waiting(topic, one.tp)
        if admitted is not None:
            now = self._loop.time()
            self._shares.over(topic.share, one.size_bytes, admitted, took_s=now - began_s, now=now)

    def _refuse_waiting(self, topic: _Topic, tp: TopicPartition) -> None:
        """An earlier batch of the partition is to be sent again: what waits behind it, or comes now, must not be taken
        before it.
        """
        for one in topic.none_waits_of(tp.partition):
            _fail(one, _behind_refused(tp))
        topic.settling.refused(tp.partition)
        if not topic.waiting:
            self._shares.withdraw(topic.share, self._loop.time())

    def _go_on(self, topic: _Topic) -> None:
        """What waits, as far as it is let in."""
        while topic.waiting:
            first = next(iter(topic.waiting))
            if topic.refuses(first.tp.partition):
                self._refuse_waiting(topic, first.tp)
                continue
            now = self._loop.time()
            admitted = self._shares.admit(topic.share, first.size_bytes, now)
            if admitted is None:
                return
            topic.first_waits_no_more()
            try:
                future = self._submit(topic, first, admitted, now)
            except Exception as error:  # noqa: BLE001 - also of a bug its caller is told, and those behind it still have their turn
                _fail(first, error)
                if isinstance(error, REFUSALS):
                    self._refuse_waiting(topic, first.tp)
                continue
            if future.done():
                _answered(first, future)
                if not future.cancelled() and isinstance(future.exception(), REFUSALS):
                    self._refuse_waiting(topic, first.tp)


def _behind_refused(tp: TopicPartition) -> NotReady:
    return NotReady(f"{tp}: an earlier batch was refused and has to be sent again first")


def _answered(one: _Append, future: "asyncio.Future[Appended]") -> None:
    assert one.done is not None
    if future.cancelled():
        one.done.cancel()
    elif (error := future.exception()) is not None:
        _fail(one, error)
    elif not one.done.done():
        one.done.set_result(future.result())


def _fail(one: _Append, error: BaseException) -> None:
    if one.done is not None and not one.done.done():
        one.done.set_exception(error)
