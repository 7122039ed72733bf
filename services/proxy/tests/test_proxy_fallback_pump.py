"""Handing over what is in a lane's partition to the base's."""

import asyncio
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from typing_extensions import Buffer

from bmq.errors import BmqError, NotOwner, OffsetOutOfRange, StoreUnavailable
from bmq.fairness.opening import Opener
from bmq.metadata.image import Image, PartitionMeta, Topic, Turn
from bmq.metadata.records import Whose
from bmq.roles.lane_turns import LaneLease
from bmq.roles.owner import Appended, HandedOver
from bmq.values import LANE_TURN_IDS, NodeId, Offset, TopicId, TopicPartition
from bmq.wire.batches import BatchHeader, Record, build_batch, build_empty_batch, iterate_records, patched, split
from bmq.wire.compression import Section
from bmq_proxy.fetch.answers import Found, Result
from bmq_proxy.lanes.fallback import rewriting
from bmq_proxy.lanes.fallback.pump import OPENING, SETTLED_S, WAIT_MS, LanePump
from bmq_proxy.lanes.fallback.runs import RUN_BATCHES, RUN_BYTES, RUN_RECORDS, Gap, Run, run_at
from bmq_proxy.lanes.fallback.waits import LaneWaits
from bmq_sim.loop import on_virtual_time

OWN, BASE = TopicId(UUID(int=1)), TopicId(UUID(int=2))
TP = TopicPartition(OWN, 0)
APPEND_S = 0.25


class Cluster:
    """A lane's partition whose log is read in `parts`, and the base's, whose owner takes a while for each append."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts = parts
        self.taken: list[bytes | None] = []
        self.end = -1
        self.has_owner = True
        self.error: BmqError | None = None
        """What reading the lane's partition ends with."""
        self.refuses: BmqError | None = None
        """What the leader answers, and the base's owner where it is asked how far it got."""
        self.consumed_topics: list[TopicId] = []
        turn = Turn(whose=Whose.BASE, begin=0, generation=1, producer_id=LANE_TURN_IDS, base_topic_id=BASE)
        base = Topic(topic_id=BASE, name="orders", partitions=(PartitionMeta(node_id=NodeId(1)),))
        self.image = Image(turns={TP: turn}, topics={BASE: base})
        self.memory = SimpleNamespace(release=lambda _: None)

    async def read(self, reads: Sequence[Any], **_: Any) -> Result:
        if self.error is not None:
            return Result([Found(error=self.error) for _ in reads], 0, cast(Any, self.memory))
        found = Found(parts=self.parts, size_bytes=sum(map(len, self.parts)), high_watermark=self.end)
        return Result([found for _ in reads], 0, cast(Any, self.memory))

    async def consumed(self, topic_ids: Sequence[TopicId]) -> LaneLease:
        self.consumed_topics += topic_ids
        if self.refuses is not None:
            raise self.refuses
        return LaneLease(lease_ms=1_000, position=0)

    async def handed_over(self, _tp: TopicPartition, _producer_id: int) -> HandedOver:
        if self.refuses is not None:
            raise self.refuses
        return HandedOver(count=len(self.taken), is_final=False)

    def append(self, _tp: TopicPartition, records: Buffer, **_: Any) -> "asyncio.Future[Appended]":
        [header] = split(records)
        assert header.base_sequence == len(self.taken)
        self.taken += [record.value for record in iterate_records(records, header)]
        answer = Appended(base_offset=Offset(0), log_append_time_ms=-1, log_start=Offset(0))
        return asyncio.ensure_future(asyncio.sleep(APPEND_S, answer))


def pump(cluster: Cluster, waits: LaneWaits | None = None, opener: Opener | None = None) -> LanePump:
    def owner_for(tp: TopicPartition) -> Any:
        if not cluster.has_owner:
            raise NotOwner(f"{tp}: no broker owns it at present")
        return cluster

    this = cast(Any, cluster)
    return LanePump(
        "dev",
        control=this,
        metadata=this,
        owner_for=owner_for,
        reader=this,
        rewriting=asyncio.Semaphore(1),
        opener=Opener() if opener is None else opener,
        waits=LaneWaits(asyncio.get_running_loop().time) if waits is None else waits,
    )


def log(count: int) -> bytes:
    return b"".join(build_batch([Record(0, 1, None, b"%d" % at)], base_offset=at) for at in range(count))


@on_virtual_time
async def test_a_batch_that_spans_two_parts_of_what_was_read_goes_on_as_any() -> None:
    data = log(3)
    for at in range(1, len(data)):
        cluster = Cluster([data[:at], data[at:]])
        await pump(cluster).hand_over([TP], asyncio.Event())
        assert cluster.taken == [b"0", b"1", b"2"]


@on_virtual_time
async def test_many_small_batches_wait_for_the_bases_owner_together() -> None:
    cluster = Cluster([log(1_000)])
    began_s = asyncio.get_running_loop().time()
    await pump(cluster).hand_over([TP], asyncio.Event())
    assert len(cluster.taken) == 1_000
    assert asyncio.get_running_loop().time() - began_s < 11 * APPEND_S


@on_virtual_time
async def test_a_base_whose_owner_is_gone_while_the_lane_is_read_gets_it_once_there_is_another() -> None:
    cluster = Cluster([log(2)])
    handing = pump(cluster)
    await handing.hand_over([TP], asyncio.Event())
    assert cluster.taken == [b"0", b"1"]
    cluster.parts, cluster.has_owner = [log(4)], False
    for _ in range(3):
        await handing.hand_over([TP], asyncio.Event())
    assert cluster.taken == [b"0", b"1"]
    cluster.has_owner = True
    await handing.hand_over([TP], asyncio.Event())
    assert cluster.taken == [b"0", b"1", b"2", b"3"]


@on_virtual_time
async def test_a_turn_to_a_base_that_is_deleted_ends_though_the_leader_is_away_at_first() -> None:
    cluster = Cluster([log(2)])
    cluster.image = Image(turns=cluster.image.turns)
    cluster.refuses = StoreUnavailable("away")
    handing = pump(cluster)
    await handing.hand_over([TP], asyncio.Event())
    await handing.hand_over([TP], asyncio.Event())
    assert cluster.taken == []
    assert cluster.consumed_topics == [OWN, OWN], "it is said until somebody takes it"


@on_virtual_time
async def test_where_what_comes_next_was_deleted_the_turn_ends() -> None:
    cluster = Cluster([log(2)])
    handing = pump(cluster)
    await handing.hand_over([TP], asyncio.Event())
    cluster.error = OffsetOutOfRange("it begins at 9")
    await handing.hand_over([TP], asyncio.Event())
    assert cluster.consumed_topics == [OWN]


@on_virtual_time
async def test_what_cannot_be_read_now_or_whose_place_nobody_tells_goes_on_later() -> None:
    cluster = Cluster([log(2)])
    handing = pump(cluster)
    cluster.refuses = StoreUnavailable("away")
    await handing.hand_over([TP], asyncio.Event())
    cluster.refuses, cluster.error = None, StoreUnavailable("away")
    await handing.hand_over([TP], asyncio.Event())
    assert (cluster.taken, cluster.consumed_topics) == ([], [])
    cluster.error = None
    await handing.hand_over([TP], asyncio.Event())
    assert cluster.taken == [b"0", b"1"]


@pytest.mark.parametrize("is_empty", [True, False], ids=["an empty batch", "nothing"])
def test_where_offsets_have_nothing_the_next_turn_begins_behind_them(is_empty: bool) -> None:
    async def main() -> None:
        empty = build_empty_batch(base_offset=2, offset_count=5, leader_epoch=0, timestamp_ms=1)
        behind = build_batch([Record(0, 1, None, b"7")], base_offset=7)
        cluster = Cluster([log(2) + (empty if is_empty else b"") + behind])
        handing = pump(cluster)
        await handing.hand_over([TP], asyncio.Event())
        assert cluster.taken == [b"0", b"1"], "what is before it goes on"
        assert cluster.consumed_topics == [OWN], "the turn ends"
        assert handing.goes_on_at == {TP: 7}

    on_virtual_time(main)()


@on_virtual_time
async def test_what_waits_is_told_with_how_long_it_was_always_so() -> None:
    loop = asyncio.get_running_loop()
    waits = LaneWaits(loop.time)
    cluster = Cluster([log(2)])
    cluster.end = 2
    handing = pump(cluster, waits)
    await handing.hand_over([TP], asyncio.Event())
    assert (waits.records(), waits.seconds()) == (0, 0.0)
    cluster.parts, cluster.end, cluster.has_owner = [log(4)], 4, False
    began_s = loop.time()
    while loop.time() < began_s + 60:
        await handing.hand_over([TP], asyncio.Event())
    assert waits.records() == 2
    assert 59 <= waits.seconds() <= 61
    cluster.has_owner = True
    await handing.hand_over([TP], asyncio.Event())
    assert (waits.records(), waits.seconds()) == (0, 0.0)


@on_virtual_time
async def test_what_nobody_can_tell_of_waits_too_and_what_is_the_lanes_again_does_not() -> None:
    loop = asyncio.get_running_loop()
    waits = LaneWaits(loop.time)
    cluster = Cluster([log(2)])
    cluster.end, cluster.has_owner = 2, False
    handing = pump(cluster, waits)
    await handing.hand_over([TP], asyncio.Event())
    await asyncio.sleep(10)
    assert waits.records() == 0, "the base's owner does not say how far it got"
    assert waits.seconds() >= 10
    waits.keep(())
    assert waits.seconds() == 0
    waits.looked(is_told=False)
    await asyncio.sleep(5)
    waits.looked(is_told=False)
    assert waits.seconds() == 5, "nor whether somebody in the lane consumes"
    waits.looked(is_told=True)
    assert waits.seconds() == 0


@on_virtual_time
async def test_the_oldest_that_still_waits_counts() -> None:
    waits = LaneWaits(asyncio.get_running_loop().time)
    second = TopicPartition(OWN, 1)
    waits.found(TP, 5)
    await asyncio.sleep(10)
    waits.found(second, 7)
    await asyncio.sleep(10)
    assert (waits.records(), waits.seconds()) == (12, 20)
    waits.found(TP, 0)
    waits.settle()
    assert (waits.records(), waits.seconds()) == (7, 10)


@on_virtual_time
async def test_what_changes_ends_a_wait_for_messages_though_not_at_once_and_nothing_else_does() -> None:
    class Empty(Cluster):
        reading = 0

        async def read(self, reads: Sequence[Any], *, max_wait_ms: int, **_: Any) -> Result:
            self.reading += 1
            try:
                await asyncio.sleep(max_wait_ms / 1000)
            finally:
                self.reading -= 1
            return Result([Found(high_watermark=0) for _ in reads], 0, cast(Any, self.memory))

    loop = asyncio.get_running_loop()
    cluster = Empty([])
    for changes_after_s, over_after_s in ((None, WAIT_MS / 1000), (0.0, SETTLED_S), (3.0, 3.0)):
        changed = asyncio.Event()
        if changes_after_s is not None:
            loop.call_later(changes_after_s, changed.set)
        began_s = loop.time()
        await pump(cluster).hand_over([TP], changed)
        assert loop.time() - began_s == pytest.approx(over_after_s)
        assert cluster.reading == 0, "nobody reads for nobody"
    handing = asyncio.ensure_future(pump(cluster).hand_over([TP], asyncio.Event()))
    await asyncio.sleep(1)
    handing.cancel()
    await asyncio.gather(handing, return_exceptions=True)
    assert (handing.cancelled(), cluster.reading) == (True, 0)


def test_what_decompresses_to_much_is_opened_one_at_a_time_however_many_lanes_hand_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the place that large batches of this proxy's clients have, of which there is one."""
    large = 5 << 20
    bombs = b"".join(build_batch([Record(0, 1, None, bytes(large))], base_offset=at, codec=4) for at in range(3))
    open_now: list[int] = []
    most: list[int] = []
    real = rewriting.section_of

    def section_of(batch: Buffer, header: BatchHeader, bytes_max: int) -> Section:
        section = real(batch, header, bytes_max)
        open_now.append(len(section))
        most.append(len(open_now))
        weakref.finalize(section, open_now.pop)
        return section

    async def main() -> None:
        opener, clusters = Opener(), [Cluster([bombs]) for _ in range(4)]
        pumps = [pump(cluster, opener=opener) for cluster in clusters]
        await asyncio.gather(*[handing.hand_over([TP], asyncio.Event()) for handing in pumps])
        assert [len(cluster.taken) for cluster in clusters] == [3] * 4

    monkeypatch.setattr(rewriting, "section_of", section_of)
    asyncio.run(main())
    assert (len(most), max(most), open_now) == (12, 1, [])


@on_virtual_time
async def test_between_two_steps_of_a_lane_others_have_their_batches_opened() -> None:
    steps: list[int] = []

    class Steps(Opener):
        async def look(self, look: Any, batch: Buffer, header: BatchHeader, **who: Any) -> Any:
            assert who == {"party": OPENING, "sender": "dev"}
            steps.append(len(split(batch)))
            return await super().look(look, batch, header, **who)

    cluster = Cluster([log(1_000)])
    await pump(cluster, opener=Steps()).hand_over([TP], asyncio.Event())
    assert len(cluster.taken) == 1_000
    assert steps == [RUN_BATCHES] * (1_000 // RUN_BATCHES)


def test_a_run_ends_before_it_has_too_much_and_before_what_is_missing() -> None:
    data = memoryview(log(RUN_BATCHES + 1))
    small = len(data) // (RUN_BATCHES + 1) + 1
    run = run_at(data, 0, 3)
    assert isinstance(run, Run)
    assert (run.first.base_offset, len(split(data[run.position : run.end]))) == (3, RUN_BATCHES - 2)
    wide = build_batch([Record(0, 1, None, b"")] * RUN_RECORDS)
    large = build_batch([Record(0, 1, None, bytes(RUN_BYTES))])
    for batch in (wide, large):
        two = memoryview(batch + in_place(batch, split(batch)[0].next_offset))
        run = run_at(two, 0, 0)
        assert isinstance(run, Run)
        assert run.end == len(batch)
    missing = memoryview(log(1) + build_batch([Record(0, 1, None, b"7")], base_offset=7))
    run = run_at(missing, 0, 0)
    assert isinstance(run, Run)
    assert run.end < small
    assert run_at(missing, run.end, 1) == Gap(7)
    assert run_at(missing, 0, 8) is None


def in_place(batch: bytes, base_offset: int) -> bytes:
    return bytes(patched(batch, split(batch)[0], base_offset=base_offset, leader_epoch=0))
