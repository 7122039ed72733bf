"""Topics that are channels by their own names where nobody declared one, and which of them are known to be. Pure.

So many are known at a time. One that was not written for a while gives way; until then there is room for no other one.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
from pydantic import ValidationError

from bmq.errors import ConfigurationError, InvalidTopicName
from bmq.naming.lane_choice import LaneChoice
from bmq.naming.names import check_topic_name
from bmq_databus.channels.channel import Channel, Manner
from bmq_databus.errors import NoSuchChannel, NothingKnown
from bmq_resources.channel_rules import LaneOf

TOPICS_MAX: Final = 1_000
IDLE_S: Final = 600.0
"""One that was not written for so long gives way to another."""
CONFIRMED_S: Final = 60.0
"""What the cluster said of one holds so long."""
OWN_PREFIX: Final = "__"
"""Topics whose names begin so are the cluster's own."""
MANNER: Final = Manner(makes_topics=False)
"""Theirs: whoever names a topic that there is not makes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRule:
    """What holds for all of them."""

    lane: LaneChoice | None = None
    """How their messages name one."""


def topic_rule(lane_header: str) -> TopicRule:
    """`lane_header`: the name of the one that names a lane; empty: none does. Raises ConfigurationError."""
    if not lane_header:
        return TopicRule()
    try:
        rule = LaneOf(header=lane_header)
    except ValidationError as error:
        raise ConfigurationError(
            f"--any-topic-lane-header {lane_header[:40]!r}: {error.errors()[0]['msg']}: write a header's name"
        ) from None
    return TopicRule(lane=LaneChoice(rule.header.lower()))


def topic_channel(name: str, rule: TopicRule) -> Channel:
    """The topic as a channel."""
    return Channel(name=name, topic=name, manner=MANNER, lane=rule.lane, is_declared=False)


def check_topic(name: str) -> None:
    """That a topic which is written by its name may be called so. Raises NoSuchChannel."""
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise NoSuchChannel(f"there is no channel {name[:200]!r}, and no topic has that name: {error}") from None
    if name.startswith(OWN_PREFIX):
        raise NoSuchChannel(f"there is no channel {name!r}, and topics whose names begin with __ are the cluster's own")


class TooManyTopics(NothingKnown):
    """There is no room for another one."""


class _Known(msgspec.Struct):
    channel: Channel
    confirmed_s: float
    used_s: float


class KnownTopics:
    """By name; the one that was used last comes last."""

    def __init__(self, rule: TopicRule, *, topics_max: int = TOPICS_MAX) -> None:
        self._rule = rule
        self._topics_max = topics_max
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def used(self, name: str, *, now_s: float) -> Channel | None:
        """The channel of a topic that is known, which is being written."""
        one = self._known.get(name)
        if one is None:
            return None
        one.used_s = now_s
        self._known.move_to_end(name)
        return one.channel

    def is_confirmed(self, name: str, *, now_s: float) -> bool:
        """Whether the cluster said of late that there is such a topic."""
        one = self._known.get(name)
        return one is not None and now_s - one.confirmed_s < CONFIRMED_S

    def confirm(self, name: str, *, now_s: float) -> list[str]:
        """There is such a topic; which ones gave way to it. Raises TooManyTopics."""
        if (one := self._known.get(name)) is not None:
            one.confirmed_s = now_s
            return []
        gone: list[str] = []
        while len(self._known) >= self._topics_max:
            oldest, known = next(iter(self._known.items()))
            if now_s - known.used_s < IDLE_S:
                raise TooManyTopics(
                    f"{self._topics_max} topics were written within {IDLE_S:.0f} s: declare a channel for topic "
                    f"{name}, which has room of its own, or try again later"
                )
            self.forget(oldest)
            gone.append(oldest)
        self._known[name] = _Known(topic_channel(name, self._rule), now_s, now_s)
        return gone

    def forget(self, name: str) -> bool:
        """There is no such topic any more; whether it was known."""
        return self._known.pop(name, None) is not None
