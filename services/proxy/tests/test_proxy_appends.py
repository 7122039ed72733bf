"""What one connection writes to one partition keeps its order, whatever its owners refuse and when."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from proxy_in_memory import MemoryMetadata, MemoryOwner, batch
from told_origin import Origin

from bmq.errors import BmqError, Fenced, InvalidBatch, NotOwner, NotReady, UnknownOutcome, UnknownTopic
from bmq.fairness.turns import NOBODY, Party
from bmq.metadata.image import PartitionMeta
from bmq.roles.owner import Appended
from bmq.values import LeaderEpoch, NodeId, Offset, TopicPartition
from bmq.wire.records import Record, build_batch
from bmq_proxy.appends import GIVEN_UP_MAX, RETRIES_PER_S, RETRY_FIRST_S, RETRY_MAX_S, Append, Appends
from bmq_sim.loop import run

LATER = 1e9
"""A loop time that never comes."""


class HoldingOwner(MemoryOwner):
    """Keeps every append until a test says what becomes of it; `got` is everything that came, again or not."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[bytes] = []
        self.futures: list[asyncio.Future[Appended]] = []

    def append(
        self, tp: TopicPartition, records: Any, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        self.got.append(bytes(records))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def refuses(self, at: int, error: BmqError | None = None) -> None:
        self.futures[at].set_exception(error or NotReady("not now"))

    def takes(self, at: int) -> None:
        self.futures[at].set_result(Appended(base_offset=Offset(at), log_append_time_ms=-1, log_start=Offset(0)))


class Proxied:
    """Appends of one partition; `owner` is who owns it at the moment."""

    def __init__(self, owner: MemoryOwner) -> None:
        self.metadata = MemoryMetadata()
        self.tp = TopicPartition(self.metadata.add_topic("orders", 1).topic_id, 0)
        self.owner = owner
        self.appends = Appends(lambda _: self.owner, self.metadata)
        self.origins: dict[str, Origin] = {}

    def submit(
        self,
        records: bytes,
        *,
        origin: str = "one",
        give_up_at: float = LATER,
        proof: "asyncio.Future[Any] | None" = None,
        named: tuple[str, int] | None = None,
    ) -> Append:
        by = self.origin(origin)
        return self.appends.submit(
            self.tp, records, produce_version=9, give_up_at=give_up_at, origin=by, named=named, proof=proof
        )

    def origin(self, name: str) -> "Origin":
        """The connection of that name."""
        return self.origins.setdefault(name, Origin())

    def made_again(self) -> None:
        """The image has another topic of the same name, and not this one."""
        topic = self.metadata.add_topic("orders", 1)
        self.metadata.change(topics={topic.topic_id: topic})
        self.tp = TopicPartition(topic.topic_id, 0)

    def moves(self) -> None:
        """The image says that it changed hands."""
        topic = self.metadata.image.topics[self.tp.topic_id]
        epoch = topic.partitions[0].leader_epoch + 1
        moved = PartitionMeta(node_id=NodeId(2), leader_epoch=LeaderEpoch(epoch))
        self.metadata.change(topics={topic.topic_id: _with(topic, moved)})


def _with(topic: Any, partition: PartitionMeta) -> Any:
    return type(topic)(topic_id=topic.topic_id, name=topic.name, partitions=(partition,), configs=topic.configs)


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run(test())


async def long_enough() -> None:
    """Longer than any wait before something is sent again."""
    await asyncio.sleep(2 * RETRY_MAX_S)


def test_a_batch_that_is_refused_late_is_not_overtaken_by_what_came_after_it() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        proxied.submit(b"1")
        proxied.submit(b"2")
        owner.refuses(0)
        await asyncio.sleep(0)
        proxied.submit(b"3")
        await long_enough()
        assert owner.got == [b"1", b"2"]  # 2 is still with its owner
        owner.refuses(1)
        await long_enough()
        assert owner.got == [b"1", b"2", b"1", b"2", b"3"]

    in_virtual_time(main)


def test_a_batch_whose_successor_was_refused_before_it_still_goes_first() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        proxied.submit(b"1")
        proxied.submit(b"2")
        owner.refuses(1)
        await long_enough()
        assert owner.got == [b"1", b"2"]
        owner.refuses(0)
        await long_enough()
        assert owner.got == [b"1", b"2", b"1", b"2"]

    in_virtual_time(main)


@pytest.mark.parametrize("at", [0, 1], ids=["the oldest", "the newest"])
def test_what_is_submitted_in_the_moment_of_a_refusal_goes_behind_what_was_refused(at: int) -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        submitted = [proxied.submit(b"1"), proxied.submit(b"2")]
        owner.refuses(at)
        submitted.append(proxied.submit(b"3"))
        assert owner.got == [b"1", b"2"]
        owner.takes(1 - at)
        await long_enough()
        assert owner.got == [b"1", b"2", b"12"[at : at + 1], b"3"]
        owner.takes(2)
        owner.takes(3)
        await asyncio.gather(*(one.done for one in submitted))
        await asyncio.sleep(0)
        assert proxied.appends._queues == {}

    in_virtual_time(main)


@pytest.mark.parametrize("taken", [True, False])
def test_what_goes_to_a_topic_that_was_made_again_waits_for_what_its_predecessor_has(taken: bool) -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        named = ("orders", 0)
        first = proxied.submit(_of_producer(7, sequence=0), named=named)
        proxied.made_again()
        second = proxied.submit(_of_producer(7, sequence=1), named=named)
        await long_enough()
        assert owner.got == [_of_producer(7, sequence=0)]
        if taken:
            owner.takes(0)
            await long_enough()
            assert owner.got == [_of_producer(7, sequence=0), _of_producer(7, sequence=1)]
            assert first.done.result().base_offset == 0
            owner.takes(1)
            await second.done
        else:
            owner.refuses(0, UnknownTopic("deleted"))
            await long_enough()
            assert owner.got == [_of_producer(7, sequence=0)]
            assert isinstance(first.done.exception(), UnknownTopic)
            assert isinstance(second.done.exception(), NotReady)
        await asyncio.sleep(0)
        assert proxied.appends._queues == {}

    in_virtual_time(main)


def test_a_success_in_this_moment_holds_up_nothing() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        submitted = [proxied.submit(b"1"), proxied.submit(b"2")]
        owner.takes(0)
        submitted.append(proxied.submit(b"3"))
        assert owner.got == [b"1", b"2", b"3"]
        owner.takes(1)
        owner.takes(2)
        await asyncio.gather(*(one.done for one in submitted))

    in_virtual_time(main)


def test_the_new_owner_gets_nothing_before_the_old_one_has_answered() -> None:
    async def main() -> None:
        old, new = HoldingOwner(), HoldingOwner()
        proxied = Proxied(old)
        first = proxied.submit(b"1")
        proxied.owner = new
        proxied.moves()
        second = proxied.submit(b"2")
        await long_enough()
        assert (old.got, new.got) == ([b"1"], [])
        old.refuses(0, NotOwner("moved"))
        await long_enough()
        assert new.got == [b"1", b"2"]
        new.takes(0)
        new.takes(1)
        assert ((await first.done).base_offset, (await second.done).base_offset) == (0, 1)

    in_virtual_time(main)


def test_another_connection_is_not_held_up_by_one_whose_batch_is_with_the_old_owner() -> None:
    async def main() -> None:
        old, new = HoldingOwner(), HoldingOwner()
        proxied = Proxied(old)
        proxied.submit(b"1")
        proxied.owner = new
        proxied.submit(b"a", origin="another")
        assert new.got == [b"a"]

    in_virtual_time(main)


def test_who_waits_for_a_partition_goes_on_when_it_has_changed_hands() -> None:
    async def main() -> None:
        old, new = HoldingOwner(), HoldingOwner()
        proxied = Proxied(old)
        proxied.submit(b"1")
        for tried in range(6):  # the wait between tries is long by now
            old.refuses(tried)
            await long_enough()
        old.refuses(6)
        await asyncio.sleep(0)
        proxied.owner = new
        proxied.moves()
        await asyncio.sleep(RETRY_MAX_S / 100)
        assert new.got == [b"1"]

    in_virtual_time(main)


def test_after_a_success_the_next_refusal_is_waited_out_as_shortly_as_the_first() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        proxied.submit(b"1")
        for tried in range(6):
            owner.refuses(tried)
            await long_enough()
        second = proxied.submit(b"2")
        owner.takes(6)
        await asyncio.sleep(0)
        owner.refuses(7)  # the queue was not idle in between
        await asyncio.sleep(2 * RETRY_FIRST_S)
        assert owner.got[8:] == [b"2"]
        owner.takes(8)
        await second.done

    in_virtual_time(main)


class NeverReady(MemoryOwner):
    """Refuses everything."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def append(
        self, tp: TopicPartition, records: Any, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        self.asked += 1
        raise NotReady("opening")


def test_thousands_of_one_address_that_are_refused_are_sent_again_no_more_often_than_one_may_be() -> None:
    async def main() -> None:
        owner = NeverReady()
        proxied = Proxied(owner)

        def submit(number: int, address: str) -> Append:
            return proxied.appends.submit(
                proxied.tp, b"1", produce_version=9, give_up_at=LATER, origin=Origin(), address=address
            )

        sent = [submit(number, "10.0.0.1") for number in range(3_000)]
        await asyncio.sleep(5)
        owner.asked = 0
        await asyncio.sleep(10)
        assert 0.5 < owner.asked / 10 / RETRIES_PER_S < 1.2
        owner.asked = 0
        sent.append(submit(0, "10.0.0.2"))
        for one in sent[:-1]:
            proxied.appends.give_up(one)
        await asyncio.sleep(5)
        assert 1 + 5 / RETRY_MAX_S < owner.asked < 10 + 5 / RETRY_MAX_S
        proxied.appends.give_up(sent[-1])
        assert proxied.appends._timers == {}

    in_virtual_time(main)


class BuggyOwner(MemoryOwner):
    """Raises what no owner should."""

    def append(
        self, tp: TopicPartition, records: Any, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        raise RuntimeError("a bug")


def test_an_owner_that_fails_for_a_bug_is_heard_at_once_and_when_a_batch_is_sent_again() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        first = proxied.submit(b"1")
        owner.refuses(0)
        await asyncio.sleep(0)
        proxied.owner = BuggyOwner()
        second = proxied.submit(b"2")
        await long_enough()
        third = proxied.submit(b"3")
        for one in (first, second, third):
            assert isinstance(one.done.exception(), RuntimeError)
        assert proxied.appends._queues == {}

    in_virtual_time(main)


def idempotent(value: bytes, producer_id: int = 7) -> bytes:
    return build_batch([Record(0, 1_000, None, value)], producer_id=producer_id, producer_epoch=0, base_sequence=0)


@pytest.mark.parametrize("error", [UnknownOutcome("the connection was lost"), Fenced("replaced")])
def test_what_may_have_been_applied_is_sent_again_where_its_owner_knows_a_second_copy(error: BmqError) -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        plain, marked = proxied.submit(batch(b"plain"), origin="plain"), proxied.submit(idempotent(b"marked"))
        owner.refuses(0, error)
        owner.refuses(1, error)
        await long_enough()
        assert owner.got[2:] == [idempotent(b"marked")]
        assert plain.done.exception() is error
        owner.takes(2)
        assert (await marked.done).base_offset == 2

    in_virtual_time(main)


def test_what_is_given_up_holds_up_nobody_and_nothing_is_remembered_of_it() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        first = proxied.submit(b"1")
        owner.refuses(0)
        await asyncio.sleep(0)
        second = proxied.submit(b"2")
        proxied.appends.give_up(first)
        assert first.done.cancelled()
        await long_enough()
        assert owner.got == [b"1", b"2"]
        owner.takes(1)
        await second.done
        await asyncio.sleep(0)
        assert proxied.appends._queues == {}

    in_virtual_time(main)


def test_what_follows_a_batch_of_an_idempotent_producer_that_is_given_up_does_not_go_before_it() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        first = proxied.submit(idempotent(b"first"))
        owner.refuses(0)
        await asyncio.sleep(0)
        second, plain = proxied.submit(idempotent(b"second")), proxied.submit(b"plain")
        proxied.appends.give_up(first)
        with pytest.raises(NotReady, match="send it again first"):
            await second.done
        await long_enough()
        assert owner.got == [idempotent(b"first"), b"plain"]
        owner.takes(1)
        await plain.done
        await asyncio.sleep(0)
        assert proxied.appends._queues == {}

    in_virtual_time(main)


@pytest.mark.parametrize("is_timed_out", [True, False], ids=["timed out", "given up at its time"])
def test_a_batch_with_its_owner_is_not_sent_again_when_an_earlier_one_of_its_producer_was_given_up(
    is_timed_out: bool,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        owner = HoldingOwner()
        proxied = Proxied(owner)
        first = proxied.submit(idempotent(b"first"), give_up_at=LATER if is_timed_out else loop.time() + 1.0)
        second, other = proxied.submit(idempotent(b"second")), proxied.submit(idempotent(b"other", producer_id=8))
        await asyncio.sleep(1.5)
        if is_timed_out:
            proxied.appends.give_up(first)
        for at in range(3):
            owner.refuses(at)
        await long_enough()
        assert isinstance(first.done.exception(), NotReady)
        with pytest.raises(NotReady, match="send it again first"):
            await second.done
        assert owner.got[3:] == [idempotent(b"other", producer_id=8)]
        owner.takes(3)
        await other.done
        assert proxied.appends._queues == {}

    in_virtual_time(main)


def test_nothing_of_a_producer_goes_past_one_that_is_still_with_its_owner_behind_one_that_was_given_up() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        first, second = proxied.submit(idempotent(b"first")), proxied.submit(idempotent(b"second"))
        proxied.appends.give_up(first)
        owner.refuses(0)
        await asyncio.sleep(0)
        third, plain = proxied.submit(idempotent(b"third")), proxied.submit(b"plain")
        owner.refuses(1)
        await asyncio.sleep(0)
        for one in (first, second, third):
            assert isinstance(one.done.exception(), NotReady)
        again = [proxied.submit(idempotent(value)) for value in (b"first", b"second")]
        assert owner.got[2:] == [b"plain", idempotent(b"first"), idempotent(b"second")]
        for at in range(2, 5):
            owner.takes(at)
        await asyncio.gather(plain.done, *(one.done for one in again))
        assert proxied.appends._queues == {}

    in_virtual_time(main)


def test_only_so_many_producers_of_given_up_batches_are_remembered() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        slow = proxied.submit(b"slow")
        for number in range(GIVEN_UP_MAX + 10):
            garbage = proxied.submit(idempotent(b"garbage", producer_id=number))
            owner.refuses(-1, InvalidBatch("garbage"))
            await asyncio.sleep(0)
            assert isinstance(garbage.done.exception(), InvalidBatch)
        (queue,) = proxied.appends._queues.values()
        assert list(queue.given_up or ()) == list(range(10, GIVEN_UP_MAX + 10))
        owner.takes(0)
        await slow.done
        await asyncio.sleep(0)
        assert proxied.appends._queues == {}

    in_virtual_time(main)


def test_a_partition_that_is_gone_is_said_at_once_also_to_who_waits() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        first, second = proxied.submit(b"1"), proxied.submit(b"2")
        owner.refuses(0)
        owner.refuses(1)
        await asyncio.sleep(0)
        proxied.metadata.change(topics={}, topic_ids={})
        await long_enough()
        assert isinstance(first.done.exception(), UnknownTopic)
        assert isinstance(second.done.exception(), UnknownTopic)
        assert owner.got == [b"1", b"2"]

    in_virtual_time(main)


class MovingOwner(MemoryOwner):
    """Takes batches in their order some time after they came; from a moment on refuses all that it has, each at a time
    of its own.
    """

    def __init__(self, taken: list[int], rng: Random) -> None:
        super().__init__()
        self.taken = taken
        self.rng = rng
        self.is_closed = False
        self.pending: list[tuple[int, asyncio.Future[Appended]]] = []

    def append(
        self, tp: TopicPartition, records: Any, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            self._refuse_later(future)
        else:
            self.pending.append((int(bytes(records)), future))
            asyncio.get_running_loop().call_later(self.rng.random() / 10, self._take_one)
        return future

    def close(self) -> None:
        self.is_closed = True
        pending, self.pending = self.pending, []
        for _, future in pending:
            self._refuse_later(future)

    def _take_one(self) -> None:
        if self.pending:
            number, future = self.pending.pop(0)
            self.taken.append(number)
            future.set_result(Appended(base_offset=Offset(number), log_append_time_ms=-1, log_start=Offset(0)))

    def _refuse_later(self, future: "asyncio.Future[Appended]") -> None:
        error = NotOwner("moved") if self.rng.random() < 0.5 else NotReady("closing")
        asyncio.get_running_loop().call_later(self.rng.random() * 2, future.set_exception, error)


@pytest.mark.parametrize("seed", range(30))
def test_every_batch_is_taken_once_and_in_order_by_owners_that_come_and_go(seed: int) -> None:
    rng = Random(seed)
    taken: list[int] = []

    async def main() -> None:
        owner = MovingOwner(taken, rng)
        proxied = Proxied(owner)
        submitted = []
        for number in range(100):
            submitted.append(proxied.submit(b"%d" % number))
            await asyncio.sleep(rng.random() / 20)
            if rng.random() < 0.1:
                owner.close()
                owner = proxied.owner = MovingOwner(taken, rng)
                if rng.random() < 0.7:
                    proxied.moves()
        await asyncio.gather(*(one.done for one in submitted))
        assert proxied.appends._queues == {}

    in_virtual_time(main)
    assert taken == list(range(100))


def test_what_is_being_proved_holds_up_what_comes_behind_it_and_no_other_connection() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        first, third = _proof(), _proof()
        proxied.submit(b"1", proof=first)
        proxied.submit(b"2")
        proxied.submit(b"3", proof=third)
        proxied.submit(b"4")
        proxied.submit(b"other", origin="two")
        third.set_result(b"3, corrected")
        await asyncio.sleep(0)
        assert owner.got == [b"other"]
        first.set_result(b"1")
        await asyncio.sleep(0)
        assert owner.got == [b"other", b"1", b"2", b"3, corrected", b"4"]

    in_virtual_time(main)


def test_what_was_proved_waits_behind_what_is_to_be_sent_again() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        proof = _proof()
        proxied.submit(b"1")
        proxied.submit(b"2", proof=proof)
        owner.refuses(0)
        await asyncio.sleep(0)
        proof.set_result(b"2")
        await long_enough()
        assert owner.got == [b"1", b"1", b"2"]

    in_virtual_time(main)


def test_a_batch_that_cannot_be_proved_takes_those_of_its_producer_with_it_that_wait_behind() -> None:
    """An owner that does not know the producer yet would take the second for its first."""

    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        proof = _proof()
        refused = proxied.submit(_of_producer(7, sequence=0), proof=proof)
        behind = proxied.submit(_of_producer(7, sequence=1))
        other = proxied.submit(_of_producer(8, sequence=0))
        proof.set_exception(InvalidBatch("no reader could open it"))
        with pytest.raises(InvalidBatch):
            await refused.done
        with pytest.raises(NotReady):
            await behind.done
        assert owner.got == [_of_producer(8, sequence=0)]
        owner.takes(0)
        await other.done
        await asyncio.sleep(0)
        assert proxied.appends._queues == {}

    in_virtual_time(main)


def test_what_is_given_up_while_it_is_proved_is_not_sent() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        proof = _proof()
        given_up = proxied.submit(_of_producer(7, sequence=0), proof=proof)
        behind = proxied.submit(_of_producer(7, sequence=1))
        other = proxied.submit(b"other")
        proxied.appends.give_up(given_up)
        assert given_up.done.cancelled()
        with pytest.raises(NotReady):
            await behind.done
        assert proof.cancelled()  # it would hold the batch, which is counted no more
        await asyncio.sleep(0)
        assert owner.got == [b"other"]
        owner.takes(0)
        await other.done
        await asyncio.sleep(0)
        assert proxied.appends._queues == {}

    in_virtual_time(main)


def test_closing_gives_up_what_is_being_proved() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        proof = _proof()
        submitted = [proxied.submit(b"1", proof=proof), proxied.submit(b"2")]
        proxied.appends.close()
        for one in submitted:
            with pytest.raises(NotOwner):
                await one.done
        assert proof.cancelled()
        await asyncio.sleep(0)
        assert owner.got == []

    in_virtual_time(main)


def _of_producer(producer_id: int, *, sequence: int) -> bytes:
    return build_batch(
        [Record(0, 1_000, None, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )


def _proof() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("is_numbered", [False, True])
def test_what_an_owner_gives_up_half_way_goes_again_only_where_a_second_copy_is_told_from_the_first(
    is_numbered: bool,
) -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        sent = [proxied.submit(idempotent(b"%d" % number) if is_numbered else b"%d" % number) for number in range(2)]
        owner.futures[0].cancel()
        await asyncio.sleep(0)
        owner.takes(1)
        await long_enough()
        if is_numbered:
            assert owner.got == [idempotent(b"0"), idempotent(b"1"), idempotent(b"0")]
            owner.takes(2)
            assert (await sent[0].done).base_offset == 2
        else:
            assert len(owner.got) == 2
            assert isinstance(sent[0].done.exception(), UnknownOutcome)
        assert (await sent[1].done).base_offset == 1
        proxied.appends.close()

    in_virtual_time(main)


def test_a_bug_of_an_owner_is_told_to_the_one_whose_batch_met_it_and_not_sent_to_it_again() -> None:
    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        sent = [proxied.submit(idempotent(b"%d" % number)) for number in range(2)]
        owner.futures[0].set_exception(ZeroDivisionError("a bug"))
        owner.takes(1)
        await long_enough()
        assert isinstance(sent[0].done.exception(), ZeroDivisionError)
        assert len(owner.got) == 2
        assert (await sent[1].done).base_offset == 1
        proxied.appends.close()

    in_virtual_time(main)


def test_a_change_of_other_topics_costs_nothing_however_many_wait() -> None:
    """Forty thousand that waited were looked through at each change of the metadata."""

    async def main() -> None:
        owner = HoldingOwner()
        proxied = Proxied(owner)
        for number in range(100):
            proxied.submit(b"1", origin=f"connection {number}")
            owner.refuses(number)
        await asyncio.sleep(0)
        other = proxied.metadata.add_topic("other", 1)
        looked, partition = [], type(proxied.metadata.image).partition

        def noted(image: Any, tp: TopicPartition) -> PartitionMeta | None:
            looked.append(tp)
            return partition(image, tp)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(proxied.metadata.image), "partition", noted)
            proxied.metadata.change(topics={**proxied.metadata.image.topics, other.topic_id: other})
            assert looked == []
            proxied.moves()
            assert len(looked) >= 100
        await asyncio.sleep(RETRY_FIRST_S / 2)
        assert len(owner.got) == 200, "those whose partition has moved are sent at once"

    in_virtual_time(main)
