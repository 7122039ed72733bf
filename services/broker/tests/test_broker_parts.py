"""Parts of batches that were parted among lanes: their gaps and their producers' numbers, through deaths and rolls."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from broker_under_test import AUDIT, Cluster, small

from bmq.config.topic_config import LANE_HEADER
from bmq.errors import (
    BatchTooLarge,
    BmqError,
    InvalidBatch,
    InvalidProducerEpoch,
    InvalidTimestamp,
    NotYetNext,
    OutOfOrderSequence,
)
from bmq.roles.owner import ASKED, NEXT, OF_LANE, PARTED, Appended
from bmq.storage.segment_index import BLOCK_SIZE_BYTES
from bmq.values import TopicId, TopicPartition
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.batch_headers import LOG_APPEND_TIME_BIT
from bmq.wire.batches import HEADER_SIZE_BYTES, Record, build_batch, read_header
from bmq.wire.parting import REST, emptied, parted
from bmq.wire.special_timestamps import MAX_TIMESTAMP
from bmq_audit.audit import audit_store
from bmq_audit.findings import Level
from bmq_broker.partitions.beginnings import ASKED_S, AWAY_S, PATIENCE_S, REMEMBERED_MAX, Beginnings
from bmq_sim.loop import on_virtual_time

CLIENTS = 9
LAST = 2**31 - 1
EVERY_S = 2.0
"""How often somebody sends again what was refused."""


def part(count: int, *numbers: int, time_ms: int = 1_000, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """Of a batch of so many records, those of these numbers, which say them."""
    producer_id, epoch, sequence = producer
    return build_batch(
        [Record(number, time_ms, None, b"%d" % number) for number in numbers],
        first_offset=0,
        next_offset=count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


class Parts:
    """A partition that takes parts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.tp: TopicPartition

    async def begin(self, **configs: str) -> None:
        await self.cluster.start()
        [self.tp] = await self.cluster.topic("orders", configs={"retention.ms": "-1", **configs})

    def put(self, batch: bytes, version: int = PARTED) -> "asyncio.Future[Appended]":
        return self.cluster.broker.owner.append(self.tp, batch, produce_version=version)

    async def of_lane(self, sequence: int, count: int = 1, *, epoch: int = 0) -> int:
        """The base offset of a lane's part of a producer's batch, of which it has the last record."""
        return (await self.put(part(count, count - 1, producer=(7, epoch, sequence)), OF_LANE)).base_offset

    async def refuses(self, appending: Awaitable[object], kind: type[BmqError]) -> None:
        before = self.end
        with pytest.raises(kind):
            await appending
        assert self.end == before, "and takes no offset"

    @property
    def end(self) -> int:
        partition = self.cluster.broker.partitions.get(self.tp)
        return 0 if partition is None else partition.next_offset

    async def read(self) -> list[tuple[int, bytes]]:
        return await self.cluster.read_all(self.tp)

    async def inherited(self, how: str) -> None:
        """There is another owner."""
        if how == "from segments":
            await self.cluster.roll(self.tp)
        if how == "from one that stopped":
            await self.cluster.stop()
        else:
            await self.cluster.kill()
        await self.cluster.start("heir")


HEIRS = pytest.mark.parametrize("how", ["from the WAL", "from segments", "from one that stopped"])


def on_parts(check: Callable[[Parts], Awaitable[None]], **changes: int) -> None:
    """What is left in the store is whole."""

    async def main() -> None:
        cluster = Cluster(settings=small(**changes))
        await check(Parts(cluster))
        await cluster.stop()
        report = (await audit_store(cluster.store.for_node("audit"), rng=cluster.rng, options=AUDIT)).report
        assert report.findings[Level.FAULT] == []

    on_virtual_time(main)()


@HEIRS
@pytest.mark.parametrize("version", [PARTED, OF_LANE])
def test_a_part_takes_the_offsets_of_the_whole_batch_whatever_it_has_of_it(version: int, how: str) -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        batches = [part(5, 1, 2), part(3), part(2, 0), part(4, 3), part(1)]
        taken = [await parts.put(batch, version) for batch in batches]
        assert [one.base_offset for one in taken] == [0, 5, 8, 10, 14]
        assert (await parts.put(part(1, 0), CLIENTS)).base_offset == 15
        wanted = [(1, b"1"), (2, b"2"), (8, b"0"), (13, b"3"), (15, b"0")]
        assert await parts.read() == wanted
        await parts.inherited(how)
        assert await parts.read() == wanted
        assert (await parts.put(part(2), version)).base_offset == 16
        assert (await parts.put(part(1, 0), CLIENTS)).base_offset == 18
        assert await parts.read() == [*wanted, (18, b"0")]

    on_parts(check)


@pytest.mark.parametrize("batch", [part(3, 0, 2), part(3, 1), part(3), part(1)])
@pytest.mark.parametrize("version", [CLIENTS, SERVED[ApiKey.PRODUCE].version_max])
def test_no_client_writes_a_part(batch: bytes, version: int) -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        await parts.put(part(1, 0), CLIENTS)
        await parts.refuses(parts.put(batch, version), InvalidBatch)

    on_parts(check)


@pytest.mark.parametrize("version", [PARTED, OF_LANE])
def test_a_part_has_no_more_records_or_offsets_than_a_batch_may(version: int) -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        await parts.put(part(1, 0), CLIENTS)
        await parts.refuses(parts.put(part(1, 0, 0), version), InvalidBatch)
        await parts.refuses(parts.put(part(250_001, 0), version), InvalidBatch)

    on_parts(check)


@HEIRS
def test_a_bases_part_is_its_producers_next_batch_whatever_it_has_of_it(how: str) -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        sent = [part(4, 1, producer=(7, 0, 0)), part(3, producer=(7, 0, 4)), part(2, 0, 1, producer=(7, 0, 7))]
        assert [(await parts.put(one)).base_offset for one in sent] == [0, 4, 7]
        for heir in (False, True):
            if heir:
                await parts.inherited(how)
                await parts.read()
            assert [(await parts.put(one)).base_offset for one in sent] == [0, 4, 7], "copies"
            await parts.refuses(parts.put(part(1, producer=(7, 0, 10))), OutOfOrderSequence)
            await parts.refuses(parts.put(part(1, producer=(7, 0, 8))), OutOfOrderSequence)
            await parts.refuses(parts.put(part(1, producer=(7, 1, 5))), OutOfOrderSequence)
        assert (await parts.put(part(1, 0, producer=(7, 0, 9)), CLIENTS)).base_offset == 9

    on_parts(check)


@HEIRS
def test_a_lanes_part_may_leave_out_numbers_and_nothing_comes_behind_what_was_sent_later(how: str) -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        assert [await parts.of_lane(*one) for one in ((5, 3), (8, 1), (20, 4))] == [0, 3, 4]
        for heir in (False, True):
            if heir:
                await parts.inherited(how)
                await parts.read()
            assert [await parts.of_lane(*one) for one in ((5, 3), (8, 1), (20, 4))] == [0, 3, 4], "copies"
            for below in ((0, 5), (9, 1), (19, 1), (20, 1), (20, 5), (23, 1)):
                await parts.refuses(parts.of_lane(*below), OutOfOrderSequence)
        assert [await parts.of_lane(*one) for one in ((24, 1), (1_000, 2))] == [8, 9]
        await parts.refuses(parts.of_lane(25), OutOfOrderSequence)

    on_parts(check)


@HEIRS
def test_a_lanes_numbers_begin_again_after_the_largest(how: str) -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        assert await parts.of_lane(LAST - 10) == 0
        assert await parts.of_lane(LAST - 1, 4) == 1
        assert await parts.of_lane(9) == 5
        await parts.inherited(how)
        await parts.read()
        assert [await parts.of_lane(*one) for one in ((LAST - 10,), (LAST - 1, 4), (9,))] == [0, 1, 5], "copies"
        for below in (LAST - 10_000, LAST - 5, LAST, 2, 8):
            await parts.refuses(parts.of_lane(below), OutOfOrderSequence)
        assert await parts.of_lane(10) == 6

    on_parts(check)


@HEIRS
def test_in_a_lane_an_epoch_may_begin_anywhere_and_an_earlier_one_is_over(how: str) -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        await parts.of_lane(100)
        assert await parts.of_lane(40, epoch=1) == 1
        await parts.inherited(how)
        await parts.read()
        assert await parts.of_lane(40, epoch=1) == 1, "a copy"
        await parts.refuses(parts.of_lane(101, epoch=0), InvalidProducerEpoch)
        await parts.refuses(parts.of_lane(39, epoch=1), OutOfOrderSequence)
        assert [await parts.of_lane(50, epoch=1), await parts.of_lane(0, epoch=2)] == [2, 3]

    on_parts(check)


def test_a_client_of_the_lane_that_is_no_part_of_a_batch_may_not_leave_out_numbers() -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        await parts.of_lane(0)
        await parts.refuses(parts.put(part(1, 0, producer=(7, 0, 5)), CLIENTS), OutOfOrderSequence)
        await parts.refuses(parts.put(part(1, 0, producer=(7, 1, 5)), CLIENTS), OutOfOrderSequence)

    on_parts(check)


def test_a_part_gets_the_logs_time_where_the_topic_says_so() -> None:
    async def check(parts: Parts) -> None:
        await parts.begin(**{"message.timestamp.type": "LogAppendTime"})
        first = await parts.put(part(3, producer=(7, 0, 0)))
        assert first.log_append_time_ms > 1_000
        await asyncio.sleep(1)
        assert await parts.put(part(3, producer=(7, 0, 0))) == first, "a copy"

    on_parts(check)


def bases_part(first_ms: int, *times_ms: int) -> bytes:
    """What is left to the base of a batch whose first message was for a lane."""
    records = [Record(0, first_ms, None, b"x", (("lane", b"dev"),)), *(Record(0, at, None, b"x") for at in times_ms)]
    batch = build_batch(records)
    parts = parted(batch, read_header(batch), wanted="lane", choose=lambda *_: "dev", decompressed_bytes_max=1_000_000)
    assert parts is not None
    return parts[REST]


async def looked_up(parts: Parts, *times_ms: int) -> list[tuple[int, int]]:
    owner = parts.cluster.broker.owner
    found = [await owner.offset_for_time(parts.tp, time_ms) for time_ms in (*times_ms, MAX_TIMESTAMP)]
    return [(one.offset, one.timestamp_ms) for one in found]


@pytest.mark.parametrize("rolled", [False, True])
def test_batches_without_records_are_passed_over_by_look_ups_however_many_they_are(*, rolled: bool) -> None:
    """Their headers tell the time of what went elsewhere."""

    async def check(parts: Parts) -> None:
        await parts.begin()
        await parts.put(bases_part(900, 1_000))
        for number in range(20):
            await parts.put(bases_part(2_000 + number))
        await parts.put(bases_part(2_005, 2_005))
        for number in range(20):
            await parts.put(bases_part(3_000 + number))
        if rolled:
            await parts.cluster.roll(parts.tp)
        found = await looked_up(parts, 950, 1_500, 2_006)
        assert found == [(1, 1_000), (23, 2_005), (-1, -1), (23, 2_005)]

    on_parts(check)


BLOCK = BLOCK_SIZE_BYTES // HEADER_SIZE_BYTES + 1
MERGING = {
    "tail_budget_bytes": 1_000_000,
    "tail_limit_bytes": 2_000_000,
    "wal_budget_bytes": 1_000_000,
    "merge_below_bytes": 1_000_000,
    "merge_count": 2,
}


async def in_one_segment(parts: Parts) -> None:
    await parts.cluster.roll(parts.tp)
    await asyncio.sleep(120)
    assert len(parts.cluster.broker.partitions[parts.tp].manifest.entries) == 1


def test_look_ups_find_what_lies_between_blocks_of_batches_without_records() -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        first, later, last = BLOCK * 3 // 2, BLOCK * 3, BLOCK * 5
        for number in range(last):
            times_ms = (number,) if number in (first, later) else ()
            await parts.put(bases_part(number, *times_ms))
        wanted = [(first + 1, first), (later + 2, later), (-1, -1), (later + 2, later)]
        assert await looked_up(parts, 5, first + 1, later + 1) == wanted
        await in_one_segment(parts)
        assert await looked_up(parts, 5, first + 1, later + 1) == wanted

    on_parts(check, **MERGING)


@pytest.mark.parametrize(("doubts", "found"), [(8, BLOCK * 4 + 1), (2, BLOCK * 2)])
def test_a_look_up_reads_few_blocks_of_batches_without_records(doubts: int, found: int) -> None:
    """Then it names the first of the next block: whoever reads on from there misses nothing."""

    async def check(parts: Parts) -> None:
        await parts.begin()
        for number in range(BLOCK * 4):
            await parts.put(bases_part(number))
        await parts.put(bases_part(3, 3))
        await in_one_segment(parts)
        assert (await looked_up(parts, 3))[0][0] == found

    on_parts(check, false_batches_per_look_up=doubts, **MERGING)


def test_a_segment_that_has_no_record_is_not_read_for_a_look_up() -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        for number in range(5):
            await parts.put(bases_part(number))
        await parts.cluster.roll(parts.tp)
        [entry] = parts.cluster.broker.partitions[parts.tp].manifest.entries
        del parts.cluster.store.objects[entry.key]
        assert await looked_up(parts, 3) == [(-1, -1)] * 2
        await parts.put(bases_part(3, 3))
        assert await looked_up(parts, 3) == [(6, 3)] * 2
        await parts.cluster.kill()

    on_virtual_time(lambda: check(Parts(Cluster(settings=small()))))()


def asked(count: int = 1, *, time_ms: int = 1_000, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """What a proxy asks of a batch before it parts it."""
    whole = part(count, *range(count), time_ms=time_ms, producer=producer)
    header = read_header(whole)
    return emptied(header, max_timestamp_ms=header.max_timestamp_ms)


def test_who_asks_for_a_batch_hears_what_is_against_it_before_anything_is_appended() -> None:
    async def check(parts: Parts) -> None:
        await parts.begin(**{"message.timestamp.before.max.ms": "60000"})
        now_ms = parts.cluster.clock.now_ms()

        async def answer(sequence: int, count: int = 1, *, epoch: int = 0, time_ms: int = now_ms) -> int:
            before = parts.end
            batch = asked(count, time_ms=time_ms, producer=(7, epoch, sequence))
            found = await parts.put(batch, ASKED)
            assert parts.end == before, "nothing is appended"
            return found.base_offset

        assert await answer(0, 3) == NEXT
        assert await answer(0, 3) == NEXT
        assert (await parts.put(part(3, 1, producer=(7, 0, 0)))).base_offset == 0
        assert (await answer(0, 3), await answer(3)) == (0, NEXT), "the one is there, the other one is next"
        for sequence, count, epoch in ((4, 1, 0), (0, 2, 0), (1, 2, 0), (1, 1, 1)):
            await parts.refuses(answer(sequence, count, epoch=epoch), OutOfOrderSequence)
        await parts.refuses(answer(3, time_ms=now_ms - 61_000), InvalidTimestamp)
        header = read_header(part(1, 0, time_ms=now_ms, producer=(7, 0, 3)))
        by_log = emptied(
            header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT),
            max_timestamp_ms=header.max_timestamp_ms,
        )
        await parts.refuses(parts.put(by_log, ASKED), InvalidTimestamp)
        assert await answer(0, epoch=1) == NEXT
        assert (await parts.put(part(1, 0, producer=(7, 1, 0)))).base_offset == 3
        await parts.refuses(answer(3), InvalidProducerEpoch)
        assert (await parts.put(asked(time_ms=now_ms), ASKED)).base_offset == NEXT, "a producer without numbers"
        await parts.inherited("from the WAL")
        assert (await answer(0, epoch=1), await answer(1, epoch=1)) == (3, NEXT)

    on_parts(check)


def numbered(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    return part(1, 0, producer=(producer_id, epoch, sequence))


async def refused_for(parts: Parts, seconds: float, version: int, *batches: bytes) -> None:
    """They come again and again for so long."""
    for _ in range(round(seconds / EVERY_S)):
        for batch in batches:
            await parts.refuses(parts.put(batch, version), NotYetNext)
        await asyncio.sleep(EVERY_S)


@pytest.mark.parametrize("version", [ASKED, PARTED, CLIENTS])
def test_who_is_not_known_and_begins_in_the_middle_waits_for_what_may_be_on_its_way(version: int) -> None:
    async def check(parts: Parts) -> None:
        await parts.begin(**{LANE_HEADER: "x-lane"})
        await parts.refuses(parts.put(numbered(1), version), NotYetNext)
        assert (await parts.put(numbered(0), version)).base_offset in (0, NEXT)
        assert (await parts.put(numbered(0))).base_offset == 0
        assert (await parts.put(numbered(1))).base_offset == 1
        forgotten = numbered(5, producer_id=8)
        await refused_for(parts, PATIENCE_S, version, numbered(6, producer_id=8), forgotten, numbered(7, producer_id=8))
        await parts.refuses(parts.put(numbered(5, producer_id=9), version), NotYetNext)
        await parts.refuses(parts.put(numbered(6, producer_id=8), version), NotYetNext)  # a lower one waits
        assert (await parts.put(forgotten, version)).base_offset in (2, NEXT), "it was forgotten, and goes on"
        await parts.refuses(parts.put(numbered(5, producer_id=9), version), NotYetNext)
        assert (await parts.put(numbered(5, producer_id=10), OF_LANE)).base_offset >= 0, "a lane's owner cannot tell"

    on_parts(check)


def test_what_precedes_a_known_producers_batch_is_waited_for_and_who_was_away_waits_anew() -> None:
    async def check(parts: Parts) -> None:
        await parts.begin(**{LANE_HEADER: "x-lane"})
        assert (await parts.put(numbered(0), CLIENTS)).base_offset == 0
        await refused_for(parts, PATIENCE_S, ASKED, numbered(2))
        await parts.refuses(parts.put(numbered(2), ASKED), OutOfOrderSequence)
        await asyncio.sleep(AWAY_S + 1)
        await parts.refuses(parts.put(numbered(2), ASKED), NotYetNext)
        assert (await parts.put(numbered(1), CLIENTS)).base_offset == 1
        assert (await parts.put(numbered(2), ASKED)).base_offset == NEXT

    on_parts(check)


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("version", [ASKED, PARTED, CLIENTS])
def test_what_was_asked_for_of_a_producer_that_is_not_known_comes_before_all_else(version: int, first: int) -> None:
    """However long its parts take to the lanes."""

    async def check(parts: Parts) -> None:
        await parts.begin(**{LANE_HEADER: "x-lane"})
        if first:
            await refused_for(parts, PATIENCE_S, ASKED, numbered(first))
        assert (await parts.put(numbered(first), ASKED)).base_offset == NEXT
        await refused_for(parts, 2 * PATIENCE_S, version, numbered(first + 1))
        assert (await parts.put(numbered(first))).base_offset == 0
        assert (await parts.put(numbered(first + 1))).base_offset == 1

    on_parts(check)


def test_what_was_asked_for_and_never_came_is_forgotten() -> None:
    async def check(parts: Parts) -> None:
        await parts.begin(**{LANE_HEADER: "x-lane"})
        assert (await parts.put(numbered(0), ASKED)).base_offset == NEXT
        await refused_for(parts, ASKED_S, CLIENTS, numbered(3))
        await refused_for(parts, PATIENCE_S, CLIENTS, numbered(3))
        assert (await parts.put(numbered(3))).base_offset == 0

    on_parts(check)


def test_so_many_producers_are_remembered_and_the_next_ones_are_answered_as_kafka_answers() -> None:
    beginnings, tp = Beginnings(), TopicPartition(TopicId(UUID(int=1)), 0)

    def comes(producer_id: int, now_s: float) -> None:
        header = read_header(numbered(1, producer_id=producer_id))
        beginnings.check(tp, header, is_known=False, now_s=now_s)

    for number in range(REMEMBERED_MAX):
        with pytest.raises(NotYetNext):
            comes(number, 0.0)
    comes(REMEMBERED_MAX, 0.0)
    for second in range(1, round(PATIENCE_S)):
        with pytest.raises(NotYetNext):
            comes(0, second)
    comes(0, PATIENCE_S)
    with pytest.raises(NotYetNext):
        comes(REMEMBERED_MAX, PATIENCE_S)  # those who were away are forgotten
    assert len(beginnings._waiting) <= REMEMBERED_MAX
    for number in range(REMEMBERED_MAX + 1):
        beginnings.asked(tp, read_header(numbered(0, producer_id=number)), now_s=0.0)
    assert len(beginnings._asked) == REMEMBERED_MAX


def test_what_a_later_version_may_ask_for_is_refused_and_not_appended() -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        await parts.refuses(parts.put(part(1, 0), ASKED + 1), InvalidBatch)

    on_parts(check)


def test_elsewhere_a_producer_that_is_not_known_begins_anywhere() -> None:
    async def check(parts: Parts) -> None:
        await parts.begin()
        assert (await parts.put(part(1, 0, producer=(7, 0, 5)), CLIENTS)).base_offset == 0

    on_parts(check)


def test_what_was_asked_for_or_another_topic_took_is_not_refused_for_its_size_or_its_time() -> None:
    """Lanes have their parts by then, or the client was told that the base has its own."""

    async def check(parts: Parts) -> None:
        await parts.begin(**{"max.message.bytes": "100", "message.timestamp.before.max.ms": "1"})
        assert (await parts.put(part(9, *range(9)), OF_LANE)).base_offset == 0
        await parts.refuses(parts.put(asked(9), ASKED), InvalidTimestamp)
        assert (await parts.put(part(9, *range(9)))).base_offset == 9, "the proxy judged the whole"
        now_ms = parts.cluster.clock.now_ms()
        await parts.refuses(parts.put(part(9, *range(9), time_ms=now_ms), CLIENTS), BatchTooLarge)

    on_parts(check)
