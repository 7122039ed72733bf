"""The metadata log of a cluster under measurement, as it was seen from here and when; and a voice at its leader."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final, TypeVar

from bmq.errors import ControllerUnavailable
from bmq.internal import Identity, RemoteController, RemoteOwner
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.follower import MetadataFollower
from bmq.metadata.image import Image, PartitionMeta
from bmq.runtime.logging import configure_logging
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemRng
from bmq.storage.durable import cancelled
from bmq.values import NodeId, TopicPartition

OWN_ID: Final = NodeId(9_999)
LOOK_S: Final = 0.05
"""How often the store is asked while no leader answers: what a takeover is measured to."""

R = TypeVar("R")


class Watch:
    """Made by `watching`. Times are `perf_counter()` of this process."""

    def __init__(self, feed: MetadataFeed, seen: list[tuple[float, object]]) -> None:
        self.feed = feed
        self.seen = seen
        """All records since the start, each with the time at which it came."""
        self.me: Identity
        self.control: RemoteController
        self._owners: dict[tuple[str, int], RemoteOwner] = {}

    @property
    def image(self) -> Image:
        """The newest."""
        return self.feed.image

    async def until(self, condition: Callable[[Image], bool], *, timeout_s: float = 60) -> None:
        """Waits for an image. Raises TimeoutError."""
        changed = asyncio.Event()
        unsubscribe = self.feed.subscribe(lambda _, __: changed.set())
        try:
            async with asyncio.timeout(timeout_s):
                while not condition(self.image):
                    changed.clear()
                    await changed.wait()
        finally:
            unsubscribe()

    async def move(self, tp: TopicPartition, to: NodeId) -> None:
        """Begins to move a partition; returns when the image names the new owner."""
        await self.control.move(tp, to)
        await self.until(lambda image: self.meta(tp).node_id == to)

    def meta(self, tp: TopicPartition) -> PartitionMeta:
        """Who owns it."""
        meta = self.image.partition(tp)
        assert meta is not None
        return meta

    async def tail_bytes(self, tp: TopicPartition) -> int:
        """What its owner has in memory of it because no segment holds it."""
        node = self.image.nodes[self.meta(tp).node_id]
        place = node.internal_host, node.internal_port
        if place not in self._owners:
            self._owners[place] = RemoteOwner(*place, peer=node.node_id, me=self.me)
        return sum(status.tail_bytes for status in await self._owners[place].status([tp]))

    async def close(self) -> None:
        """Ends its connections."""
        await self.control.close()
        await asyncio.gather(*(owner.close() for owner in self._owners.values()))

    def partition(self, topic: str, index: int) -> TopicPartition:
        """By the topic's name, which has to be there."""
        return TopicPartition(self.image.topic_ids[topic], index)

    def owned(self, topic: str, node_id: int) -> list[int]:
        """The topic's partitions of a broker."""
        found = self.image.topic(topic)
        assert found is not None
        return [index for index, meta in enumerate(found.partitions) if meta.node_id == node_id]

    def records(self, kind: type[R], *, after_s: float) -> Iterator[tuple[float, R]]:
        """Those of this kind that came after a time."""
        return ((at_s, record) for at_s, record in self.seen if at_s >= after_s and isinstance(record, kind))


@asynccontextmanager
async def watching(store_url: str) -> AsyncIterator[Watch]:
    """For the store of a cluster that runs; what keys it needs are in the environment."""
    configure_logging(environment={"BMQ_LOG_LEVEL": "error"})  # that a leader is gone is what is waited for
    store = open_store(store_url)
    feed = MetadataFeed()
    seen: list[tuple[float, object]] = []
    watch = Watch(feed, seen)

    async def poll(after_position: int, wait_ms: int) -> list[bytes]:
        return await watch.control.metadata_poll(after_position, wait_ms)

    def note(records: Sequence[object]) -> None:
        now_s = perf_counter()
        seen.extend((now_s, record) for record in records)

    follower = MetadataFollower(store, rng=SystemRng(), feed=feed, poll=poll, interval_s=LOOK_S, seen=note)
    await follower.load()
    watch.me = Identity(cluster_id=feed.image.cluster_id, node_id=OWN_ID)
    watch.control = RemoteController(feed, me=watch.me)
    following = asyncio.get_running_loop().create_task(follower.run(), name="watch the metadata")
    try:
        await watch.until(lambda image: bool(image.controller_host))
        yield watch
    finally:
        await cancelled([following])
        await watch.close()
        store.close()


async def insisting(call: Callable[[], Awaitable[object]], *, timeout_s: float = 30) -> None:
    """Calls until a leader has answered."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                await call()
                return
            except ControllerUnavailable:
                await asyncio.sleep(0.02)
