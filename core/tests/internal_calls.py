"""What the tests of calls between two nodes share: calls that carry a number, an append that is answered when told to,
raw connections.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from internal_under_test import RUNNER_IDS, RUNNERS

from bmq.internal import InternalClient
from bmq.internal.framing.apis import Api
from bmq.internal.framing.frames import Frame, FrameReader
from bmq.internal.framing.packing import Packed
from bmq.internal.framing.routes import Handlers, Incoming, Route, answered_by, header_of

every_loop = pytest.mark.parametrize("run", RUNNERS, ids=RUNNER_IDS)

NUMBER = Packed[int](int)


def number(frame: Frame) -> int:
    return NUMBER.decode(frame.header)


def control(work: Callable[[int], Awaitable[int]], api: Api = Api.GROUP_CALL) -> Handlers:
    return {api: answered_by(NUMBER, work, header_of(NUMBER))}


class Appends:
    """Takes appends and answers them when it is told to: with their number, in any order."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.held: dict[int, asyncio.Future[int]] = {}
        self.at_once = False
        self.route = Route(begin=self._begin, encode=header_of(NUMBER))

    @property
    def handlers(self) -> Handlers:
        return {Api.APPEND: self.route}

    def _begin(self, incoming: Incoming) -> "asyncio.Future[int]":
        value = NUMBER.decode(incoming.header)
        self.taken.append(value)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.at_once:
            future.set_result(value)
        else:
            self.held[value] = future
        return future

    def release(self) -> None:
        self.at_once = True
        held, self.held = self.held, {}
        for value, future in held.items():
            if not future.done():
                future.set_result(value)


def append(client: InternalClient, value: int, size_bytes: int = 0) -> "asyncio.Future[int]":
    return client.submit(Api.APPEND, NUMBER.encode(value), number, attachments=[bytes(size_bytes)])


def ask(
    client: InternalClient, value: int, api: Api = Api.GROUP_CALL, timeout_s: float | None = None
) -> Awaitable[int]:
    return client.call(api, NUMBER.encode(value), number, timeout_s=timeout_s)


async def outcomes(calls: list[Any]) -> list[Any]:
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def raw(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(host, port)


async def frames_until_the_end(reader: asyncio.StreamReader) -> list[Frame]:
    frames = FrameReader()
    frames.trust()
    try:
        return frames.feed(await asyncio.wait_for(reader.read(), 5))
    except ConnectionError:
        return []
