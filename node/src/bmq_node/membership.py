"""A node without a broker in the cluster: registered, heard of, and gone when it stops. A broker does the same for
itself, and more.

What such a node does needs no epoch: one that lost its registration (it was silent for too long) registers again and
goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from bmq.errors import BmqError, ControllerUnavailable, Fenced, NotReady
from bmq.naming.listeners import ListenerAddresses
from bmq.ports import Rng
from bmq.roles.controller import BrokerControl, Heartbeat, Registration
from bmq.storage.durable import Backoff
from bmq.values import BrokerEpoch

T = TypeVar("T")

BEATS_PER_LEASE: Final = 3
GOODBYE_S: Final = 3.0
"""How long a stop waits for the controller; without it the lease runs out."""

_log = structlog.get_logger("bmq.membership")


class Membership:
    """One node's, from `run` to `leave`."""

    def __init__(
        self,
        control: BrokerControl,
        registration: Registration,
        *,
        rng: Rng,
        listeners: Callable[[], ListenerAddresses | None] = lambda: None,
    ) -> None:
        """`listeners`: those of its proxy, which may change; None: they are as they were registered."""
        self._control = control
        self._listeners = listeners
        self._registration = registration
        self._rng = rng
        self._epoch = BrokerEpoch(-1)
        self.joined = asyncio.Event()
        """Set once this node is registered."""

    async def join(self) -> None:
        """Registers, however long there is no controller. Raises Fenced where another process has taken this node's id,
        InvalidRequest.
        """
        self._epoch = await until_led(lambda: self._control.register(self._registered()), rng=self._rng)
        self.joined.set()

    async def run(self) -> None:
        """Joins, and renews the lease until cancelled. Raises as `join`."""
        await self.join()
        backoff = Backoff(self._rng)
        while True:
            beat = Heartbeat(
                node_id=self._registration.node_id,
                broker_epoch=self._epoch,
                boot=self._registration.boot,
                listeners=self._listeners(),
            )
            try:
                reply = await self._control.heartbeat(beat)
            except Fenced as error:
                _log.warning(
                    "this node was taken for dead and registers again",
                    node_id=self._registration.node_id,
                    reason=str(error),
                )
                await self.join()
            except (ControllerUnavailable, NotReady):
                await backoff.wait()
            else:
                backoff = Backoff(self._rng)
                await asyncio.sleep(reply.lease_ms / 1000 / BEATS_PER_LEASE * (0.75 + 0.25 * self._rng.random()))

    def _registered(self) -> Registration:
        listeners = self._listeners()
        return self._registration if listeners is None else replace(self._registration, listeners=listeners)

    async def leave(self) -> None:
        """Says that this node is gone, where somebody hears it."""
        if self._epoch < 0:
            return
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._control.report_stopped(self._registration.node_id, self._epoch, 0)
        except (BmqError, TimeoutError) as error:
            _log.info(
                "nobody heard that this node stops: its lease runs out",
                node_id=self._registration.node_id,
                error=repr(error),
            )


async def until_led(call: Callable[[], Awaitable[T]], *, rng: Rng) -> T:
    """What `call` gives, however long there is no controller that answers it. Raises what else it raises."""
    backoff, waits = Backoff(rng), False
    while True:
        try:
            return await call()
        except (ControllerUnavailable, NotReady) as error:
            if not waits:
                _log.info("this node waits for a controller", reason=str(error))
            waits = True
        await backoff.wait()
