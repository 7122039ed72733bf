"""Submits batches to owners, and again what may be sent again, so that a client does not see a failover as an error.

Keeps the order of each *lane*, what one connection writes to one partition as it names it: nothing of it is sent while
something earlier of it is to be sent again, or is still with another owner; and nothing is sent again before everything
of it that is with an owner was answered. So whichever of a lane's batches an owner refuses, and however late, they go
again in the order in which they came; and what its client has to send again is noted (bmq_proxy.refused), so that
nothing that was sent behind it is taken first. A topic that is made again under its name stays in its lanes: what was
sent to the one before it is answered first. What an append holds in memory is counted by its request's lease, so the
lanes are bounded with it. A batch that is still being proved (bmq_proxy.proofs) holds up those behind it.
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import NamedTuple

from typing_extensions import Buffer

from bmq.errors import BmqError, Fenced, NotOwner, NotReady, StoreError, UnknownOutcome, UnknownTopic
from bmq.metadata.image import Image
from bmq.roles.controller import Metadata
from bmq.roles.owner import Appended, Owner
from bmq.roles.unheard import refused_unheard
from bmq.values import TopicPartition
from bmq.wire.batch_headers import read_header
from bmq_proxy.origins import Origin
from bmq_proxy.refused import Named, RefusedBatches

RETRY_FIRST_S = 0.02
RETRY_MAX_S = 0.5
GIVEN_UP_MAX = 100
"""Producers of one lane that are remembered; a client has one, so it takes one that is up to something to have more."""


class _Lane:
    """What one connection writes to one partition as it names it. `waiting` is in order of arrival."""

    __slots__ = ("delay_s", "given_up", "in_flight", "key", "owner", "refused", "timer", "unproved", "waiting")

    def __init__(self, key: tuple[Origin | None, Named], refused: RefusedBatches) -> None:
        self.key = key
        self.refused = refused
        self.owner: Owner | None = None
        """Who has what was sent."""
        self.in_flight: list[Append] = []
        """Not answered yet, in order of arrival."""
        self.unproved: deque[Append] = deque()
        """Not sent yet, in order of arrival: the first one is still being proved."""
        self.waiting: list[Append] = []
        self.delay_s = RETRY_FIRST_S
        self.timer: asyncio.TimerHandle | None = None
        """Until it is over, what waits is not sent again."""
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

    __slots__ = ("done", "future", "give_up_at", "lane", "number", "produce_version", "proof", "records", "tp")

    def __init__(
        self,
        number: int,
        lane: _Lane,
        tp: TopicPartition,
        records: Buffer,
        *,
        produce_version: int,
        give_up_at: float,
        done: asyncio.Future[Appended],
    ) -> None:
        self.number = number
        self.lane = lane
        self.tp = tp
        self.records = records
        self.produce_version = produce_version
        self.give_up_at = give_up_at
        self.done = done
        self.proof: asyncio.Future[Buffer] | None = None
        """While it is being proved."""
        self.future: asyncio.Future[Appended]
        """The owner's, once it was sent."""

    def __lt__(self, other: "Append") -> bool:
        return self.number < other.number


class Appends:
    """All appends of one proxy."""

    def __init__(self, owner_for: Callable[[TopicPartition], Owner], metadata: Metadata) -> None:
        self._owner_for = owner_for
        self._metadata = metadata
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._numbers = count()
        self._lanes: dict[tuple[Origin | None, Named], _Lane] = {}
        """Those that have something on its way or waiting."""
        self.refused = RefusedBatches()
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
        named: Named | None = None,
        proof: asyncio.Future[Buffer] | None = None,
    ) -> Append:
        """Sends a payload before it returns, or puts it behind what waits. Not applied by `give_up_at` (loop time): its
        `done` says why.

        `origin` is the connection that it came over, `named` what it calls the partition (by default `tp`). `proof`: it
        is sent when that is there, as that says; what it raises, `done` raises.
        """
        key = origin, tp if named is None else named
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, self.refused)
        done = self._loop.create_future()
        append = Append(
            next(self._numbers), lane, tp, records, produce_version=produce_version, give_up_at=give_up_at, done=done
        )
        if proof is not None:
            append.proof = proof
            lane.unproved.append(append)
            proof.add_done_callback(partial(self._proved, lane))
        elif lane.unproved:
            lane.unproved.append(append)
        else:
            self._enter(lane, append)
            self._forget_if_empty(lane)
        return append

    def give_up(self, append: Append) -> None:
        """Does not send it again. What is with its owner already stays there, and `done` still tells how it ends."""
        lane = append.lane
        if append in lane.unproved:
            append.give_up_at = float("-inf")
            lane.unproved.remove(append)
            _cancel(append)
            _forget_proof(append)
            _give_up_followers(append)
            self._proved(lane)
        else:
            self.give_up_waiting(append)

    def give_up_waiting(self, append: Append) -> None:
        """As `give_up`, but what is still being proved is sent once it is, to be taken by its owner then or never."""
        append.give_up_at = float("-inf")
        lane = append.lane
        if append in lane.waiting:
            lane.waiting.remove(append)
            _cancel(append)
            _give_up_followers(append)
            self._go_on(lane)

    def close(self) -> None:
        """Gives up what waits, and sends nothing again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._unsubscribe()
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
            waiting, lane.waiting = [*lane.waiting, *lane.unproved], []
            lane.unproved.clear()
            for append in waiting:
                _fail(append, NotOwner(f"{append.tp}: the proxy is stopping"))
                _forget_proof(append)

    def _enter(self, lane: _Lane, append: Append) -> None:
        """Nothing before it is still being proved."""
        if lane.given_up and _producer_id(append.records) in lane.given_up:
            _fail_behind(append)
        elif lane.waiting:
            lane.waiting.append(append)
        else:
            self._send(lane, append)

    def _proved(self, lane: _Lane, _: "asyncio.Future[Buffer] | None" = None) -> None:
        """One of the lane's was proved, or will not be: it goes on, as far as nothing before it is being proved."""
        while lane.unproved and (lane.unproved[0].proof is None or lane.unproved[0].proof.done()):
            append = lane.unproved.popleft()
            proof, append.proof = append.proof, None
            if proof is None:
                self._enter(lane, append)
            elif proof.cancelled():
                _fail(append, NotOwner(f"{append.tp}: the proxy is stopping"))
            elif (error := proof.exception()) is not None:
                _fail(append, error)
                _give_up_followers(append)
            else:
                append.records = proof.result()
                self._enter(lane, append)
        self._forget_if_empty(lane)

    def _forget_if_empty(self, lane: _Lane) -> None:
        if lane.is_empty and self._lanes.get(lane.key) is lane:
            if lane.timer is not None:
                lane.timer.cancel()
            del self._lanes[lane.key]

    def _send(self, lane: _Lane, append: Append) -> None:
        try:
            if self._metadata.image.partition(append.tp) is None:
                raise UnknownTopic(f"partition {append.tp} does not exist (any more)")
            owner = self._owner_for(append.tp)
            if lane.in_flight and (
                owner is not lane.owner
                or lane.in_flight[0].tp != append.tp
                or refused_unheard(lane.in_flight, BmqError)
            ):
                # What is with the old owner, or went to the topic that had this name, may still be refused: nobody must
                # have this before that. And what is refused already goes again before this; `_answered` will hear of
                # it.
                insort(lane.waiting, append)
                return
            future = owner.append(append.tp, append.records, produce_version=append.produce_version)
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
            lane.owner = owner
            append.future = future
            lane.in_flight.append(append)
            future.add_done_callback(partial(self._answered, append))

    def _answered(self, append: Append, future: asyncio.Future[Appended]) -> None:
        lane = append.lane
        lane.in_flight.remove(append)
        self._settled(append, future)
        if lane.given_up:
            _forget_given_up(lane)
        self._go_on(lane)

    def _settled(self, append: Append, future: asyncio.Future[Appended]) -> None:
        if future.cancelled():
            self._failed(append, UnknownOutcome(f"{append.tp}: the owner gave the batch up half-way"))
            return
        error = future.exception()
        if error is None:
            append.lane.delay_s = RETRY_FIRST_S
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
            _fail(append, error)
            _give_up_followers(append)
            return
        lane = append.lane
        if lane.given_up:
            given_up = lane.given_up.get(_producer_id(append.records))
            if given_up is not None and given_up.number < append.number:
                _fail_behind(append)
                return
        insort(lane.waiting, append)
        if lane.timer is None:
            lane.timer = self._loop.call_later(lane.delay_s, self._time_to_send, lane)
            lane.delay_s = min(2 * lane.delay_s, RETRY_MAX_S)

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

    def _time_to_send(self, lane: _Lane) -> None:
        lane.timer = None
        self._go_on(lane)

    def _go_on(self, lane: _Lane) -> None:
        """Sends what waits, where nothing stands in the way any more."""
        if lane.in_flight:
            return
        while lane.waiting and lane.timer is None:
            before = lane.waiting.pop(0)
            self._send(lane, before)
            if lane.waiting and lane.waiting[0] is before:
                break  # behind those that have just been sent, which are with another owner or were refused
        self._forget_if_empty(lane)

    def _image_changed(self, old: Image, new: Image) -> None:
        """Who waits for a partition that changed hands need not wait longer."""
        if new.topics is old.topics and new.nodes is old.nodes:
            return
        for lane in self._lanes.values():
            if lane.timer is not None and any(
                new.partition(tp) != old.partition(tp) for tp in {append.tp for append in lane.waiting}
            ):
                lane.timer.cancel()
                # Not here: others have yet to hear of the change, among them, in one process, the new owner.
                lane.timer = self._loop.call_later(0, self._time_to_send, lane)
                lane.delay_s = RETRY_FIRST_S


def _give_up_followers(append: Append) -> None:
    """What comes of the same producer behind a batch that is given up goes no further either, so that the client sends
    all of it in order.

    An owner that knows nothing of a producer yet takes any batch of it for the first, and would refuse those before it
    for good. What is with an owner may still be refused there: it must not be sent again then, and nothing new before
    that is known.
    """
    lane, producer_id = append.lane, _producer_id(append.records)
    if producer_id < 0:
        return
    if lane.in_flight:
        if lane.given_up is None:
            lane.given_up = {}
        before = lane.given_up.get(producer_id)
        number = append.number if before is None else min(append.number, before.number)
        lane.given_up[producer_id] = _GivenUp(number, lane.in_flight[-1].number)
        if len(lane.given_up) > GIVEN_UP_MAX:
            del lane.given_up[next(iter(lane.given_up))]
    if lane.waiting or lane.unproved:
        followers = [
            other
            for other in (*lane.waiting, *lane.unproved)
            if append < other and _producer_id(other.records) == producer_id
        ]
        lane.waiting = [other for other in lane.waiting if other not in followers]
        lane.unproved = deque(other for other in lane.unproved if other not in followers)
        for follower in followers:
            _fail_behind(follower)
            _forget_proof(follower)


def _forget_proof(append: Append) -> None:
    """It would hold the batch, which is counted no more."""
    if append.proof is not None:
        append.proof.cancel()


def _forget_given_up(lane: _Lane) -> None:
    assert lane.given_up is not None
    oldest = lane.in_flight[0].number if lane.in_flight else float("inf")
    lane.given_up = {
        producer_id: one for producer_id, one in lane.given_up.items() if oldest <= one.newest_in_flight
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
            append.lane.refused.note(*append.lane.key, append.records, error)


def _cancel(append: Append) -> None:
    """Whoever gives it up tells its client that time is up."""
    append.done.cancel()
    append.lane.refused.note(*append.lane.key, append.records, NotReady(f"{append.tp}: given up"))
