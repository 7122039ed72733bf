"""Topics of the cluster that are written by their names, where no channel is declared for them.

The cluster is asked first whether there is such a topic, which makes none, for many names at once and one time after
another; what it said holds for a while. What a producer keeps of topics is bounded by making it anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from bmq_databus.channels.channel import Channel
from bmq_databus.channels.topics import TOPICS_MAX, KnownTopics, TooManyTopics, TopicRule, check_topic
from bmq_databus.errors import NoSuchChannel, NothingKnown

NAMES_MAX: Final = 100
"""So many are asked for at a time…"""
ASKED_MAX: Final = 1_000
"""…and so many wait to be."""
GIVEN_MAX: Final = 2 * TOPICS_MAX
"""A producer remembers each topic that it was given: after so many it is made anew."""

Look = Callable[[Sequence[str]], Awaitable[Mapping[str, str | NothingKnown]]]
"""Why there is no such topic that could be written, by name; empty: there is. NothingKnown: it is not known."""


class AnyTopic:
    """Those of one sidecar's cluster."""

    def __init__(
        self,
        rule: TopicRule,
        look: Look,
        *,
        renew: Callable[[], bool],
        forgotten: Callable[[str], None],
        topics_max: int = TOPICS_MAX,
        given_max: int = GIVEN_MAX,
    ) -> None:
        """`renew` makes producers of such topics anew, unless they have something under way. `forgotten` is told of one
        that is known no longer.
        """
        self._known = KnownTopics(rule, topics_max=topics_max)
        self._look = look
        self._renew = renew
        self._forgotten = forgotten
        self._given: set[str] = set()
        self._given_max = given_max
        self._loop = asyncio.get_running_loop()
        self._asked: dict[str, asyncio.Future[str | NothingKnown]] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def names(self) -> list[str]:
        """Those that were written of late."""
        return sorted(self._known)

    def get(self, name: str) -> Channel | None:
        """One that is known, which is being written."""
        return self._known.used(name, now_s=self._loop.time())

    async def named(self, name: str) -> Channel:
        """The topic as a channel. Raises NoSuchChannel, NothingKnown."""
        if not self._known.is_confirmed(name, now_s=self._loop.time()):
            await self._confirm(name)
        channel = self._known.used(name, now_s=self._loop.time())
        if channel is None:  # it gave way, or went, within a turn of the loop
            raise NothingKnown(f"whether there is a topic {name} is not known: try again")
        return channel

    async def close(self) -> None:
        """Nobody is told any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _confirm(self, name: str) -> None:
        check_topic(name)
        try:
            why = await self._ask(name)
        except NothingKnown:
            if self._known.used(name, now_s=self._loop.time()) is None:
                raise
            return  # it was there, and is as long as nobody knows better
        if why:
            if self._known.forget(name):
                self._forgotten(name)
            raise NoSuchChannel(f"there is no channel {name!r}, and no topic that could be written by its name: {why}")
        self._check_given(name)
        for gone in self._known.confirm(name, now_s=self._loop.time()):
            self._forgotten(gone)
        self._given.add(name)

    def _check_given(self, name: str) -> None:
        """That a producer may be given it. Raises TooManyTopics."""
        if name not in self._given and len(self._given) >= self._given_max:
            if not self._renew():
                raise TooManyTopics(
                    f"{len(self._given)} topics were written, and what is under way keeps the producer from being made "
                    f"anew: declare a channel for topic {name}, or try again"
                )
            self._given = set(self._known)

    async def _ask(self, name: str) -> str:
        asked = self._asked.get(name)
        if asked is None:
            if len(self._asked) >= ASKED_MAX:
                raise NothingKnown(f"the cluster is being asked for {ASKED_MAX} topics already: try again in a moment")
            asked = self._asked[name] = self._loop.create_future()
            if self._looking is None or self._looking.done():
                self._looking = self._loop.create_task(self._look_for_all(), name="look for topics")
        answer = await asyncio.shield(asked)
        if isinstance(answer, NothingKnown):
            raise NothingKnown(str(answer))
        return answer

    async def _look_for_all(self) -> None:
        try:
            while self._asked:
                names = list(self._asked)[:NAMES_MAX]
                found = await self._look(names)
                for name in names:
                    self._asked.pop(name).set_result(found[name])
        finally:
            for asked in self._asked.values():
                asked.cancel()
            self._asked.clear()
