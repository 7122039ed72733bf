"""What becomes of a message by its channel's rules, step by step. Pure: what time it is, and chance, are given.

1. *enabled*: a channel that is turned off takes nothing.
2. *schema*: the value is what it has to be.
3. *redact*: what is to be written nowhere is taken out of the value; no step behind it sees it.
4. *key*: the message gets its key.
5. *lane*: the one that the message, or its request, names.
6. *sampling*: some messages go no further, and are answered as if they had.
7. *rate*: what is too much for now is refused, or waits.
8. *partition*: the one that its writer named, or the partitioner's choice, which is made when it is sent.
9. *targets*: each of them gets what came of it.

A message that is wrong is told so whatever the rate and the sample are, and neither counts it. Where the channel has a
dead-letter channel, what its rules do not take as it is goes through that one's steps instead, redacted.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from bmq_databus.channels.channel import DEFAULT_PARTITIONER, Channel
from bmq_databus.errors import DatabusError, RateLimited, TurnedOff, Unfit
from bmq_databus.messages.forms import NewMessage
from bmq_databus.rules.keys import key_of
from bmq_databus.rules.lanes import Lanes
from bmq_databus.rules.rates import Ahead, Rate, RateLimit
from bmq_databus.rules.redaction import edits_of, redacted
from bmq_databus.rules.sampling import is_sampled
from bmq_databus.rules.schemas import SchemaCheck
from bmq_databus.spool.frames import Spooled

Told = Callable[[str, str], None]
"""Called with a step's name and what it did."""


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """It is written, by the channel."""

    channel: Channel
    message: Spooled
    after_s: float = 0.0
    """In so many seconds."""
    dead: str = ""
    """Why it is a dead letter."""


class SampledOut(msgspec.Struct, frozen=True):
    """It is not written, as it is to be."""


class Refused(msgspec.Struct, frozen=True):
    """It is not written, and its writer is told why."""

    error: DatabusError


Decision = Write | SampledOut | Refused
SAMPLED_OUT: Final = SampledOut()
DEAD_LETTERS_MAX: Final = 8
"""Channels that a message goes through one after another."""
KEY_CHARS: Final = 80
"""So much of a key is told."""
FROM_HEADER: Final = "bmq-dead-letter-channel"
WHY_HEADER: Final = "bmq-dead-letter-reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """`now_s` is of a clock that never goes back, `now_ms` since 1970."""

    now_s: float
    now_ms: int


class Steps:
    """One channel's. It remembers what was written of late, for its rate."""

    def __init__(
        self,
        channel: Channel,
        *,
        random: Callable[[], float],
        now_s: float,
        named: "Callable[[str], Steps | None]" = lambda _: None,
    ) -> None:
        """`random`: uniform in [0, 1). `named`: the steps of a channel that there is."""
        self.channel = channel
        self._named = named
        self._random = random
        self._edits = None if channel.redaction is None else edits_of(channel.redaction)
        self._hidden = () if channel.redaction is None else (*channel.redaction.replace, *channel.redaction.remove)
        self._limit = None if channel.rate is None else RateLimit(channel.rate, now_s=now_s)
        self._schema = None if channel.schema is None else SchemaCheck(channel.schema)
        rules = (channel.schema, channel.redaction, channel.key, channel.lane, channel.sampling, channel.rate)
        self.is_plain = channel.enabled and all(rule is None for rule in rules)
        """Whether each message is written as it is: `Channel.message` is all there is to do then."""

    def follow(self, before: "Steps") -> None:
        """In its place: what was written of late counts on where the rate is the same."""
        if self._limit is not None and before._limit is not None and self._limit.rate == before._limit.rate:
            self._limit = before._limit

    def decide(
        self,
        new: NewMessage,
        at: Moment,
        *,
        ahead: Ahead,
        lanes: Lanes | None = None,
        waits: bool = False,
        told: Told | None = None,
    ) -> Decision:
        """`lanes`: its request's; None: it says nothing of them. `ahead`: what of that was refused for the rate before.
        `waits`: the message is not refused for the rate, but written later.
        """
        told = told or _nobody
        lanes = lanes or Lanes()
        try:
            return self._decided(new, at, ahead=ahead, lanes=lanes, waits=waits, told=told)
        except Unfit as error:
            return (
                self._dead(new, at, error, lanes=lanes, waits=waits, told=told)
                if self.channel.dead_letter
                else Refused(error)
            )
        except (TurnedOff, RateLimited) as error:
            return Refused(error)

    def _dead(self, new: NewMessage, at: Moment, why: Unfit, *, lanes: Lanes, waits: bool, told: Told) -> Decision:
        """What becomes of it by the dead-letter channel."""
        name = self.channel.dead_letter
        told("dead letter", f"it goes to channel {name}")
        steps = self._named(name)
        if steps is None:
            return Refused(Unfit(f"{why}; and channel {name}, which gets such messages, is not there"))
        if [header for header, _ in new.headers].count(FROM_HEADER) >= DEAD_LETTERS_MAX:
            return Refused(Unfit(f"{why}; and it was a dead letter {DEAD_LETTERS_MAX} times already"))
        headers = ((FROM_HEADER, self.channel.name.encode()), (WHY_HEADER, str(why).encode()))
        try:
            value = new.value if self._edits is None else redacted(new.value, self._edits)
        except Unfit as error:
            return Refused(error)
        dead = msgspec.structs.replace(new, value=value, partition=-1, headers=(*new.headers, *headers))
        decision = steps.decide(dead, at, ahead=Ahead(), lanes=lanes, waits=waits, told=told)
        if isinstance(decision, Write):
            return msgspec.structs.replace(decision, dead=str(why))
        if isinstance(decision, Refused) and not isinstance(decision.error, RateLimited):
            return Refused(Unfit(f"{why}; and as a dead letter: {decision.error}"))
        return decision

    def _decided(self, new: NewMessage, at: Moment, *, ahead: Ahead, lanes: Lanes, waits: bool, told: Told) -> Decision:
        if not self.channel.enabled:
            with _telling("enabled", told):
                raise TurnedOff(f"channel {self.channel.name} is turned off")
        told("enabled", "the channel takes messages")
        self._check(new, told)
        new = self._redacted(new, told)
        new = self._keyed(new, told)
        lane = self._lane(new, lanes, told)
        if not self._is_sampled(new, told):
            return SAMPLED_OUT
        after_s = self._admitted(new, at, ahead=ahead, waits=waits, told=told)
        told("partition", self._partition(new))
        if self.channel.others:
            told("targets", f"{1 + len(self.channel.others)} topics get it")
        return Write(
            channel=self.channel, message=self.channel.message(new, now_ms=at.now_ms, lane=lane), after_s=after_s
        )

    def _check(self, new: NewMessage, told: Told) -> None:
        if self._schema is not None:
            with _telling("schema", told):
                self._schema.check(new.value, hidden=self._hidden)
            told("schema", "the value fits" if new.value is not None else "there is no value to fit")

    def _redacted(self, new: NewMessage, told: Told) -> NewMessage:
        if self._edits is None:
            return new
        with _telling("redact", told):
            value = redacted(new.value, self._edits)
        told("redact", "nothing is taken out of it" if value == new.value else "its value is written anew")
        return msgspec.structs.replace(new, value=value)

    def _keyed(self, new: NewMessage, told: Told) -> NewMessage:
        rule = self.channel.key
        if rule is None:
            if told is not _nobody:
                told("key", _key_text(new.key))
            return new
        with _telling("key", told):
            key = key_of(rule, new)
        if told is not _nobody:
            told("key", f"{_key_text(key)}, by {rule.said}")
        return msgspec.structs.replace(new, key=key)

    def _lane(self, new: NewMessage, lanes: Lanes, told: Told) -> str:
        if self.channel.lane is None:
            return ""
        with _telling("lane", told):
            lane = lanes.of(self.channel.lane, new)
        told("lane", f"it goes to lane {lane}" if lane else "it names none")
        return lane

    def _is_sampled(self, new: NewMessage, told: Told) -> bool:
        rule = self.channel.sampling
        if rule is None:
            return True
        found = is_sampled(rule, new.key, self._random)
        by = "its key" if rule.by == "key" and new.key is not None else "chance"
        told("sampling", f"by {by} it {'is' if found else 'is not'} of the {rule.percent:g} % that are written")
        return found

    def _admitted(self, new: NewMessage, at: Moment, *, ahead: Ahead, waits: bool, told: Told) -> float:
        if self._limit is None:
            return 0.0
        size_bytes = _size_bytes(new)
        if waits:
            return self._limit.reserve(size_bytes, at.now_s)
        wait_s = self._limit.admit(size_bytes, at.now_s, ahead)
        if wait_s:
            with _telling("rate", told):
                raise RateLimited(
                    f"channel {self.channel.name} takes {_rate_text(self._limit.rate)}: try again then",
                    retry_after_s=max(1, math.ceil(wait_s)),
                )
        told("rate", f"{_rate_text(self._limit.rate)} may be written, and it fits")
        return 0.0

    def _partition(self, new: NewMessage) -> str:
        if new.partition >= 0:
            return f"{new.partition}, which its writer named"
        return f"the choice of {self.channel.manner.partitioner or DEFAULT_PARTITIONER}"


class StepsOfChannels:
    """Those of each channel, as it is now."""

    def __init__(
        self, channels: Mapping[str, Channel], *, random: Callable[[], float], now_s: Callable[[], float]
    ) -> None:
        """`channels`: those that there are, whenever it is asked."""
        self._channels = channels
        self._random = random
        self._now_s = now_s
        self._known: dict[str, Steps] = {}

    def of(self, channel: Channel) -> Steps:
        """A channel that has changed begins with the rate that was written before."""
        known = self._known.get(channel.name)
        if known is not None and known.channel is channel:
            return known
        steps = Steps(channel, random=self._random, now_s=self._now_s(), named=self._named)
        if known is not None:
            steps.follow(known)
        self._known[channel.name] = steps
        return steps

    def forget(self, name: str) -> None:
        """There is no such channel any more."""
        self._known.pop(name, None)

    def _named(self, name: str) -> Steps | None:
        channel = self._channels.get(name)
        return None if channel is None else self.of(channel)


@contextmanager
def _telling(step: str, told: Told) -> Iterator[None]:
    """An error is what the step did."""
    try:
        yield
    except DatabusError as error:
        told(step, f"refused: {error}")
        raise


def _nobody(step: str, what: str) -> None:
    """Is told."""


def _size_bytes(new: NewMessage) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in new.headers)
    return len(new.key or b"") + len(new.value or b"") + headers


def _key_text(key: bytes | None) -> str:
    return "it has none" if key is None else repr(key[:KEY_CHARS].decode(errors="backslashreplace"))[:KEY_CHARS]


def _rate_text(rate: Rate) -> str:
    rates = ((rate.messages_per_second, "messages"), (rate.bytes_per_second, "bytes"))
    return " and ".join(f"{value:g} {name}" for value, name in rates if value) + " a second"
