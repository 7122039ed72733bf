"""What is written to channels, each by its acknowledgement. Owns the channels, the producers and the spools."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException

from bmq.fairness.turns import Turns
from bmq.ports import Clock, Rng
from bmq_databus import metrics
from bmq_databus.channels.channel import Channel, Manner
from bmq_databus.channels.order import in_order
from bmq_databus.channels.steps import Moment, Refused, Steps, StepsOfChannels, Write
from bmq_databus.channels.topics import MANNER, TopicRule
from bmq_databus.errors import BadMessage, ClusterAway, DatabusError, QueueFull
from bmq_databus.messages.forms import NewMessage
from bmq_databus.messages.trace_context import Context, context_of, with_context
from bmq_databus.producing.any_topic import AnyTopic
from bmq_databus.producing.asking import Asking
from bmq_databus.producing.open_files import files_max, spools_within
from bmq_databus.producing.outcomes import ACCEPTED, SAMPLED_OUT, Outcome, dead_letter, failed, of_all, refused_by, sent
from bmq_databus.producing.producer import Reports
from bmq_databus.producing.senders import Senders
from bmq_databus.producing.settings import NEVER_MS, producer_settings
from bmq_databus.producing.spools import Spools
from bmq_databus.rules.lanes import Headers, Lanes
from bmq_databus.rules.rates import Ahead
from bmq_databus.spool.aside import DEFAULT_LIMITS, AsideLimits
from bmq_databus.spool.channel_spool import ChannelSpool
from bmq_databus.spool.frames import Once, Spooled

ROOM_S: Final = 0.01
SLICE_MESSAGES: Final = 100
"""So many are handed over in one go, which takes about half a millisecond."""
RULED_MESSAGES: Final = 32
"""And so many of a channel with rules…"""
RULED_BYTES: Final = 256 << 10
"""…that have no more than this, or one: a value of a MiB takes a schema some 30 ms."""

AWAY_WITHIN_S: Final = 5.0
"""A cluster that is away for longer takes nothing, and writers are told at once; before, messages wait for it."""
AWAY_LOOK_S: Final = 0.1
AWAY_REMEDY: Final = (
    "see that it runs and that this machine reaches it, then send it again; a channel of acknowledgement: accepted "
    "takes messages meanwhile"
)
ANY_TOPIC: Final = "*"
"""Stands for all topics that no channel is declared for, where channels are told by name."""
ENDING: Final = "this sidecar is ending: try again"

Settle = Callable[[int, Outcome], None]
"""Called in the loop with what became of a message, by its place among those that were handed over together."""


class _Due(msgspec.Struct):
    """What is to be written by one channel, in its order."""

    by: Channel
    places: list[int] = []
    """Those of the messages among all that were handed over together."""
    messages: list[Spooled] = []
    dead: dict[int, str] = {}
    """Why messages are dead letters, by their places."""

    def add(self, place: int, message: Spooled, *, dead: str) -> None:
        """One more."""
        self.places.append(place)
        self.messages.append(message)
        if dead:
            self.dead[place] = dead

    def told(self, place: int, outcome: Outcome) -> Outcome:
        """As its writer is."""
        why = self.dead.get(place) if self.dead else None
        return outcome if why is None else dead_letter(outcome, channel=self.by.name, why=why)


_Answer = Callable[[_Due], Awaitable[Once]]
"""A request's, where these are accepted."""


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
        topics: TopicRule | None = None,
    ) -> None:
        """`topics`: how those that no channel is declared for are written by their names; None: they are not."""
        self.channels = dict(channels)
        self.any_topic: AnyTopic | None = None
        """There once it has started."""
        self._topics = topics
        self._spool_folder = spool_folder
        self._clock = clock
        self._aside = aside
        self._loop = asyncio.get_running_loop()
        self._steps = StepsOfChannels(self.channels, random=rng.random, now_s=self._loop.time)
        self._asking: Asking | None = None
        self._direct: Senders | None = None
        self._spools: Spools | None = None
        self._given_up = asyncio.Event()
        self._telling: set[asyncio.Task[None]] = set()
        self.turns = Turns()
        """Those of what has many messages: one slice of one request, or spool, in each turn of the loop."""
        self.broken: asyncio.Future[str] = self._loop.create_future()
        """Why nothing more can be sent: the process is to begin anew."""

    async def start(self, settings: Mapping[str, Any], *, delivery_ms: int) -> None:
        """`settings` are librdkafka's. Raises KafkaException, OSError."""
        self._asking = Asking(settings)
        direct = producer_settings(settings, timeout_ms=delivery_ms)
        durable = [
            manner for one in self.channels.values() if one.acknowledgement == "durable" for manner in one.manners
        ]
        if self._topics is not None:
            durable.append(MANNER)
        self._direct = Senders(direct, durable or [Manner()], broken=self._is_broken)
        if self._topics is not None:
            self.any_topic = AnyTopic(
                self._topics,
                self._asking.look,
                renew=self._direct.renew,
                forgotten=self._forgotten,
            )
        self._spools = Spools(
            self._spool_folder,
            producer_settings(settings, timeout_ms=NEVER_MS),
            clock=self._clock,
            aside=self._aside,
            turns=self.turns,
            broken=self._is_broken,
            spools_max=spools_within(files_max()),
        )
        accepting = [one for one in self.channels.values() if one.acknowledgement == "accepted"]
        await self._spools.start(accepting)

    async def follow(self, wanted: Mapping[str, Channel]) -> dict[str, str]:
        """These are the channels from now on, each as soon as it has its spool; what is under way is written as it was
        begun, and what waits in spools of others is sent. Why those that cannot be so stay what they were, or are not
        there, by name.
        """
        assert self._spools is not None
        troubles: dict[str, str] = {}
        for name in in_order(wanted):
            channel = wanted[name]
            if channel.acknowledgement == "accepted" and channel != self.channels.get(name):
                try:
                    await self._spools.open(channel)
                except (DatabusError, OSError, KafkaException) as error:
                    troubles[name] = str(error)
                    continue
            self.channels[name] = channel
        gone = self.channels.keys() - wanted.keys()
        after = {name: self.channels[name] for name in wanted if name in self.channels}
        self.channels.clear()
        self.channels.update(after)
        for name in gone:
            self._forgotten(name)
        self._spools.keep(one for one in self.channels.values() if one.acknowledgement == "accepted")
        return troubles

    def are_keys_read(self, channel: Channel) -> bool:
        """Whether `read_keys` would tell nothing."""
        return self._spools is None or self._spools.are_keys_read(channel)

    async def read_keys(self, channel: Channel, told: Callable[[list[Once]], None]) -> None:
        """Those of requests that an earlier process answered, some at a time; once."""
        if self._spools is not None:
            await self._spools.read_keys(channel, told)

    @property
    def spools(self) -> Mapping[str, ChannelSpool]:
        """Those of all channels that accept, or did and have messages yet."""
        return {} if self._spools is None else self._spools.all

    def troubles(self) -> dict[str, str]:
        """Why channels that are not turned off take nothing for now, by name; those that do are not there."""
        assert self._direct is not None
        found: dict[str, str] = {}
        for name, channel in self.channels.items():
            why = ""
            if channel.acknowledgement == "accepted":
                assert self._spools is not None
                why = next(filter(None, (spool.trouble_now for spool in self._spools.of(channel))), "")
            else:
                away = [one for one in map(self._direct.away, channel.manners) if one is not None]
                why = away[0].said if away else ""
            if why and channel.enabled:
                found[name] = why
        if self.any_topic is not None and (gone := self._direct.away(MANNER)) is not None:
            found[ANY_TOPIC] = gone.said
        return found

    async def cluster_id(self) -> str:
        """The sidecar's cluster, as Kafka clients know it. Raises NothingKnown."""
        assert self._asking is not None
        return await self._asking.cluster_id()

    def channel(self, name: str) -> Channel | None:
        """The channel of that name, as it is now."""
        declared = self.channels.get(name)
        return declared if declared is not None or self.any_topic is None else self.any_topic.get(name)

    async def close(self, *, patience_s: float) -> int:
        """Takes nothing more, and waits for what is under way; how many messages have no outcome then, but for those in
        spools.
        """
        left = 0
        if self.any_topic is not None:
            await self.any_topic.close()
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
        once: Callable[[list[Outcome]], Once] | None = None,
    ) -> list[Outcome]:
        """An outcome for each, in order. Where the channel accepts, `once` is asked for the request's key and answer by
        the outcomes that they will have, which is on disk with what is accepted.
        """
        done: asyncio.Future[Sequence[Outcome]] = self._loop.create_future()
        waiting = _Several(len(news), lambda outcomes: None if done.done() else done.set_result(outcomes))

        async def answer(due: _Due) -> Once:
            assert once is not None
            return once(await waiting.with_last({place: due.told(place, ACCEPTED) for place in due.places}))

        await self._hand_over(
            channel,
            news,
            waiting.settle,
            patience_s=patience_s,
            request=request,
            answer=None if once is None or channel.acknowledgement != "accepted" else answer,
        )
        return list(await done) if news else []

    def now_ms(self) -> int:
        """Since 1970."""
        return self._clock.now_ms()

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
        await self._hand_over(channel, news, settle, patience_s=patience_s, request=request, waits=waits)

    async def _hand_over(
        self,
        channel: Channel,
        news: Sequence[NewMessage | BadMessage],
        settle: Settle,
        *,
        patience_s: float,
        request: Headers,
        waits: bool = False,
        answer: "_Answer | None" = None,
    ) -> None:
        steps = self._steps.of(channel)
        context = context_of(request, messages=1 if len(news) == 1 and not waits else 2)
        if steps.is_plain:
            due = {id(channel): await self._plain(channel, news, settle, context=context)}
        else:
            due = await self._ruled(
                steps, news, settle, context=context, patience_s=patience_s, request=request, waits=waits
            )
        own = None if answer is None else due.pop(id(channel), None)
        await self._give(due.values(), settle, patience_s=patience_s)
        if own is not None and own.messages and answer is not None:
            await self._accept(own, settle, patience_s=patience_s, once=await answer(own))

    async def _plain(
        self, channel: Channel, news: Sequence[NewMessage | BadMessage], settle: Settle, *, context: Context
    ) -> _Due:
        """Messages of a channel without rules."""
        due, now_ms = _Due(channel), self.now_ms()
        for first in range(0, len(news), SLICE_MESSAGES):
            if first:
                await self.turns.turn()
            taken: list[NewMessage] = []
            for place, new in enumerate(news[first : first + SLICE_MESSAGES], first):
                if isinstance(new, BadMessage):
                    settle(place, failed(new))
                else:
                    due.places.append(place)
                    taken.append(new)
            if context:
                taken = [with_context(new, context) for new in taken]
            due.messages += channel.messages(taken, now_ms=now_ms)
        return due

    async def _ruled(
        self,
        steps: Steps,
        news: Sequence[NewMessage | BadMessage],
        settle: Settle,
        *,
        context: Context,
        patience_s: float,
        request: Headers,
        waits: bool,
    ) -> dict[int, _Due]:
        """Messages as the rules of their channel have them, by the ids of the channels that write them."""
        at, ahead, lanes = self._now(), Ahead(), Lanes(request)
        due: dict[int, _Due] = {}
        messages = size_bytes = 0
        for place, new in enumerate(news):
            value_bytes = 0 if isinstance(new, BadMessage) else len(new.value or b"")
            messages, size_bytes = messages + 1, size_bytes + value_bytes
            if messages > 1 and (messages > RULED_MESSAGES or size_bytes > RULED_BYTES):
                await self.turns.turn()
                messages, size_bytes = 1, value_bytes
            if isinstance(new, BadMessage):
                settle(place, failed(new))
                continue
            if context:
                new = with_context(new, context)
            match steps.decide(new, at, ahead=ahead, lanes=lanes, waits=waits):
                case Write(channel=by, message=message, after_s=after_s, dead=dead):
                    if after_s:
                        await self._give(due.values(), settle, patience_s=patience_s)
                        due.clear()
                        await self._pass(after_s)
                        at = self._now()
                    if id(by) not in due:
                        due[id(by)] = _Due(by)
                    due[id(by)].add(place, message, dead=dead)
                case Refused(error=error):
                    settle(place, failed(error))
                case _:
                    settle(place, SAMPLED_OUT)
        return due

    def give_up(self) -> None:
        """What is under way has no time left: its writers are told so."""
        self._given_up.set()
        if self._direct is not None:
            self._direct.purge()

    def _forgotten(self, topic: str) -> None:
        if topic not in self.channels:
            self._steps.forget(topic)
            metrics.forget_channel(topic)

    def _is_broken(self, why: str) -> None:
        if not self.broken.done():
            self.broken.set_result(why)

    def _now(self) -> Moment:
        return Moment(now_s=self._loop.time(), now_ms=self._clock.now_ms())

    async def _pass(self, time_s: float) -> None:
        """So much time, or what is left of it before what is under way is given up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._given_up.wait(), time_s)

    async def _give(self, due: Iterable[_Due], settle: Settle, *, patience_s: float) -> None:
        """By the channels that write them; those of each in their order."""
        for some in due:
            give = self._accept if some.by.acknowledgement == "accepted" else self._produce
            if some.messages:
                await give(some, settle, patience_s=patience_s)

    async def _accept(self, due: _Due, settle: Settle, *, patience_s: float, once: Once | None = None) -> None:
        """Returns once they have their place in the spool; their outcome follows when they are on disk."""
        assert self._spools is not None
        try:
            durable = await self._spools.enter(due.by, due.messages, patience_s=patience_s, once=once)
        except DatabusError as error:
            _settle_all(due, due.places, settle, failed(error))
            return
        durable.add_done_callback(partial(self._is_durable, due, settle))

    def _is_durable(self, due: _Due, settle: Settle, durable: "asyncio.Future[None]") -> None:
        error = durable.exception()
        assert error is None or isinstance(error, DatabusError), error
        outcome = ACCEPTED if error is None else failed(error)
        if len(due.places) <= SLICE_MESSAGES:
            _settle_all(due, due.places, settle, outcome)
            return
        telling = self._loop.create_task(self._tell(due, settle, outcome), name="tell what is accepted")
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell(self, due: _Due, settle: Settle, outcome: Outcome) -> None:
        for at in range(0, len(due.places), SLICE_MESSAGES):
            if at:
                await self.turns.turn()
            _settle_all(due, due.places[at : at + SLICE_MESSAGES], settle, outcome)

    async def _produce(self, due: _Due, settle: Settle, *, patience_s: float) -> None:
        deadline_s = self._loop.time() + patience_s
        count = len(due.messages)
        reports = _reports(due, settle)
        for first in range(0, count, SLICE_MESSAGES):
            if first:
                await self.turns.turn()
            at, end = first, min(first + SLICE_MESSAGES, count)
            while at < end:
                if due.by.others:
                    await self._produce_to_all(due, at, settle, deadline_s)
                elif (taken := self._taken(due, reports, at, end)) > at:
                    at = taken
                    continue
                else:
                    await self._produce_later(due, reports, at, settle, deadline_s)
                at += 1

    def _taken(self, due: _Due, reports: Reports, at: int, end: int) -> int:
        """Hands over those from `at` to before `end`, as many as may be now: the place of the first that may not."""
        assert self._direct is not None
        if self._given_up.is_set() or self._direct.away(due.by.manner) is not None:
            return at
        try:
            return self._direct.produce(due.by.manner, due.messages, reports, first=at, end=end)
        except QueueFull:
            return at

    async def _produce_later(self, due: _Due, reports: Reports, at: int, settle: Settle, deadline_s: float) -> None:
        """One, when there is room."""
        try:
            await self._handed_over(due.by.manner, due.messages, reports, at, deadline_s)
        except QueueFull as error:
            _settle_all(due, [due.places[at]], settle, failed(error))

    async def _produce_to_all(self, due: _Due, at: int, settle: Settle, deadline_s: float) -> None:
        """The targets of one message, each by itself."""
        by, message = due.by, due.messages[at]
        targets = by.targets
        names = [f"{target.topic}@{target.manner.bootstrap_servers}".rstrip("@") for target in targets]

        def all_settled(outcomes: Sequence[Outcome]) -> None:
            _settle_all(due, [due.places[at]], settle, of_all(list(zip(names, outcomes, strict=True))))

        waiting = _Several(len(targets), all_settled)
        messages = [msgspec.structs.replace(message, topic=target.topic) for target in targets]
        reports = _reports(_Due(by, list(range(len(targets))), messages), waiting.settle)
        for place, target in enumerate(targets):
            try:
                await self._handed_over(target.manner, messages, reports, place, deadline_s)
            except QueueFull as error:
                waiting.settle(place, failed(error))

    async def _handed_over(
        self, manner: Manner, messages: Sequence[Spooled], reports: Reports, at: int, deadline_s: float
    ) -> None:
        """One of them. Raises QueueFull."""
        assert self._direct is not None
        while True:
            if self._given_up.is_set():
                raise QueueFull(ENDING)
            if (away := self._direct.away(manner)) is not None:
                if away.seconds >= AWAY_WITHIN_S:
                    raise ClusterAway(f"not written: {away.said}: {AWAY_REMEDY}")
                await asyncio.sleep(AWAY_LOOK_S)
                continue
            try:
                self._direct.produce(manner, messages, reports, first=at, end=at + 1)
            except QueueFull:
                if self._loop.time() >= deadline_s:
                    raise
                await asyncio.sleep(ROOM_S)
            else:
                return


def _settle_all(due: _Due, places: Sequence[int], settle: Settle, outcome: Outcome) -> None:
    """The same became of those of `places`."""
    for place in places:
        settle(place, due.told(place, outcome))


def _reports(due: _Due, settle: Settle) -> Reports:
    """What librdkafka reports of them is settled."""
    places, messages, told = due.places, due.messages, due.told if due.dead else None

    def reported(at: int, error: KafkaError | None, partition: int, offset: int) -> None:
        outcome = sent(partition, offset) if error is None else refused_by(error, messages[at])
        settle(places[at], outcome if told is None else told(places[at], outcome))

    return reported


class _Several:
    """Outcomes as they come."""

    def __init__(self, count: int, done: Callable[[Sequence[Outcome]], None]) -> None:
        """`done` is called with them when there are so many."""
        self._outcomes: list[Outcome] = [{}] * count
        self._missing = count
        self._last = -1
        self._others: asyncio.Future[None] | None = None
        self._done = done

    def settle(self, at: int, outcome: Outcome) -> None:
        """One of them."""
        self._outcomes[at] = outcome
        self._missing -= 1
        if self._missing == self._last and self._others is not None and not self._others.done():
            self._others.set_result(None)
        if not self._missing:
            self._done(self._outcomes)

    async def with_last(self, last: Mapping[int, Outcome]) -> list[Outcome]:
        """All, where the missing ones will be these; waits for the others."""
        self._last = len(last)
        if self._missing > self._last:
            self._others = asyncio.get_running_loop().create_future()
            await self._others
        return [last.get(place, outcome) for place, outcome in enumerate(self._outcomes)]
