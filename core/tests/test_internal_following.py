"""Tails are followed once per proxy and owner: many readers cost the owner one, and nobody sees anything else than the owner would say."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest
from internal_calls import every_loop
from internal_under_test import CLIENT, SERVER, MemoryOwner, Runner, serving, tp, until
from typing_extensions import Buffer

from bmq.errors import BmqError, FencedLeaderEpoch, NotOwner, NotReady, OffsetOutOfRange
from bmq.internal import InternalServer, RemoteOwner, owner_handlers
from bmq.internal.apis import Api
from bmq.internal.follow_calls import CHANGE_CALL, ChangeCall, PollCall, decode_news, encode_news, follow
from bmq.internal.frames import Frame
from bmq.internal.limits import FOLLOWED_DOUBTED_S, FOLLOWED_LOOK_S, FOLLOWED_LOOKED_AT, FOLLOWED_POLL_S, FOLLOWED_UNPOLLED_S, FOLLOWED_UNUSED_S
from bmq.internal.routes import Handlers, Incoming, Route
from bmq.internal.tail_cache import CachedTail, TailCache
from bmq.internal.tail_follower import CHANGED_AT_ONCE
from bmq.internal.tail_session import TailSession
from bmq.roles.owner import Appended, TailAnswer, TailRequest, TailRoom
from bmq.values import LeaderEpoch, ManifestVersion, Offset, TopicPartition
from bmq.wire.records import Record, build_batch
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.network import Network, NetworkFaults
from bmq_sim.process import SimProcess

WAIT_MS = 60_000
MIB = 1 << 20


class Log:
    """One partition as its owner has it."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.log_start = 0
        self.tail_start = 0
        self.manifest_version = 1
        self.leader_epoch = 3
        self.error: BmqError | None = None

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else 0


class LogTails:
    """Implements Tails: one follower's."""

    def __init__(self, owner: "LogOwner", changed: Callable[[TopicPartition], None]) -> None:
        self.changed = changed
        self.watched: set[TopicPartition] = set()
        self.read = owner.at_once

    def watch(self, tp: TopicPartition) -> None:
        assert tp not in self.watched
        self.watched.add(tp)

    def leave(self, tp: TopicPartition) -> None:
        self.watched.remove(tp)


class LogOwner(MemoryOwner):
    """Answers reads as a broker does; counts what they cost it."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[TopicPartition, Log] = {}
        self.bytes_given = 0
        self.reads = 0
        self.bug: Exception | None = None
        self._changed = asyncio.Event()
        self.followers: dict[LogTails, None] = {}

    def tails(self, changed: Callable[[TopicPartition], None]) -> "LogTails":
        tails = LogTails(self, changed)
        self.followers[tails] = None
        return tails

    def log(self, one: TopicPartition) -> Log:
        return self.logs.setdefault(one, Log())

    def write(self, one: TopicPartition, *, records: int = 1, size_bytes: int = 50) -> None:
        log = self.log(one)
        base = log.end
        values = [b"%d " % (base + n) + bytes(size_bytes) for n in range(records)]
        log.batches.append((base, base + records, build_batch([Record(0, 1_000, None, value) for value in values], base_offset=base)))
        self.changed()

    def changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        for follower in self.followers:
            for one in tuple(follower.watched):
                follower.changed(one)

    def append(self, tp: TopicPartition, records: Buffer, *, produce_version: int) -> "asyncio.Future[Appended]":
        base = self.log(tp).end
        self.write(tp)
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        future.set_result(Appended(base_offset=Offset(base), log_append_time_ms=-1, log_start=Offset(0)))
        return future

    async def read_tail(
        self, requests: Sequence[TailRequest], *, min_bytes: int, max_bytes: int, max_wait_ms: int, room: TailRoom | None = None
    ) -> list[TailAnswer]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + max_wait_ms / 1000
        while True:
            self._counted()
            answers: list[TailAnswer] = []
            size_bytes = 0
            for request in requests:
                answers.append(self._answer(request, max_bytes - size_bytes, first=not size_bytes))
                size_bytes += answers[-1].size_bytes
            settled = any(answer.error is not None or request.offset < answer.tail_start for request, answer in zip(requests, answers, strict=True))
            if settled or size_bytes >= min_bytes or loop.time() >= until_s:
                self.bytes_given += size_bytes
                return answers
            try:
                async with asyncio.timeout_at(until_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _counted(self) -> None:
        self.reads += 1
        bug, self.bug = self.bug, None
        if bug is not None:
            raise bug

    def at_once(self, request: TailRequest) -> TailAnswer:
        self._counted()
        answer = self._answer(request, request.max_bytes, first=True)
        self.bytes_given += answer.size_bytes
        return answer

    def _answer(self, request: TailRequest, max_bytes: int, *, first: bool) -> TailAnswer:
        log = self.log(request.tp)
        if log.error is not None:
            return TailAnswer(tp=request.tp, error=log.error)
        if request.current_leader_epoch not in (-1, log.leader_epoch):
            return TailAnswer(tp=request.tp, error=FencedLeaderEpoch("another epoch"))
        error = None if log.log_start <= request.offset <= log.end else OffsetOutOfRange(f"offset {request.offset}")
        found: list[bytes] = []
        size_bytes = 0
        for base, next_offset, batch in log.batches if error is None and request.offset >= log.tail_start else ():
            if next_offset <= request.offset or base < log.tail_start:
                continue
            if size_bytes + len(batch) > min(max_bytes, request.max_bytes) and (found or not first):
                break
            found.append(batch)
            size_bytes += len(batch)
        return TailAnswer(
            tp=request.tp,
            error=error,
            leader_epoch=LeaderEpoch(log.leader_epoch),
            manifest_version=ManifestVersion(log.manifest_version),
            log_start=Offset(log.log_start),
            tail_start=Offset(log.tail_start),
            high_watermark=Offset(log.end),
            last_stable_offset=Offset(log.end),
            batches=tuple(found),
            size_bytes=size_bytes,
        )


@asynccontextmanager
async def following(owner: LogOwner, *, handlers: Handlers | None = None, cache_bytes: int = MIB) -> AsyncIterator[RemoteOwner]:
    async with serving(handlers or owner_handlers(owner)) as (_, host, port):
        there = RemoteOwner(host, port, peer=SERVER.node_id, me=CLIENT, cache=TailCache(cache_bytes))
        try:
            yield there
        finally:
            await there.close()


async def read(there: RemoteOwner, one: TopicPartition, offset: int, *, wait_ms: int = WAIT_MS, **options: Any) -> TailAnswer:
    request = TailRequest(tp=one, offset=Offset(offset), max_bytes=MIB, **options)
    [answer] = await there.read_tail([request], min_bytes=1, max_bytes=MIB, max_wait_ms=wait_ms)
    return answer


async def read_all(there: RemoteOwner, owner: LogOwner, one: TopicPartition, until_offset: int, *, offset: int = 0) -> list[bytes]:
    """Every batch from an offset on, read one answer after the other; below the tail from the log itself, as a proxy reads segments."""
    got: list[bytes] = []
    while offset < until_offset:
        try:
            answer = await read(there, one, offset)
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
            await until(lambda: owner.reads >= 11)
            for _ in range(50):
                owner.write(tp(0))
                await asyncio.sleep(0.002)
            wanted = [batch for _, _, batch in owner.log(tp(0)).batches]
            assert await asyncio.gather(*readers) == [wanted] * 10
            assert owner.bytes_given <= 1.2 * sum(map(len, wanted))  # one may have asked by itself before it was followed

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
            await until(lambda: len(sizes) == 1)
            more = asyncio.ensure_future(read(there, tp(1000), 0))
            await until(lambda: len(sizes) == 2)
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
            await until(lambda: owner.reads >= 2)
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
            await until(lambda: owner.reads >= 2)
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
            await until(lambda: owner.reads >= 6)
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


def test_a_session_whose_client_polls_no_more_ends_with_its_tasks() -> None:
    async def main() -> None:
        owner = LogOwner()
        tasks: list[asyncio.Task[Any]] = []
        session = TailSession(owner, tasks.append)
        session.change(ChangeCall(0, [follow(1, tp(0), Offset(0))], []))
        assert await session.poll(PollCall(1, MIB, 1000)) != []  # the facts
        with pytest.raises(NotReady, match="begins anew"):
            session.poll(PollCall(2, MIB, 1000))
        await asyncio.sleep(2 * FOLLOWED_UNPOLLED_S)
        assert all(task.done() for task in tasks)
        with pytest.raises(NotReady, match="begins anew"):  # a client that was only stopped must not think that it still follows
            session.poll(PollCall(1, MIB, 1000))
        with pytest.raises(NotReady, match="begins anew"):
            session.change(ChangeCall(7, [], []))

    run(main())


def test_a_change_of_thousands_is_read_in_turns_and_leaves_no_garbage_behind() -> None:
    """What has been followed is freed where it is left: a collection of all garbage stops everybody, the longer the more there is."""

    async def main() -> None:
        owner = LogOwner()
        owner.write(tp(7))
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(number, tp(number), Offset(0)) for number in range(2_000)], []))
        reads, most = owner.reads, 0
        while session._due:
            await asyncio.sleep(0)
            most, reads = max(most, owner.reads - reads), owner.reads
        assert owner.reads == 2_000
        assert most <= FOLLOWED_LOOKED_AT
        assert [number for number, answer in await session.poll(PollCall(1, MIB, 0)) if answer.batches] == [7]
        gc.collect()
        session.change(ChangeCall(1, [], list(range(2_000))))
        [tails] = owner.followers
        assert not tails.watched
        await asyncio.sleep(0)
        assert gc.collect() < 100

    run(main())


def test_what_is_to_be_told_of_partitions_that_are_not_here_is_bounded_and_gone_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr("bmq.internal.limits.FOLLOWED_MAX", 1_000)
        monkeypatch.setattr("bmq.internal.tail_session.NEWS_AT_ONCE", 100)
        owner = LogOwner()
        for number in range(2_000):
            owner.log(tp(number)).error = NotOwner("it is not here")
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(number, tp(number), Offset(0)) for number in range(900)], []))
        await asyncio.sleep(1)
        with pytest.raises(NotReady, match="1000 partitions"):
            session.change(ChangeCall(1, [follow(number, tp(number), Offset(0)) for number in range(900, 1_100)], []))
        assert len(await session.poll(PollCall(2, MIB, 0))) == 100
        session.change(ChangeCall(2, [follow(number, tp(number), Offset(0)) for number in range(900, 1_000)], []))
        session.close()
        assert not session._ready

    run(main())


def test_a_partition_cannot_be_followed_twice() -> None:
    async def main() -> None:
        session = TailSession(LogOwner(), lambda _: None)
        session.change(ChangeCall(0, [follow(1, tp(0), Offset(0))], []))
        with pytest.raises(NotReady, match="already"):
            session.change(ChangeCall(1, [follow(2, tp(0), Offset(0))], []))
        session.change(ChangeCall(0, [follow(2, tp(0), Offset(0))], []))
        session.close()

    run(main())


def test_an_incarnation_that_ends_ends_what_is_followed() -> None:
    """Whoever follows is told, and asks anew: nothing of the next incarnation would be heard here."""

    async def main() -> None:
        owner = LogOwner()
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(1, tp(0), Offset(0))], []))
        await asyncio.sleep(1)
        await session.poll(PollCall(1, MIB, 0))
        waiting = asyncio.ensure_future(session.poll(PollCall(1, MIB, 60_000)))
        await asyncio.sleep(1)
        owner.bug = NotReady("this broker has stopped, or starts again")
        owner.changed()
        await asyncio.sleep(1)
        assert await waiting == []
        with pytest.raises(NotReady, match="begins anew"):
            session.poll(PollCall(1, MIB, 0))
        session.change(ChangeCall(0, [follow(1, tp(0), Offset(0))], []))
        owner.write(tp(0))
        await asyncio.sleep(1)
        assert len(await session.poll(PollCall(1, MIB, 0))) == 1
        session.close()

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
            await until(lambda: sum(named) == 2_500)
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
            waiting = asyncio.ensure_future(there.read_tail([request], min_bytes=2 * size_bytes, max_bytes=MIB, max_wait_ms=WAIT_MS, room=room))
            await asyncio.sleep(1)
            assert (waiting.done(), room.left_bytes) == (False, MIB)
            owner.write(tp(1), size_bytes=1_000)
            [answer] = await waiting
            assert (answer.batches, answer.unsent_bytes) == ((), 2 * size_bytes)

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


def test_a_poll_that_comes_as_its_session_ends_is_refused_at_once() -> None:
    async def main() -> None:
        owner = LogOwner()
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(1, tp(1), Offset(0))], []))
        await asyncio.sleep(0.01)
        owner.bug = NotReady("this broker has stopped, or starts again")
        owner.changed()
        polling = asyncio.ensure_future(session.poll(PollCall(1, MIB, 60_000)))
        async with asyncio.timeout(0.5):
            with pytest.raises(NotReady):
                await polling

    run(main())


def test_what_went_into_segments_while_there_was_no_room_can_be_followed_anew() -> None:
    async def main() -> None:
        owner = LogOwner()
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(n, tp(n), Offset(0)) for n in range(18)], []))
        await asyncio.sleep(2 * FOLLOWED_LOOK_S)
        await session.poll(PollCall(1, 100 * MIB, 0))
        for n in range(17):
            owner.write(tp(n), size_bytes=MIB)
        await asyncio.sleep(0.01)
        owner.write(tp(17))
        owner.log(tp(17)).tail_start = 1
        await asyncio.sleep(4 * FOLLOWED_LOOK_S)
        told: set[int] = set()
        while 17 not in told:
            told |= {number for number, _ in await session.poll(PollCall(1, 4 * MIB, 0))}
            await asyncio.sleep(0)
        session.change(ChangeCall(1, [follow(99, tp(17), Offset(1))], []))  # it was left where its follower was told so
        session.close()

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
def test_readers_see_every_batch_once_and_in_order_whatever_breaks(seed: int) -> None:
    """Connections are lost, tails become segments, the cache is small, readers start anywhere."""
    rng = Random(seed)
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
        there = RemoteOwner("there", 9190, peer=SERVER.node_id, me=CLIENT, cache=TailCache(rng.choice((300, 3_000, MIB))))

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
            got = await read_all(there, owner, one, count)
            assert got == [batch for _, _, batch in owner.log(one).batches][: len(got)]

        partitions = [tp(n) for n in range(3)]
        for one in partitions:
            owner.log(one)
        await asyncio.gather(*map(write, partitions), *(read_from(one) for one in partitions for _ in range(4)))
        await there.close()
        await server.stop(grace_s=0)

    loop = VirtualLoop(network=Network(rng=rng, faults=NetworkFaults(latency_s_min=0.001, latency_s_max=0.01, split_probability=0.3)))
    run(main(), loop=loop)


def batch_at(offset: int, size_bytes: int) -> bytes:
    return build_batch([Record(0, 1_000, None, bytes(size_bytes))], base_offset=offset)


def answer_with(one: TopicPartition, *batches: bytes) -> TailAnswer:
    return TailAnswer(tp=one, leader_epoch=LeaderEpoch(1), high_watermark=Offset(1 << 40), batches=tuple(batches), size_bytes=sum(map(len, batches)))


def test_the_cache_counts_what_it_holds_and_keeps_the_newest_answer_whole() -> None:
    cache = TailCache(1_000)
    one, other = CachedTail(tp(0), Offset(0)), CachedTail(tp(1), Offset(0))
    for offset in range(10):
        cache.add([(one, answer_with(tp(0), batch_at(offset, 200))), (other, answer_with(tp(1), batch_at(offset, 100)))])
        assert cache.held_bytes <= 1_000
    assert (one.end, other.end) == (10, 10)
    assert one.start == other.start == 8
    cache.add([(one, answer_with(tp(0), batch_at(10, 5_000)))])
    assert (one.start, one.end, other.start, other.end) == (10, 11, 10, 10)
    assert cache.held_bytes > 5_000


@pytest.mark.parametrize(("large_bytes", "is_copied"), [(1 << 20, True), (32 << 10, False)])
def test_a_small_batch_does_not_keep_a_large_frame_of_news_alive(large_bytes: int, is_copied: bool) -> None:
    """Its reader may hold it as long as a socket takes it, and counts its bytes alone."""
    given = [TailAnswer(tp=tp(number), batches=(bytes(size),), size_bytes=size) for number, size in enumerate((100, large_bytes))]
    news = encode_news(list(enumerate(given)))
    attachments = memoryview(b"".join(news.attachments))
    frame = Frame(kind=0, api_key=0, correlation_id=0, header=memoryview(news.header), attachments=attachments)
    (_, small), (_, large) = decode_news(frame, tp)
    [batch] = small.batches
    assert (bytes(batch), batch.obj is not attachments.obj) == (bytes(100), is_copied)
    [batch] = large.batches
    assert batch.obj is attachments.obj
