"""A Fetch of partitions of several owners: it waits for as much as it asked for, of all of them together, and for no
longer.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from proxy_in_memory import MemoryOwner, batch

from bmq.errors import BmqError, NotOwner
from bmq.fairness.turns import NOBODY, Party
from bmq.roles.owner import Owner, TailAnswer, TailRequest, TailRoom
from bmq.values import Offset, TopicId, TopicPartition
from bmq_proxy.fetch.tails import ASKED_MAX, read_tails
from bmq_sim.loop import on_virtual_time

TPS = [TopicPartition(TopicId(UUID(int=number)), 0) for number in range(3)]
WAIT_MS = 10_000
SIZE_BYTES = len(batch(b"x"))


class Counting(MemoryOwner):
    """How often it was asked, and to what of it the asker came back."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.failing: BmqError | None = None

    async def read_tail(
        self,
        requests: Sequence[TailRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: TailRoom | None = None,
        party: Party = NOBODY,
    ) -> list[TailAnswer]:
        self.asked += 1
        if self.failing is not None:
            raise self.failing
        return await super().read_tail(requests, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms)


class Cluster:
    """Three owners of a partition each."""

    def __init__(self) -> None:
        self.owners = {tp: Counting() for tp in TPS}
        self.gone: set[TopicPartition] = set()

    def owner_for(self, tp: TopicPartition) -> Owner:
        if tp in self.gone:
            raise NotOwner("nobody owns it")
        return self.owners[tp]  # type: ignore[return-value]

    def append(self, at: int) -> None:
        self.owners[TPS[at]].append(TPS[at], memoryview(batch(b"x")), produce_version=9)

    async def read(self, *, min_bytes: int, offset: int = 0) -> list[TailAnswer]:
        requests = [TailRequest(tp=tp, offset=Offset(offset), max_bytes=1 << 20) for tp in TPS]
        return await read_tails(self.owner_for, requests, min_bytes=min_bytes, max_bytes=1 << 20, max_wait_ms=WAIT_MS)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def counted(reading: "asyncio.Task[list[TailAnswer]]") -> list[int]:
    return [len(answer.batches) for answer in await reading]


@on_virtual_time
async def test_the_first_news_of_any_of_them_ends_a_wait_for_anything_at_all() -> None:
    cluster = Cluster()
    reading = asyncio.ensure_future(cluster.read(min_bytes=1))
    await asyncio.sleep(1)
    assert not reading.done()
    cluster.append(1)
    began_s = now_s()
    assert await counted(reading) == [0, 1, 0]
    assert now_s() == began_s
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("order", [[0, 1, 2, 0, 1, 2], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 2]])
@on_virtual_time
async def test_what_is_there_already_and_what_comes_is_counted_together_whichever_owner_has_it(
    order: list[int],
) -> None:
    cluster = Cluster()
    cluster.append(order[0])
    reading = asyncio.ensure_future(cluster.read(min_bytes=len(order) * SIZE_BYTES))
    for at in order[1:]:
        await asyncio.sleep(0.5)
        assert not reading.done()
        cluster.append(at)
    began_s = now_s()
    assert await counted(reading) == [order.count(at) for at in range(3)]
    assert now_s() == began_s


@on_virtual_time
async def test_a_wait_for_more_than_comes_ends_with_what_there_is_when_its_time_is_up() -> None:
    cluster = Cluster()
    began_s = now_s()
    reading = asyncio.ensure_future(cluster.read(min_bytes=1 << 19))
    await asyncio.sleep(1)
    cluster.append(2)
    assert await counted(reading) == [0, 0, 1]
    assert now_s() - began_s == pytest.approx(WAIT_MS / 1000, abs=0.01)
    assert all(owner.asked <= 1 + 2 * ASKED_MAX for owner in cluster.owners.values())


@on_virtual_time
async def test_many_small_batches_cost_a_few_questions_and_not_one_each() -> None:
    cluster = Cluster()
    reading = asyncio.ensure_future(cluster.read(min_bytes=200 * SIZE_BYTES))
    count = 0
    while not reading.done():
        cluster.append(0)
        count += 1
        await asyncio.sleep(0.01)
    assert 190 <= count <= 200
    assert await counted(reading) == [count, 0, 0]
    assert all(owner.asked <= 1 + 2 * ASKED_MAX for owner in cluster.owners.values())


@pytest.mark.parametrize("how", ["nobody owns it", "its owner fails", "below the tail", "out of range"])
@on_virtual_time
async def test_what_one_of_them_says_is_told_at_once_with_the_records_of_the_others(how: str) -> None:
    cluster = Cluster()
    cluster.append(0)
    if how == "nobody owns it":
        cluster.gone.add(TPS[1])
    elif how == "its owner fails":
        cluster.owners[TPS[1]].failing = NotOwner("it moved")
    elif how == "below the tail":
        log = cluster.owners[TPS[1]].log(TPS[1])
        log.tail_start = log.end = 3
    else:
        log = cluster.owners[TPS[1]].log(TPS[1])
        log.log_start = log.tail_start = log.end = 3
    began_s = now_s()
    answers = await cluster.read(min_bytes=1 << 19)
    assert now_s() == began_s
    assert [len(answer.batches) for answer in answers] == [1, 0, 0]
    assert [answer.error is not None for answer in answers] == [False, how != "below the tail", False]


@on_virtual_time
async def test_an_owner_that_fails_meanwhile_ends_the_wait() -> None:
    cluster = Cluster()
    reading = asyncio.ensure_future(cluster.read(min_bytes=2 * SIZE_BYTES))
    await asyncio.sleep(1)
    cluster.owners[TPS[2]].failing = NotOwner("it moved")
    cluster.append(0)  # less than it waits for, but for its part
    await asyncio.sleep(0)
    answers = await reading
    assert isinstance(answers[2].error, NotOwner)
    assert len(answers[0].batches) == 1
