"""Submits batches to owners, and again what may be sent again, so that a client does not see a take-over as an error.

Keeps the order of each *queue*, what one connection writes to one partition as it names it: nothing of it is sent while
something earlier of it is to be sent again, or is still with another owner; and nothing is sent again before everything
of it that is with an owner was answered. So whichever of a queue's batches an owner refuses, and however late, they go
again in the order in which they came; and what its client has to send again is noted (bmq_proxy.refused), so that
nothing that was sent behind it is taken first. A topic that is made again under its name stays in its queues: what was
sent to the one before it is answered first. What an append holds in memory is counted by its request's lease, so the
queues are bounded with it. A batch that is still being proved (bmq_proxy.proofs), or whose parts go to lanes before it
(bmq_proxy.parting), holds up those behind it.
"""

import asyncio
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

from typing_extensions import Buffer

from bmq.errors import (
    BmqError,
    Fenced,
    NotOwner,
    NotReady,
    NotYetNext,
    StoreError,
    UnknownOutcome,
    UnknownTopic,
)
from bmq.metadata.image import Image
from bmq.metadata.shared_map import differences
from bmq.roles.controller import Metadata
from bmq.roles.owner import Appended, AppendedAlike, Owner, Proved
from bmq.roles.unheard import refused_unheard
from bmq.values import TopicId, TopicPartition
from bmq.wire.batch_headers import read_header
from bmq_proxy.origins import Origin
from bmq_proxy.refused import Named, RefusedBatches

RETRY_FIRST_S = 0.02
RETRY_MAX_S = 0.5
RETRIES_PER_S = 1_000
"""So often in a second, at most, what connections of one address write to partitions that are not ready is sent again:
each time goes over the link to its owner, with all its bytes."""
GIVEN_UP_MAX = 100
"""Producers of one queue that are remembered; a client has one, so who has more is up to something."""


class _Queue:
    """What one connection writes to one partition as it names it. `waiting` is in order of arrival."""

    __slots__ = (
        "address",
        "delay_s",
        "given_up",
        "in_flight",
        "key",
        "owner",
        "refused",
        "timer",
        "topics",
        "unproved",
        "waiting",
    )

    def __init__(self, key: tuple[Origin | None, Named], refused: RefusedBatches, address: Hashable) -> None:
        self.key = key
        self.address = address
        self.refused = refused
        self.owner: Owner | None = None
        """Who has what was sent."""
        self.in_flight: list[Append | Taken] = []
        """Not answered yet, in order of arrival."""
        self.unproved: deque[Append] = deque()
        """Not sent yet, in order of arrival: the first one is still being proved."""
        self.waiting: list[Append] = []
        self.delay_s = RETRY_FIRST_S
        self.timer: asyncio.TimerHandle | None = None
        """Until it is over, what waits is not sent again."""
        self.topics: set[TopicId] = set()
        """Those that something has waited for."""
        self.given_up: dict[int, _GivenUp] | None = None
        """By producer id: while something is with the owner that was there when a batch of it was given up."""

    @property
    def is_empty(self) -> bool:
        """Nothing is on its way or waiting."""
        return not (self.in_flight or self.waiting or self.unproved)


class _GivenUp(NamedTuple):
    """The number of a producer's first batch that was given up, and of the newest batch that was with the owner
    then.
    """

    number: int
    newest_in_flight: int


class Append:
    """One payload on its way. `done` resolves as Owner.append's future does; cancelled: it was given up and is not sent
    (again).
    """

    __slots__ = (
        "address",
        "done",
        "future",
        "give_up_at",
        "number",
        "produce_version",
        "proof",
        "queue",
        "records",
        "tp",
    )

    def __init__(
        self,
        number: int,
        queue: _Queue,
        tp: TopicPartition,
        records: Buffer,
        *,
        produce_version: int,
        give_up_at: float,
        done: asyncio.Future[Appended],
        address: Hashable,
    ) -> None:
        self.number = number
        self.queue = queue
        self.tp = tp
        self.records = records
        self.produce_version = produce_version
        self.give_up_at = give_up_at
        self.done = done
        self.address = address
        self.proof: asyncio.Future[Buffer] | None = None
        """While it is being proved."""
        self.future: asyncio.Future[Appended]
        """The owner's, once it was sent."""

    @property
    def last_number(self) -> int:
        """Its own."""
        return self.number

    def __lt__(self, other: "Append") -> bool:
        return self.number < other.number


class Taken:
    """Batches of one producer that their owner took at once. `told` is called in the end: with where they are, or with
    what each of them has become by itself.
    """

    __slots__ = (
        "address",
        "batches",
        "future",
        "give_up_at",
        "number",
        "produce_version",
        "queue",
        "told",
        "tp",
    )

    def __init__(
        self,
        number: int,
        queue: _Queue,
        tp: TopicPartition,
        batches: Sequence[Proved],
        *,
        produce_version: int,
        give_up_at: float,
        future: asyncio.Future[AppendedAlike],
        address: Hashable,
    ) -> None:
        self.number = number
        self.queue = queue
        self.tp = tp
        self.batches = batches
        self.produce_version = produce_version
        self.give_up_at = give_up_at
        self.future = future
        self.address = address
        self.told: Callable[[Taken, AppendedAlike | Sequence[Append]], None]

    @property
    def last_number(self) -> int:
        """The number of its last batch."""
        return self.number + len(self.batches) - 1


class Appends:
    """All appends of one proxy."""

    def __init__(self, owner_for: Callable[[TopicPartition], Owner], metadata: Metadata) -> None:
        self._owner_for = owner_for
        self._metadata = metadata
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._number = 0
        """The next batch's."""
        self._queues: dict[tuple[Origin | None, Named], _Queue] = {}
        """Those that have something on its way or waiting."""
        self._by_topic: dict[TopicId, dict[_Queue, None]] = {}
        """Those in which something waits, or has waited, for a partition of the topic."""
        self._timers: Counter[Hashable] = Counter()
        """How many of them wait to send something again, by address."""
        self.refused = RefusedBatches(self._loop.time)
        """What clients have to send again, by connection and partition."""
        self._is_closed = False
        self._unsubscribe = metadata.subscribe(self._image_changed)

    def submit(
        self,
        tp: TopicPartition,
        records: Buffer,
        *,
        produce_version: int,
        give_up_at: float,
        origin: Origin | None = None,
        address: Hashable = "",
        named: Named | None = None,
        proof: asyncio.Future[Buffer] | None = None,
    ) -> Append:
        """Sends a payload before it returns, or puts it behind what waits. Not applied by `give_up_at` (loop time): its
        `done` says why.

        `origin` is the connection that it came over, `address` whose that is, `named` what it calls the partition (by
        default `tp`). `proof`: it is sent when that is there, as that says; what it raises, `done` raises.
        """
        key = origin, tp if named is None else named
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key, self.refused, address)
        append = Append(
            self._number,
            queue,
            tp,
            records,
            produce_version=produce_version,
            give_up_at=give_up_at,
            done=self._loop.create_future(),
            address=address,
        )
        self._number += 1
        if proof is not None:
            append.proof = proof
            queue.unproved.append(append)
            proof.add_done_callback(partial(self._proved, queue))
        elif queue.unproved:
            queue.unproved.append(append)
        else:
            self._enter(queue, append)
            if not queue.in_flight:
                self._forget_if_empty(queue)
        return append

    def submit_alike(
        self,
        tp: TopicPartition,
        batches: Sequence[Proved],
        *,
        produce_version: int,
        give_up_at: float,
        origin: Origin | None = None,
        address: Hashable = "",
        named: Named | None = None,
    ) -> Taken | None:
        """Sends as many of one producer's batches, from the first on, as their owner takes at once; whoever gets them
        says who is `told`. None: there are none such, or the first may not be sent now; `submit` it.
        """
        key = origin, tp if named is None else named
        queue = self._queues.get(key)
        if queue is not None and (queue.waiting or queue.unproved or queue.given_up):
            return None
        try:
            if self._metadata.image.partition(tp) is None:
                return None
            owner = self._owner_for(tp)
            if queue is not None and queue.in_flight and self._is_held_up(queue, tp, owner):
                return None
            found = owner.append_alike(tp, batches, produce_version=produce_version)
        except Exception:  # noqa: BLE001 - what it is, a bug, too, the one that is submitted meets, and tells
            return None
        if found is None:
            return None
        count, future = found
        if queue is None:
            queue = self._queues[key] = _Queue(key, self.refused, address)
        taken = Taken(
            self._number,
            queue,
            tp,
            batches[:count],
            produce_version=produce_version,
            give_up_at=give_up_at,
            future=future,
            address=address,
        )
        self._number += count
        queue.owner = owner
        queue.in_flight.append(taken)
        future.add_done_callback(partial(self._answered_alike, taken))
        return taken

    def give_up(self, append: Append | Taken) -> None:
        """Does not send it again. What is with its owner already stays there, and `done` still tells how it ends."""
        queue = append.queue
        if isinstance(append, Append) and append in queue.unproved:
            append.give_up_at = float("-inf")
            queue.unproved.remove(append)
            _cancel(append)
            _forget_proof(append)
            _give_up_followers(append)
            self._proved(queue)
        else:
            self.give_up_waiting(append)

    def give_up_waiting(self, append: Append | Taken) -> None:
        """As `give_up`, but what is still being proved is sent once it is, to be taken by its owner then or never."""
        append.give_up_at = float("-inf")
        if isinstance(append, Taken):
            return
        queue = append.queue
        if append in queue.waiting:
            queue.waiting.remove(append)
            _cancel(append)
            _give_up_followers(append)
            self._go_on(queue)

    @staticmethod
    def settle(append: Append, appended: Appended) -> None:
        """Its owner has had it before: it need not be sent, if it is still being proved."""
        if not append.done.done():
            append.done.set_result(appended)
        _forget_proof(append)

    def close(self) -> None:
        """Gives up what waits, and sends nothing again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._unsubscribe()
        queues, self._queues = self._queues, {}
        self._by_topic.clear()
        for queue in queues.values():
            if queue.timer is not None:
                queue.timer.cancel()
            waiting, queue.waiting = [*queue.waiting, *queue.unproved], []
            queue.unproved.clear()
            for append in waiting:
                _fail(append, NotOwner(f"{append.tp}: the proxy is stopping"))
                _forget_proof(append)

    def _enter(self, queue: _Queue, append: Append) -> None:
        """Nothing before it is still being proved."""
        if queue.given_up and _producer_id(append.records) in queue.given_up:
            _fail_behind(append)
        elif queue.waiting:
            self._wait(queue, append)
        else:
            self._send(queue, append)

    def _wait(self, queue: _Queue, append: Append) -> None:
        insort(queue.waiting, append)
        topic_id = append.tp.topic_id
        if topic_id not in queue.topics:
            queue.topics.add(topic_id)
            self._by_topic.setdefault(topic_id, {})[queue] = None

    def _proved(self, queue: _Queue, _: "asyncio.Future[Buffer] | None" = None) -> None:
        """One of the queue's was proved, or will not be: it goes on, as far as nothing before it is being proved."""
        while queue.unproved and (queue.unproved[0].proof is None or queue.unproved[0].proof.done()):
            append = queue.unproved.popleft()
            proof, append.proof = append.proof, None
            if proof is None:
                self._enter(queue, append)
            elif proof.cancelled():
                _fail(append, NotOwner(f"{append.tp}: the proxy is stopping"))
            elif (error := proof.exception()) is not None:
                _give_up(append, error)
            else:
                append.records = proof.result()
                self._enter(queue, append)
        self._forget_if_empty(queue)

    def _forget_if_empty(self, queue: _Queue) -> None:
        if queue.is_empty and self._queues.get(queue.key) is queue:
            if queue.timer is not None:
                queue.timer.cancel()
                self._timer_over(queue)
            del self._queues[queue.key]
            for topic_id in queue.topics:
                of_topic = self._by_topic[topic_id]
                del of_topic[queue]
                if not of_topic:
                    del self._by_topic[topic_id]

    def _send(self, queue: _Queue, append: Append) -> None:
        try:
            if self._metadata.image.partition(append.tp) is None:
                raise UnknownTopic(f"partition {append.tp} does not exist (any more)")
            owner = self._owner_for(append.tp)
            if queue.in_flight and self._is_held_up(queue, append.tp, owner):
                self._wait(queue, append)
                return
            future = owner.append(
                append.tp, append.records, produce_version=append.produce_version, party=(append.address, queue.key[0])
            )
        except BmqError as error:
            self._failed(append, error)
            return
        except Exception as error:  # noqa: BLE001 - a bug: it is told as if the future had raised it, and those behind it go on
            if not append.done.done():
                append.done.set_exception(error)
            return
        if future.done():
            self._settled(append, future)
        else:
            queue.owner = owner
            append.future = future
            queue.in_flight.append(append)
            future.add_done_callback(partial(self._answered, append))

    @staticmethod
    def _is_held_up(queue: _Queue, tp: TopicPartition, owner: Owner) -> bool:
        """Whether something that is on its way may still be refused. What is with the old owner, or went to the topic
        that had this name, may: nobody must have anything new before that. And what is refused already goes again
        before it; `_answered` will hear of it.
        """
        return owner is not queue.owner or queue.in_flight[0].tp != tp or refused_unheard(queue.in_flight, BmqError)

    def _answered(self, append: Append, future: asyncio.Future[Appended]) -> None:
        queue = append.queue
        queue.in_flight.remove(append)
        self._settled(append, future)
        self._heard(queue)

    def _answered_alike(self, taken: Taken, future: asyncio.Future[AppendedAlike]) -> None:
        queue = taken.queue
        queue.in_flight.remove(taken)
        try:
            if future.cancelled() or future.exception() is not None:
                ones = self._apart(taken)
                taken.told(taken, ones)
                for one in ones:
                    self._settled(one, future)
            else:
                queue.delay_s = RETRY_FIRST_S
                taken.told(taken, future.result())
        finally:
            self._heard(queue)

    def _heard(self, queue: _Queue) -> None:
        """Something that was on its way has been answered."""
        if queue.given_up:
            _forget_given_up(queue)
        self._go_on(queue)

    def _settled(self, append: Append, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            self._failed(append, UnknownOutcome(f"{append.tp}: the owner gave the batch up half-way"))
            return
        error = future.exception()
        if error is None:
            append.queue.delay_s = RETRY_FIRST_S
            if not append.done.done():
                append.done.set_result(future.result())
        elif isinstance(error, BmqError):
            self._failed(append, error)
        elif not append.done.done():
            append.done.set_exception(error)

    def _failed(self, append: Append, error: BmqError) -> None:
        if append.done.done():
            return
        if self._is_closed or self._loop.time() >= append.give_up_at or not self._may_be_sent_again(append, error):
            _give_up(append, error)
            return
        queue = append.queue
        if queue.given_up:
            given_up = queue.given_up.get(_producer_id(append.records))
            if given_up is not None and given_up.number < append.number:
                _fail_behind(append)
                return
        self._wait(queue, append)
        if queue.timer is None:
            self._timers[queue.address] += 1
            delay_s = max(queue.delay_s, self._timers[queue.address] / RETRIES_PER_S)
            queue.timer = self._loop.call_later(delay_s, self._time_to_send, queue)
            queue.delay_s = min(2 * queue.delay_s, RETRY_MAX_S)

    def _apart(self, taken: Taken) -> list[Append]:
        """Its batches, one by one."""
        return [
            Append(
                taken.number + at,
                taken.queue,
                taken.tp,
                batch.records,
                produce_version=taken.produce_version,
                give_up_at=taken.give_up_at,
                done=self._loop.create_future(),
                address=taken.address,
            )
            for at, batch in enumerate(taken.batches)
        ]

    def _timer_over(self, queue: _Queue) -> None:
        queue.timer = None
        self._timers[queue.address] -= 1
        if not self._timers[queue.address]:
            del self._timers[queue.address]

    def _may_be_sent_again(self, append: Append, error: BmqError) -> bool:
        """What was not applied; and what may have been where the owner tells a second copy from the first by its
        sequence.
        """
        if isinstance(error, NotOwner | NotReady):
            return True
        if isinstance(error, UnknownTopic):
            # one of the two images is behind: the owner's, or this one
            return self._metadata.image.partition(append.tp) is not None
        return isinstance(error, Fenced | StoreError) and _is_idempotent(append.records)

    def _time_to_send(self, queue: _Queue) -> None:
        self._timer_over(queue)
        self._go_on(queue)

    def _go_on(self, queue: _Queue) -> None:
        """Sends what waits, where nothing stands in the way any more."""
        if queue.in_flight:
            return
        while queue.waiting and queue.timer is None:
            before = queue.waiting.pop(0)
            self._send(queue, before)
            if queue.waiting and queue.waiting[0] is before:
                break  # behind those that have just been sent, which are with another owner or were refused
        self._forget_if_empty(queue)

    def _image_changed(self, old: Image, new: Image) -> None:
        """Who waits for a partition that changed hands need not wait longer."""
        if not self._by_topic or new.topics is old.topics:
            return
        found = differences(old.topics, new.topics)
        topics = (*(topic_id for topic_id, _, _ in found.changed), *(topic_id for topic_id, _ in found.gone))
        queues = {queue for topic_id in topics for queue in self._by_topic.get(topic_id, ()) if queue.waiting}
        for queue in sorted(queues, key=_first_number):
            if queue.timer is not None and any(
                new.partition(tp) != old.partition(tp) for tp in {append.tp for append in queue.waiting}
            ):
                queue.timer.cancel()
                # Not here: others have yet to hear of the change, among them, in one process, the new owner.
                queue.timer = self._loop.call_later(0, self._time_to_send, queue)
                queue.delay_s = RETRY_FIRST_S


def _first_number(queue: _Queue) -> int:
    """What waits there longest; in their order, so that a seed replays it."""
    return queue.waiting[0].number


def _give_up(append: Append, error: BaseException) -> None:
    """Its client is told, and sends it again with what of its producer came behind it; but for what is to come before
    it, which may be among that where its owner said NotYetNext.
    """
    _fail(append, error)
    if not isinstance(error, NotYetNext):
        _give_up_followers(append)


def _give_up_followers(append: Append) -> None:
    """What comes of the same producer behind a batch that is given up goes no further either, so that the client sends
    all of it in order.

    An owner that knows nothing of a producer yet takes any batch of it for the first, and would refuse those before it
    for good. What is with an owner may still be refused there: it must not be sent again then, and nothing new before
    that is known.
    """
    queue, producer_id = append.queue, _producer_id(append.records)
    if producer_id < 0:
        return
    if queue.in_flight:
        if queue.given_up is None:
            queue.given_up = {}
        before = queue.given_up.get(producer_id)
        number = append.number if before is None else min(append.number, before.number)
        queue.given_up[producer_id] = _GivenUp(number, queue.in_flight[-1].last_number)
        if len(queue.given_up) > GIVEN_UP_MAX:
            del queue.given_up[next(iter(queue.given_up))]
    if queue.waiting or queue.unproved:
        followers = [
            other
            for other in (*queue.waiting, *queue.unproved)
            if append < other and _producer_id(other.records) == producer_id
        ]
        queue.waiting = [other for other in queue.waiting if other not in followers]
        queue.unproved = deque(other for other in queue.unproved if other not in followers)
        for follower in followers:
            _fail_behind(follower)
            _forget_proof(follower)


def _forget_proof(append: Append) -> None:
    """It would hold the batch, which is counted no more."""
    if append.proof is not None:
        append.proof.cancel()


def _forget_given_up(queue: _Queue) -> None:
    assert queue.given_up is not None
    oldest = queue.in_flight[0].number if queue.in_flight else float("inf")
    queue.given_up = {
        producer_id: one for producer_id, one in queue.given_up.items() if oldest <= one.newest_in_flight
    } or None


def _is_idempotent(records: Buffer) -> bool:
    return _producer_id(records) >= 0


def _producer_id(records: Buffer) -> int:
    try:
        return read_header(records).producer_id
    except BmqError:
        return -1


def _fail_behind(append: Append) -> None:
    _fail(append, NotReady(f"{append.tp}: an earlier batch of this producer was given up: send it again first"))


def _fail(append: Append, error: BaseException) -> None:
    if not append.done.done():
        append.done.set_exception(error)
        if isinstance(error, BmqError):
            append.queue.refused.note(*append.queue.key, append.records, error)


def _cancel(append: Append) -> None:
    """Whoever gives it up tells its client that time is up."""
    append.done.cancel()
    append.queue.refused.note(*append.queue.key, append.records, NotReady(f"{append.tp}: given up"))
