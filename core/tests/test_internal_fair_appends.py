"""At a broker the topics of who sends little do not wait behind those of who sends all it can, and each keeps its
order.
"""

import asyncio
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import pytest
from internal_under_test import tp
from typing_extensions import Buffer

from bmq.errors import BmqError, Fenced, NotReady
from bmq.fairness.greedy_window import WINDOW_FIRST_BYTES
from bmq.fairness.turns import NOBODY, Party
from bmq.internal.calls.owner_calls import APPEND_CALL, AppendCall
from bmq.internal.framing.refusals import Refusals
from bmq.internal.framing.routes import Incoming, Kept
from bmq.internal.serving.fair_appends import FairAppends
from bmq.internal.serving.owner_handlers import append_route
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


async def known(owner: Owner) -> FairAppends:
    """Appends of a broker that knows how long the modest wait by themselves: the greedy need not pause for it."""
    fair = FairAppends(bytes_max=64 << 20)
    alone = append(fair, owner, MODEST, 0, 1000)
    owner.durable()
    await asyncio.sleep(0)
    assert alone.done()
    owner.taken.clear()
    return fair


def append(
    fair: FairAppends,
    owner: Owner,
    one: TopicPartition,
    number: int,
    size_bytes: int = LARGE,
    *,
    is_open: bool = True,
) -> "asyncio.Future[Appended]":
    return fair.append(one, size_bytes, lambda: owner.submit(one, number), is_open=is_open)


def test_the_greedy_wait_by_turns_while_a_modest_topic_is_there() -> None:
    async def main() -> None:
        owner = Owner()
        fair = await known(owner)
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


def test_what_is_for_partitions_that_are_not_open_goes_to_the_owner_and_holds_up_nothing_of_its_topic() -> None:
    async def main() -> None:
        owner = Owner()
        fair = await known(owner)
        append(fair, owner, MODEST, 0, 1000)
        opening = [append(fair, owner, tp(1 + number), number, is_open=False) for number in range(60)]
        assert [len(owner.of(tp(1 + number))) for number in range(60)] == [1] * 60
        assert fair._shares.window.held_bytes == 0
        sent = [append(fair, owner, tp(0), number) for number in range(WINDOW_FIRST_BYTES // LARGE)]
        assert owner.of(tp(0)) == list(range(len(sent)))
        behind = append(fair, owner, tp(0), 100)
        moved = append(fair, owner, tp(0), 101, is_open=False)  # it left meanwhile, and something of it waits already
        assert owner.of(tp(0)) == list(range(len(sent)))
        while not moved.done():
            owner.durable(len(owner.futures))
            await asyncio.sleep(0)
        await asyncio.gather(*opening, *sent, behind, moved)
        assert owner.of(tp(0)) == [*range(len(sent)), 100, 101]
        assert fair._shares.held_bytes == 0

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
        owner = Owner()
        fair = await known(owner)
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
        await asyncio.sleep(0)  # who waited has heard
        again = append(fair, owner, tp(0), 99)
        for _ in range(3):
            owner.durable(len(owner.futures))
            await asyncio.sleep(0)
        await asyncio.gather(again, neighbour)
        assert fair._shares.window.held_bytes == 0

    run(main())


def test_all_that_wait_are_refused_when_the_broker_is_fenced_however_many_they_are() -> None:
    async def main() -> None:
        owner, fair = Owner(), FairAppends(bytes_max=64 << 20)
        sent = [append(fair, owner, MODEST, 0, 1000)]
        sent += [
            append(fair, owner, TopicPartition(TopicId(UUID(int=number)), 0), number) for number in range(100, 700)
        ]
        assert len(owner.taken) < 20
        owner.refuse = Fenced("replaced")
        for future in owner.futures:
            future.set_exception(owner.refuse)
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*sent, return_exceptions=True)
        assert {type(answer) for answer in answers} == {Fenced}
        assert fair._shares.held_bytes == 0

    run(main())


@pytest.mark.timeout(30)
def test_tens_of_thousands_that_wait_in_distinct_partitions_are_refused_without_looking_through_all_for_each() -> None:
    count = 30_000

    async def main() -> None:
        owner = Owner()
        fair = await known(owner)
        append(fair, owner, MODEST, 0, 1000)
        partitions = [TopicPartition(OTHER.topic_id, number) for number in range(count)]
        first = append(fair, owner, OTHER, 0, WINDOW_FIRST_BYTES)
        waiting = [append(fair, owner, one, 1, 100) for one in partitions]
        owner.refuse = NotReady("it leaves")
        owner.futures.pop().set_exception(NotReady("it leaves"))
        found = await asyncio.gather(first, *waiting, return_exceptions=True)
        assert all(isinstance(error, NotReady) for error in found)

    run(main())


def test_an_owner_that_fails_for_a_bug_is_heard_also_by_who_waited() -> None:
    async def main() -> None:
        owner = Owner()
        fair = await known(owner)
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


def test_what_comes_or_is_let_in_before_a_refusal_was_heard_is_refused_too() -> None:
    async def main() -> None:
        owner = Owner()
        fair = await known(owner)
        sent = [append(fair, owner, MODEST, 0, 1000), append(fair, owner, tp(0), 0)]
        sent += [append(fair, owner, OTHER, number) for number in range(30)]
        waiting = append(fair, owner, tp(0), 1)
        assert owner.of(tp(0)) == [0]
        refused = owner.futures.pop(1)
        owner.durable(len(owner.futures))  # and so there is room
        refused.set_exception(NotReady("moved"))
        new = append(fair, owner, tp(0), 2)
        newer: list[asyncio.Future[Appended]] = []
        refused.add_done_callback(lambda _: newer.append(append(fair, owner, tp(0), 3)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for one in (sent[1], waiting, new, *newer):
            assert isinstance(one.exception(), NotReady)
        again = append(fair, owner, tp(0), 4)
        while owner.futures:
            owner.durable(len(owner.futures))
            await asyncio.sleep(0)
        await asyncio.gather(sent[0], *sent[2:], again)
        assert owner.of(tp(0)) == [0, 4]
        (topic,) = (topic for topic_id, topic in fair._topics.items() if topic_id == tp(0).topic_id)
        assert (topic.in_flight, len(topic.settling)) == ({}, 0)

    run(main())


def test_a_partition_is_refused_for_no_longer_than_its_refusal_is_unheard_and_no_other_with_it() -> None:
    async def main() -> None:
        owner, fair = Owner(), FairAppends(bytes_max=64 << 20)
        refused = append(fair, owner, tp(0), 0)
        owner.futures.pop(0).set_exception(NotReady("moved"))
        neighbour = append(fair, owner, tp(1), 0)
        with pytest.raises(NotReady, match="moved"):
            await refused
        for _ in range(2):
            await asyncio.sleep(0)
        again = append(fair, owner, tp(0), 1)
        owner.durable(2)
        await asyncio.gather(neighbour, again)

    run(main())


class Routed(Owner):
    """What a broker's route for APPEND submits to; `number` is a batch's first byte."""

    def append(
        self, one: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        return self.submit(one, memoryview(records)[0])

    def is_open(self, one: TopicPartition) -> bool:
        return True


def test_a_connection_is_refused_what_it_sent_behind_a_batch_that_was_refused_because_of_another_connection() -> None:
    async def main() -> None:
        owner = Routed()
        route = append_route(owner)
        here, there, modest = Refusals(), Refusals(), Refusals()
        calls = count(1)

        def call(
            refusals: Refusals, one: TopicPartition, number: int, size_bytes: int = LARGE
        ) -> "asyncio.Future[Appended]":
            header = APPEND_CALL.encode(AppendCall(one.topic_id, one.partition, 9, 0))
            records = memoryview(bytes([number]) + bytes(size_bytes - 1))
            return route.begin(Incoming(next(calls), memoryview(header), records, refusals, Kept(lambda _: None)))

        call(modest, MODEST, 0, 1000)  # from which it knows how long the modest wait by themselves
        owner.durable()
        await asyncio.sleep(0)
        sent = [call(modest, MODEST, 0, 1000), call(here, tp(0), 0)]
        sent += [call(modest, OTHER, number) for number in range(20)]
        waiting = call(there, tp(0), 1)
        late: list[asyncio.Future[Appended]] = []
        owner.futures[1].add_done_callback(lambda _: late.append(call(there, tp(0), 2)))
        owner.futures.pop(1).set_exception(NotReady("moved"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for one in (sent.pop(1), waiting, *late):
            assert isinstance(one.exception(), NotReady)
        with pytest.raises(NotReady, match="earlier batch"):
            call(there, tp(0), 3)  # sent before its sender heard
        while owner.futures:
            owner.durable(len(owner.futures))
            await asyncio.sleep(0)
        await asyncio.gather(*sent)
        assert owner.of(tp(0)) == [0]

    run(main())


class Watching(Owner):
    """Sees to it that it gets nothing of a partition of which something earlier was refused that its caller has not
    heard of.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unheard: dict[tuple[TopicPartition, int], list[asyncio.Future[Appended]]] = {}
        """The owner's future and the caller's."""

    def submit(self, one: TopicPartition, number: int) -> "asyncio.Future[Appended]":
        for (of, earlier), futures in self.unheard.items():
            if of == one and earlier < number:
                assert not any(future.done() and future.exception() for future in futures)
        future = super().submit(one, number)
        self.unheard.setdefault((one, number), []).append(future)
        return future

    def sent(self, one: TopicPartition, number: int, future: "asyncio.Future[Appended]") -> "asyncio.Future[Appended]":
        if not future.done():
            self.unheard.setdefault((one, number), []).append(future)
            future.add_done_callback(lambda _: self.unheard.pop((one, number)))
        return future


@pytest.mark.parametrize("seed", range(20))
def test_each_partition_keeps_its_order_and_everything_is_answered(seed: int) -> None:
    rng = Random(seed)

    async def main() -> None:
        owner, fair = Watching(), FairAppends(bytes_max=rng.choice((1 << 20, 64 << 20)))
        partitions = [*(tp(number) for number in range(3)), OTHER, MODEST]
        sent: list[asyncio.Future[Any]] = []
        for number in range(400):
            one = rng.choice(partitions)
            size_bytes = 500 if one is MODEST else rng.choice((1000, 100_000, LARGE, 3 << 20))
            future = append(fair, owner, one, number, size_bytes, is_open=rng.random() < 0.8)
            sent.append(owner.sent(one, number, future))
            while owner.futures and rng.random() < 0.6:
                if rng.random() < 0.6:
                    await asyncio.sleep(rng.choice((0.0, rng.random() / 100)))
                if rng.random() < 0.1:
                    owner.futures.pop(0).set_exception(NotReady("full"))
                else:
                    owner.durable()
        while not all(one.done() for one in sent):
            owner.durable(len(owner.futures))
            await asyncio.sleep(0.001)
        for one in partitions:
            assert owner.of(one) == sorted(owner.of(one))
        assert all(one.exception() is None or isinstance(one.exception(), NotReady) for one in sent)
        assert fair._shares.window.held_bytes == 0

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
