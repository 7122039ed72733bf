"""Channels that change while a sidecar writes to them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from bmq.runtime.system import SystemClock, SystemRng
from bmq_databus.channels.channel import Channel
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.writing import Writing
from bmq_databus.spool.channel_spool import SpoolLimits

NOWHERE = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0, "client.id": "test"}
NEW = NewMessage(key=None, value=b"x" * 1_000)


def accepted(name: str, *, bytes_max: int = 1 << 20) -> Channel:
    limits = SpoolLimits(bytes_max=bytes_max, when_full="reject", segment_bytes=bytes_max // 8)
    return Channel(name=name, topic=name, acknowledgement="accepted", spool=limits)


def run(test: Callable[[Writing], Awaitable[None]], *, folder: Path | None, channels: dict[str, Channel]) -> None:
    async def main() -> None:
        writing = Writing(channels, spool_folder=folder, clock=SystemClock(), rng=SystemRng())
        await writing.start(NOWHERE, delivery_ms=100)
        try:
            await test(writing)
        finally:
            await writing.close(patience_s=0)

    asyncio.run(main())


async def statuses(writing: Writing, name: str, count: int = 1) -> set[int]:
    found = [await writing.write(writing.channels[name], [NEW], patience_s=0) for _ in range(count)]
    return {outcome["status"] for one in found for outcome in one}


def test_a_channel_begins_to_accept_and_its_bounds_change_while_it_does(tmp_path: Path) -> None:
    async def test(writing: Writing) -> None:
        seen = writing.channels
        assert await writing.follow({"a": accepted("a")}) == {}
        assert await statuses(writing, "a", 20) == {202}
        assert await writing.follow({"a": accepted("a", bytes_max=8_000)}) == {}
        assert await statuses(writing, "a") == {507}
        assert await writing.follow({"a": accepted("a", bytes_max=1 << 21)}) == {}
        assert await statuses(writing, "a", 20) == {202}
        assert writing.channels is seen, "who looks at them sees them change"

    run(test, folder=tmp_path, channels={})


def test_a_channel_that_goes_keeps_its_spool_and_finds_it_when_it_comes_again(tmp_path: Path) -> None:
    async def test(writing: Writing) -> None:
        held = writing.channels["a"]
        assert await statuses(writing, "a", 3) == {202}
        assert await writing.follow({}) == {}
        assert writing.channels == {}
        [late] = await writing.write(held, [NEW], patience_s=0)
        assert late == {"status": 202}, "what was begun before is written as it was begun"
        assert await writing.follow({"a": accepted("a")}) == {}
        assert await statuses(writing, "a") == {202}

    run(test, folder=tmp_path, channels={"a": accepted("a")})
    assert list((tmp_path / "a").glob("*")) != []


def test_what_cannot_be_accepted_leaves_a_channel_as_it_was_and_the_others_follow(tmp_path: Path) -> None:
    async def test(writing: Writing) -> None:
        before = writing.channels["a"]
        wanted = {"a": accepted("a"), "b": accepted("b"), "c": Channel(name="c", topic="t")}
        troubles = await writing.follow(wanted)
        assert set(troubles) == {"a", "b"}
        assert all("--spool DIR" in why for why in troubles.values())
        assert writing.channels == {"a": before, "c": wanted["c"]}

    run(test, folder=None, channels={"a": Channel(name="a", topic="a")})
