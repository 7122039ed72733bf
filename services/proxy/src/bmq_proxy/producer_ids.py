"""Producer ids, taken from the controller in blocks. An id is handed out once, over the life of the cluster."""

import asyncio

from bmq.roles.controller import Controller

BLOCK_SIZE = 1_000


class ProducerIds:
    """Hands ids out one by one; asks the controller for the next block when one is used up, once for all who wait."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._left = range(0)
        self._refill = asyncio.Lock()

    async def next(self) -> int:
        """An id never handed out before. Raises ControllerUnavailable."""
        while not self._left:
            async with self._refill:
                if not self._left:
                    self._left = await self._controller.allocate_producer_ids(BLOCK_SIZE)
        producer_id, self._left = self._left[0], self._left[1:]
        return producer_id
