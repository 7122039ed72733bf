"""The broker's signs of life, and what they carry: closed partitions, covered ranges, loads.

Safety never rests on them. A broker that cannot reach the controller goes on: whoever replaces it seals its stream
first, and that it meets.
"""

import asyncio
from collections.abc import Callable

import structlog

from bmq.errors import BmqError, Fenced
from bmq.naming.listeners import ListenerAddresses
from bmq.ports import Rng
from bmq.roles.controller import BrokerControl, ClosedPartition, Heartbeat, HeartbeatReply, PartitionLoad, Registration
from bmq.storage.durable import Backoff
from bmq.values import BrokerEpoch, ManifestVersion, TopicPartition
from bmq_broker.ownership.reports import Covered

log = structlog.get_logger()

BEATS_PER_LEASE = 3
RETRY_FIRST_S = 0.1
"""What a closed partition waits for a controller that has just changed; doubled at each failure, up to the usual
interval."""
SHORTLY_S = 0.1
"""So long what was covered waits for more: after a start, many partitions are rolled at once."""
REPORTS_MAX = 2_000
"""Partitions that one heartbeat reports, which the controller decides about in a turn of its loop; the others come with
the next, at once."""
TROUBLE_S = 5.0
"""What a store does not take for so long is told."""
TROUBLE_LENGTH_MAX = 500


class Heartbeats:
    """Tells the controller that one broker incarnation lives, and what it has to report."""

    def __init__(
        self,
        *,
        control: BrokerControl,
        registration: Registration,
        broker_epoch: BrokerEpoch,
        lease_ms: int,
        rng: Rng,
        closed: Callable[[], tuple[ClosedPartition, ...]],
        covered: Callable[[], Covered],
        manifests: Callable[[], tuple[tuple[TopicPartition, ManifestVersion], ...]] = lambda: (),
        loads: Callable[[], tuple[PartitionLoad, ...]],
        hands_over: Callable[[], bool] = lambda: False,
        clock_differs: Callable[[], bool],
        failing: Callable[[], tuple[float, BmqError] | None],
        fenced: Callable[[BmqError], None],
        position: Callable[[], int],
        listeners: Callable[[], ListenerAddresses | None] = lambda: None,
    ) -> None:
        """`lease_ms` holds until the controller's first reply. `fenced` is called once, where this incarnation is not
        the registered one any more.

        `failing`: for how many seconds, and why, nothing could be written to the store. `position`: of the image that
        the reports are made from.
        """
        self._control = control
        self._registration = registration
        self._broker_epoch = broker_epoch
        self._rng = rng
        self._closed = closed
        self._covered = covered
        self._manifests = manifests
        self._loads = loads
        self._hands_over = hands_over
        self._clock_differs = clock_differs
        self._failing = failing
        self._fenced = fenced
        self._position = position
        self._listeners = listeners
        self._interval_s = lease_ms / 1000 / BEATS_PER_LEASE
        self._backoff = self._new_backoff()
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_heard = True
        self._told_all = True
        """Whether the last one had room for all that is closed."""
        self._told_at = 0
        """The position of the image that it was made from."""
        self._goes_on_at: int | None = None
        """The position whose image shows what it told; what it had no room for is told then."""

    def soon(self) -> None:
        """There is something to say that should not wait for its turn."""
        self._due.set()

    def shortly(self) -> None:
        """There is something to say that need not wait for its turn: a controller that has not heard of it makes every
        start read more.
        """
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SHORTLY_S, self._now)

    def image_changed(self) -> None:
        """Closed partitions take no batches until they are told: those that found no room do not wait for their turn,
        but for the image that shows what was told before, lest that is told again.
        """
        if self._goes_on_at is not None and self._position() >= self._goes_on_at:
            self._goes_on_at = None
            self._due.set()

    def _now(self) -> None:
        self._timer = None
        self._due.set()

    async def run(self) -> None:
        """Until cancelled, or fenced."""
        while True:
            self._due.clear()
            try:
                async with asyncio.timeout(self._interval_s):
                    reply = await self._control.heartbeat(self._beat())
            except Fenced as error:
                self._fenced(error)
                return
            except (BmqError, OSError, TimeoutError) as error:
                wait_s = self._not_heard(error)
            else:
                wait_s = self._heard(reply)
            try:
                async with asyncio.timeout(wait_s):
                    await self._due.wait()
            except TimeoutError:
                pass

    def _beat(self) -> Heartbeat:
        closed = self._closed()
        self._told_all, self._goes_on_at = len(closed) < REPORTS_MAX, None
        self._told_at = self._position()
        return Heartbeat(
            node_id=self._registration.node_id,
            broker_epoch=self._broker_epoch,
            boot=self._registration.boot,
            closed=closed,
            covered=self._covered(),
            manifests=self._manifests(),
            loads=self._loads(),
            draining=self._hands_over(),
            clock_differs=self._clock_differs(),
            trouble=_trouble(self._failing()),
            listeners=self._listeners(),
        )

    def _heard(self, reply: HeartbeatReply) -> float:
        """How long to wait for the next one: at most a third of the lease, and not in step with other brokers."""
        if not self._is_heard:
            log.info("the controller hears this broker again", node=self._registration.node_id)
        self._is_heard = True
        self._interval_s = reply.lease_ms / 1000 / BEATS_PER_LEASE
        self._backoff = self._new_backoff()
        if not self._told_all and reply.position > self._told_at:  # else nothing came of it, and would again
            self._goes_on_at = reply.position
            self.image_changed()
        return self._interval_s * (0.75 + 0.25 * self._rng.random())

    def _not_heard(self, error: BaseException) -> float:
        if self._is_heard:
            log.warning(
                "the controller cannot be reached: this broker goes on with its partitions",
                node=self._registration.node_id,
                error=repr(error),
            )
        self._is_heard = False
        self._due.clear()  # what is to be said is said at the next try, which comes soon anyway
        return self._backoff.next_s()

    def _new_backoff(self) -> Backoff:
        return Backoff(self._rng, first_s=RETRY_FIRST_S, limit_s=self._interval_s)


def _trouble(failing: tuple[float, BmqError] | None) -> str:
    if failing is None or failing[0] < TROUBLE_S:
        return ""
    failing_s, error = failing
    return f"cannot write to the store for {failing_s:.0f} s: {error}"[:TROUBLE_LENGTH_MAX]
