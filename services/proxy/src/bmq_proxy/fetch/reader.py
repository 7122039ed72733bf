"""Serves a Fetch by wait, cache, storage: the owner's tail first, and what lies below it straight from segments.

Owns the split of a response's bytes among its partitions and the memory of responses under way. Batches are views, not
copies, but for few bytes of a large block.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import structlog

from bmq.clocks.in_time import in_time
from bmq.errors import BmqError, FormatError, NotOwner, NotReady, ObjectMissing, OffsetOutOfRange, StoreError
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.turns import NOBODY, Party, Turns
from bmq.roles.controller import Metadata
from bmq.roles.owner import Owner, TailAnswer, TailRequest, TailRoom
from bmq.storage.manifest import Manifest
from bmq.values import Offset, TopicPartition
from bmq_proxy import metrics
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.fetch.answers import Found, Plan, Read, Result, from_slice, from_tail, may_diverge, share
from bmq_proxy.fetch.blocks import Pool
from bmq_proxy.fetch.manifests import ManifestCache
from bmq_proxy.fetch.room import NO_ROOM, Asked, Larger, LargerRoom, Spare
from bmq_proxy.fetch.segments import OtherRun, SegmentReader, Slice
from bmq_proxy.fetch.tails import read_tails
from bmq_proxy.fetch.turns import ReadTurns, Turn

MANIFESTS_TRIED_MAX = 3
ROOM_WAIT_S = 5.0
PLANNED_AT_ONCE = 1_000
"""An answer for more partitions is put together in several turns of the loop."""
SMALL_BYTES = 64 << 10
SMALL_SHARE = 8
"""When memory is used up, answers of at most `SMALL_BYTES` may use as much beside it, divided by this: who reads little
never waits for those who read much, or who asked and do not read."""
ASKED_SHARE = 2
"""What is fetched of owners in other processes, until it is counted with the answer, may use the memory of all answers
divided by this, beside it."""
ANSWER_SHARE = 4
WAITED_ANSWER_SHARE = 16
"""An answer has at most the memory of all answers divided by the first number; one that has to wait for it, by the
second: so that those who asked for much and do not read cannot keep it all among few."""
BELOW_AT_ONCE = 32
"""Partitions of one request that are read from segments at a time: each may hold blocks of a MiB while it waits for
more, and waits for the store before those who ask later."""
STORAGE_WAIT_S = 20.0
MORE_WAIT_S = 5.0
"""Once there are records of a partition, it is waited so long for those of its further segments, and no longer in
all."""
FENCE_WAIT_S = 10.0
"""What owners need of the store to say where an earlier epoch ended, of all partitions of a request."""
COMPLAIN_EVERY_S = 10.0
NEAR_TAIL_ENTRIES = 2
"""Readers of so many newest segments count as readers of the tail."""


_log = structlog.get_logger("bmq.proxy.fetch")


class Reader(Protocol):
    """What handlers ask for records."""

    memory: MemoryBudget

    async def read(
        self, reads: Sequence[Read], *, min_bytes: int, max_bytes: int, max_wait_ms: int, party: Party = NOBODY
    ) -> Result:
        """What there is for each read. Waits until `min_bytes` are there, something needs the client's attention, or
        the time is up.
        """

    async def close(self) -> None: ...


class FetchReader:
    """Reads for all Fetch requests of one proxy."""

    def __init__(
        self,
        owner_for: Callable[[TopicPartition], Owner],
        metadata: Metadata,
        manifests: ManifestCache,
        segments: SegmentReader,
        *,
        memory: MemoryBudget,
        turns: ReadTurns,
    ) -> None:
        self._owner_for = owner_for
        self._metadata = metadata
        self._manifests = manifests
        self._segments = segments
        self.memory = memory
        self._turns = turns
        self._turns_at_loop = Turns()
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)
        self._small_memory = MemoryBudget(max(SMALL_BYTES, memory.limit_bytes // SMALL_SHARE))
        self._asked = MemoryBudget(max(SMALL_BYTES, memory.limit_bytes // ASKED_SHARE))
        metrics.FETCH_MEMORY.set_function(lambda: memory.held_bytes)

    async def read(
        self, reads: Sequence[Read], *, min_bytes: int, max_bytes: int, max_wait_ms: int, party: Party = NOBODY
    ) -> Result:
        """Waits until `min_bytes` are there, something needs the client's attention, or the time is up. Never raises a
        BmqError.

        `party`: whose turn it takes where it reads much while there are others to protect.
        """
        max_bytes = min(max_bytes, max(1, self.memory.limit_bytes // ANSWER_SHARE))
        room = Asked(self._asked, self._turns, small_bytes=SMALL_BYTES)
        try:
            return await self._read_into(
                room, reads, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, party=party
            )
        finally:
            room.leave()

    async def _read_into(
        self, room: TailRoom, reads: Sequence[Read], *, min_bytes: int, max_bytes: int, max_wait_ms: int, party: Party
    ) -> Result:
        """`room` holds what owners sent until it is counted with the answer, or let go."""
        answers = await self._tails(
            reads,
            min_bytes=min(min_bytes, max_bytes),
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            room=room,
            party=party,
        )
        if len(reads) > PLANNED_AT_ONCE:
            await self._turns_at_loop.turn(party=party[0], sender=party[1])
        plan = share(reads, answers, max_bytes)
        if sum(limit for _, limit in plan.segments) + sum(size_bytes for _, size_bytes in plan.unsent) <= SMALL_BYTES:
            return await self._read(room, reads, answers, plan, party, in_turn=False)
        limit = self._turns.at_most(max_bytes)
        size_bytes = min(plan.planned_bytes, limit)
        turn = self._turns.begin(size_bytes)
        if turn is None:
            answers.clear()  # nothing of it may be kept alive while waiting
            room.leave()
            turn = await self._wait_for_turn(party, size_bytes)
            if turn is None:
                return await self._nothing_yet(reads)
        try:
            if not answers:
                answers = await self._tails(reads, min_bytes=0, max_bytes=limit, max_wait_ms=0, room=room, party=party)
                plan = share(reads, answers, limit)
            elif limit < max_bytes:
                plan = share(reads, answers, limit)
            return await self._read(room, reads, answers, plan, party, in_turn=True)
        finally:
            turn.over()

    async def _read(
        self,
        room: TailRoom,
        reads: Sequence[Read],
        answers: list[TailAnswer],
        plan: Plan,
        party: Party,
        *,
        in_turn: bool,
    ) -> Result:
        held = plan.planned_bytes
        if held and not self.memory.take_up_to(held, held):
            # Nothing of it may be kept alive while waiting for memory, not by who called either: asked for again when
            # there is some.
            answers.clear()
            room.leave()
            if (small := await self._read_little(reads)) is not None:
                return small
            held = min(held, max(1, self.memory.limit_bytes // WAITED_ANSWER_SHARE))
            if not await self._wait_for_memory(held):
                return await self._nothing_yet(reads)
        room.leave()
        result = Result([], held, self.memory)
        turns = None if in_turn else self._turns
        larger = Larger(result, turns, party, small_bytes=SMALL_BYTES, wait_s=ROOM_WAIT_S)
        try:
            if not answers:
                answers = await self._tails(reads, min_bytes=0, max_bytes=held, max_wait_ms=0, room=NO_ROOM)
                plan = share(reads, answers, held)
            await self._fetch_unsent(reads, answers, plan)
            result.found = await self._collect(reads, answers, plan, larger)
        except BaseException:
            result.release()
            raise
        finally:
            larger.over()
        self._settle(result)
        return result

    async def ends(self, reads: Sequence[Read]) -> list[Found]:
        """What is said of partitions of which nothing is read: where they begin and end. Never raises a BmqError."""
        answers = await self._tails(reads, min_bytes=0, max_bytes=0, max_wait_ms=0, room=NO_ROOM)
        return [from_tail(answer).without_records() for answer in answers]

    async def _nothing_yet(self, reads: Sequence[Read]) -> Result:
        """An answer without records: the client asks again."""
        return Result(await self.ends(reads), 0, self.memory)

    async def _read_little(self, reads: Sequence[Read]) -> Result | None:
        """An answer of at most `SMALL_BYTES`; None where there is no memory even for that, or the first batch is
        larger.
        """
        if not self._small_memory.take_up_to(SMALL_BYTES, SMALL_BYTES):
            return None
        result = Result([], SMALL_BYTES, self._small_memory)
        spare = Spare(SMALL_BYTES)
        try:
            answers = await self._tails(reads, min_bytes=0, max_bytes=SMALL_BYTES, max_wait_ms=0, room=NO_ROOM)
            plan = share(reads, answers, SMALL_BYTES)
            if plan.planned_bytes <= SMALL_BYTES:
                spare.take_at_once(plan.planned_bytes)
                await self._fetch_unsent(reads, answers, plan)
                result.found = await self._collect(reads, answers, plan, spare)
        except BaseException:
            result.release()
            raise
        if not result.found or spare.refused or sum(one.size_bytes for one in result.found) > SMALL_BYTES:
            result.release()
            return None
        self._settle(result)
        return result

    async def _fetch_unsent(self, reads: Sequence[Read], answers: list[TailAnswer], plan: Plan) -> None:
        """Fetches of each owner what was planned of it, and no more, once all of it is counted."""
        if not plan.unsent:
            return
        wanted = [replace(reads[i], max_bytes=size_bytes) for i, size_bytes in plan.unsent]
        found = await self._tails(
            wanted, min_bytes=0, max_bytes=sum(size_bytes for _, size_bytes in plan.unsent), max_wait_ms=0
        )
        for (i, _), answer in zip(plan.unsent, found, strict=True):
            answers[i] = answer

    async def close(self) -> None:
        """Ends what is under way."""
        await self._manifests.close()
        await self._segments.close()

    async def _collect(
        self, reads: Sequence[Read], answers: Sequence[TailAnswer], plan: Plan, larger: LargerRoom
    ) -> list[Found]:
        if len(reads) > PLANNED_AT_ONCE:
            await self._turns_at_loop.turn()
        found = [from_tail(answer) for answer in answers]
        metrics.FETCHED_BYTES.labels("tail").inc(sum(one.size_bytes for one in found))
        if plan.segments:
            anything = any(one.size_bytes for one in found)
            until_s = asyncio.get_running_loop().time() + STORAGE_WAIT_S
            left = iter(enumerate(plan.segments))

            async def read_some() -> None:
                for nth, (i, limit) in left:
                    first = larger if not anything and not nth else None
                    found[i] = await self._below_tail(reads[i], answers[i], limit, first=first, until_s=until_s)

            await asyncio.gather(*(read_some() for _ in range(min(BELOW_AT_ONCE, len(plan.segments)))))
            if not anything and not any(found[i].size_bytes for i, _ in plan.segments):
                await self._give_next(reads, answers, plan, found, larger)
        asked = zip(reads, found, answers, strict=True)
        await self._check_divergences([(read, one) for read, one, answer in asked if may_diverge(read, one, answer)])
        return found

    async def _give_next(
        self,
        reads: Sequence[Read],
        answers: Sequence[TailAnswer],
        plan: Plan,
        found: list[Found],
        larger: LargerRoom,
    ) -> None:
        """The one that was to have a whole batch, however large, has none: the next that has one gets its turn, or it
        would wait for ever. Not where there was no room for the first.
        """
        until_s = asyncio.get_running_loop().time() + STORAGE_WAIT_S
        for i, limit in plan.segments[1:]:
            if larger.refused:
                return
            if found[i].error is None and asyncio.get_running_loop().time() < until_s:
                patient_s = asyncio.get_running_loop().time() + STORAGE_WAIT_S
                found[i] = await self._below_tail(reads[i], answers[i], limit, first=larger, until_s=patient_s)
                if found[i].size_bytes:
                    return

    async def _below_tail(
        self, read: Read, answer: TailAnswer, limit: int, *, first: LargerRoom | None, until_s: float
    ) -> Found:
        """`first`: the first batch comes whole, and where there is room for it if it is larger than `limit`."""
        try:
            async with asyncio.timeout_at(until_s) as patience:
                return await self._from_segments(read, answer, limit, first=first, patience=patience)
        except TimeoutError:
            return Found(error=NotReady(f"{read.tp}: the store did not answer within {STORAGE_WAIT_S:.0f} s"))
        except BmqError as error:
            return Found(error=error.with_traceback(None))

    async def _from_segments(
        self, read: Read, answer: TailAnswer, limit: int, *, first: LargerRoom | None, patience: asyncio.Timeout
    ) -> Found:
        reloaded = False
        for _ in range(MANIFESTS_TRIED_MAX):
            if answer.error is not None or read.offset >= answer.tail_start:
                return from_tail(answer)
            try:
                manifest = await self._manifests.get(read.tp, answer.manifest_version)
                slice_ = await self._run_through(read, manifest, limit, first=first, patience=patience)
            except ObjectMissing:
                # A merge or an expiry took a segment, or the manifest version is gone: what the owner names now is
                # there. If it names the same version again, it has yet to meet what an earlier owner wrote above it.
                before = answer.manifest_version
                [answer] = await self._tails([read], min_bytes=0, max_bytes=limit, max_wait_ms=0)
                if (
                    answer.error is None
                    and answer.manifest_version == before
                    and not await self._manifests.look_above(read.tp, before)
                ):
                    break
            except OtherRun as error:
                # Never its records. If it is the manifest here that is wrong, the store has the right one.
                self._tell_of(error)
                if reloaded:
                    raise
                reloaded = True
                self._manifests.forget(read.tp)
                [answer] = await self._tails([read], min_bytes=0, max_bytes=limit, max_wait_ms=0)
            else:
                metrics.FETCHED_BYTES.labels("segments").inc(slice_.size_bytes)
                return from_slice(answer, manifest, slice_)
        raise NotReady(
            f"{read.tp}: offset {read.offset} is in none of the newest manifests' segments that are there; if that "
            "lasts, `bmq store check` tells which object is missing"
        )

    def _tell_of(self, error: OtherRun) -> None:
        metrics.OTHER_RUNS.inc()
        left_out = self._complaints.due("other run", now=asyncio.get_running_loop().time())
        if left_out is not None:
            _log.warning("segment is not what the manifest names", error=str(error), left_out=left_out)

    async def _run_through(
        self, read: Read, manifest: Manifest, limit: int, *, first: LargerRoom | None, patience: asyncio.Timeout
    ) -> Slice:
        """Raises ObjectMissing also where the manifest has moved past the offset: whether it is out of range only the
        owner says.

        `patience` holds until there are records: what comes behind them must not take them along.
        """
        run = await self._manifests.run_from(read.tp, manifest, read.offset)
        if run is None or read.offset < manifest.log_start:
            raise ObjectMissing(
                f"{read.tp}: offset {read.offset} is not between {manifest.log_start} and {manifest.next_offset}"
            )
        found = Slice()
        entries = run.entries
        more_until_s: float | None = None
        for at in range(run.at, len(entries)):
            left = limit - found.size_bytes
            wanted = first is not None and not found.size_bytes
            if left <= 0 and not wanted:
                break
            try:
                async with asyncio.timeout_at(more_until_s):
                    more = await self._segments.read(
                        read.tp,
                        entries[at],
                        max(read.offset, entries[at].base_offset),
                        max_bytes=left,
                        at_least_one=wanted,
                        pool=Pool.TAIL if run.newest and len(entries) - at <= NEAR_TAIL_ENTRIES else Pool.CATCH_UP,
                        following=entries[at + 1] if at + 1 < len(entries) else None,
                        larger=None if first is None else first.take,
                    )
            except (FormatError, StoreError, TimeoutError):
                if found.size_bytes:
                    break  # What there is goes out; the next request meets it again.
                raise
            found.parts += more.parts
            found.size_bytes += more.size_bytes
            if not more.complete:
                break
            if found.size_bytes and more_until_s is None:
                until_s, now_s = patience.when(), asyncio.get_running_loop().time()
                more_until_s = now_s + MORE_WAIT_S if until_s is None else min(until_s, now_s + MORE_WAIT_S)
                patience.reschedule(None)
        return found

    async def _tails(
        self,
        reads: Sequence[Read],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: TailRoom | None = None,
        party: Party = NOBODY,
    ) -> list[TailAnswer]:
        requests = [
            TailRequest(
                tp=read.tp,
                offset=Offset(read.offset),
                max_bytes=min(read.max_bytes, max_bytes),
                current_leader_epoch=read.current_leader_epoch,
            )
            for read in reads
        ]
        answers = await read_tails(
            self._owner_for,
            requests,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            room=room,
            party=party,
        )
        image = self._metadata.image
        for i, answer in enumerate(answers):
            known = image.partition(answer.tp)
            if answer.error is None and known is not None and answer.leader_epoch < known.leader_epoch:
                answers[i] = TailAnswer(
                    tp=answer.tp, error=NotOwner(f"{answer.tp}: an owner of epoch {answer.leader_epoch} answered")
                )
        return answers

    async def _check_divergences(self, suspects: Sequence[tuple[Read, Found]]) -> None:
        until_s = asyncio.get_running_loop().time() + FENCE_WAIT_S
        for read, found in suspects:
            why = f"{read.tp}: the store did not show within {FENCE_WAIT_S:g} s that its owner still is the owner"
            try:
                await in_time(until_s, partial(self._check_divergence, read, found), partial(NotReady, why))
            except NotReady as error:
                found.error = error.with_traceback(None)  # which has `found`
                found.parts, found.size_bytes = (), 0

    async def _check_divergence(self, read: Read, found: Found) -> None:
        """What a follower of an older leader would have to cut off (KIP-595)."""
        try:
            end = await self._owner_for(read.tp).epoch_end(read.tp, read.last_fetched_epoch)
        except BmqError as error:
            found.error = error.with_traceback(None)  # which has `found`
        else:
            if end.end_offset < 0:
                found.error = OffsetOutOfRange(
                    f"{read.tp}: its owner knows nothing of leader epoch {read.last_fetched_epoch}, above its own"
                )
            elif end.leader_epoch < read.last_fetched_epoch or end.end_offset < read.offset:
                found.diverging_epoch, found.diverging_end_offset = end.leader_epoch, end.end_offset
        if found.error is not None or found.diverging_epoch >= 0:
            found.parts, found.size_bytes = (), 0

    async def _wait_for_turn(self, party: Party, size_bytes: int) -> Turn | None:
        try:
            async with asyncio.timeout(ROOM_WAIT_S):
                return await self._turns.wait(party, size_bytes)
        except TimeoutError:
            return None

    async def _wait_for_memory(self, size_bytes: int) -> bool:
        try:
            async with asyncio.timeout(ROOM_WAIT_S):
                await self.memory.reserve(size_bytes)
        except TimeoutError:
            return False
        return True

    def _settle(self, result: Result) -> None:
        """Counts what is really held instead of what was planned."""
        size_bytes = sum(one.size_bytes for one in result.found)
        result.memory.correct(result.held_bytes, size_bytes)
        result.held_bytes = size_bytes
