"""Batches that an owner takes at once are what they would be one by one: the same are taken, at the same offsets, and
the same is known of their producers.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from broker_under_test import Cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import BmqError, NotReady
from bmq.roles.owner import Proved
from bmq.values import TopicPartition
from bmq.wire.batches import Record, build_batch, only_header
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time

VERSION = 9
Outcome = tuple[int, int] | str
"""(base offset, append time), or the error's kind."""

KINDS = ("next", "next", "next", "next", "again", "gap", "older epoch", "newer epoch", "damaged", "late", "large")


class Writer:
    """What several producers send: each knows how far it is."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._next: dict[int, int] = {}
        self._epochs: dict[int, int] = {}

    def batch(self, number: int, kind: str, producer_id: int, records: int) -> bytes:
        time_ms = self._now_ms + (1 << 40 if kind == "late" else number)
        filling = b"." * (2_000 if kind == "large" else 1)
        values = [Record(at, time_ms, None, b"%d-%d" % (number, at) + filling) for at in range(records)]
        if producer_id < 0:
            data = build_batch(values)
        else:
            sequence, epoch = self._next.get(producer_id, 0), self._epochs.get(producer_id, 1)
            if kind == "newer epoch":
                epoch, sequence = epoch + 1, 0
            if kind == "older epoch":
                epoch -= 1
            sequence += {"gap": 3, "again": -1}.get(kind, 0)
            data = build_batch(values, producer_id=producer_id, producer_epoch=epoch, base_sequence=max(0, sequence))
            if kind in ("next", "newer epoch"):
                self._next[producer_id], self._epochs[producer_id] = sequence + records, epoch
        if kind == "damaged":
            return data[:-1] + bytes([data[-1] ^ 1])
        return data


async def one_by_one(cluster: Cluster, tp: TopicPartition, batches: Sequence[bytes]) -> list[Outcome]:
    futures = [cluster.broker.owner.append(tp, data, produce_version=VERSION) for data in batches]
    return [await outcome_of(future) for future in futures]


async def at_once(cluster: Cluster, tp: TopicPartition, batches: Sequence[bytes], at_most: int) -> list[Outcome]:
    """As a proxy does: what is not taken at once goes by itself."""
    owner = cluster.broker.owner
    waiting: list[tuple[int, asyncio.Future[object]]] = []
    at = 0
    while at < len(batches):
        proved = [Proved(data, only_header(data)) for data in batches[at : at + at_most]]
        taken = owner.append_alike(tp, proved, produce_version=VERSION)
        if taken is None:
            waiting.append((1, owner.append(tp, batches[at], produce_version=VERSION)))  # type: ignore[arg-type]
            at += 1
        else:
            count, future = taken
            assert 0 < count <= len(proved)
            waiting.append((count, future))  # type: ignore[arg-type]
            at += count
    found: list[Outcome] = []
    for count, future in waiting:
        done = await future if not isinstance(one := await outcome_of(future), str) else one
        if isinstance(done, str):
            found += [done] * count
        elif hasattr(done, "base_offsets"):
            assert len(done.base_offsets) == count
            found += [(base_offset, done.log_append_time_ms) for base_offset in done.base_offsets]
        else:
            found.append((done.base_offset, done.log_append_time_ms))  # type: ignore[attr-defined]
    return found


async def outcome_of(future: "asyncio.Future[object]") -> Outcome:
    try:
        done = await future
    except BmqError as error:
        return type(error).__name__
    with suppress(AttributeError):
        return done.base_offset, done.log_append_time_ms  # type: ignore[attr-defined]
    return 0, 0


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from((-1, 5, 6)), st.integers(1, 3)), min_size=1, max_size=30
    ),
    st.integers(1, 30),
    st.booleans(),
)
def test_what_is_taken_at_once_is_what_it_would_be_one_by_one(
    drawn: list[tuple[str, int, int]], at_most: int, has_append_time: bool
) -> None:
    async def written(*, together: bool) -> object:
        cluster = Cluster()
        await cluster.start()
        configs = {"max.message.bytes": "1500"}
        if has_append_time:
            configs["message.timestamp.type"] = "LogAppendTime"
        (tp,) = await cluster.topic("orders", configs=configs)
        partition = await cluster.broker._ownership.open(tp)
        writer = Writer(cluster.clock.now_ms())
        batches = [writer.batch(number, *one) for number, one in enumerate(drawn)]
        found = await (at_once(cluster, tp, batches, at_most) if together else one_by_one(cluster, tp, batches))
        records, producers = await cluster.read_all(tp), partition.live.encode()
        await cluster.stop()
        return found, records, producers

    @on_virtual_time
    async def main() -> None:
        assert await written(together=True) == await written(together=False)

    main()


def test_a_full_buffer_takes_some_of_them_and_the_others_are_not_ready() -> None:
    @on_virtual_time
    async def main() -> None:
        cluster = Cluster(settings=BrokerSettings(buffer_max_bytes=2_000))
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.broker._ownership.open(tp)
        batches = [build_batch([Record(0, cluster.clock.now_ms(), None, b"." * 500)]) for _ in range(10)]
        found = await at_once(cluster, tp, batches, 10)
        taken = [one for one in found if not isinstance(one, str)]
        assert [offset for offset, _ in taken] == [0, 1, 2]
        assert set(found[3:]) == {NotReady.__name__}
        assert [offset for offset, _ in await cluster.read_all(tp)] == [0, 1, 2]
        await cluster.stop()

    main()


def test_what_is_taken_at_once_is_in_one_wal_object() -> None:
    """Of two, one may become durable without the other, and then all would be told that they are lost."""

    @on_virtual_time
    async def main() -> None:
        cluster = Cluster(settings=BrokerSettings(flush_bytes=1_500))
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        partition = await cluster.broker._ownership.open(tp)
        batches = [build_batch([Record(0, cluster.clock.now_ms(), None, b"." * 500)]) for _ in range(20)]
        at = 0
        while at < len(batches):
            proved = [Proved(data, only_header(data)) for data in batches[at:]]
            before = len(partition.tail.runs)
            taken = cluster.broker.owner.append_alike(tp, proved, produce_version=VERSION)
            assert taken is not None
            assert len(partition.tail.runs) <= before + 1
            at += taken[0]
        assert len(partition.tail.runs) > 3
        await cluster.stop()

    main()
