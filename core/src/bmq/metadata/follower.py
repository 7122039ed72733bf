"""Follows the metadata log in the store: for nodes whose process has no leading controller, and while there is none at all."""

import asyncio

import structlog

from bmq.metadata.feed import MetadataFeed
from bmq.metadata.journal import MetadataJournal
from bmq.ports import ObjectStore, Rng
from bmq.storage.flatlog import GapFound

_log = structlog.get_logger(__name__)


class StoreFollower:
    """Publishes each image that the log leads to, at the latest `interval_s` after its entry was made."""

    def __init__(self, store: ObjectStore, *, rng: Rng, feed: MetadataFeed, interval_s: float = 1.0) -> None:
        self._journal = MetadataJournal(store, rng=rng)
        self._feed = feed
        self._interval_s = interval_s

    async def run(self) -> None:
        """Until it is cancelled. Raises FormatError: a node that cannot read the metadata must not go on with an old image for ever."""
        position = await self._journal.load()
        while True:
            self._feed.publish(position.image)
            await asyncio.sleep(self._interval_s)
            try:
                position = await self._journal.advance(position)
            except GapFound as gap:
                _log.info("metadata log was shortened, reading the newest snapshot", entry=gap.number)
                position = await self._journal.load()
