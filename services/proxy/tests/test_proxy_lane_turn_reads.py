"""Fetch in a lane that falls back: what is of the lane's turn, and nothing of what the base may have."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.errors import BatchTooLarge
from bmq.fairness.opening import ORDINARY_BYTES_MAX, Opener
from bmq.metadata.image import Image, Turn
from bmq.metadata.records import Whose
from bmq.values import TopicId, TopicPartition
from bmq.wire.batches import Record, build_batch, check_crc, iterate_records, patched, split
from bmq.wire.compression import Codec
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX
from bmq_proxy.fetch.answers import Found, Read, Result
from bmq_proxy.lanes.fallback.beginning import from_begin
from bmq_proxy.lanes.fallback.turns import LaneTurns
from bmq_proxy.lanes.quotas import Pace
from bmq_proxy.lanes.reading import BaseEnds, LaneReader
from bmq_sim.loop import on_virtual_time

TP = TopicPartition(TopicId(UUID(int=1)), 0)


def log(base_offset: int, count: int, codec: int = 0) -> bytes:
    """A batch of messages that say at which offset they are."""
    records = [Record(0, at, None, b"%d" % at) for at in range(base_offset, base_offset + count)]
    return build_batch(records, base_offset=base_offset, leader_epoch=3, codec=codec)


def messages(parts: Sequence[Any]) -> list[tuple[int, bytes | None]]:
    found = []
    for part in parts:
        for header in split(part):
            check_crc(part, header)
            found += [(record.offset, record.value) for record in iterate_records(part, header)]
    return found


@dataclass
class Cluster:
    """One partition of a lane's topic, read by one proxy, which has leases."""

    turn: Turn = field(default_factory=Turn)
    parts: list[bytes] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    """What happens while a Fetch waits."""
    opener: Opener = field(default_factory=Opener)

    async def hold(self, _topic_ids: object, _until_s: float) -> bool:
        return True

    def holds(self, _topic_id: TopicId) -> bool:
        return True

    @property
    def image(self) -> Image:
        return Image(turns={TP: self.turn})

    def subscribe(self, _changed: object) -> Callable[[], None]:
        return lambda: None

    async def read(self, reads: Sequence[Read], **_: Any) -> Result:
        await asyncio.sleep(1)
        self.meanwhile()
        parts = [part for part in self.parts if split(part)[-1].next_offset > reads[0].offset]
        size_bytes = sum(map(len, parts))
        return Result([Found(high_watermark=50, parts=parts, size_bytes=size_bytes)], 0, cast(Any, None))

    async def fetch(self, offset: int) -> Found:
        """What a client in the lane gets."""
        view = SimpleNamespace(falls_back=True, is_own=lambda _: True, is_written=lambda _: True)
        this = cast(Any, SimpleNamespace(read=self.read, memory=None))
        turns = LaneTurns(cast(Any, self), cast(Any, self), lambda _: None)
        reader = LaneReader(
            this,
            cast(Any, view),
            BaseEnds(),
            turns,
            opener=self.opener,
            bytes_per_s=lambda: 1,
            pace=Pace("dev", "read", lambda: 0, owed_s_max=1),
        )
        result = await reader.read(
            [Read(tp=TP, offset=offset, max_bytes=1_000)], min_bytes=1, max_bytes=1_000, max_wait_ms=60_000
        )
        return result.found[0]


def in_lane(begin: int, generation: int = 3) -> Turn:
    return Turn(whose=Whose.LANE, begin=begin, generation=generation)


@on_virtual_time
async def test_who_asks_from_below_the_turn_gets_nothing_of_the_batch_in_which_it_begins_that_the_base_has() -> None:
    cluster = Cluster(turn=in_lane(begin=7), parts=[log(0, 10), log(10, 2)])
    found = await cluster.fetch(0)
    assert [offset for offset, _ in messages(found.parts)] == [7, 8, 9, 10, 11]
    assert found.size_bytes == sum(memoryview(part).nbytes for part in found.parts)
    assert [offset for offset, _ in messages((await cluster.fetch(8)).parts)] == list(range(12)), "it leaves out itself"


@on_virtual_time
async def test_what_was_waited_for_while_the_base_had_its_turn_is_none_of_the_lanes_when_that_has_the_next_one() -> (
    None
):
    cluster = Cluster(turn=in_lane(begin=0, generation=0), parts=[log(0, 5)])

    def others_came_and_went() -> None:
        cluster.turn = in_lane(begin=5)

    cluster.meanwhile = others_came_and_went
    found = await cluster.fetch(0)
    assert (found.parts, found.size_bytes, found.high_watermark) == ((), 0, 50)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("stamped", [False, True], ids=["CreateTime", "LogAppendTime"])
def test_the_rest_of_a_batch_is_as_it_was(codec: Codec, stamped: bool) -> None:
    batch = log(20, 6, codec)
    [header] = split(batch)
    time_ms = 99 if stamped else None
    whole = bytes(patched(batch, header, base_offset=20, leader_epoch=3, log_append_time_ms=time_ms))
    [before] = split(whole)
    [cut, rest] = from_begin([whole + log(26, 1)], 23)
    [after] = split(cut)
    assert messages([cut, rest]) == [(at, b"%d" % at) for at in range(23, 27)]
    assert list(iterate_records(cut, after)) == list(iterate_records(whole, before))[3:]
    assert (after.codec, after.leader_epoch, after.is_log_append_time) == (codec, 3, stamped)


@given(
    numbers=st.sets(st.integers(0, 11)),
    begin=st.integers(0, 12),
    codec=st.sampled_from(list(Codec)),
    stamped=st.booleans(),
)
def test_the_rest_of_a_batch_with_gaps_has_them_too(
    numbers: set[int], begin: int, codec: Codec, *, stamped: bool
) -> None:
    kept = [20 + number for number in sorted(numbers)]
    records = [Record(at, at, None, b"%d" % at) for at in kept]
    batch = build_batch(records, base_offset=20, leader_epoch=3, codec=codec, first_offset=20, next_offset=32)
    [header] = split(batch)
    time_ms = 99 if stamped else None
    whole = bytes(patched(batch, header, base_offset=20, leader_epoch=3, log_append_time_ms=time_ms))
    [before] = split(whole)
    parts = from_begin([whole + log(32, 1)], 20 + begin)
    assert messages(parts) == [(at, b"%d" % at) for at in (*kept, 32) if at >= 20 + begin]
    headers = [header for part in parts for header in split(part)]
    assert (headers[0].base_offset, headers[-1].next_offset) == (min(20 + begin, 32), 33)
    if begin < 12:
        [cut, _] = headers
        assert (cut.next_offset, cut.is_log_append_time, cut.leader_epoch) == (32, stamped, 3)
        assert list(iterate_records(parts[0], cut)) == [
            record for record in iterate_records(whole, before) if record.offset >= 20 + begin
        ]


def test_a_batch_that_cannot_be_opened_stays_whole_and_one_that_ends_before_the_turn_is_left_out() -> None:
    batch = bytearray(log(20, 6))
    [header] = split(bytes(batch))
    batch[61:] = b"\xff" * (len(batch) - 61)
    broken = bytes(patched(bytes(batch), header, base_offset=20, leader_epoch=3, max_timestamp_ms=5))
    assert from_begin([broken], 23) == [broken]
    assert from_begin([log(10, 5), log(15, 2)], 15) == [log(15, 2)]


@on_virtual_time
async def test_the_batch_in_which_a_turn_begins_is_opened_where_all_are_and_a_large_one_where_large_ones_are() -> None:
    tried: list[int] = []

    class Noted(Opener):
        async def look(self, look: Any, batch: Any, header: Any, **who: Any) -> Any:
            def noted(*args: Any, decompressed_bytes_max: int) -> Any:
                tried.append(decompressed_bytes_max)
                return look(*args, decompressed_bytes_max=decompressed_bytes_max)

            assert len(split(batch)) == 1
            return await super().look(noted, batch, header, **who)

    records = [Record(0, 1, None, bytes(ORDINARY_BYTES_MAX)), Record(0, 1, None, b"21")]
    batch = build_batch(records, base_offset=20, codec=Codec.ZSTD)
    cluster = Cluster(turn=in_lane(21), parts=[batch + log(22, 1)], opener=Noted())
    found = await cluster.fetch(20)
    assert messages(cast(Any, found.parts)) == [(21, b"21"), (22, b"22")]
    assert found.size_bytes == sum(memoryview(part).nbytes for part in found.parts)
    assert tried == [ORDINARY_BYTES_MAX, DECOMPRESSED_BYTES_MAX]
    with pytest.raises(BatchTooLarge):
        from_begin([batch], 21, decompressed_bytes_max=ORDINARY_BYTES_MAX)
