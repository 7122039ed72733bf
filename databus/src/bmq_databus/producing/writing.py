"""What is written to channels, each by its acknowledgement. Owns the channels, the producers and the spools."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException

from bmq.fairness.turns import Turns
from bmq.ports import Clock, Rng
from bmq_databus.channels.channel import Channel, Manner, Target
from bmq_databus.channels.steps import Moment, Refused, StepsOfChannels, Write
from bmq_databus.errors import BadMessage, DatabusError, QueueFull
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.outcomes import ACCEPTED, SAMPLED_OUT, Outcome, dead_letter, failed, of_all, refused_by, sent
from bmq_databus.producing.producer import Report
from bmq_databus.producing.senders import Senders
from bmq_databus.producing.settings import NEVER_MS, producer_settings
from bmq_databus.producing.spools import Spools
from bmq_databus.rules.lanes import Headers
from bmq_databus.rules.rates import Ahead
from bmq_databus.spool.aside import DEFAULT_LIMITS, AsideLimits
from bmq_databus.spool.channel_spool import ChannelSpool
from bmq_databus.spool.frames import Spooled

ROOM_S: Final = 0.01
SLICE_MESSAGES: Final = 100
"""So many are handed over in one go, which takes about half a millisecond."""
RULED_MESSAGES: Final = 32
"""And so many of a channel with rules."""

Settle = Callable[[int, Outcome], None]
"""Called in the loop with what became of a message, by its place among those that were handed over together."""


class _Due(NamedTuple):
    """What is to be written. `place`: its message's among those that were handed over together. `dead`: why it is a
    dead letter.
    """

    place: int
    by: Channel
    message: Spooled
    dead: str = ""

    def told(self, outcome: Outcome) -> Outcome:
        """As its writer is."""
        return dead_letter(outcome, channel=self.by.name, why=self.dead) if self.dead else outcome


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
        self._steps = StepsOfChannels(self.channels, random=rng.random, now_s=self._loop.time)
        self._direct: Senders | None = None
        self._spools: Spools | None = None
        self._given_up = asyncio.Event()
        self.turns = Turns()
        """Those of what has many messages: one slice of one request, or spool, in each turn of the loop."""
        self.broken: asyncio.Future[str] = self._loop.create_future()
        """Why nothing more can be sent: the process is to begin anew."""

    async def start(self, settings: Mapping[str, Any], *, delivery_ms: int) -> None:
        """`settings` are librdkafka's. Raises KafkaException, OSError."""
        direct = producer_settings(settings, timeout_ms=delivery_ms)
        durable = [
            manner for one in self.channels.values() if one.acknowledgement == "durable" for manner in one.manners
        ]
        self._direct = Senders(direct, durable or [Manner()], broken=self._is_broken)
        self._spools = Spools(
            self._spool_folder,
            producer_settings(settings, timeout_ms=NEVER_MS),
            clock=self._clock,
            aside=self._aside,
            turns=self.turns,
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

    @property
    def spools(self) -> Mapping[str, ChannelSpool]:
        """Those of all channels that accept, or did."""
        return {} if self._spools is None else self._spools.all

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
        self,
        channel: Channel,
        news: Sequence[NewMessage | BadMessage],
        *,
        patience_s: float,
        request: Headers = (),
    ) -> list[Outcome]:
        """An outcome for each, in order."""
        done: asyncio.Future[Sequence[Outcome]] = self._loop.create_future()
        waiting = _Several(len(news), lambda outcomes: None if done.done() else done.set_result(outcomes))
        await self.hand_over(channel, news, waiting.settle, patience_s=patience_s, request=request)
        return list(await done) if news else []

    async def hand_over(
        self,
        channel: Channel,
        news: Sequence[NewMessage | BadMessage],
        settle: Settle,
        *,
        patience_s: float,
        request: Headers = (),
        waits: bool = False,
    ) -> None:
        """In their order. `settle` is called once for each with its outcome, before or after this returns. `request`:
        its headers. `waits`: what the channel's rate has no room for is written later, not refused.
        """
        steps, at, ahead = self._steps.of(channel), self._now(), Ahead()
        due: list[_Due] = []
        most = SLICE_MESSAGES if steps.is_plain else RULED_MESSAGES
        for place, new in enumerate(news):
            await self._slice(place, most)
            if isinstance(new, BadMessage):
                settle(place, failed(new))
                continue
            if steps.is_plain:
                due.append(_Due(place, channel, channel.message(new, now_ms=at.now_ms)))
                continue
            match steps.decide(new, at, ahead=ahead, request=request, waits=waits):
                case Write(channel=by, message=message, after_s=after_s, dead=dead):
                    if after_s:
                        await self._give(due, settle, patience_s=patience_s)
                        due = []
                        await self._pass(after_s)
                        at = self._now()
                    due.append(_Due(place, by, message, dead))
                case Refused(error=error):
                    settle(place, failed(error))
                case _:
                    settle(place, SAMPLED_OUT)
        await self._give(due, settle, patience_s=patience_s)

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

    async def _give(self, due: list[_Due], settle: Settle, *, patience_s: float) -> None:
        """By the channels that write them; those of each in their order."""
        theirs: dict[int, list[_Due]] = {}
        for one in due:
            theirs.setdefault(id(one.by), []).append(one)
        for some in theirs.values():
            give = self._accept if some[0].by.acknowledgement == "accepted" else self._produce
            await give(some[0].by, some, settle, patience_s=patience_s)

    async def _accept(self, by: Channel, due: list[_Due], settle: Settle, *, patience_s: float) -> None:
        assert self._spools is not None
        outcome = ACCEPTED
        try:
            await self._spools[by.name].accept([one.message for one in due], patience_s=patience_s)
        except DatabusError as error:
            outcome = failed(error)
        for at, one in enumerate(due):
            await self._slice(at)
            settle(one.place, one.told(outcome))

    async def _produce(self, by: Channel, due: list[_Due], settle: Settle, *, patience_s: float) -> None:
        deadline_s = self._loop.time() + patience_s
        for at, one in enumerate(due):
            await self._slice(at)
            if by.others:
                await self._produce_to_all(by, one, settle, deadline_s)
                continue
            try:
                await self._handed_over(by.manner, one.message, partial(_reported, settle, one), deadline_s)
            except QueueFull as error:
                settle(one.place, one.told(failed(error)))

    async def _produce_to_all(self, by: Channel, one: _Due, settle: Settle, deadline_s: float) -> None:
        """The targets of one message, each by itself."""
        targets = [Target(topic=by.topic, manner=by.manner), *by.others]
        names = [f"{target.topic}@{target.manner.bootstrap_servers}".rstrip("@") for target in targets]

        def all_settled(outcomes: Sequence[Outcome]) -> None:
            settle(one.place, one.told(of_all(list(zip(names, outcomes, strict=True)))))

        waiting = _Several(len(targets), all_settled)
        for place, target in enumerate(targets):
            each = one._replace(place=place, message=msgspec.structs.replace(one.message, topic=target.topic), dead="")
            try:
                await self._handed_over(
                    target.manner, each.message, partial(_reported, waiting.settle, each), deadline_s
                )
            except QueueFull as error:
                waiting.settle(place, failed(error))

    async def _slice(self, at: int, most: int = SLICE_MESSAGES) -> None:
        """Lets others go on between two of the slices that many messages are."""
        if at and at % most == 0:
            await self.turns.turn()

    async def _handed_over(self, manner: Manner, message: Spooled, report: Report, deadline_s: float) -> None:
        assert self._direct is not None
        while True:
            if self._given_up.is_set():
                raise QueueFull("this sidecar is ending: try again")
            try:
                self._direct.produce(manner, message, report)
            except QueueFull:
                if self._loop.time() >= deadline_s:
                    raise
                await asyncio.sleep(ROOM_S)
            else:
                return


def _reported(settle: Settle, one: _Due, error: KafkaError | None, partition: int, offset: int) -> None:
    """By librdkafka."""
    settle(one.place, one.told(sent(partition, offset) if error is None else refused_by(error, one.message)))


class _Several:
    """Outcomes as they come."""

    def __init__(self, count: int, done: Callable[[Sequence[Outcome]], None]) -> None:
        """`done` is called with them when there are so many."""
        self._outcomes: list[Outcome] = [{}] * count
        self._missing = count
        self._done = done

    def settle(self, at: int, outcome: Outcome) -> None:
        """One of them."""
        self._outcomes[at] = outcome
        self._missing -= 1
        if not self._missing:
            self._done(self._outcomes)
