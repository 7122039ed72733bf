"""Follows the metadata log, in every process that does not lead the controllers: from the leader by long poll where
that is given and answers, and from the store, which alone tells who leads.

The leader's word saves requests and time, nothing else: what it sends is checked against the entry before it like what
the store sends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from bmq.errors import BmqError, NotReady, ObjectMissing, StoreUnavailable
from bmq.metadata.codec import LOG_PREFIX
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.journal import MetadataJournal, Position, Seen
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import together
from bmq.storage.flatlog import decode_entry
from bmq.storage.numbered import numbered_key

POLL_WAIT_MS: Final = 1_000
POLL_GRACE_S: Final = 1.0
"""How much longer than asked for a poll may take before it is given up."""
LISTING_INTERVAL_S: Final = 10.0
"""Between listings a look asks for the next entry alone. That one may be deleted where this process slept, so it is not
the only way to ask."""
SLOW_LOOK_S: Final = 1.0
FIRST_PAUSE_S: Final = 0.05
"""Before the second look where the leader does not answer any more: who comes after it often does so at once. Doubled
each time."""

Poll = Callable[[int, int], Awaitable[Sequence[bytes]]]
"""`MetadataSource.metadata_poll` of whoever leads: (after position, wait in ms) to entries."""

_log = structlog.get_logger(__name__)


class MetadataFollower:
    """Publishes each image that the log leads to. Without a leader at the latest `interval_s` after its entry was
    made.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        rng: Rng,
        feed: MetadataFeed,
        poll: Poll | None = None,
        interval_s: float = 1.0,
        quiet_s: float = 1.0,
        seen: Seen | None = None,
    ) -> None:
        """The store is asked every `interval_s`; with a `poll`, only after `quiet_s` without news. `seen` gets the
        records of each entry.
        """
        self._store = store
        self._journal = MetadataJournal(store, rng=rng, seen=seen)
        self._feed = feed
        self._poll = poll
        self._interval_s = interval_s
        self._quiet_s = quiet_s
        self._position = Position(image=feed.image, entry=None)
        self._news_s = float("-inf")
        self._still_s = float("-inf")
        self._nothing_until_s = float("-inf")
        self._listed_s = float("-inf")
        self._pause_s = interval_s
        self._folding = False
        """Whether an entry of the leader's is being folded in: the store need not be asked for the same one."""
        self._answered = True
        """Whether the leader did when it was asked last."""
        self._unanswered = asyncio.Event()
        """Set for a moment when it stops answering."""

    @property
    def position(self) -> Position:
        """The newest image and the entry that it ends with."""
        return self._position

    @property
    def silent_s(self) -> float:
        """For how long the store, asked and answering all the while, has shown nothing new. Time that nobody asked in
        does not count.
        """
        return max(0.0, self._nothing_until_s - self._still_s)

    async def load(self, start: Position | None = None) -> None:
        """Takes up the newest image of the store, or goes on from `start`. Waits out a store that is down. Raises
        FormatError.
        """
        self._take(start if start is not None else await self._journal.load())

    async def run(self) -> None:
        """Until it is cancelled; loads first where that was not done.

        Raises FormatError: a node that cannot read the metadata must not go on with an old image for ever.
        """
        if self._news_s == float("-inf"):
            await self.load()
        if self._poll is None:
            await self._follow_store()
        else:
            await together([self._follow_store(), self._follow_leader(self._poll)])

    async def look(self) -> None:
        """Asks the store for what follows. Raises FormatError."""
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        try:
            is_new = await self._is_new(asked_s)
        except StoreUnavailable:
            self._still_s = loop.time()
            return
        if is_new:
            return
        if loop.time() - asked_s > SLOW_LOOK_S:  # whoever leads may be held up by the same store
            self._still_s = loop.time()
        self._nothing_until_s = asked_s

    async def _follow_store(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._pause()
            if self._folding:
                continue
            if self._poll is None or not self._answered or loop.time() - self._news_s >= self._quiet_s:
                await self.look()

    async def _pause(self) -> None:
        """Until the next look, which comes sooner where the leader has just stopped answering."""
        wait_s, self._pause_s = self._pause_s, min(2 * self._pause_s, self._interval_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._unanswered.wait()
        self._unanswered.clear()

    async def _is_new(self, asked_s: float) -> bool:
        """Whether the store had more, which then is taken up."""
        before = self._position
        if asked_s - self._listed_s < LISTING_INTERVAL_S and not await self._is_there(before.image.position + 1):
            return False
        self._listed_s = asked_s
        found = await self._journal.newest(before)
        self._take(found)
        return found.image.position > before.image.position

    async def _is_there(self, number: int) -> bool:
        try:
            await self._store.head(numbered_key(LOG_PREFIX, number))
        except ObjectMissing:
            return False
        return True

    async def _follow_leader(self, poll: Poll) -> None:
        loop = asyncio.get_running_loop()
        while True:
            asked_s = loop.time()
            try:
                async with asyncio.timeout(POLL_WAIT_MS / 1000 + POLL_GRACE_S):
                    found = await poll(self._position.image.position, POLL_WAIT_MS)
                await self._take_polled(found)
            except (BmqError, TimeoutError) as error:
                if self._answered:
                    _log.info(
                        "metadata does not come from the leader, reading the store", reason=str(error) or "no answer"
                    )
                    self._pause_s = min(FIRST_PAUSE_S, self._interval_s)
                    self._unanswered.set()
                self._answered = False
                if isinstance(error, NotReady):
                    self._listed_s = float("-inf")
                await asyncio.sleep(self._interval_s)
                continue
            if not self._answered:
                _log.info("metadata comes from the leader", position=self._position.image.position)
            self._answered = True
            # one that does not wait is not asked without end
            if not found and loop.time() - asked_s < POLL_WAIT_MS / 2000:
                await asyncio.sleep(self._interval_s)

    async def _take_polled(self, found: Sequence[bytes]) -> None:
        """Raises NotReady where an entry does not follow what is here, FormatError."""
        for data in found:
            entry = decode_entry(data, what="metadata log entry of the leader")
            if entry.number <= self._position.image.position:
                continue
            self._folding = True
            try:
                after = await self._journal.follow(self._position, entry)
            finally:
                self._folding = False
            if after is None:
                raise NotReady(
                    f"the leader's entry {entry.number} does not follow entry {self._position.image.position}"
                )
            self._take(after)

    def _take(self, found: Position) -> None:
        """Makes it the newest. One that is not newer than what came from elsewhere meanwhile is passed over."""
        first = self._news_s == float("-inf")
        if not first and found.image.position <= self._position.image.position:
            return
        self._position = found
        self._news_s = self._still_s = asyncio.get_running_loop().time()
        self._feed.publish(found.image)
