"""What spools have with their producers: by what they have to send, not by how many there are."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_channel_spool import in_a_loop, message, opened
from tests.waiting import until_async

from bmq.fairness.turns import Turns
from bmq_databus.producing.draining import Draining
from bmq_databus.producing.producer import Reports
from bmq_databus.producing.under_way import LITTLE_BYTES_MAX, Share, UnderWay
from bmq_databus.spool.channel_spool import ChannelSpool
from bmq_databus.spool.frames import Spooled

BYTES_MAX = 4 << 20


def shares(count: int) -> tuple[UnderWay, list[Share]]:
    under_way = UnderWay(BYTES_MAX)
    return under_way, [under_way.share(lambda: None) for _ in range(count)]


def filled(share: Share, size_bytes: int = 500) -> int:
    """All that it may have, in messages of that size."""
    count = max(0, share.room_bytes // size_bytes)
    if count:
        share.take(count * size_bytes)
    return share.bytes


class Cluster:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.under_way: list[tuple[Reports, int]] = []
        self.topic: list[str] = []
        self.is_answering = False

    def produce(self, messages: Sequence[Spooled], reports: Reports, *, first: int, end: int) -> int:
        for place in range(first, end):
            self.under_way.append((reports, place))
            self.topic.append((messages[place].key or b"").decode())
        if self.is_answering:
            asyncio.get_running_loop().call_later(0.001, self.answer)
        return end

    def answer(self) -> None:
        answered, self.under_way = self.under_way, []
        for reports, place in answered:
            reports(place, None, 0, 0)


def test_spools_that_have_nothing_to_send_take_no_room() -> None:
    _, (busy, *_) = shares(990)
    assert filled(busy) > BYTES_MAX * 3 // 4


def test_spools_that_have_much_come_to_equal_shares() -> None:
    _, [first, *others] = shares(8)
    filled(first)
    for _ in range(100):
        for one in (first, *others):
            if one.bytes:
                one.give_back(500)
            filled(one)
    for _ in range(2_000):
        for one in (first, *others):
            one.give_back(min(one.bytes, 5_000))
            filled(one)
    most, least = (pick(one.bytes for one in (first, *others)) for pick in (max, min))
    assert least > most // 2, (least, most)
    assert least > BYTES_MAX // 20


def test_what_a_cluster_does_not_answer_for_leaves_room_to_those_that_come() -> None:
    under_way, [*stuck, late] = shares(21)
    for one in stuck:
        filled(one)
    assert filled(late) > 4_000, "by turns of messages alone it would be slow"
    assert under_way.bytes < BYTES_MAX * 5 // 4


@given(st.lists(st.tuples(st.integers(0, 29), st.booleans(), st.integers(50, 40_000)), max_size=300))
def test_all_of_them_have_no_more_than_they_may_beside_a_little_for_each(steps: list[tuple[int, bool, int]]) -> None:
    under_way, found = shares(30)
    held: list[list[int]] = [[] for _ in found]
    for at, is_taking, size_bytes in steps:
        share = found[at]
        if is_taking and (not share.bytes or share.room_bytes >= size_bytes):
            share.take(size_bytes)
            held[at].append(size_bytes)
        elif held[at]:
            share.give_back(held[at].pop())
    assert under_way.bytes == sum(map(sum, held))
    assert under_way.shares == sum(map(bool, held))
    assert under_way.bytes <= BYTES_MAX + 30 * max(LITTLE_BYTES_MAX, 40_000)


async def _draining(folder: Path, cluster: Cluster, under_way: UnderWay) -> tuple[ChannelSpool, "asyncio.Task[None]"]:
    spool = await opened(folder)
    draining = Draining(spool, cluster, under_way=under_way, turns=Turns())
    return spool, asyncio.ensure_future(draining.run())


@in_a_loop
async def test_a_busy_spool_leaves_room_to_one_that_gets_something(tmp_path: Path) -> None:
    under_way, slow, quick = UnderWay(100_000), Cluster(), Cluster()
    quick.is_answering = True
    busy, busy_task = await _draining(tmp_path / "busy", slow, under_way)
    small, small_task = await _draining(tmp_path / "small", quick, under_way)
    try:
        await busy.accept([message(f"b{n}", 1_000) for n in range(300)], patience_s=1)
        await until_async(lambda: under_way.bytes > 60_000, "the busy one to have much under way", 10)
        await small.accept([message(f"s{n}", 1_000) for n in range(300)], patience_s=1)
        await until_async(lambda: not small.waiting, "the other one to be sent meanwhile", 10)
        assert busy.waiting == 300
        slow.is_answering = True
        slow.answer()
        await until_async(lambda: not busy.waiting, "the busy one to be sent, too", 10)
        assert slow.topic == [f"b{n}" for n in range(300)]
        assert quick.topic == [f"s{n}" for n in range(300)]
    finally:
        for task in (busy_task, small_task):
            task.cancel()
        await asyncio.gather(busy_task, small_task, return_exceptions=True)
        await busy.close()
        await small.close()


@in_a_loop
async def test_who_waits_for_what_others_have_is_told_of_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmq_databus.producing.under_way.LOOKED_AT_MAX", 2)
    under_way, clusters = UnderWay(60_000), [Cluster() for _ in range(12)]
    opened_ones = [await _draining(tmp_path / str(at), one, under_way) for at, one in enumerate(clusters)]
    try:
        *others, last = clusters
        for (spool, _), cluster in zip(opened_ones, clusters, strict=True):
            await spool.accept([message(f"m{n}", 1_000) for n in range(40)], patience_s=1)
            await until_async(lambda one=cluster: one.topic, "it to have something under way", 10)  # type: ignore[misc]
        assert len(last.topic) < 40
        for one in others:  # the last one has no answer, and so does not look by itself
            one.is_answering = True
            one.answer()
        await until_async(lambda: not any(spool.waiting for spool, _ in opened_ones[:-1]), "the others to be sent", 10)
        await until_async(lambda: len(last.topic) == 40, "the last one to have all that is there", 10)
    finally:
        for _, task in opened_ones:
            task.cancel()
        await asyncio.gather(*(task for _, task in opened_ones), return_exceptions=True)
        for spool, _ in opened_ones:
            await spool.close()
