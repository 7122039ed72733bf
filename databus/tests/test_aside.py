"""What is kept aside of a spool: never more than it may, the newest, whole lines, and what gave way is counted."""

import errno
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from test_channel_spool import count, files, in_a_loop, message, opened, read_all, settled

from bmq_databus.metrics import SpoolMetrics
from bmq_databus.spool import refused as refused_module
from bmq_databus.spool.aside import Aside, AsideLimits
from bmq_databus.spool.frames import SENT
from bmq_databus.spool.refused import FILE, OLDER, Refused, RefusedFiles, Unreadable, refused_in


def refusals(*numbers: int, size_bytes: int = 100) -> deque[Refused]:
    return deque(Refused(number, "too large", message(f"m{number}", size_bytes)) for number in numbers)


def kept(folder: Path) -> list[int]:
    found = list(refused_in(folder))
    assert not [one for one in found if isinstance(one, Unreadable)]
    return [one.number for one in found if isinstance(one, Refused)]


def size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("refused*"))


def test_refused_messages_have_never_more_than_they_may_and_the_newest_are_kept(tmp_path: Path) -> None:
    made = RefusedFiles(tmp_path, bytes_max=4_000)
    dropped = 0
    for number in range(0, 100, 5):
        given = refusals(*range(number, number + 5))
        made.keep(given)
        assert not given
        assert size_bytes(tmp_path) <= 4_000
        dropped, found = made.dropped, kept(tmp_path)
        assert found == list(range(number + 5))[dropped:]
    assert dropped > 80
    assert size_bytes(tmp_path) >= 2_000


def test_one_that_is_larger_than_half_makes_the_others_give_way_and_one_larger_than_all_is_dropped(
    tmp_path: Path,
) -> None:
    made = RefusedFiles(tmp_path, bytes_max=4_000)
    made.keep(refusals(*range(8)))
    made.keep(refusals(8, size_bytes=2_000))
    assert (kept(tmp_path)[-1], size_bytes(tmp_path) <= 4_000) == (8, True)
    before = kept(tmp_path)
    made.keep(refusals(9, size_bytes=9_000))
    assert made.dropped == 10 - len(kept(tmp_path))
    assert set(kept(tmp_path)) <= set(before)


def test_half_a_line_of_a_killed_process_goes_and_what_comes_next_is_a_line_of_its_own(tmp_path: Path) -> None:
    RefusedFiles(tmp_path, bytes_max=4_000).keep(refusals(1, 2))
    whole = (tmp_path / FILE).read_bytes()
    for cut in (1, 50, len(whole) - 1):
        (tmp_path / FILE).write_bytes(whole[:cut] if cut == 1 else whole + whole[: cut % 150])
        again = RefusedFiles(tmp_path, bytes_max=4_000)
        again.recover()
        again.keep(refusals(3))
        assert kept(tmp_path)[-1] == 3
        assert again.dropped == 0


def test_a_last_line_that_somebody_wrote_without_its_end_is_kept(tmp_path: Path) -> None:
    RefusedFiles(tmp_path, bytes_max=4_000).keep(refusals(1, 2))
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:-1])
    assert kept(tmp_path) == [1]  # what has no end is being written
    RefusedFiles(tmp_path, bytes_max=4_000).recover()
    assert kept(tmp_path) == [1, 2]


def test_what_an_earlier_version_left_without_a_bound_is_cut_to_whole_lines_at_the_start(tmp_path: Path) -> None:
    RefusedFiles(tmp_path, bytes_max=1 << 30).keep(refusals(*range(200)))
    (tmp_path / "refused.trimmed").write_text("of one that died over it")
    made = RefusedFiles(tmp_path, bytes_max=8_000)
    made.recover()
    found = kept(tmp_path)
    assert found == list(range(200))[made.dropped :]
    assert 2_000 < size_bytes(tmp_path) <= 4_000
    assert not (tmp_path / "refused.trimmed").exists()


def test_a_disk_that_is_full_keeps_what_was_kept_and_takes_the_rest_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RefusedFiles(tmp_path, bytes_max=4_000)
    write_all, failures = refused_module.write_all, [False, True]

    def fails(fd: int, parts: Sequence[Any]) -> None:
        if failures and failures.pop(0):
            os.write(fd, bytes(parts[0])[:30])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, parts)

    monkeypatch.setattr(refused_module, "write_all", fails)
    given = refusals(*range(20))
    with pytest.raises(OSError, match="No space left"):
        made.keep(given)
    assert given[0].number == kept(tmp_path)[-1] + 1
    made.keep(given)
    assert kept(tmp_path) == list(range(20))[made.dropped :]


def test_who_reads_while_the_files_change_places_reads_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RefusedFiles(tmp_path, bytes_max=4_000)
    made.keep(refusals(*range(6)))
    real_open = Path.open

    def opens(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.name == OLDER and not path.exists():
            (tmp_path / FILE).replace(path)
        return real_open(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", opens)
    assert kept(tmp_path) == list(range(6))


def test_a_line_that_is_no_refused_message_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    RefusedFiles(tmp_path, bytes_max=4_000).keep(refusals(1, 2))
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(b"{}\n" + data)
    first, *others = refused_in(tmp_path)
    assert isinstance(first, Unreadable)
    assert (first.path, first.line, "number" in first.why) == (tmp_path / FILE, 1, True)
    assert len(others) == 2


@in_a_loop
async def test_a_sidecar_counts_what_gave_way_and_says_so_once_a_while(tmp_path: Path) -> None:
    spool = await opened(tmp_path, aside=AsideLimits(refused_bytes_max=4_000))
    with capture_logs() as logs:
        for turn in range(10):
            await spool.accept([message(f"m{turn}-{n}", 100) for n in range(5)], patience_s=1)
            for one in await read_all(spool, 5):
                spool.refuse(one.number, one.message, "too large")
            await settled(spool)
    told = [one for one in logs if one["event"] == "refused messages are dropped for room"]
    assert count(spool, "refused_dropped") == 50 - len(kept(tmp_path)) > 0
    assert (len(told), "--refused-bytes" in told[0]["remedy"]) == (1, True)
    await spool.close()


@in_a_loop
async def test_damaged_segments_have_never_more_than_they_may_and_keep_what_became_of_their_messages(
    tmp_path: Path,
) -> None:
    first = await opened(tmp_path, segment_bytes=1)
    for n in range(6):
        await first.accept([message(f"m{n}", 1_000)], patience_s=1)
    first.settle([one.number for one in (await read_all(first, 6))[:1]], SENT)
    await settled(first)
    await first.accept([message("last")], patience_s=1)
    await first.close()
    for path in files(tmp_path, ".spool")[:5]:
        path.write_bytes(b"junk" * 300)
    again = await opened(tmp_path, aside=AsideLimits(damaged_bytes_max=3 * (70 << 10)))
    assert [one.name for one in files(tmp_path, ".damaged")] == [f"{n:020}.damaged" for n in (3, 4, 5)]
    assert [one.name for one in files(tmp_path, ".steps")] == [f"{n:020}.damaged.steps" for n in (3, 4, 5)]
    assert count(again, "damaged_dropped") == 2
    await again.close()


def test_steps_that_a_death_left_beside_a_segment_that_is_aside_follow_it(tmp_path: Path) -> None:
    from bmq_databus.spool.segments import aside_in, delete_orphans

    (tmp_path / f"{7:020}.damaged").write_bytes(b"x")
    (tmp_path / f"{7:020}.steps").write_bytes(b"y")
    assert delete_orphans(tmp_path) == 8
    [one] = aside_in(tmp_path)
    assert (one.aside_steps_path.read_bytes(), one.aside_bytes, one.steps_path.exists()) == (b"y", 2, False)
    aside = Aside(tmp_path, limits=AsideLimits(damaged_bytes_max=1), counts=SpoolMetrics("x"))
    aside.recover()
    assert list(tmp_path.iterdir()) == []
