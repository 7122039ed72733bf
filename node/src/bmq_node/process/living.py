"""A node's life as a process, from its start to its end, whoever runs it: `bmq server`, or the simulator."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from bmq.errors import BmqError
from bmq.storage.durable import cancelled


class CannotGoOn(BmqError):
    """The node served, and may only end now."""


class Living(Protocol):
    """A node of a cluster, or one that has all roles."""

    @property
    def ended(self) -> "asyncio.Future[str]":
        """Resolves with the reason once it may only end."""

    async def stop(self, *, grace_s: float = ...) -> None: ...


async def live(
    node: Living,
    *,
    start: Coroutine[Any, Any, None],
    stop: asyncio.Event,
    serving: Callable[[], None],
    failed: Callable[[BmqError], None],
) -> None:
    """Runs `start`, serves, and stops the node: cleanly once `stop` is set, at once where it cannot go on.

    `failed` is called once, before that end: with what `start` raised, or CannotGoOn.
    """
    starting, stopping = asyncio.ensure_future(start), asyncio.ensure_future(stop.wait())
    ends: list[asyncio.Future[Any]] = [stopping, node.ended]
    ended: BmqError | None = None
    try:
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            serving()
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if node.ended.done():
            ended = CannotGoOn(node.ended.result())
    except BmqError as error:
        ended = error
    if ended is not None:
        failed(ended)
    await cancelled([starting, stopping])
    await (node.stop() if ended is None else node.stop(grace_s=0))
