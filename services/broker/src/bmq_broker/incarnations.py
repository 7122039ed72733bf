"""A broker for as long as its process lives: a new incarnation, under a new epoch, each time the last one was replaced.

In a process among others, whose node id nobody else has, being fenced means that it was silent for too long: it starts
again with nothing. Where another process has taken the node id, registering says so, and this one ends. In a process
that is the whole cluster a fence means that another one has taken over the store: it begins no more.
"""

import asyncio
from collections.abc import Callable

import structlog

from bmq.errors import BmqError, Fenced
from bmq.ports import Rng
from bmq.storage.durable import Backoff, cancelled
from bmq_broker.main import BrokerRole

log = structlog.get_logger()

RETRY_FIRST_S = 0.2
RETRY_LIMIT_S = 5.0
LIVED_LONG_S = 30.0
"""An incarnation that served for so long is followed by the next one at once."""


class Incarnations:
    """Owns the incarnation of the moment; `role` is it, or the last one while the next is being started; None until the
    first one serves.
    """

    def __init__(
        self,
        make: Callable[[Callable[[BmqError], None]], BrokerRole],
        *,
        rng: Rng,
        begins_again: bool = True,
        on_lost: Callable[[BmqError], None] = lambda _: None,
    ) -> None:
        """`make(on_fenced)` puts a BrokerRole together; it is not started. `on_lost` is called once, where this process
        may be no broker any more: unless it `begins_again`, at the first fence.
        """
        self._make = make
        self._rng = rng
        self._begins_again = begins_again
        self._on_lost = on_lost
        self._fence: asyncio.Future[BmqError] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self.role: BrokerRole | None = None

    async def start(self) -> None:
        """Starts the first incarnation, and from then on the next ones. Raises as BrokerRole.start."""
        await self._begin()
        if not self._begins_again:
            return
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="incarnations")
        self._task.add_done_callback(self._over)

    async def hand_over(self) -> None:
        """Hands everything over; `stop` is all that is left to do."""
        await self._end()
        if self.role is not None:
            await self.role.hand_over()

    async def stop(self) -> None:
        """The clean stop."""
        await self._end()
        if self.role is not None:
            await self.role.stop()

    async def kill(self) -> None:
        """Ends at once, as a crash would."""
        await self._end()
        if self.role is not None:
            await self.role.kill()

    async def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await cancelled([task])

    async def _begin(self) -> None:
        fence: asyncio.Future[BmqError] = asyncio.get_running_loop().create_future()

        def fenced(error: BmqError) -> None:
            if fence.done():
                return
            fence.set_result(error)
            if not self._begins_again:
                self._on_lost(error)

        role = self._make(fenced)
        self._fence = fence
        await role.start()
        self.role = role

    def _over(self, task: "asyncio.Task[None]") -> None:
        """A process whose broker ended, and is not followed by another, is of no use to anybody: it ends, so that it is
        started again.
        """
        if not task.cancelled() and (error := task.exception()) is not None:
            assert self.role is not None
            self._on_lost(BmqError(f"the broker of epoch {self.role.epoch} is not followed by another: {error!r}"))
            raise error  # a bug: the loop's handler says so

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._rng, first_s=RETRY_FIRST_S, limit_s=RETRY_LIMIT_S)
        while True:
            began_s = loop.time()
            error = await self._fence
            role = self.role
            assert role is not None
            log.warning(
                "this broker was replaced and starts again under a new epoch", epoch=role.epoch, error=str(error)
            )
            await role.kill()
            if loop.time() - began_s >= LIVED_LONG_S:
                backoff = Backoff(self._rng, first_s=RETRY_FIRST_S, limit_s=RETRY_LIMIT_S)
            else:
                await backoff.wait()
            if not await self._begin_again(backoff):
                return

    async def _begin_again(self, backoff: Backoff) -> bool:
        while True:
            try:
                await self._begin()
            except BmqError as error:
                # said at the registration, not of an incarnation
                if isinstance(error, Fenced) and not self._fence.done():
                    log.error("this process is no broker any more", error=str(error))
                    self._on_lost(error)
                    return False
                log.warning("the broker could not start again yet", error=str(error))
            else:
                return True
            await backoff.wait()
