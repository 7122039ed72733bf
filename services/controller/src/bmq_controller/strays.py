"""Deletes what landed in dropped streams and deleted topics after they had been collected: creates that were on their
way, for however long.

Nothing goes because it is not known. A stream is dead for ever when the image shows the end of its incarnation and has
the stream neither as sealed nor as dropped: then it was collected. A topic is dead for ever when objects of it were
listed, and after that this controller still led with an image that does not have the topic: the record of its creation
would be older than its objects.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final
from uuid import UUID

import structlog

from bmq.errors import BmqError, NotReady
from bmq.metadata.image import Image
from bmq.ports import ObjectStore
from bmq.storage.durable import together
from bmq.storage.keys import TOPICS_PREFIX, topic_prefix
from bmq.storage.stream_seal import is_seal
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicId
from bmq_controller import metrics

DELETES_AT_ONCE: Final = 8
PER_ROUND_MAX: Final = 10_000
CURRENT_TRIES_MAX: Final = 30
CURRENT_RETRY_S: Final = 1.0
"""A leader that writes a lot is between two entries soon, and the next round is hours away."""

_log = structlog.get_logger(__name__)
_WAL_KEY: Final = re.compile(r"wal/([0-9]+)/([0-9]+)/[0-9]+")
_TOPIC_KEY: Final = re.compile(
    re.escape(TOPICS_PREFIX) + r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/"
)


class Strays:
    """The leader's; lives as long as it leads."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        image: Callable[[], Image],
        current: Callable[[], Awaitable[Image]],
        interval_s: float,
    ) -> None:
        """`current`: an image that was the newest when this was called; it raises BmqError where that is not sure,
        NotReady where it soon may be.
        """
        self._store = store
        self._image = image
        self._current = current
        self._interval_s = interval_s

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            for kind, sweep in (("wal", self.sweep_streams), ("topic", self.sweep_topics)):
                try:
                    deleted = await sweep()
                except BmqError as error:
                    _log.warning("strays not collected, looked for again later", kind=kind, error=str(error))
                    continue
                if deleted:
                    metrics.COLLECTED.labels(kind).inc(deleted)
                    _log.info("collected what landed late", kind=kind, objects=deleted)

    async def sweep_streams(self) -> int:
        """Deletes the data objects of streams that were collected; their seals stay. Returns how many. Raises
        StoreError.
        """
        image = self._image()
        keys: list[str] = []
        for node_id in image.last_epochs:
            async for meta in self._store.list(f"wal/{node_id:010d}/"):
                stream = _stream_of(meta.key)
                if stream is None:
                    continue
                if not _has_ended(image, stream) or len(keys) >= PER_ROUND_MAX:
                    break  # epochs ascend: only the living one's is left
                if not is_seal(meta) and stream not in image.sealed and stream not in image.dropped:
                    keys.append(meta.key)
        await self._delete(keys)
        return len(keys)

    async def sweep_topics(self) -> int:
        """Deletes objects of topics that were collected. Returns how many. Raises StoreError, NotReady."""
        listed = [topic_id async for topic_id in self._topics()]
        image = await self._newest()
        deleted = 0
        for topic_id in listed:
            if topic_id not in image.topics and topic_id not in image.deleted and deleted < PER_ROUND_MAX:
                keys = [meta.key async for meta in self._store.list(topic_prefix(topic_id))]
                await self._delete(keys)
                deleted += len(keys)
        return deleted

    async def _newest(self) -> Image:
        for _ in range(CURRENT_TRIES_MAX - 1):
            try:
                return await self._current()
            except NotReady:
                await asyncio.sleep(CURRENT_RETRY_S)
        return await self._current()

    async def _topics(self) -> AsyncIterator[TopicId]:
        """All topics that have objects: one listing's page each."""
        after = ""
        while True:
            key = await self._first_key(after)
            if key is None:
                return
            found = _TOPIC_KEY.match(key)
            if found is None:
                after = key
                continue
            topic_id = TopicId(UUID(found[1]))
            yield topic_id
            after = f"{topic_prefix(topic_id)}~"  # above all its keys

    async def _first_key(self, after: str) -> str | None:
        async for meta in self._store.list(TOPICS_PREFIX, after=after):
            return meta.key
        return None

    async def _delete(self, keys: list[str]) -> None:
        for at in range(0, len(keys), DELETES_AT_ONCE):
            await together(self._store.delete(key) for key in keys[at : at + DELETES_AT_ONCE])


def _stream_of(key: str) -> StreamId | None:
    found = _WAL_KEY.fullmatch(key)
    return None if found is None else StreamId(NodeId(int(found[1])), BrokerEpoch(int(found[2])))


def _has_ended(image: Image, stream: StreamId) -> bool:
    """Whether the image shows that this incarnation was registered and is no more. What is newer than the image has
    not.
    """
    node = image.nodes.get(stream.node_id)
    if node is not None:
        return stream.broker_epoch < node.broker_epoch
    return stream.broker_epoch <= image.last_epochs.get(stream.node_id, -1)
