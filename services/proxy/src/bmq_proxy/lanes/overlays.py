"""Making a lane's topics: at the first write to a name that the base has, and nobody in the lane has written to yet."""

import asyncio
from collections.abc import Collection
from typing import Final

import structlog

from bmq.errors import BmqError, TopicExists
from bmq.lanes import overlay_name
from bmq.log_limit import RateLimited
from bmq.metadata.image import Image, Topic
from bmq.roles.controller import Controller, Metadata, NewTopic
from bmq_proxy.images import image_with

SHOWN_WITHIN_S: Final = 10.0
COMPLAIN_EVERY_S: Final = 10.0

_log = structlog.get_logger("bmq.proxy.lanes")


class Overlays:
    """One lane's. Whoever writes to the same name at the same time waits for the same creation."""

    def __init__(self, controller: Controller, real: Metadata, lane: str, tasks: set[asyncio.Task[None]]) -> None:
        """`controller` is the lane's, `real` the node's metadata as it is. `tasks`: what is under way, for who ends it."""
        self._controller = controller
        self._real = real
        self._lane = lane
        self._tasks = tasks
        self._making: dict[str, asyncio.Task[None]] = {}
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)

    async def make(self, names: Collection[str]) -> None:
        """Returns when they are there, or cannot be had now, or soon: whoever then misses them tells its client, which tries again."""
        for name in names:
            if name not in self._making:
                task = asyncio.get_running_loop().create_task(self._make(name), name=f"make {name} in lane {self._lane}")
                self._making[name] = task
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                task.add_done_callback(lambda _, name=name: self._making.pop(name, None))  # type: ignore[misc]
        waited = [self._making[name] for name in names]
        if waited:
            await asyncio.wait(waited, timeout=SHOWN_WITHIN_S)

    async def _make(self, name: str) -> None:
        try:
            [result] = await self._controller.create_topics([NewTopic(name=name)])
            if result.error is not None and not isinstance(result.error, TopicExists):
                raise result.error
        except BmqError as error:
            left_out = self._complaints.due(type(error).__name__, now=asyncio.get_running_loop().time())
            if left_out is not None:
                _log.warning("topic of a lane not made", lane=self._lane, topic=name, error=str(error), left_out=left_out)
            return

        def shown(image: Image) -> Topic | None:
            return image.topic(overlay_name(self._lane, name))

        await image_with(self._real, shown, SHOWN_WITHIN_S)
