"""Tails are followed once per proxy and owner: many readers cost the owner one, and nobody sees anything else than the
owner would say.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from internal_calls import every_loop
from internal_logs import MIB, LogOwner, following
from internal_under_test import CLIENT, SERVER, Runner, tp
from tests.waiting import until_async

from bmq.errors import FencedLeaderEpoch, NotOwner, NotReady, OffsetOutOfRange
from bmq.internal import InternalServer, RemoteOwner, limits, owner_handlers
from bmq.internal.calls.follow_calls import CHANGE_CALL
from bmq.internal.framing.apis import Api
from bmq.internal.framing.routes import Incoming, Route
from bmq.internal.limits import FOLLOWED_DOUBTED_S, FOLLOWED_LOOK_S, FOLLOWED_POLL_S, FOLLOWED_UNUSED_S
from bmq.internal.tails.tail_cache import TailCache
from bmq.internal.tails.tail_follower import CHANGED_AT_ONCE
from bmq.roles.owner import TailAnswer, TailRequest
from bmq.values import Offset, TopicPartition
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.network import Network, NetworkFaults
from bmq_sim.process import SimProcess

WAIT_MS = 60_000


async def read(
    there: RemoteOwner, one: TopicPartition, offset: int, *, wait_ms: int = WAIT_MS, **options: Any
) -> TailAnswer:
    request = TailRequest(tp=one, offset=Offset(offset), max_bytes=MIB, **options)
    [answer] = await there.read_tail([request], min_bytes=1, max_bytes=MIB, max_wait_ms=wait_ms)
    return answer


async def read_at_least(
    there: RemoteOwner, owner: LogOwner, one: TopicPartition, offset: int, min_bytes: int
) -> TailAnswer:
    """As many bytes, unless they do not come within a while: no answer waits for longer than for them."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    request = TailRequest(tp=one, offset=Offset(offset), max_bytes=MIB)
    [answer] = await there.read_tail([request], min_bytes=min_bytes, max_bytes=MIB, max_wait_ms=WAIT_MS)
    there_bytes = sum(len(batch) for base, _, batch in owner.log(one).batches if base >= offset)
    assert there_bytes < min_bytes or loop.time() - began_s < WAIT_MS / 1000, (offset, min_bytes, there_bytes)
    return answer


async def read_all(
    there: RemoteOwner,
    owner: LogOwner,
    one: TopicPartition,
    until_offset: int,
    *,
    offset: int = 0,
    least: Callable[[], int] = lambda: 1,
) -> list[bytes]:
    """Every batch from an offset on, read one answer after the other; below the tail from the log itself, as a proxy
    reads segments. `least`: how many bytes the next answer is to have.
    """
    got: list[bytes] = []
    while offset < until_offset:
        try:
            answer = await read_at_least(there, owner, one, offset, least())
        except NotReady:
            await asyncio.sleep(0.01)
            continue
        assert answer.error is None, answer.error
        if offset < answer.tail_start:
            found = [entry for entry in owner.log(one).batches if offset < entry[1] <= answer.tail_start]
            got += [batch for _, _, batch in found]
            offset = found[-1][1]
            continue
        for batch in answer.batches:
            base, next_offset = int.from_bytes(bytes(batch)[:8], "big"), 0
            next_offset = base + int.from_bytes(bytes(batch)[23:27], "big") + 1
            assert base == offset, (base, offset)
            assert next_offset <= answer.high_watermark
            got.append(bytes(batch))
            offset = next_offset
    return got


@every_loop
def test_ten_readers_at_the_end_cost_the_owner_one(run: Runner) -> None:
    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            readers = [asyncio.ensure_future(read_all(there, owner, tp(0), 50)) for _ in range(10)]
            await until_async(lambda: owner.reads >= 11, "eleven reads")
            for _ in range(50):
                owner.write(tp(0))
                await asyncio.sleep(0.002)
            wanted = [batch for _, _, batch in owner.log(tp(0)).batches]
            assert await asyncio.gather(*readers) == [wanted] * 10
            # one may have asked by itself before it was followed
            assert owner.bytes_given <= 1.2 * sum(map(len, wanted))

    run(main())


@every_loop
def test_what_is_followed_changes_by_and_by_and_is_not_named_again(run: Runner) -> None:
    async def main() -> None:
        owner = LogOwner()
        sizes: list[int] = []
        handlers = dict(owner_handlers(owner))
        change: Route[Any] = handlers[Api.FOLLOW_CHANGE]

        def begin(incoming: Incoming) -> "asyncio.Future[Any]":
            sizes.append(len(incoming.header))
            return change.begin(incoming)

        handlers[Api.FOLLOW_CHANGE] = Route(begin=begin, encode=change.encode)
        async with following(owner, handlers=handlers) as there:
            requests = [TailRequest(tp=tp(n), offset=Offset(0), max_bytes=MIB) for n in range(1000)]
            reading = asyncio.ensure_future(there.read_tail(requests, min_bytes=1, max_bytes=MIB, max_wait_ms=WAIT_MS))
            await until_async(lambda: len(sizes) == 1, "the first poll")
            more = asyncio.ensure_future(read(there, tp(1000), 0))
            await until_async(lambda: len(sizes) == 2, "the second poll")
            owner.write(tp(1000))
            owner.write(tp(7))
            assert (await more).size_bytes > 0
            assert [answer.tp for answer in await reading if answer.size_bytes] == [tp(7)]
            assert sizes[0] > 20_000
            assert sizes[1] < 60

    run(main())


def test_a_commit_wakes_who_waits_at_once() -> None:
    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            for offset in range(5):
                reading = asyncio.ensure_future(read(there, tp(0), offset))
                await asyncio.sleep(3)
                committed_s = asyncio.get_running_loop().time()
                owner.write(tp(0))
                assert (await reading).size_bytes
                assert asyncio.get_running_loop().time() == committed_s

    run(main())


@every_loop
def test_who_was_acknowledged_finds_its_record_without_waiting(run: Runner) -> None:
    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            waiting = asyncio.ensure_future(read(there, tp(0), 0))
            await until_async(lambda: owner.reads >= 2, "two reads")
            for _ in range(20):
                done = await there.append(tp(0), b"anything", produce_version=9)
                answer = await read(there, tp(0), done.base_offset, wait_ms=0)
                assert answer.size_bytes > 0
                assert answer.high_watermark > done.base_offset
            await waiting

    run(main())


@every_loop
def test_what_only_the_owner_can_say_is_asked_of_the_owner(run: Runner) -> None:
    async def main() -> None:
        owner = LogOwner()
        for _ in range(4):
            owner.write(tp(0))
        async with following(owner) as there:
            waiting = asyncio.ensure_future(read(there, tp(0), 4))
            await until_async(lambda: owner.reads >= 2, "two reads")
            assert isinstance((await read(there, tp(0), 5)).error, OffsetOutOfRange)
            assert isinstance((await read(there, tp(0), 4, current_leader_epoch=2)).error, FencedLeaderEpoch)
            owner.log(tp(0)).tail_start = 2
            below = await read(there, tp(0), 1)
            assert (below.error, below.tail_start, below.size_bytes) == (None, 2, 0)
            owner.write(tp(0))
            assert (await waiting).size_bytes > 0

    run(main())


@every_loop
def test_a_partition_that_leaves_its_owner_is_followed_no_more_and_its_readers_hear_why(run: Runner) -> None:
    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            readers = [asyncio.ensure_future(read(there, tp(0), 0)) for _ in range(3)]
            other = asyncio.ensure_future(read(there, tp(1), 0))
            await until_async(lambda: owner.reads >= 6, "six reads")
            owner.log(tp(0)).error = NotOwner("moved")
            owner.changed()
            assert [type(answer.error) for answer in await asyncio.gather(*readers)] == [NotOwner] * 3
            assert not other.done()
            owner.write(tp(1))
            assert (await other).size_bytes > 0

    run(main())


def test_records_that_were_deleted_are_shown_no_more_soon_after_whoever_deleted_them() -> None:
    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            waiting = asyncio.ensure_future(read(there, tp(0), 0))
            await asyncio.sleep(1)
            owner.write(tp(0))
            await waiting
            assert (await read(there, tp(0), 0)).size_bytes > 0
            owner.log(tp(0)).log_start = 1
            await asyncio.sleep(2 * FOLLOWED_LOOK_S)
            assert isinstance((await read(there, tp(0), 0)).error, OffsetOutOfRange)

    run(main())


def test_what_nobody_reads_any_more_is_left_and_found_again() -> None:
    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            waiting = asyncio.ensure_future(read(there, tp(0), 0))
            await asyncio.sleep(1)
            owner.write(tp(0))
            await waiting
            await asyncio.sleep(FOLLOWED_UNUSED_S + 2 * FOLLOWED_POLL_S)
            given = owner.bytes_given
            for _ in range(100):
                owner.write(tp(0))
            await asyncio.sleep(1)
            assert owner.bytes_given == given
            wanted = [batch for _, _, batch in owner.log(tp(0)).batches]
            assert await read_all(there, owner, tp(0), 101) == wanted

    run(main())


def test_those_who_wait_for_the_same_record_look_at_many_partitions_in_turns() -> None:
    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            requests = [TailRequest(tp=tp(number), offset=Offset(0), max_bytes=MIB) for number in range(30)]
            looks, most, look = 0, 0, there._follower.look

            def counted(*args: Any, **how: Any) -> Any:
                nonlocal looks, most
                if not looks:
                    asyncio.get_running_loop().call_soon(turned)
                looks += 1
                most = max(most, looks)
                return look(*args, **how)

            def turned() -> None:
                nonlocal looks
                looks = 0

            reading = partial(there.read_tail, requests, min_bytes=100, max_bytes=MIB, max_wait_ms=WAIT_MS)
            readers = [asyncio.ensure_future(reading()) for _ in range(50)]
            await asyncio.sleep(3)
            there._follower.look = counted  # type: ignore[method-assign]
            owner.write(tp(3), size_bytes=100)
            assert {sum(answer.size_bytes > 0 for answer in await reader) for reader in readers} == {1}
            assert most == 1

    run(main())


@every_loop
def test_thousands_are_followed_by_several_calls(run: Runner) -> None:
    async def main() -> None:
        owner = LogOwner()
        named: list[int] = []
        handlers = dict(owner_handlers(owner))
        change: Route[Any] = handlers[Api.FOLLOW_CHANGE]

        def begin(incoming: Incoming) -> "asyncio.Future[Any]":
            call = CHANGE_CALL.decode(incoming.header)
            named.append(len(call.follows) + len(call.leaves))
            return change.begin(incoming)

        handlers[Api.FOLLOW_CHANGE] = Route(begin=begin, encode=change.encode)
        async with following(owner, handlers=handlers) as there:
            requests = [TailRequest(tp=tp(n), offset=Offset(0), max_bytes=MIB) for n in range(2_500)]
            reading = asyncio.ensure_future(there.read_tail(requests, min_bytes=1, max_bytes=MIB, max_wait_ms=WAIT_MS))
            await until_async(lambda: sum(named) == 2_500, "all 2,500 to be named")
            assert max(named) <= CHANGED_AT_ONCE
            owner.write(tp(2_499))
            assert [answer.tp for answer in await reading if answer.size_bytes] == [tp(2_499)]

    run(main())


class Room:
    """Implements TailRoom."""

    def __init__(self, size_bytes: int) -> None:
        self.left_bytes = size_bytes
        self.size_bytes = size_bytes

    def take(self, size_bytes: int) -> bool:
        has_room = size_bytes <= self.left_bytes
        self.left_bytes -= size_bytes if has_room else 0
        return has_room

    def settle(self, taken_bytes: int, size_bytes: int) -> None:
        self.left_bytes += taken_bytes - size_bytes

    def leave(self) -> None:
        self.left_bytes = self.size_bytes


@every_loop
def test_what_there_is_no_room_for_is_told_by_its_size(run: Runner) -> None:
    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            for _ in range(3):
                owner.write(tp(0), size_bytes=1_000)
            request = TailRequest(tp=tp(0), offset=Offset(0), max_bytes=MIB)
            reading = partial(there.read_tail, [request], min_bytes=1, max_bytes=MIB, max_wait_ms=WAIT_MS)
            [told] = await reading(room=Room(0))
            assert (told.batches, told.size_bytes, told.high_watermark, told.tail_start) == ((), 0, 3, 0)
            assert told.unsent_bytes > 3_000
            room = Room(MIB)
            [answer] = await reading(room=room)
            assert (answer.size_bytes, answer.unsent_bytes, len(answer.batches)) == (told.unsent_bytes, 0, 3)
            assert room.left_bytes == MIB - answer.size_bytes
            [kept] = await reading(room=Room(0))
            assert kept.batches == answer.batches  # they are followed: what is kept here costs no more

    run(main())


def test_who_waits_for_more_than_there_is_holds_nothing_and_hears_how_much_came() -> None:
    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            owner.write(tp(0), size_bytes=1_000)
            size_bytes = (await read(there, tp(0), 0)).size_bytes
            there._follower._follow_at = asyncio.get_running_loop().time() + 1_000  # nothing is followed meanwhile
            room = Room(MIB)
            request = TailRequest(tp=tp(1), offset=Offset(0), max_bytes=MIB)
            owner.write(tp(1), size_bytes=1_000)
            waiting = asyncio.ensure_future(
                there.read_tail([request], min_bytes=2 * size_bytes, max_bytes=MIB, max_wait_ms=WAIT_MS, room=room)
            )
            await asyncio.sleep(1)
            assert (waiting.done(), room.left_bytes) == (False, MIB)
            owner.write(tp(1), size_bytes=1_000)
            [answer] = await waiting
            assert (answer.batches, answer.unsent_bytes) == ((), 2 * size_bytes)

    run(main())


def test_who_waits_for_what_comes_in_several_pieces_has_it_with_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who come before that know of a high watermark above what is there."""
    for limit in ("FOLLOWED_ANSWER_BYTES", "FOLLOWED_PARTITION_BYTES"):
        monkeypatch.setattr(limits, limit, 1_500)

    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            owner.write(tp(0), size_bytes=1_000)
            size_bytes = (await read(there, tp(0), 0)).size_bytes
            first = asyncio.ensure_future(read(there, tp(0), 1))
            await asyncio.sleep(1)
            for _ in range(5):
                owner.write(tp(0), size_bytes=1_000)
            await first
            assert there._follower._tails[tp(0)].cached.end == 2
            waiting = asyncio.ensure_future(read_at_least(there, owner, tp(0), 1, 5 * size_bytes))
            await asyncio.sleep(1)
            assert len(waiting.result().batches) == 5

    run(main())


class SlowFor(LogOwner):
    """Its answers about one partition take a while; they are as old as that."""

    slow: TopicPartition | None = None
    slow_s = 0.05

    async def read_tail(self, requests: Sequence[TailRequest], **how: Any) -> list[TailAnswer]:  # type: ignore[override]
        answers = await super().read_tail(requests, **how)
        if any(request.tp == self.slow for request in requests) and how["max_wait_ms"] == 0:
            await asyncio.sleep(self.slow_s)
        return answers


@pytest.mark.parametrize("others", [1, 20])
def test_who_asks_the_owner_about_one_partition_hears_meanwhile_of_the_others(others: int) -> None:
    async def main() -> None:
        owner = SlowFor()
        async with following(owner) as there:
            requests = [TailRequest(tp=tp(n), offset=Offset(0), max_bytes=MIB) for n in (*range(others), 99)]
            await there.read_tail(requests, min_bytes=1, max_bytes=MIB, max_wait_ms=1_000)
            there._follower._tails[tp(99)].heard_at -= FOLLOWED_DOUBTED_S + 1
            owner.slow = tp(99)
            reading = asyncio.ensure_future(there.read_tail(requests, min_bytes=1, max_bytes=MIB, max_wait_ms=WAIT_MS))
            await asyncio.sleep(0.02)
            owner.write(tp(0))
            async with asyncio.timeout(0.5):
                answers = await reading
            assert [answer.tp for answer in answers if answer.size_bytes] == [tp(0)]

    run(main())


def test_who_hears_late_of_a_tail_that_others_follow_by_now_does_not_wait_for_what_they_heard() -> None:
    async def main() -> None:
        owner = SlowFor()
        async with following(owner) as there:
            await read(there, tp(7), 0, wait_ms=50)  # the connections stand
            owner.slow, owner.slow_s = tp(0), 0.1
            late = asyncio.ensure_future(read(there, tp(0), 0))
            await asyncio.sleep(0.02)
            owner.slow_s = 0.0
            early = asyncio.ensure_future(read(there, tp(0), 0))
            await asyncio.sleep(0.02)
            owner.write(tp(0))
            async with asyncio.timeout(0.5):
                assert (await early).size_bytes == (await late).size_bytes > 0

    run(main())


def test_a_bug_in_following_leaves_no_reader_waiting() -> None:
    async def main() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        owner = LogOwner()
        async with following(owner) as there:
            reading = asyncio.ensure_future(read(there, tp(0), 0))
            await asyncio.sleep(1)
            owner.bug = KeyError("a bug")
            owner.changed()
            await asyncio.sleep(1)
            owner.write(tp(0))
            assert (await reading).size_bytes > 0
        assert [str(context["exception"]) for context in told] == ["'a bug'"]

    run(main())


def test_where_nothing_is_heard_for_long_the_owner_is_asked() -> None:
    """Should news ever be lost, by whatever bug, readers see the records all the same."""

    async def main() -> None:
        owner = LogOwner()
        async with following(owner) as there:
            waiting = asyncio.ensure_future(read(there, tp(0), 0, wait_ms=1000))
            await waiting
            there._follower._tails[tp(0)].number = -1  # what comes for it is not known as its
            there._follower._by_number.clear()
            owner.write(tp(0))
            for _ in range(round(FOLLOWED_DOUBTED_S) + 2):
                if (answer := await read(there, tp(0), 0, wait_ms=1000)).size_bytes:
                    break
            assert answer.size_bytes > 0

    run(main())


@pytest.mark.parametrize("seed", range(12))
def test_readers_see_every_batch_once_and_in_order_whatever_breaks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are lost, tails become segments, the cache and what comes at once are small, readers start anywhere
    and wait for more or less.
    """
    rng = Random(seed)
    for limit in ("FOLLOWED_ANSWER_BYTES", "FOLLOWED_PARTITION_BYTES"):
        monkeypatch.setattr(limits, limit, rng.choice((300, getattr(limits, limit))))
    count = 120

    async def main() -> None:
        owner = LogOwner()
        listening: asyncio.Future[InternalServer] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            server = InternalServer(owner_handlers(owner), SERVER)
            await server.start("there", 9190)
            listening.set_result(server)

        SimProcess("broker", host="there").start(serve())
        server = await listening
        there = RemoteOwner(
            "there", 9190, peer=SERVER.node_id, me=CLIENT, cache=TailCache(rng.choice((300, 3_000, MIB)))
        )

        async def write(one: TopicPartition) -> None:
            while owner.log(one).end < count:
                owner.write(one, records=rng.randrange(1, 4), size_bytes=rng.randrange(300))
                await asyncio.sleep(rng.choice((0, 0.001, 0.05)))
                log = owner.log(one)
                if rng.random() < 0.1:
                    log.tail_start, log.manifest_version = rng.choice(log.batches)[0], log.manifest_version + 1
                if rng.random() < 0.05:
                    loop.network.lose_connections("there")

        async def read_from(one: TopicPartition) -> None:
            await asyncio.sleep(rng.random())
            got = await read_all(there, owner, one, count, least=lambda: rng.choice((1, 1, 200, 1_000, 3_000)))
            assert got == [batch for _, _, batch in owner.log(one).batches][: len(got)]

        partitions = [tp(n) for n in range(3)]
        for one in partitions:
            owner.log(one)
        await asyncio.gather(*map(write, partitions), *(read_from(one) for one in partitions for _ in range(4)))
        await there.close()
        await server.stop(grace_s=0)

    loop = VirtualLoop(
        network=Network(rng=rng, faults=NetworkFaults(latency_s_min=0.001, latency_s_max=0.01, split_probability=0.3))
    )
    run(main(), loop=loop)
