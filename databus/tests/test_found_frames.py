"""Frames are found where the spool wrote them and nowhere within what clients wrote, and none is too long to read."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from test_channel_spool import AT_MS, count, files, in_a_loop, message, names, opened, read_all

from bmq.runtime.system import SystemClock, SystemRng
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage, EntryTooLarge
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.outcomes import IN_SHORT, failed, whole
from bmq_databus.producing.settings import cluster_settings
from bmq_databus.producing.writing import Writing
from bmq_databus.requests.idempotency import Answer
from bmq_databus.requests.written import ANSWER_BYTES_MAX, Requests
from bmq_databus.spool import channel_spool, segments
from bmq_databus.spool.frames import SENT, Once, Spooled, encode_frame
from bmq_databus.spool.identity import ID_FILE
from bmq_databus.spool.salvage import salvage
from bmq_databus.spool.segments import aside_in

LONG = 20_000
FORGED = b"".join(part for first in range(40) for part in encode_frame(first, [message("forged")]))
"""Whatever number is next."""


def with_frames(name: str, size_bytes: int = 0) -> Spooled:
    return Spooled("orders", -1, name.encode(), FORGED + bytes(size_bytes), (), AT_MS, AT_MS)


def damage(folder: Path, which: int, at: int) -> None:
    """The byte of the frame that has the message m`which`."""
    [path] = files(folder, ".spool")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"bmqf", 0, data.index(f"m{which}".encode())) + at] ^= 1
    path.write_bytes(data)


@in_a_loop
async def test_a_frame_that_is_too_long_to_be_read_costs_its_own_messages_and_gives_nothing_from_within_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await opened(tmp_path)
    for one in (message("m0"), with_frames("m1", LONG), message("m2")):
        await first.accept([one], patience_s=1)
    await first.close()
    monkeypatch.setattr(segments, "FRAME_BYTES_MAX", LONG)
    second = await opened(tmp_path)
    found = await read_all(second, 2)
    assert names(found) == ["m0", "m2"]
    second.settle([one.number for one in found], SENT)
    await second.close()
    assert count(second, "damaged") == 1
    [aside] = aside_in(tmp_path)
    kept = [one for some in salvage(aside, lose=lambda *lost: pytest.fail(str(lost))) for one in some]
    assert names(kept) == ["m1"], "what a sidecar does not read into its memory is exported"


@pytest.mark.parametrize("which", [0, 1])
@in_a_loop
async def test_where_a_frames_head_is_lost_no_frame_within_its_messages_is_taken_for_the_next(
    tmp_path: Path, which: int
) -> None:
    first = await opened(tmp_path)
    await first.accept([with_frames("m0")], patience_s=1)
    await first.accept([with_frames("m1")], patience_s=1)
    await first.accept([message("m2")], patience_s=1)
    await first.close()
    damage(tmp_path, which, 5)
    second = await opened(tmp_path)
    assert second.waiting == 3
    assert names(await read_all(second, 2)) == [f"m{n}" for n in range(3) if n != which]
    await second.close()


@in_a_loop
async def test_the_next_frame_of_a_segment_of_an_earlier_version_is_found_by_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(channel_spool, "id_made", lambda folder, new: b"")
        first = await opened(tmp_path)
        for n in range(4):
            await first.accept([message(f"m{n}")], patience_s=1)
        await first.close()
    assert not (tmp_path / ID_FILE).exists()
    damage(tmp_path, 2, 5)
    second = await opened(tmp_path)
    assert (tmp_path / ID_FILE).exists()
    assert names(await read_all(second, 3)) == ["m0", "m1", "m3"]
    await second.close()


@in_a_loop
async def test_a_spool_whose_id_the_disk_does_not_take_goes_on_without(tmp_path: Path) -> None:
    (tmp_path / "id.making").mkdir()
    spool = await opened(tmp_path)
    await spool.accept([message("m0")], patience_s=1)
    assert names(await read_all(spool, 1)) == ["m0"]
    await spool.close()


@in_a_loop
async def test_what_no_frame_has_room_for_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_spool, "FRAME_BYTES_MAX", LONG)
    spool = await opened(tmp_path)
    once = Once("k", bytes(32), AT_MS + 60_000, 202, bytes(LONG))
    with pytest.raises(EntryTooLarge, match="send fewer or smaller messages") as refused:
        await spool.accept([message("m0", LONG // 2), message("m1", LONG // 2)], patience_s=1)
    with pytest.raises(EntryTooLarge):
        await spool.enter([message("m0")], patience_s=1, once=once)
    with pytest.raises(EntryTooLarge):
        await spool.room_for([message("m0")], patience_s=1, once=once)
    assert failed(refused.value)["status"] == 413
    await spool.accept([message("m2")], patience_s=1)
    assert names(await read_all(spool, 1)) == ["m2"]
    await spool.close()


@asynccontextmanager
async def requests(folder: Path, channel: Channel) -> AsyncIterator[Requests]:
    """Over a spool whose cluster is not there."""
    writing = Writing({channel.name: channel}, spool_folder=folder, clock=SystemClock(), rng=SystemRng())
    await writing.start(cluster_settings("127.0.0.1:1"), delivery_ms=1_000)
    try:
        yield Requests(writing)
    finally:
        writing.give_up()
        await writing.close(patience_s=0)


@in_a_loop
async def test_a_long_answer_is_kept_in_short_and_what_comes_again_is_not_written_again(tmp_path: Path) -> None:
    clicks = Channel(name="clicks", topic="clicks", acknowledgement="accepted")
    bad = BadMessage("x" * 1_000)

    def messages() -> Iterable[list[NewMessage | BadMessage]]:
        yield [NewMessage(None, b"v"), *[bad] * 1_000]

    answers: list[Answer] = []
    for _ in range(2):  # the second time by another process
        async with requests(tmp_path, clicks) as one:
            for _ in range(2):
                with one.room(clicks) as room:
                    given, _ = await one.written_once(
                        clicks,
                        messages,
                        request=(),
                        room=room,
                        key="k",
                        fingerprint=b"f",
                        answer=lambda outcomes: Answer(whole(outcomes), repr(outcomes).encode()),
                    )
                answers.append(given)
            assert one.writing.spools["clicks"].waiting == 1
    first, *again = answers
    assert len(first.body) > ANSWER_BYTES_MAX
    [short] = set(again)
    assert (len(short.body) < ANSWER_BYTES_MAX, short.status) == (True, first.status)
    told = f"{{'status': 400, 'error': {IN_SHORT!r}}}"
    assert short.body.decode() == f"[{{'status': 202}}, {', '.join([told] * 1_000)}]"
