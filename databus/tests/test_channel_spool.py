"""What a spool accepted is handed on once, in its order, whatever happened to its process and its files."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from bmq_databus.errors import SpoolFailed, SpoolFull, SpoolInUse
from bmq_databus.spool import channel_spool, segments
from bmq_databus.spool.aside import DEFAULT_LIMITS, AsideLimits
from bmq_databus.spool.channel_spool import ChannelSpool, SpoolLimits, WhenFull
from bmq_databus.spool.frames import REFUSED, SENT, Spooled, encode_frame
from bmq_databus.spool.reading import Read

AT_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = AT_MS

    def now_ms(self) -> int:
        return self.ms

    def elapsed_ms(self) -> float:
        return float(self.ms)


def message(name: str, size_bytes: int = 0) -> Spooled:
    return Spooled(
        topic="orders",
        partition=-1,
        key=name.encode(),
        value=b"v" * size_bytes,
        headers=(("a", b"1"), ("b", None)),
        timestamp_ms=AT_MS,
        accepted_ms=AT_MS,
    )


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"))


def names(reads: Sequence[Read]) -> list[str]:
    return [(one.message.key or b"").decode() for one in reads]


async def read_all(spool: ChannelSpool, count: int) -> list[Read]:
    found: list[Read] = []
    while len(found) < count:
        found += await asyncio.wait_for(spool.read(), 5)
    return found


async def opened(
    folder: Path, clock: Clock | None = None, *, aside: AsideLimits = DEFAULT_LIMITS, **limits: Any
) -> ChannelSpool:
    return await ChannelSpool.opened(folder, limits=SpoolLimits(**limits), clock=clock or Clock(), aside=aside)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


async def killed(spool: ChannelSpool) -> None:
    """Nothing of it is closed or written any more; the kernel drops its lock."""
    await settled(spool)
    assert spool._held is not None
    spool._held.leave()


def count(spool: ChannelSpool, what: str) -> float:
    return float(getattr(spool._metrics, what)._value.get())


async def settled(spool: ChannelSpool) -> None:
    while under_way := [task for task in spool._tasks.values() if not task.done()]:
        await asyncio.gather(*under_way)


@in_a_loop
async def test_what_was_accepted_is_read_in_its_order_with_all_that_it_has(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    sent = [message(f"m{n}", n * 100) for n in range(50)]
    await asyncio.gather(*(spool.accept(sent[n : n + 5], patience_s=1) for n in range(0, 50, 5)))
    found = await read_all(spool, 50)
    assert [one.message for one in found] == sent
    assert [one.number for one in found] == list(range(50))
    assert not any(one.again for one in found)
    spool.settle([one.number for one in found], SENT)
    await spool.close()
    assert (count(spool, "sent"), spool.waiting) == (50, 0)


@in_a_loop
async def test_a_new_process_sends_what_the_last_one_did_not_and_says_what_may_be_there_already(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    await first.accept([message(f"m{n}") for n in range(10)], patience_s=1)
    reads = await read_all(first, 10)
    first.settle([reads[n].number for n in (0, 1, 2, 5)], SENT)
    first.settle([reads[8].number], REFUSED)
    await settled(first)
    await first.accept([message(f"later{n}") for n in range(3)], patience_s=1)
    await killed(first)
    second = await opened(tmp_path)
    await second.accept([message("new")], patience_s=1)
    found = await read_all(second, 9)
    assert names(found) == ["m3", "m4", "m6", "m7", "m9", "later0", "later1", "later2", "new"]
    assert [one.again for one in found] == [True] * 5 + [False] * 4
    second.settle([one.number for one in found], SENT)
    await second.close()
    assert count(second, "sent_again") == 5
    third = await opened(tmp_path)
    assert third.waiting == 0
    await third.close()


@in_a_loop
async def test_the_torn_end_of_a_killed_process_hides_nothing(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    await first.accept([message("whole", 1000)], patience_s=1)
    await first.close()
    [path] = files(tmp_path, ".spool")
    whole = path.read_bytes()
    for cut in (1, 10, 23, 24, 25, 500):
        path.write_bytes(whole + whole[22:][:cut])
        steps = path.with_suffix(".steps")
        steps.write_bytes(b"\x02torn")
        again = await opened(tmp_path)
        assert names(await read_all(again, 1)) == ["whole"]
        await again.close()


@in_a_loop
async def test_a_damaged_frame_is_passed_over_and_its_segment_kept_aside(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    for n in range(3):
        await first.accept([message(f"m{n}a", 100), message(f"m{n}b", 100)], patience_s=1)
    await first.close()
    [path] = files(tmp_path, ".spool")
    data = bytearray(path.read_bytes())
    data[data.index(b"m1a") + 20] ^= 1
    path.write_bytes(data)
    second = await opened(tmp_path)
    await second.accept([message("new")], patience_s=1)
    found = await read_all(second, 5)
    assert names(found) == ["m0a", "m0b", "m2a", "m2b", "new"]
    second.settle([one.number for one in found], SENT)
    await second.close()
    assert count(second, "damaged") == 2
    assert [one.suffix for one in files(tmp_path, ".damaged")] == [".damaged"]
    assert [one.name for one in files(tmp_path, ".spool")] == [f"{6:020}.spool"]


@in_a_loop
async def test_a_segment_whose_head_is_damaged_is_kept_aside_and_the_rest_goes_on(tmp_path: Path) -> None:
    first = await opened(tmp_path, segment_bytes=1)
    for n in range(3):
        await first.accept([message(f"m{n}")], patience_s=1)
    await first.close()
    paths = files(tmp_path, ".spool")
    assert len(paths) == 3
    paths[1].write_bytes(b"junk" * 100)
    second = await opened(tmp_path)
    assert names(await read_all(second, 2)) == ["m0", "m2"]
    await second.close()
    assert len(files(tmp_path, ".damaged")) == 1


@in_a_loop
async def test_a_segment_of_a_later_version_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("bmq_databus.spool.frames.VERSION", 2)
        newer = await opened(tmp_path)
        await newer.accept([message("newer")], patience_s=1)
        await newer.close()
    older = await opened(tmp_path)
    await older.accept([message("older")], patience_s=1)
    assert names(await read_all(older, 1)) == ["older"]
    await older.close()
    with monkeypatch.context() as later:
        later.setattr("bmq_databus.spool.frames.VERSION", 2)
        newer = await opened(tmp_path)
        assert names(await read_all(newer, 2)) == ["newer", "older"]
        await newer.close()


@in_a_loop
async def test_space_is_given_back_by_whole_segments(tmp_path: Path) -> None:
    spool = await opened(tmp_path, segment_bytes=900)
    for n in range(6):
        await spool.accept([message(f"m{n}", 900)], patience_s=1)
    found = await read_all(spool, 6)
    assert len(files(tmp_path, ".spool")) == 6
    before = spool.size_bytes
    spool.settle([one.number for one in found[:3]], SENT)
    await settled(spool)
    assert len(files(tmp_path, ".spool")) == 3
    assert spool.size_bytes < before * 0.6
    await spool.close()


@pytest.mark.parametrize("when_full", ["reject", "block"])
@in_a_loop
async def test_a_full_spool_accepts_nothing_more_until_there_is_room(tmp_path: Path, when_full: WhenFull) -> None:
    spool = await opened(tmp_path, segment_bytes=1, bytes_max=3000, when_full=when_full)
    for n in range(2):
        await spool.accept([message(f"m{n}", 1000)], patience_s=1)
    with pytest.raises(SpoolFull, match="of the 3000 that it may"):
        await spool.accept([message("m2", 1000)], patience_s=0.05)
    later = asyncio.ensure_future(spool.accept([message("m3", 1000)], patience_s=5))
    if when_full == "reject":
        with pytest.raises(SpoolFull):
            await later
    found = await read_all(spool, 2)
    spool.settle([one.number for one in found], SENT)
    await settled(spool)
    if when_full == "reject":
        later = asyncio.ensure_future(spool.accept([message("m3", 1000)], patience_s=1))
    await later
    assert names(await read_all(spool, 1)) == ["m3"]
    with pytest.raises(SpoolFull, match="more than the whole spool"):
        await spool.accept([message("m4", 4000)], patience_s=1)
    await spool.close()


@in_a_loop
async def test_the_oldest_give_way_where_that_is_asked_for_and_are_counted(tmp_path: Path) -> None:
    spool = await opened(tmp_path, segment_bytes=1, bytes_max=3000, when_full="drop_oldest")
    for n in range(10):
        await spool.accept([message(f"m{n}", 1000)], patience_s=1)
    assert count(spool, "dropped") == 8
    assert names(await read_all(spool, 2)) == ["m8", "m9"]
    await spool.close()


@in_a_loop
async def test_what_is_too_old_is_given_up_and_counted(tmp_path: Path) -> None:
    clock = Clock()
    spool = await opened(tmp_path, clock, segment_bytes=1, age_s_max=60.0)
    await spool.accept([message("old")], patience_s=1)
    clock.ms += 50_000
    await spool.accept([message("young")], patience_s=1)
    assert await spool.expire() == 0
    clock.ms += 11_000
    assert await spool.expire() == 1
    assert names(await read_all(spool, 1)) == ["young"]
    assert count(spool, "dropped") == 1
    await spool.close()


@in_a_loop
async def test_a_full_disk_refuses_what_it_did_not_take_and_takes_on_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = await opened(tmp_path)
    await spool.accept([message("before")], patience_s=1)

    def full(fd: int, parts: Sequence[Any]) -> None:
        os.write(fd, bytes(parts[0])[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(segments, "write_all", full)
        with pytest.raises(SpoolFailed, match=r"not accepted.*No space left.*free space"):
            await spool.accept([message("refused")], patience_s=1)
    await spool.accept([message("after")], patience_s=1)
    assert names(await read_all(spool, 2)) == ["before", "after"]
    assert spool.trouble == ""
    await spool.close()
    again = await opened(tmp_path)
    assert names(await read_all(again, 2)) == ["before", "after"]
    await again.close()


@in_a_loop
async def test_a_folder_is_one_sidecars(tmp_path: Path) -> None:
    first = await opened(tmp_path / "clicks")
    with pytest.raises(SpoolInUse, match=r"is another process's.*: end that"):
        await opened(tmp_path / "clicks")
    await first.close()
    await (await opened(tmp_path / "clicks")).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolFailed, match=r"spool .*file.*: (Not a directory|File exists)"):
        await opened(tmp_path / "file")


@in_a_loop
async def test_what_is_behind_much_that_is_sent_already_is_read_before_the_next_segment(tmp_path: Path) -> None:
    first = await opened(tmp_path, segment_bytes=4 << 20)
    for n in range(40):
        await first.accept([message(f"m{n}", 200_000)], patience_s=1)
    reads = await read_all(first, 40)
    first.settle([one.number for one in reads[:12]], SENT)
    await killed(first)
    assert len(files(tmp_path, ".spool")) == 2
    second = await opened(tmp_path)
    assert names(await read_all(second, 28)) == [f"m{n}" for n in range(12, 40)]
    await second.close()


@in_a_loop
async def test_steps_without_their_segment_count_for_no_other_one(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    await first.accept([message(f"old{n}") for n in range(5)], patience_s=1)
    first.settle([one.number for one in await read_all(first, 5)], SENT)
    await killed(first)
    [spool] = files(tmp_path, ".spool")
    spool.unlink()  # and it died before the steps went, too
    second = await opened(tmp_path)
    await second.accept([message(f"new{n}") for n in range(5)], patience_s=1)
    await killed(second)
    third = await opened(tmp_path)
    assert names(await read_all(third, 5)) == [f"new{n}" for n in range(5)]
    await third.close()


@in_a_loop
async def test_a_spool_that_drops_the_oldest_waits_for_what_is_being_written(tmp_path: Path) -> None:
    spool = await opened(tmp_path, bytes_max=1 << 20, segment_bytes=1 << 17, when_full="drop_oldest")
    accepting = [spool.accept([message(f"m{n}", 600_000)], patience_s=5) for n in range(4)]
    await asyncio.wait_for(asyncio.gather(*accepting), 10)
    assert len(await read_all(spool, 1)) == 1
    assert count(spool, "dropped") == 3
    await spool.close()


@pytest.mark.parametrize("when_full", ["block", "reject"])
@in_a_loop
async def test_a_small_spool_takes_on_for_ever_what_is_sent_at_once(tmp_path: Path, when_full: WhenFull) -> None:
    spool = await opened(tmp_path, bytes_max=1 << 20, segment_bytes=1 << 17, when_full=when_full)
    for n in range(100):
        await spool.accept([message(f"m{n}", 300_000)], patience_s=5)
        spool.settle([one.number for one in await read_all(spool, 1)], SENT)
        await settled(spool)
    await spool.expire()
    assert (spool.waiting, spool.size_bytes, files(tmp_path, ".spool")) == (0, 0, [])
    await spool.close()


@pytest.mark.parametrize("at", ["head", "payload"])
@in_a_loop
async def test_a_damaged_byte_costs_its_frame_alone_and_is_counted(tmp_path: Path, at: str) -> None:
    first = await opened(tmp_path)
    for n in range(5):
        await first.accept([message(f"m{n}", 100)], patience_s=1)
    await first.close()
    [path] = files(tmp_path, ".spool")
    data = bytearray(path.read_bytes())
    head = [n for n in range(len(data)) if data[n : n + 4] == b"bmqf"][1]
    data[head + (5 if at == "head" else 40)] ^= 4
    path.write_bytes(data)
    second = await opened(tmp_path)
    found = await read_all(second, 4)
    assert names(found) == ["m0", "m2", "m3", "m4"]
    second.settle([one.number for one in found], SENT)
    await second.close()
    assert count(second, "damaged") == 1
    assert (files(tmp_path, ".spool"), len(files(tmp_path, ".damaged"))) == ([], 1)


@in_a_loop
async def test_a_spool_whose_rest_is_damaged_is_given_back(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    await first.accept([message("lost", 900_000)], patience_s=1)
    await first.close()
    [path] = files(tmp_path, ".spool")
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    second = await opened(tmp_path, bytes_max=1 << 20, segment_bytes=1 << 17)
    reading = asyncio.ensure_future(second.read())
    await asyncio.wait_for(second.accept([message("next", 900_000)], patience_s=5), 10)
    assert names(await reading) == ["next"]
    await second.close()


@in_a_loop
async def test_a_disk_that_does_not_take_what_became_of_messages_stops_nothing_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_spool, "AGAIN_S", 0.01)
    spool = await opened(tmp_path)
    await spool.accept([message(f"m{n}") for n in range(6)], patience_s=1)
    write_all, failures = segments.write_all, [7, 7]

    def fails(fd: int, parts: Sequence[Any]) -> None:
        if len(bytes(parts[0])) == 17 * (len(bytes(parts[0])) // 17) and failures:
            os.write(fd, bytes(parts[0])[: failures.pop()])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, parts)

    monkeypatch.setattr(segments, "write_all", fails)
    found = await read_all(spool, 6)  # the first try to note that they are begun fails
    assert names(found) == [f"m{n}" for n in range(6)]
    failures.append(5)
    spool.settle([one.number for one in found[:5]], SENT)
    await settled(spool)
    assert (spool.waiting, count(spool, "sent")) == (1, 5)
    await killed(spool)
    again = await opened(tmp_path)
    [last] = await read_all(again, 1)
    assert (names([last]), last.again) == (["m5"], True)
    await again.close()


@in_a_loop
async def test_a_disk_that_is_full_of_messages_is_emptied_by_sending_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = await opened(tmp_path)
    await spool.accept([message("first")], patience_s=1)
    await read_all(spool, 1)
    await spool.accept([message(f"m{n}") for n in range(100)], patience_s=1)
    [steps] = files(tmp_path, ".steps")
    assert steps.stat().st_size >= 64 << 10
    await spool.close()


@in_a_loop
async def test_a_read_that_fails_is_made_again_from_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_spool, "AGAIN_S", 0.01)
    spool = await opened(tmp_path)
    for n in range(5):
        await spool.accept([message(f"m{n}", 100)], patience_s=1)
    read_range, failures = segments.read_range, [7]

    def fails(fd: int, *, start: int, length: int | None) -> bytes:
        failures[0] -= 1
        if failures[0] == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_range(fd, start=start, length=length)

    monkeypatch.setattr(segments, "read_range", fails)
    assert names(await read_all(spool, 5)) == [f"m{n}" for n in range(5)]
    await spool.close()


@in_a_loop
async def test_a_frame_in_a_messages_value_is_none_of_the_spools(tmp_path: Path) -> None:
    other = await opened(tmp_path / "other")
    await other.accept([message("inner")], patience_s=1)
    await other.close()
    [path] = files(tmp_path / "other", ".spool")
    inner = encode_frame(10**12, [message("forged")])
    first = await opened(tmp_path / "clicks")
    forged = Spooled("orders", -1, b"m0", path.read_bytes() + b"".join(inner), (), AT_MS, AT_MS)
    await first.accept([forged], patience_s=1)
    await first.accept([message("m1")], patience_s=1)
    await first.close()
    [path] = files(tmp_path / "clicks", ".spool")
    data = bytearray(path.read_bytes())
    data[data.index(b"bmqf") + 5] ^= 1
    path.write_bytes(data)
    second = await opened(tmp_path / "clicks")
    assert names(await read_all(second, 1)) == ["m1"]
    await second.accept([message("m2")], patience_s=1)
    assert "m2" in names(await read_all(second, 1))
    await second.close()


@in_a_loop
async def test_what_may_be_a_lost_frame_at_the_end_is_kept_aside(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    for n in range(2):
        await first.accept([message(f"m{n}", 100)], patience_s=1)
    await first.close()
    [path] = files(tmp_path, ".spool")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"bmqf") + 5] ^= 1
    path.write_bytes(data)
    second = await opened(tmp_path)
    second.settle([one.number for one in await read_all(second, 1)], SENT)
    await second.close()
    assert (files(tmp_path, ".spool"), len(files(tmp_path, ".damaged"))) == ([], 1)
