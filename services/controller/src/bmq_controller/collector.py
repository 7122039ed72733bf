"""Deletes the objects of dropped streams and of deleted topics, and has it recorded when nothing is left.

Only what a committed record calls dead is deleted; the record of completion comes last, so a leader that is stopped in
between leaves the rest to the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import structlog

from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import TroubleLog, together, when_available
from bmq.storage.keys import topic_prefix
from bmq.storage.stream import drop_stream
from bmq.values import StreamId, TopicId
from bmq_controller import metrics

DELETES_AT_ONCE: Final = 8
KEYS_AT_ONCE: Final = 1_000

_log = structlog.get_logger(__name__)

Collected = Callable[[Sequence[StreamId], Sequence[TopicId]], Awaitable[None]]


class Collector:
    """The leader's; lives as long as it leads."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        rng: Rng,
        image: Callable[[], Image],
        collected: Collected,
        delay_s: float,
        interval_s: float,
    ) -> None:
        """`collected` commits the record that says so."""
        self._store = store
        self._rng = rng
        self._image = image
        self._collected = collected
        self._delay_s = delay_s
        self._interval_s = interval_s
        self._first_seen_s: dict[TopicId, float] = {}
        self._trouble = TroubleLog("collect")

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.collect()
            await asyncio.sleep(self._interval_s)

    async def collect(self) -> None:
        """Everything that is due now. What fails stays in the image and is tried again; it does not hold up the
        rest.
        """
        image = self._image()
        for stream in list(image.dropped):
            try:
                deleted = await drop_stream(self._store, stream, rng=self._rng)
                metrics.COLLECTED.labels("wal").inc(deleted)
                await self._collected((stream,), ())
            except BmqError as error:
                _log.warning("stream could not be collected, trying again", stream=stream.prefix, error=str(error))
                continue
            _log.info("collected stream", stream=stream.prefix, objects=deleted)
        for topic_id in self._due_topics(image):
            name = image.deleted[topic_id]
            try:
                deleted = await self._delete_topic(topic_id)
                metrics.COLLECTED.labels("topic").inc(deleted)
                await self._collected((), (topic_id,))
            except BmqError as error:
                _log.warning(
                    "topic could not be collected, trying again", topic=name, topic_id=str(topic_id), error=str(error)
                )
                continue
            _log.info("collected topic", topic=name, topic_id=str(topic_id), objects=deleted)

    def _due_topics(self, image: Image) -> list[TopicId]:
        """Those that this leader has known to be deleted for the delay. A restart waits once more: no wall clock is
        asked.
        """
        now_s = asyncio.get_running_loop().time()
        self._first_seen_s = {topic_id: self._first_seen_s.get(topic_id, now_s) for topic_id in image.deleted}
        return [topic_id for topic_id, first_s in self._first_seen_s.items() if now_s - first_s >= self._delay_s]

    async def _delete_topic(self, topic_id: TopicId) -> int:
        """Deletes until a listing shows nothing: an owner that had yet to hear of the deletion may have made more."""
        prefix = topic_prefix(topic_id)
        deleted = 0
        while keys := await when_available(partial(self._keys, prefix), rng=self._rng, trouble=self._trouble):
            for at in range(0, len(keys), DELETES_AT_ONCE):
                await together(self._delete(key) for key in keys[at : at + DELETES_AT_ONCE])
            deleted += len(keys)
        return deleted

    async def _keys(self, prefix: str) -> list[str]:
        keys: list[str] = []
        async for meta in self._store.list(prefix):
            keys.append(meta.key)
            if len(keys) >= KEYS_AT_ONCE:
                break
        return keys

    async def _delete(self, key: str) -> None:
        await when_available(partial(self._store.delete, key), rng=self._rng, trouble=self._trouble)
