"""A call that is to be a stream gives way before its first request, and afterwards as that stream."""

import asyncio
from typing import cast

import pytest
from test_streams import in_a_loop

from bmq_databus.grpc.call import Call, Context
from bmq_databus.grpc.requests import Cut
from bmq_databus.grpc.statuses import failure_of
from bmq_databus.grpc.streams import Begun, Stream
from bmq_databus.requests.places import GaveWay


class Peer:
    """A call's client, that sends what it is told to."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def read(self) -> bytes:
        return await self.sent.get()


class Running:
    """A stream that runs until it gives way."""

    quiet_s = 7.0

    def __init__(self) -> None:
        self.gave_way = asyncio.Event()

    def give_way(self) -> None:
        self.gave_way.set()

    async def run(self, _: Cut) -> None:
        await self.gave_way.wait()


def begun_by(peer: Peer) -> Begun:
    return Begun(Call(cast(Context, peer), lambda _: None))


@in_a_loop
async def test_one_whose_first_request_does_not_come_gives_way() -> None:
    begun = begun_by(Peer())
    first = asyncio.ensure_future(begun.first(within_s=60))
    await asyncio.sleep(0)
    assert begun.quiet_s > 0
    begun.give_way()
    with pytest.raises(GaveWay):
        await first
    assert "begin another one" in failure_of(GaveWay()).why


@in_a_loop
async def test_with_its_first_request_there_it_is_as_quiet_as_its_stream_and_gives_way_as_that() -> None:
    peer, stream = Peer(), Running()
    begun = begun_by(peer)
    peer.sent.put_nowait(b"")
    assert await begun.first(within_s=60) == b""
    assert begun.quiet_s == 0, "the sidecar looks at it"
    run = asyncio.ensure_future(begun.run(cast(Stream, stream), Cut(b"")))
    await asyncio.sleep(0)
    assert begun.quiet_s == stream.quiet_s
    begun.give_way()
    await run
