"""A node's image as the rest of the node sees it: whoever follows the metadata log publishes here, everyone else reads
and subscribes.

In the process of the controller's leader the leader publishes; elsewhere a follower that reads the log does
(`bmq.metadata.follower`).
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from bmq.metadata.image import Image

Changed = Callable[[Image, Image], None]


class MetadataFeed:
    """`bmq.roles.controller.Metadata`. Everything on one event loop."""

    def __init__(self, image: Image | None = None) -> None:
        self._image = image if image is not None else Image()
        self._subscribers: dict[int, Changed] = {}
        self._numbers = count()
        self._waiting: list[tuple[int, int, asyncio.Future[Image]]] = []

    @property
    def image(self) -> Image:
        """The newest one that was published."""
        return self._image

    def publish(self, image: Image) -> None:
        """Makes `image` the node's own and lets everyone know. One that is not newer is passed over.

        Subscribers are called by the loop, one by one and in the order of publication; one that raises harms nobody
        else. Whoever is woken by a future that is resolved after this call runs after them.
        """
        old = self._image
        if image.position <= old.position:
            return
        self._image = image
        loop = asyncio.get_running_loop()
        for number in self._subscribers:
            loop.call_soon(self._tell, number, old, image)
        while self._waiting and self._waiting[0][0] <= image.position:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(image)

    def subscribe(self, changed: Changed) -> Callable[[], None]:
        """Calls `changed(old, new)` on the loop after each change; returns the unsubscriber."""
        number = next(self._numbers)
        self._subscribers[number] = changed

        def unsubscribe() -> None:
            self._subscribers.pop(number, None)

        return unsubscribe

    async def wait_for(self, position: int) -> Image:
        """The image once it covers the metadata log's entry `position`. The caller sets the limit of time."""
        if self._image.position >= position:
            return self._image
        future: asyncio.Future[Image] = asyncio.get_running_loop().create_future()
        waiting = (position, next(self._numbers), future)
        heapq.heappush(self._waiting, waiting)
        try:
            return await future
        finally:
            if future.cancelled():
                self._waiting.remove(waiting)
                heapq.heapify(self._waiting)

    def _tell(self, number: int, old: Image, new: Image) -> None:
        changed = self._subscribers.get(number)
        if changed is not None:
            changed(old, new)
