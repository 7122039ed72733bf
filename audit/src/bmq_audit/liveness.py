"""Whether a cluster works on a store, by what it writes there.

Silence proves nothing: a cluster in one process writes nothing while nobody asks anything of it.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from bmq.metadata.codec import LOG_PREFIX
from bmq.metadata.image import Image
from bmq.ports import ObjectStore
from bmq.storage.numbered import number_of
from bmq.values import StreamId

LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Look:
    newest_entry: int
    streams: dict[StreamId, frozenset[int]]


def is_stopped(image: Image) -> bool:
    """Whether every node said goodbye. One that was killed is still registered."""
    return not image.nodes


async def sign_of_life(store: ObjectStore, image: Image, *, wait_s: float) -> str | None:
    """The first thing that somebody writes or deletes within the time, in words; None: silence. Raises StoreError."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    before = await _look(store, image)
    if before.newest_entry > image.position:
        return f"metadata entry {before.newest_entry} was written"
    while loop.time() < until_s:
        await asyncio.sleep(min(LOOK_EVERY_S, max(0.0, until_s - loop.time())))
        now = await _look(store, image)
        if now.newest_entry != before.newest_entry:
            return f"metadata entry {now.newest_entry} was written"
        for stream, numbers in now.streams.items():
            if numbers != before.streams[stream]:
                return f"node {stream.node_id} works on its WAL"
    return None


async def _look(store: ObjectStore, image: Image) -> _Look:
    newest = 0
    async for meta in store.list(LOG_PREFIX):
        newest = max(newest, number_of(LOG_PREFIX, meta.key) or 0)
    streams = {}
    for node in image.nodes.values():
        stream = StreamId(node.node_id, node.broker_epoch)
        listed = store.list(stream.prefix)
        streams[stream] = frozenset(
            [number async for meta in listed if (number := number_of(stream.prefix, meta.key)) is not None]
        )
    return _Look(newest, streams)
