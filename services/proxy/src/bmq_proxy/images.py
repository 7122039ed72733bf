"""Waiting for what was just committed to show up in this node's image."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from bmq.metadata.image import Image
from bmq.roles.controller import Metadata

T = TypeVar("T")

SHOWN_WITHIN_S: Final = 5.0
"""So long an answer waits for what it tells of: a node is rarely so far behind."""


async def image_with(
    metadata: Metadata, find: Callable[[Image], T | None], timeout_s: float = SHOWN_WITHIN_S
) -> T | None:
    """What `find` finds as soon as it finds something; None where it does not in time."""
    shown: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def changed(_: Image, new: Image) -> None:
        value = find(new)
        if value is not None and not shown.done():
            shown.set_result(value)

    unsubscribe = metadata.subscribe(changed)
    try:
        found = find(metadata.image)  # once it is certain that what comes after it is told
        if found is not None:
            return found
        async with asyncio.timeout(timeout_s):
            return await shown
    except TimeoutError:
        return None
    finally:
        unsubscribe()
