"""Spools whose channels are gone: sent to the end, closed, and their folders given back; and room for others."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from test_followed_channels import NEW, accepted, statuses
from tests.waiting import until_async

from bmq.runtime.system import SystemClock, SystemRng
from bmq_databus import metrics
from bmq_databus.channels.channel import Channel, Manner, Target
from bmq_databus.channels.order import in_order
from bmq_databus.producing import left_folders, spools
from bmq_databus.producing import writing as writing_module
from bmq_databus.producing.open_files import spools_within
from bmq_databus.producing.outcomes import Outcome
from bmq_databus.producing.writing import Writing
from bmq_databus.spool import channel_spool
from bmq_databus.spool.channel_spool import ChannelSpool, SpoolLimits
from bmq_databus.spool.frames import Once
from bmq_databus.spool.giving_back import give_back, idle_in

THERE = {"bootstrap.servers": "127.0.0.1:9", "test.mock.num.brokers": 1, "log_level": 0, "client.id": "test"}
AWAY = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0, "client.id": "test"}
WITHIN_S = 30


class Clock:
    def __init__(self) -> None:
        self.later_ms = 0
        self._system = SystemClock()

    def now_ms(self) -> int:
        return self._system.now_ms() + self.later_ms

    def elapsed_ms(self) -> float:
        return self._system.elapsed_ms()


@pytest.fixture(autouse=True)
def closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "CLOSE_EVERY_S", 0.01)
    monkeypatch.setattr(left_folders, "LOOK_EVERY_S", 0.01)


def run(
    test: Callable[[Writing], Awaitable[None]],
    *,
    folder: Path,
    channels: dict[str, Channel] | None = None,
    settings: dict[str, Any] = THERE,
    clock: Clock | None = None,
) -> None:
    async def main() -> None:
        writing = Writing(channels or {}, spool_folder=folder, clock=clock or Clock(), rng=SystemRng())
        await writing.start(settings, delivery_ms=100)
        try:
            await test(writing)
        finally:
            await writing.close(patience_s=0)

    asyncio.run(main())


async def closed(writing: Writing) -> None:
    await until_async(lambda: not writing.spools, "the spools to be closed", WITHIN_S)


def inside(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


async def only(names: set[str], folder: Path) -> None:
    await until_async(lambda: inside(folder) == names, f"{names} alone", WITHIN_S, shows=lambda: str(inside(folder)))


def series(channel: str) -> list[str]:
    return [one.name for family in REGISTRY.collect() for one in family.samples if one.labels.get("channel") == channel]


def test_a_spool_is_closed_and_its_folder_goes_when_its_channel_is_gone_and_all_is_sent(tmp_path: Path) -> None:
    async def test(writing: Writing) -> None:
        assert await writing.follow({"gone": accepted("gone"), "stays": accepted("stays")}) == {}
        assert await statuses(writing, "gone", 5) == {202}
        assert series("gone")
        assert await writing.follow({"stays": accepted("stays")}) == {}
        await until_async(lambda: list(writing.spools) == ["stays"], "the other one to be closed", WITHIN_S)
        await only({"stays"}, tmp_path)
        assert series("gone") == []
        assert await statuses(writing, "stays") == {202}

    run(test, folder=tmp_path)


def test_what_a_closed_spool_lost_is_told_on_for_those_that_were_closed_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LOSSES_TOLD_MAX", 2)
    for name in ("l0", "l1", "l2", "none"):
        one = metrics.SpoolMetrics(name)
        one.sent.inc()
        if name != "none":
            one.dropped.inc(2)
        one.forget()
    assert series("none") == series("l0") == []
    assert REGISTRY.get_sample_value("bmq_databus_spool_dropped_total", {"channel": "l2"}) == 2
    assert "bmq_databus_spool_sent_total" not in series("l2")
    again = metrics.SpoolMetrics("l1")
    again.dropped.inc()
    assert REGISTRY.get_sample_value("bmq_databus_spool_dropped_total", {"channel": "l1"}) == 3


def test_what_waits_keeps_a_spool_open_and_a_channel_that_comes_again_goes_on(tmp_path: Path) -> None:
    async def test(writing: Writing) -> None:
        channel = accepted("a")
        await writing.follow({"a": channel, "b": accepted("b")})
        assert await statuses(writing, "a", 3) == {202}
        spool = writing.spools["a"]
        await writing.follow({})
        await until_async(lambda: list(writing.spools) == ["a"], "the empty one to be closed", WITHIN_S)
        assert await writing.follow({"a": accepted("a")}) == {}
        assert writing.spools["a"] is spool
        assert spool.waiting == 3

    run(test, folder=tmp_path, settings=AWAY)
    seen: list[int] = []

    async def later(writing: Writing) -> None:  # what another process left, of a channel that is not there any more
        seen.append(writing.spools["a"].waiting)
        await closed(writing)
        await only(set(), tmp_path)

    run(later, folder=tmp_path)
    assert seen == [3]


def test_who_writes_to_a_channel_that_was_closed_meanwhile_opens_it_again(tmp_path: Path) -> None:
    async def test(writing: Writing) -> None:
        held = writing.channels["a"]
        for _ in range(5):
            await writing.follow({})
            await closed(writing)
            assert await writing.write(held, [NEW], patience_s=0) == [{"status": 202}]
            await closed(writing)
            await writing.follow({"a": held})
            assert await statuses(writing, "a", 2) == {202}
        await writing.follow({})
        await closed(writing)

    run(test, folder=tmp_path, channels={"a": accepted("a")})
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_lost_of_what_is_written_while_a_channel_comes_and_goes(tmp_path: Path) -> None:
    async def test(writing: Writing) -> None:
        held, ended = accepted("a"), asyncio.Event()
        taken = 0

        async def write() -> None:
            nonlocal taken
            while not ended.is_set():
                assert await writing.write(held, [NEW], patience_s=5) == [{"status": 202}]
                taken += 1
                await asyncio.wait({asyncio.ensure_future(ended.wait())}, timeout=0.02)

        sent = 0
        original = channel_spool.ChannelSpool._count

        def count(spool: ChannelSpool, outcome: Any) -> None:
            nonlocal sent
            sent += outcome.end - outcome.first
            original(spool, outcome)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(channel_spool.ChannelSpool, "_count", count)
            writers = [asyncio.ensure_future(write()) for _ in range(4)]
            for _ in range(20):
                await writing.follow({"a": held})
                await until_async(lambda before=taken: taken > before, "something to be written", WITHIN_S)  # type: ignore[misc]
                await writing.follow({})
                await until_async(lambda before=taken: taken > before, "something to be written", WITHIN_S)  # type: ignore[misc]
            ended.set()
            await asyncio.gather(*writers)
            await closed(writing)
        assert sent == taken

    run(test, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_and_threads_do_not_grow_with_channels_that_came_and_went(tmp_path: Path) -> None:
    async def test(writing: Writing) -> None:
        found = []
        for turn in range(4):
            some = {f"x{turn}-{n}": accepted(f"x{turn}-{n}") for n in range(20)}
            assert await writing.follow(some) == {}
            for name in some:
                assert await statuses(writing, name) == {202}
            await writing.follow({})
            await closed(writing)
            found.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
        assert found[-1][0] <= found[0][0] + 2, found
        assert found[-1][1] <= found[0][1] + 2, found

    run(test, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_keys_of_requests_keep_a_folder_until_their_windows_are_over(tmp_path: Path) -> None:
    clock = Clock()

    async def test(writing: Writing) -> None:
        def once(_: list[Outcome]) -> Once:
            return Once("k", b"f", clock.now_ms() + 60_000, 202, b"{}")

        channel = writing.channels["a"]
        assert await writing.write(channel, [NEW], patience_s=0, once=once) == [{"status": 202}]
        await writing.follow({})
        await closed(writing)
        await only({"id", "keys"}, tmp_path / "a")
        await writing.follow({"a": channel})
        told: list[Once] = []
        assert not writing.are_keys_read(channel)
        await writing.read_keys(channel, told.extend)
        assert [one.key for one in told] == ["k"]
        await writing.follow({})
        await closed(writing)
        assert (tmp_path / "a" / "keys").exists()
        clock.later_ms = 61_000
        await only(set(), tmp_path)

    run(test, folder=tmp_path, channels={"a": accepted("a")}, clock=clock)


@pytest.mark.parametrize("kept", ["refused.jsonl", "00000000000000000007.damaged", "replaying", "of-somebody-else"])
def test_what_is_to_be_kept_keeps_the_folder(tmp_path: Path, kept: str) -> None:
    async def test(writing: Writing) -> None:
        if kept == "replaying":
            (tmp_path / "a" / kept).mkdir()
        else:
            (tmp_path / "a" / kept).write_text("{}\n")
        await writing.follow({})
        await closed(writing)
        await only({"id", kept}, tmp_path / "a")

    run(test, folder=tmp_path, channels={"a": accepted("a")})


def test_folders_of_channels_that_earlier_processes_had_go_once_channels_are_known(tmp_path: Path) -> None:
    async def had(writing: Writing) -> None:
        assert set(writing.spools) == {"a", "b"}

    run(had, folder=tmp_path, channels={"a": accepted("a"), "b": accepted("b")})
    (tmp_path / "lost+found").mkdir()
    assert idle_in(tmp_path) == ["a", "b"]

    async def test(writing: Writing) -> None:
        assert inside(tmp_path) == {"a", "b", "lost+found"}
        await writing.follow({"b": accepted("b")})
        await only({"b", "lost+found"}, tmp_path)

    run(test, folder=tmp_path)


def test_a_folder_that_somebody_has_stays(tmp_path: Path) -> None:
    async def test(writing: Writing) -> None:
        assert give_back(tmp_path, "a", now_ms=writing.now_ms()) == 0
        assert (tmp_path / "a" / "id").exists()

    run(test, folder=tmp_path, channels={"a": accepted("a")})
    assert give_back(tmp_path, "a", now_ms=0) == 0
    assert not (tmp_path / "a").exists()


def test_spools_for_other_clusters_go_with_their_channel(tmp_path: Path) -> None:
    others = (Target(topic="t", manner=Manner(bootstrap_servers="127.0.0.1:9")),)
    channel = Channel(name="a", topic="a", acknowledgement="accepted", spool=SpoolLimits(), others=others)

    async def test(writing: Writing) -> None:
        assert await writing.follow({"a": channel}) == {}
        assert set(writing.spools) == {"a", "a@127.0.0.1:9"}
        await writing.follow({"a": accepted("a")})
        await until_async(lambda: list(writing.spools) == ["a"], "the other cluster's to be closed", WITHIN_S)
        await only({"id"}, tmp_path / "a")
        assert await statuses(writing, "a") == {202}
        await writing.follow({"a": channel})
        await writing.follow({})
        await closed(writing)
        await only(set(), tmp_path)

    run(test, folder=tmp_path)


def test_a_spool_more_than_there_are_files_for_is_told_and_has_room_when_another_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing_module, "spools_within", lambda _: 2)
    wanted = {name: accepted(name) for name in "abc"}

    async def test(writing: Writing) -> None:
        troubles = await writing.follow(wanted)
        assert list(troubles) == ["c"]
        assert "no files to connections: raise the limit of open files (ulimit -n" in troubles["c"]
        assert list(writing.channels) == ["a", "b"]
        assert await statuses(writing, "a") == {202}
        assert await writing.follow({"b": wanted["b"]}) == {}
        await until_async(lambda: list(writing.spools) == ["b"], "the one that is gone to be closed", WITHIN_S)
        assert await writing.follow({"b": wanted["b"], "c": wanted["c"]}) == {}
        assert await statuses(writing, "c") == {202}

    run(test, folder=tmp_path)


@pytest.mark.parametrize(("files", "found"), [(1_024, 128), (256, 25), (1 << 20, 209_638)])
def test_spools_leave_files_to_connections(files: int, found: int) -> None:
    assert spools_within(files) == found
    assert spools_within(-1) > 1 << 30


def test_a_channel_is_served_as_soon_as_it_has_its_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, may_go_on = asyncio.Event(), asyncio.Event()
    original = ChannelSpool.opened

    async def opened(folder: Path, **arguments: Any) -> ChannelSpool:
        if folder.name == "c":
            reached.set()
            await may_go_on.wait()
        return await original(folder, **arguments)

    monkeypatch.setattr(ChannelSpool, "opened", opened)

    async def test(writing: Writing) -> None:
        wanted = {name: accepted(name) for name in "abc"} | {"d": Channel(name="d", topic="d")}
        following = asyncio.ensure_future(writing.follow(wanted))
        await asyncio.wait_for(reached.wait(), WITHIN_S)
        assert set(writing.channels) == {"a", "b", "d"}
        assert await statuses(writing, "a") == {202}
        may_go_on.set()
        assert await following == {}
        assert list(writing.channels) == ["a", "b", "c", "d"]

    run(test, folder=tmp_path)


def test_a_channel_is_served_behind_the_one_that_gets_its_dead_letters() -> None:
    def one(name: str, dead_letter: str = "", *, durable: bool = False) -> Channel:
        acknowledgement = "durable" if durable else "accepted"
        return Channel(name=name, topic=name, dead_letter=dead_letter, acknowledgement=acknowledgement)  # type: ignore[arg-type]

    channels = [one("a"), one("b", "c"), one("c", "e"), one("d", "nowhere", durable=True), one("e", "b")]
    assert in_order({channel.name: channel for channel in channels}) == ["d", "a", "e", "c", "b"]


def test_a_spool_that_could_not_be_opened_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        def broken(_: Path) -> Any:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(channel_spool, "undone_in", broken)
            before = threading.active_count()
            with pytest.raises(OSError, match="Too many open files"):
                await ChannelSpool.opened(tmp_path, limits=SpoolLimits(), clock=Clock())
            assert threading.active_count() == before
        spool = await ChannelSpool.opened(tmp_path, limits=SpoolLimits(), clock=Clock())
        await spool.close()

    asyncio.run(main())
