"""At a broker the topics of who sends little do not wait behind those of who sends all it can, and each keeps its order."""

import asyncio
from random import Random
from typing import Any
from uuid import UUID

import pytest
from internal_under_test import tp

from bmq.errors import BmqError, Fenced, NotReady
from bmq.fair_shares import WINDOW_FIRST_BYTES
from bmq.internal.fair_appends import FairAppends
from bmq.roles.owner import Appended
from bmq.values import Offset, TopicId, TopicPartition
from bmq_sim.loop import run

LARGE = 512 << 10
MODEST = TopicPartition(TopicId(UUID(int=1)), 0)
OTHER = TopicPartition(TopicId(UUID(int=2)), 0)


class Owner:
    """Takes batches; a test says when they are durable."""

    def __init__(self) -> None:
        self.taken: list[tuple[TopicPartition, int]] = []
        self.futures: list[asyncio.Future[Appended]] = []
        self.refuse: BmqError | None = None

    def submit(self, one: TopicPartition, number: int) -> "asyncio.Future[Appended]":
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        if self.refuse is not None:
            future.set_exception(self.refuse)
            return future
        self.taken.append((one, number))
        self.futures.append(future)
        return future

    def durable(self, count: int = 1) -> None:
        for _ in range(count):
            self.futures.pop(0).set_result(Appended(base_offset=Offset(0), log_append_time_ms=-1, log_start=Offset(0)))

    def of(self, one: TopicPartition) -> list[int]:
        return [number for whose, number in self.taken if whose == one]


def append(fair: FairAppends, owner: Owner, one: TopicPartition, number: int, size_bytes: int = LARGE) -> "asyncio.Future[Appended]":
    return fair.append(one, size_bytes, lambda: owner.submit(one, number))


def test_the_greedy_wait_by_turns_while_a_modest_topic_is_there() -> None:
    async def main() -> None:
        owner, fair = Owner(), FairAppends(bytes_max=64 << 20)
        first = append(fair, owner, MODEST, 0, 1000)
        greedy = [append(fair, owner, OTHER if number % 2 else tp(0), number) for number in range(60)]
        window = WINDOW_FIRST_BYTES // LARGE
        assert len(owner.taken) == 1 + window
        second = append(fair, owner, MODEST, 1, 1000)
        assert owner.of(MODEST) == [0, 1]
        while not all(one.done() for one in greedy):
            owner.durable()
            await asyncio.sleep(0)
            assert len(owner.futures) <= 2 + window
            assert abs(len(owner.of(tp(0))) - len(owner.of(OTHER))) <= window
        assert owner.of(tp(0)) == list(range(0, 60, 2))
        assert owner.of(OTHER) == list(range(1, 60, 2))
        await asyncio.gather(first, second, *greedy)

    run(main())


def test_without_a_modest_partition_everything_goes_at_once() -> None:
    async def main() -> None:
        owner, fair = Owner(), FairAppends(bytes_max=64 << 20)
        sent = [append(fair, owner, tp(number % 4), number) for number in range(100)]
        assert len(owner.taken) == 100
        owner.durable(100)
        await asyncio.gather(*sent)

    run(main())


def test_what_waits_behind_a_refused_batch_of_its_partition_is_refused_and_holds_up_nobody() -> None:
    async def main() -> None:
        owner, fair = Owner(), FairAppends(bytes_max=64 << 20)
        append(fair, owner, MODEST, 0, 1000)
        greedy = [append(fair, owner, tp(0), number) for number in range(20)]
        neighbour = append(fair, owner, tp(1), 0)
        taken = len(owner.of(tp(0)))
        assert taken < 20
        assert owner.of(tp(1)) == []
        owner.futures.pop(1).set_exception(NotReady("buffers are full"))
        await asyncio.sleep(0)
        assert all(isinstance(one.exception(), NotReady) for one in greedy[taken:])
        assert owner.of(tp(0)) == list(range(taken))
        assert owner.of(tp(1)) == [0]
        again = append(fair, owner, tp(0), 99)
        for _ in range(3):
            owner.durable(len(owner.futures))
            await asyncio.sleep(0)
        await asyncio.gather(again, neighbour)
        assert fair._shares.greedy_bytes == 0

    run(main())


def test_all_that_wait_are_refused_when_the_broker_is_fenced_however_many_they_are() -> None:
    async def main() -> None:
        owner, fair = Owner(), FairAppends(bytes_max=64 << 20)
        sent = [append(fair, owner, MODEST, 0, 1000)]
        sent += [append(fair, owner, TopicPartition(TopicId(UUID(int=number)), 0), number) for number in range(100, 700)]
        assert len(owner.taken) < 20
        owner.refuse = Fenced("replaced")
        for future in owner.futures:
            future.set_exception(owner.refuse)
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*sent, return_exceptions=True)
        assert {type(answer) for answer in answers} == {Fenced}
        assert fair._shares.held_bytes == 0

    run(main())


def test_an_owner_that_fails_for_a_bug_is_heard_also_by_who_waited() -> None:
    async def main() -> None:
        owner, fair = Owner(), FairAppends(bytes_max=64 << 20)
        append(fair, owner, MODEST, 0, 1000)
        greedy = [append(fair, owner, tp(0), number) for number in range(20)]

        def fails() -> "asyncio.Future[Appended]":
            raise RuntimeError("a bug")

        failed = fair.append(OTHER, LARGE, fails)
        behind = append(fair, owner, OTHER, 1)
        for _ in range(10):
            owner.durable(len(owner.futures))
            await asyncio.sleep(0)
        await asyncio.gather(*greedy, behind)
        assert isinstance(failed.exception(), RuntimeError)
        assert fair._shares.held_bytes == 0

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_each_partition_keeps_its_order_and_everything_is_answered(seed: int) -> None:
    rng = Random(seed)

    async def main() -> None:
        owner, fair = Owner(), FairAppends(bytes_max=rng.choice((1 << 20, 64 << 20)))
        partitions = [*(tp(number) for number in range(3)), OTHER, MODEST]
        sent: list[asyncio.Future[Any]] = []
        for number in range(400):
            one = rng.choice(partitions)
            sent.append(append(fair, owner, one, number, 500 if one is MODEST else rng.choice((1000, 100_000, LARGE, 3 << 20))))
            while owner.futures and rng.random() < 0.6:
                await asyncio.sleep(rng.random() / 100)
                if rng.random() < 0.05:
                    owner.futures.pop(0).set_exception(NotReady("full"))
                else:
                    owner.durable()
        while not all(one.done() for one in sent):
            owner.durable(len(owner.futures))
            await asyncio.sleep(0.001)
        for one in partitions:
            assert owner.of(one) == sorted(owner.of(one))
        assert all(one.exception() is None or isinstance(one.exception(), NotReady) for one in sent)
        assert fair._shares.greedy_bytes == 0

    run(main())


def test_an_owner_that_refuses_at_once_is_heard_at_once() -> None:
    async def main() -> None:
        owner, fair = Owner(), FairAppends(bytes_max=64 << 20)
        owner.refuse = NotReady("opening")
        refused = append(fair, owner, tp(0), 0)
        assert isinstance(refused.exception(), NotReady)
        owner.refuse = None
        sent = append(fair, owner, tp(0), 1)
        owner.durable()
        await sent

    run(main())
