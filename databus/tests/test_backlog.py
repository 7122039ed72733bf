"""What is on disk is shown and exported as it is, whatever happened to it, and none of its bytes change by that."""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_channel_spool import AT_MS, Clock, count, files, in_a_loop, killed, message, opened, read_all, settled

from bmq_databus.backlog import refused as refused_module
from bmq_databus.backlog.channels import NoSpool, chosen, the_one
from bmq_databus.backlog.exporting import (
    Exported,
    Place,
    export_damaged,
    export_refused,
    export_waiting,
    place_of,
)
from bmq_databus.backlog.looking import look, waiting_in
from bmq_databus.backlog.refused import NO_LIMITS, finish, in_order, refused_spool
from bmq_databus.backlog.summary import Summary, summary_of
from bmq_databus.errors import SpoolDamaged
from bmq_databus.messages.forms import NewMessage, from_json_lines
from bmq_databus.spool import reading
from bmq_databus.spool.channel_spool import ChannelSpool
from bmq_databus.spool.frames import REFUSED, SENT, Spooled
from bmq_databus.spool.refused import FILE, OLDER, Refused, RefusedFiles, refused_in
from bmq_databus.spool.sizes import bytes_of

ODD = (
    Spooled("orders", 3, b"\xff\x00", b"\x00\xff", (("h", b"1"), ("h", b"\xfe"), ("n", None)), 17, AT_MS),
    Spooled("orders", -1, None, None, (), AT_MS, AT_MS),
    Spooled("orders", -1, b"", b"", (("h", b""),), AT_MS, AT_MS),
    Spooled("orders", -1, b"k", b'{"a": 1.50}', (), AT_MS, AT_MS),
    Spooled("orders", -1, b"k", b"zwei\nZeilen", (), AT_MS, AT_MS),
)


def bytes_in(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def exported(export: Callable[..., Exported], folder: Path, **options: Any) -> tuple[Exported, list[NewMessage]]:
    """What it told, and the messages that its lines make; nothing in the folder is another one then."""
    before, lines = bytes_in(folder), bytearray()
    told = export(folder, lines.extend, **options)
    assert bytes_in(folder) == before
    found = [one for some in from_json_lines(bytes(lines)) for one in some]
    assert len(found) == told.messages == lines.count(b"\n")
    assert len(lines) == told.size_bytes
    return told, [one for one in found if isinstance(one, NewMessage)]


def keys(found: list[NewMessage]) -> list[str]:
    return [(one.key or b"").decode() for one in found]


def summary(folder: Path) -> Summary:
    before = bytes_in(folder)
    found = summary_of(folder.parent, folder.name)
    assert bytes_in(folder) == before
    return found


async def filled(folder: Path, *names: str, size_bytes: int = 100, **limits: Any) -> None:
    spool = await opened(folder, **limits)
    for name in names:
        await spool.accept([message(name, size_bytes)], patience_s=1)
    await spool.close()


@in_a_loop
async def test_what_waits_is_exported_with_all_that_it_has(tmp_path: Path) -> None:
    spool = await opened(tmp_path / "clicks")
    await spool.accept(ODD, patience_s=1)
    told, found = exported(export_waiting, tmp_path / "clicks")  # beside the one that writes
    await spool.close()
    assert [(one.key, one.value, one.headers, one.timestamp_ms, one.partition) for one in found] == [
        (one.key, one.value, one.headers, one.timestamp_ms, one.partition) for one in ODD
    ]
    assert (told.end, told.unreadable_count) == (Place(4, AT_MS), 0)


@in_a_loop
async def test_an_export_goes_on_where_the_last_one_ended_also_when_numbers_began_anew(tmp_path: Path) -> None:
    folder, clock = tmp_path / "clicks", Clock()
    spool = await opened(folder, clock)
    await spool.accept([message(f"a{n}") for n in range(5)], patience_s=1)
    first, _ = exported(export_waiting, folder)
    await spool.accept([message(f"b{n}") for n in range(5)], patience_s=1)
    assert first.end is not None
    second, found = exported(export_waiting, folder, after=place_of(str(first.end)))
    assert keys(found) == [f"b{n}" for n in range(5)]
    third, nothing = exported(export_waiting, folder, after=second.end)
    assert (third.end, nothing) == (second.end, [])
    spool.settle([one.number for one in await read_all(spool, 10)], SENT)
    await settled(spool)
    await spool.expire()
    await spool.close()
    assert files(folder, ".spool") == []
    anew = await opened(folder)
    later = [message(f"c{n}") for n in range(3)]
    await anew.accept([Spooled(*_fields(one), accepted_ms=AT_MS + 1) for one in later], patience_s=1)
    await anew.close()
    _, found = exported(export_waiting, folder, after=second.end)
    assert keys(found) == ["c0", "c1", "c2"]


def _fields(one: Spooled) -> tuple[Any, ...]:
    return (one.topic, one.partition, one.key, one.value, one.headers, one.timestamp_ms)


@pytest.mark.parametrize("text", ["", "1", "1@", "@1", "-1@1", "1@1@1", "1@1 ", "٣@1", "9" * 40 + "@1"])
def test_a_place_that_no_export_said_is_none(text: str) -> None:
    assert place_of(text) is None


@in_a_loop
async def test_what_became_of_messages_is_shown_by_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    spool = await opened(folder, segment_bytes=1)
    await spool.accept([message(f"m{n}", 50) for n in range(10)], patience_s=1)
    await spool.accept([message("later", 50)], patience_s=1)
    reads = await read_all(spool, 11)
    spool.settle([one.number for one in reads[:4]], SENT)
    spool.refuse(reads[4].number, reads[4].message, "too large")
    await settled(spool)
    found = summary(folder)
    await spool.close()
    assert (found.segments, found.waiting, found.sent, found.refused) == (2, 6, 4, 1)
    assert (found.waiting_bytes, found.oldest_accepted_ms) == (5 * (2 + 50 + 3) + (5 + 50 + 3), AT_MS)
    assert found.segment_bytes == sum(path.stat().st_size for path in files(folder, ".spool"))
    assert found.refused_bytes == (folder / FILE).stat().st_size
    assert (found.damaged, found.damaged_frames, found.aside, found.too_new) == (0, 0, 0, 0)
    told, refused = exported(export_refused, folder)
    assert (keys(refused), told.unreadable_count) == (["m4"], 0)


@in_a_loop
async def test_a_torn_end_is_no_damage_and_hides_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    await filled(folder, "m0", "m1", "m2", size_bytes=1_000)
    [path] = files(folder, ".spool")
    whole = path.read_bytes()
    for cut in (1, 20, 28, 500, 1_000):
        path.write_bytes(whole + whole[22 : 22 + cut])
        told, found = exported(export_waiting, folder)
        assert (keys(found), told.unreadable_count) == (["m0", "m1", "m2"], 0)
        assert (summary(folder).waiting, summary(folder).damaged_frames) == (3, 0)
    for size in (0, 7, 21):  # a sidecar has just made it
        (folder / f"{99:020}.spool").write_bytes(whole[:size])
        told, found = exported(export_waiting, folder)
        assert (len(found), told.unreadable_count, summary(folder).damaged_segments) == (3, 0, 0)


@pytest.mark.parametrize("at", [5, 12, 24, 40])
@in_a_loop
async def test_a_damaged_frame_is_told_and_costs_its_own_messages_alone(tmp_path: Path, at: int) -> None:
    folder = tmp_path / "clicks"
    await filled(folder, "m0", "m1", "m2")
    [path] = files(folder, ".spool")
    data = bytearray(path.read_bytes())
    data[[n for n in range(len(data)) if data[n : n + 4] == b"bmqf"][1] + at] ^= 4
    path.write_bytes(data)
    told, found = exported(export_waiting, folder)
    assert (keys(found), told.lost, told.unreadable_count) == (["m0", "m2"], 1, 1)
    assert str(path) in told.unreadable[0]
    shown = summary(folder)
    assert (shown.waiting, shown.damaged, shown.damaged_frames) == (2, 1, 1)


@in_a_loop
async def test_a_segment_of_a_later_version_and_one_without_a_head_are_told_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "clicks"
    await filled(folder, "m0", "m1", segment_bytes=1)
    with monkeypatch.context() as later:
        later.setattr("bmq_databus.spool.frames.VERSION", 2)
        await filled(folder, "newer")
    damaged, _, newer = files(folder, ".spool")
    damaged.write_bytes(b"junk" * 30)
    shown = summary(folder)
    assert (shown.segments, shown.waiting, shown.too_new, shown.damaged_segments) == (3, 1, 1, 1)
    told, found = exported(export_waiting, folder)
    assert (keys(found), told.unreadable_count) == (["m1"], 2)
    assert any(str(newer) in line and "version 2" in line for line in told.unreadable)
    assert any(str(damaged) in line for line in told.unreadable)


@in_a_loop
async def test_what_a_sidecar_sends_and_takes_back_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "clicks"
    monkeypatch.setattr(reading, "READ_BYTES", 1)
    spool = await opened(folder, segment_bytes=1)
    for n in range(4):
        await spool.accept([message(f"m{n}", 100)], patience_s=1)
    looked, lost = look(folder), []
    reads = waiting_in(looked.segments, lose=lost.append)
    assert len(next(reads)) == 1
    spool.settle([one.number for one in (await read_all(spool, 4))[:3]], SENT)
    await settled(spool)
    last = files(folder, ".spool")[-1]
    last.write_bytes(last.read_bytes()[:-10])  # the disk was full, and the rest was never accepted
    assert [one for some in reads for one in some] == []
    assert lost == []
    await spool.close()


def damage_all_heads(folder: Path) -> None:
    for path in files(folder, ".spool"):
        data = bytearray(path.read_bytes())
        data[3] ^= 1
        path.write_bytes(data)


@in_a_loop
async def test_what_is_set_aside_is_exported_as_far_as_it_is_whole_and_was_not_sent(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    spool = await opened(folder)
    for n in range(8):
        await spool.accept([message(f"m{n}", 100)], patience_s=1)
    reads = await read_all(spool, 8)
    spool.settle([reads[0].number], SENT)
    spool.settle([reads[1].number], REFUSED)
    await killed(spool)
    [path] = files(folder, ".spool")
    data = bytearray(path.read_bytes())
    heads = [n for n in range(len(data)) if data[n : n + 4] == b"bmqf"]
    data[heads[3] + 5] ^= 1  # its payload is whole, and its checksum says so
    data[heads[5] + 60] ^= 1
    data[heads[7] + 5] ^= 1  # no frame follows that says where it ends
    path.write_bytes(data)
    damage_all_heads(folder)
    await (await opened(folder)).close()
    assert (len(files(folder, ".damaged")), files(folder, ".spool")) == (1, [])
    told, found = exported(export_damaged, folder)
    assert keys(found) == ["m2", "m3", "m4", "m6", "m7"]
    assert (told.lost, told.unreadable_count, told.unknown, told.end) == (1, 1, 0, None)
    shown = summary(folder)
    assert (shown.aside, shown.aside_bytes > 64 << 10, shown.waiting) == (1, True, 0)
    path.with_suffix(".damaged.steps").unlink()  # as versions before this one did
    told, found = exported(export_damaged, folder)
    assert (len(found), told.unknown) == (7, 1)


@in_a_loop
async def test_what_was_sent_beside_a_damaged_frame_is_not_exported_again(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    await filled(folder, "m0", "m1", "m2")
    [path] = files(folder, ".spool")
    data = bytearray(path.read_bytes())
    data[data.index(b"m1") + 20] ^= 1
    path.write_bytes(data)
    spool = await opened(folder)
    spool.settle([one.number for one in await read_all(spool, 2)], SENT)
    await spool.close()
    await (await opened(folder)).close()
    told, found = exported(export_damaged, folder)
    assert (found, told.lost, told.unreadable_count) == ([], 1, 1)


def test_bytes_that_are_no_segment_at_all_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    folder.mkdir()
    (folder / f"{3:020}.damaged").write_bytes(bytes(100_000))
    (folder / f"{4:020}.damaged").write_bytes(b"")
    told, found = exported(export_damaged, folder)
    assert (found, told.unreadable_count, told.lost) == ([], 1, 0)


def test_refused_messages_are_in_the_order_in_which_they_were_accepted_though_they_were_refused_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def named(number: int, life: int) -> Refused:
        one = message(f"{life}-{number}")
        return Refused(number, "", Spooled(*_fields(one), accepted_ms=AT_MS + life))

    first, second = [named(n, 0) for n in range(6)], [named(n, 1) for n in range(6)]
    mixed = [first[n] for n in (1, 0, 2, 4, 5, 3)] + [second[n] for n in (0, 2, 1, 3, 5, 4)]
    wanted = [one.message for one in first + second]
    assert list(in_order(mixed)) == wanted
    for name, value in (("WINDOW", 3), ("WINDOW_BYTES", 3 * bytes_of(wanted[0]))):
        with monkeypatch.context() as patched:
            patched.setattr(refused_module, name, value)
            taken: list[Refused] = []
            ordered = in_order(taken.append(one) or one for one in mixed)  # type: ignore[func-returns-value]
            assert next(ordered) == wanted[0]
            assert len(taken) == 4, "no more are held"
            assert list(ordered) == wanted[1:]


def refuse(folder: Path, *numbers: int) -> None:
    folder.mkdir(exist_ok=True)
    kept = deque(Refused(number, "too large", message(f"r{number}", 100)) for number in numbers)
    RefusedFiles(folder, bytes_max=1 << 30).keep(kept)


async def names_in(folder: Path) -> list[str]:
    spool = await opened(folder)
    found = [(one.message.key or b"").decode() for one in await read_all(spool, spool.waiting)] if spool.waiting else []
    await spool.close()
    return found


@in_a_loop
async def test_refused_messages_become_a_spool_in_their_order_and_their_files_are_gone(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    refuse(folder, 1, 2)
    (folder / FILE).replace(folder / OLDER)
    refuse(folder, 7, 3)
    assert await refused_spool(folder, clock=Clock()) == folder / "replaying" / "spool"
    assert list(refused_in(folder)) == []
    assert (summary(folder).replaying, summary(folder).refused) == (4, 0)
    _, found = exported(export_refused, folder)
    assert keys(found) == ["r1", "r2", "r3", "r7"]
    assert await names_in(folder / "replaying" / "spool") == ["r1", "r2", "r3", "r7"]
    finish(folder)
    assert list(folder.iterdir()) == []
    assert await refused_spool(folder, clock=Clock()) is None


@pytest.mark.parametrize("died", ["moved", "making", "made"])
@in_a_loop
async def test_a_death_while_the_spool_of_refused_messages_is_made_loses_none_and_makes_none_twice(
    tmp_path: Path, died: str
) -> None:
    folder = tmp_path / "clicks"
    root = folder / "replaying"
    refuse(folder, 1, 2)
    root.mkdir()
    (folder / FILE).replace(root / FILE)
    if died == "making":
        await filled(root / "making", "r1")
    elif died == "made":
        await filled(root / "spool", "r1", "r2")
    refuse(folder, 3)  # by a sidecar that ran in between
    assert keys(exported(export_refused, folder)[1]) == ["r1", "r2", "r3"]
    assert (summary(folder).replaying, summary(folder).refused) == (2, 1)
    made = await refused_spool(folder, clock=Clock())
    assert made is not None
    assert await names_in(made) == ["r1", "r2"]
    assert keys(exported(export_refused, folder)[1]) == ["r1", "r2", "r3"]
    finish(folder)
    assert [path.name for path in folder.iterdir()] == [FILE]


@in_a_loop
async def test_a_line_that_is_no_refused_message_stops_a_replay_before_it_takes_any(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    refuse(folder, 1)
    with (folder / FILE).open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(SpoolDamaged, match=r"refused.jsonl, line 2: it is no refused message.*mend the line"):
        await refused_spool(folder, clock=Clock())
    assert not (folder / "replaying").exists()
    told, found = exported(export_refused, folder)
    assert (keys(found), told.lost) == (["r1"], 1)


@in_a_loop
async def test_what_is_refused_again_goes_to_the_files_of_the_channel(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    refuse(folder, *range(2_000))
    made = await refused_spool(folder, clock=Clock())
    assert made is not None
    spool = await ChannelSpool.opened(made, limits=NO_LIMITS, clock=Clock(), refused_in=folder)
    for one in await read_all(spool, 2_000):
        spool.refuse(one.number, one.message, "again")
    await spool.emptied()
    await spool.close()
    assert count(spool, "refused") == 2_000
    assert len(list(refused_in(folder))) == 2_000
    assert not (made / FILE).exists()


def test_channels_are_those_that_have_anything(tmp_path: Path) -> None:
    for name, file in (("a", f"{0:020}.spool"), ("b", f"{0:020}.damaged"), ("c", FILE), ("d", "other"), ("e", OLDER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(b"")
    assert chosen(tmp_path, None) == ["a", "b", "c", "e"]
    assert the_one(tmp_path, "b") == "b"
    with pytest.raises(NoSpool, match="there are a, b, c, e: name one with --channel"):
        the_one(tmp_path, None)
    with pytest.raises(NoSpool, match=r"channel d has nothing in spool .*: there are a, b"):
        chosen(tmp_path, "d")
    with pytest.raises(NoSpool, match="No such file or directory: name the --spool"):
        chosen(tmp_path / "nowhere", None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoSpool, match="no channel has anything there"):
        the_one(tmp_path / "empty", None)


@in_a_loop
async def test_emptied_waits_for_the_last_outcome_and_gives_back_its_space(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    await spool.accept([message("a"), message("b")], patience_s=1)
    waiting = asyncio.ensure_future(spool.emptied())
    reads = await read_all(spool, 2)
    spool.settle([reads[0].number], SENT)
    await settled(spool)
    assert not waiting.done()
    spool.settle([reads[1].number], SENT)
    await asyncio.wait_for(waiting, 10)
    assert files(tmp_path, ".spool") == []
    await spool.close()
