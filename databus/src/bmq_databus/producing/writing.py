"""What is written to channels, each by its acknowledgement. Owns the channels, the producers and the spools."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from bmq.ports import Clock, Rng
from bmq_databus.channels.channel import Channel, Manner
from bmq_databus.channels.steps import Moment, Refused, StepsOfChannels, Write
from bmq_databus.errors import BadMessage, DatabusError, QueueFull
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.outcomes import ACCEPTED, SAMPLED_OUT, Outcome, failed, refused_by, sent
from bmq_databus.producing.producer import Report
from bmq_databus.producing.senders import Senders
from bmq_databus.producing.settings import NEVER_MS, producer_settings
from bmq_databus.producing.spools import Spools
from bmq_databus.rules.rates import Ahead
from bmq_databus.spool.aside import DEFAULT_LIMITS, AsideLimits
from bmq_databus.spool.frames import Spooled

ROOM_S: Final = 0.01

Settle = Callable[[int, Outcome], None]
"""Called in the loop with what became of a message, by its place among those that were handed over together."""

_Due = tuple[int, Spooled]
"""A message's place among those that were handed over together, and what is written of it."""


class Writing:
    """Use `start`, and `close` at the end."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        *,
        spool_folder: Path | None,
        clock: Clock,
        rng: Rng,
        aside: AsideLimits = DEFAULT_LIMITS,
    ) -> None:
        self.channels = dict(channels)
        self._spool_folder = spool_folder
        self._clock = clock
        self._aside = aside
        self._loop = asyncio.get_running_loop()
        self._steps = StepsOfChannels(random=rng.random, now_s=self._loop.time)
        self._direct: Senders | None = None
        self._spools: Spools | None = None
        self._given_up = asyncio.Event()
        self.broken: asyncio.Future[str] = self._loop.create_future()
        """Why nothing more can be sent: the process is to begin anew."""

    async def start(self, settings: Mapping[str, Any], *, delivery_ms: int) -> None:
        """`settings` are librdkafka's. Raises KafkaException, OSError."""
        direct = producer_settings(settings, timeout_ms=delivery_ms)
        durable = [one.manner for one in self.channels.values() if one.acknowledgement == "durable"]
        self._direct = Senders(direct, durable or [Manner()], broken=self._is_broken)
        self._spools = Spools(
            self._spool_folder,
            producer_settings(settings, timeout_ms=NEVER_MS),
            clock=self._clock,
            aside=self._aside,
            broken=self._is_broken,
        )
        accepting = [one for one in self.channels.values() if one.acknowledgement == "accepted"]
        await self._spools.start({one.name: (one.spool, one.manner) for one in accepting})

    async def follow(self, wanted: Mapping[str, Channel]) -> dict[str, str]:
        """These are the channels from now on; what is under way is written as it was begun, and spools of others are
        sent on. Why those that cannot be so stay what they were, or are not there, by name.
        """
        assert self._spools is not None
        troubles: dict[str, str] = {}
        for name, channel in wanted.items():
            if channel.acknowledgement == "accepted" and channel != self.channels.get(name):
                try:
                    await self._spools.open(name, channel.spool, channel.manner)
                except (DatabusError, OSError, KafkaException) as error:
                    troubles[name] = str(error)
        kept = {name: self.channels[name] for name in troubles if name in self.channels}
        after = {name: channel for name, channel in wanted.items() if name not in troubles} | kept
        self.channels.clear()
        self.channels.update(after)
        return troubles

    async def close(self, *, patience_s: float) -> int:
        """Takes nothing more, and waits for what is under way; how many messages have no outcome then, but for those in
        spools.
        """
        left = 0
        if self._direct is not None:
            left = await self._direct.close(patience_s=patience_s)
        if self._spools is not None:
            await self._spools.close(patience_s=patience_s)
        return left

    async def write(
        self, channel: Channel, news: Sequence[NewMessage | BadMessage], *, patience_s: float
    ) -> list[Outcome]:
        """An outcome for each, in order."""
        request = _Request(len(news), self._loop)
        await self.hand_over(channel, news, request.settle, patience_s=patience_s)
        return await request.done

    async def hand_over(
        self,
        channel: Channel,
        news: Sequence[NewMessage | BadMessage],
        settle: Settle,
        *,
        patience_s: float,
        waits: bool = False,
    ) -> None:
        """In their order. `settle` is called once for each with its outcome, before or after this returns. `waits`:
        what the channel's rate has no room for is written later, not refused.
        """
        steps, at, ahead = self._steps.of(channel), self._now(), Ahead()
        due: list[_Due] = []
        for place, new in enumerate(news):
            if isinstance(new, BadMessage):
                settle(place, failed(new))
                continue
            if steps.is_plain:
                due.append((place, channel.message(new, now_ms=at.now_ms)))
                continue
            match steps.decide(new, at, ahead=ahead, waits=waits):
                case Write(message=message, after_s=after_s):
                    if after_s:
                        await self._give(channel, due, settle, patience_s=patience_s)
                        due = []
                        await self._pass(after_s)
                        at = self._now()
                    due.append((place, message))
                case Refused(error=error):
                    settle(place, failed(error))
                case _:
                    settle(place, SAMPLED_OUT)
        await self._give(channel, due, settle, patience_s=patience_s)

    def give_up(self) -> None:
        """What is under way has no time left: its writers are told so."""
        self._given_up.set()
        if self._direct is not None:
            self._direct.purge()

    def _is_broken(self, why: str) -> None:
        if not self.broken.done():
            self.broken.set_result(why)

    def _now(self) -> Moment:
        return Moment(now_s=self._loop.time(), now_ms=self._clock.now_ms())

    async def _pass(self, time_s: float) -> None:
        """So much time, or what is left of it before what is under way is given up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._given_up.wait(), time_s)

    async def _give(self, channel: Channel, due: list[_Due], settle: Settle, *, patience_s: float) -> None:
        if not due:
            return
        if channel.acknowledgement == "accepted":
            await self._accept(channel, due, settle, patience_s=patience_s)
        else:
            await self._produce(channel, due, settle, patience_s=patience_s)

    async def _accept(self, channel: Channel, due: list[_Due], settle: Settle, *, patience_s: float) -> None:
        assert self._spools is not None
        outcome = ACCEPTED
        try:
            await self._spools[channel.name].accept([message for _, message in due], patience_s=patience_s)
        except DatabusError as error:
            outcome = failed(error)
        for place, _ in due:
            settle(place, outcome)

    async def _produce(self, channel: Channel, due: list[_Due], settle: Settle, *, patience_s: float) -> None:
        deadline_s = self._loop.time() + patience_s
        for place, message in due:
            report = partial(_reported, settle=settle, at=place, message=message)
            try:
                await self._handed_over(channel.manner, message, report, deadline_s)
            except QueueFull as error:
                settle(place, failed(error))

    async def _handed_over(self, manner: Manner, message: Spooled, report: Report, deadline_s: float) -> None:
        assert self._direct is not None
        while True:
            if self._given_up.is_set():
                raise QueueFull("this sidecar is ending: try again")
            try:
                self._direct.of(manner).produce(message, report)
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
