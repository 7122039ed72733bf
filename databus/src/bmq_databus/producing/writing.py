"""What is written to channels, each by its acknowledgement. Owns the producers and the spools."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError

from bmq.fairness.turns import Turns
from bmq.ports import Clock
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage, DatabusError, QueueFull
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.draining import Draining
from bmq_databus.producing.outcomes import ACCEPTED, Outcome, failed, refused_by, sent
from bmq_databus.producing.producer import Report
from bmq_databus.producing.sender import Sender
from bmq_databus.producing.settings import NEVER_MS, QUEUE_KIB, producer_settings
from bmq_databus.spool.aside import DEFAULT_LIMITS, AsideLimits
from bmq_databus.spool.channel_spool import ChannelSpool, SpoolLimits
from bmq_databus.spool.folder import left_in
from bmq_databus.spool.frames import Spooled

ROOM_S: Final = 0.01
SLICE_MESSAGES: Final = 100
"""So many are handed over in one go, which takes about half a millisecond."""

Settle = Callable[[int, Outcome], None]
"""Called in the loop with what became of a message, by its place among those that were handed over together."""

log = structlog.get_logger()


class Writing:
    """Use `start`, and `close` at the end."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        *,
        spool_folder: Path | None,
        clock: Clock,
        aside: AsideLimits = DEFAULT_LIMITS,
    ) -> None:
        self.channels = dict(channels)
        self.spools: dict[str, ChannelSpool] = {}
        self._spool_folder = spool_folder
        self._clock = clock
        self._aside = aside
        self._loop = asyncio.get_running_loop()
        self._direct: Sender | None = None
        self._spooled: Sender | None = None
        self._draining: dict[str, asyncio.Task[None]] = {}
        self._has_given_up = False
        self.turns = Turns()
        """Those of what has many messages: one slice of one request, or spool, in each turn of the loop."""
        self.broken: asyncio.Future[str] = self._loop.create_future()
        """Why nothing more can be sent: the process is to begin anew."""

    async def start(self, settings: Mapping[str, Any], *, delivery_ms: int) -> None:
        """`settings` are librdkafka's. Raises KafkaException, OSError."""
        direct = producer_settings(settings, timeout_ms=delivery_ms)
        self._direct = Sender(direct, broken=self._is_broken)
        accepting = {one.name: one.spool for one in self.channels.values() if one.acknowledgement == "accepted"}
        if self._spool_folder is None:
            if not accepting:
                return
            raise DatabusError(
                f"channel {min(accepting)} acknowledges what is accepted, and there is no folder for that: start with "
                "--spool DIR"
            )
        for name in await self._loop.run_in_executor(None, left_in, self._spool_folder):
            if name not in accepting:
                log.warning("spool of a channel that accepts nothing any more is sent", channel=name)
                accepting[name] = SpoolLimits()
        if not accepting:
            return
        spooled = producer_settings(settings, timeout_ms=NEVER_MS)
        self._spooled = Sender(spooled, broken=self._is_broken)
        for name, limits in accepting.items():
            spool = await ChannelSpool.opened(
                self._spool_folder / name, limits=limits, clock=self._clock, aside=self._aside
            )
            self.spools[name] = spool
            its_part_bytes = QUEUE_KIB * 1024 // (2 * len(accepting))
            draining = Draining(spool, self._spooled, under_way_bytes_max=its_part_bytes, turns=self.turns)
            task = self._loop.create_task(draining.run(), name=f"drain {name}")
            task.add_done_callback(self._drained)
            self._draining[name] = task

    async def close(self, *, patience_s: float) -> int:
        """Takes nothing more, and waits for what is under way; how many messages have no outcome then, but for those in
        spools.
        """
        for task in self._draining.values():
            task.cancel()
        await asyncio.gather(*self._draining.values(), return_exceptions=True)
        left = 0
        for producing in (self._direct, self._spooled):
            if producing is not None:
                unsent = await producing.close(patience_s=patience_s)
                left += unsent if producing is self._direct else 0
        for spool in self.spools.values():
            await spool.close()
        return left

    async def write(
        self, channel: Channel, news: Sequence[NewMessage | BadMessage], *, patience_s: float
    ) -> list[Outcome]:
        """An outcome for each, in order."""
        request = _Request(len(news), self._loop)
        await self.hand_over(channel, news, request.settle, patience_s=patience_s)
        return await request.done

    async def hand_over(
        self, channel: Channel, news: Sequence[NewMessage | BadMessage], settle: Settle, *, patience_s: float
    ) -> None:
        """In their order. `settle` is called once for each with its outcome, before or after this returns."""
        if channel.acknowledgement == "accepted":
            await self._accept(channel, news, settle, patience_s=patience_s)
        else:
            await self._produce(channel, news, settle, patience_s=patience_s)

    def _drained(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "draining failed", "exception": bug, "task": task})
            self._is_broken(repr(bug))

    def give_up(self) -> None:
        """What is under way has no time left: its writers are told so."""
        self._has_given_up = True
        if self._direct is not None:
            self._direct.purge()

    def _is_broken(self, why: str) -> None:
        if not self.broken.done():
            self.broken.set_result(why)

    async def _accept(
        self, channel: Channel, news: Sequence[NewMessage | BadMessage], settle: Settle, *, patience_s: float
    ) -> None:
        now_ms = self._clock.now_ms()
        good: list[Spooled] = []
        for at, one in enumerate(news):
            await self._slice(at)
            if isinstance(one, NewMessage):
                good.append(channel.message(one, now_ms=now_ms))
        of_good = ACCEPTED
        if good:
            try:
                await self.spools[channel.name].accept(good, patience_s=patience_s)
            except DatabusError as error:
                of_good = failed(error)
        for at, one in enumerate(news):
            await self._slice(at)
            settle(at, of_good if isinstance(one, NewMessage) else failed(one))

    async def _produce(
        self, channel: Channel, news: Sequence[NewMessage | BadMessage], settle: Settle, *, patience_s: float
    ) -> None:
        now_ms = self._clock.now_ms()
        deadline_s = self._loop.time() + patience_s
        for at, one in enumerate(news):
            await self._slice(at)
            if isinstance(one, BadMessage):
                settle(at, failed(one))
                continue
            message = channel.message(one, now_ms=now_ms)
            try:
                await self._handed_over(message, partial(_reported, settle=settle, at=at, message=message), deadline_s)
            except QueueFull as error:
                settle(at, failed(error))

    async def _slice(self, at: int) -> None:
        """Lets others go on between two of the slices that many messages are."""
        if at and at % SLICE_MESSAGES == 0:
            await self.turns.turn()

    async def _handed_over(self, message: Spooled, report: Report, deadline_s: float) -> None:
        assert self._direct is not None
        while True:
            if self._has_given_up:
                raise QueueFull("this sidecar is ending: try again")
            try:
                self._direct.produce(message, report)
            except QueueFull:
                if self._loop.time() >= deadline_s:
                    raise
                await asyncio.sleep(ROOM_S)
            else:
                return


def _reported(
    error: KafkaError | None, partition: int, offset: int, *, settle: Settle, at: int, message: Spooled
) -> None:
    """By librdkafka."""
    settle(at, sent(partition, offset) if error is None else refused_by(error, message))


class _Request:
    """The outcomes of one request's messages, as they come."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[list[Outcome]] = loop.create_future()
        self._outcomes: list[Outcome] = [{}] * count
        self._missing = count
        if not count:
            self.done.set_result([])

    def settle(self, at: int, outcome: Outcome) -> None:
        """One of them."""
        self._outcomes[at] = outcome
        self._missing -= 1
        if not self._missing and not self.done.done():
            self.done.set_result(self._outcomes)
