"""A broker of another process as a proxy sees it: `bmq.roles.owner.Owner` over four connections, made when they are
first needed.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from typing_extensions import Buffer

from bmq.errors import NotReady
from bmq.fairness.turns import NOBODY, Party, Turns
from bmq.fairness.waiters import ANYTHING
from bmq.internal import limits
from bmq.internal.calls.owner_calls import (
    APPEND_CALL,
    DELETE_CALL,
    EPOCH_CALL,
    EPOCH_REPLY,
    GROUP_CALL,
    HANDED_OVER_CALL,
    HANDED_OVER_REPLY,
    OFFSET_REPLY,
    STATUS_CALL,
    STATUS_REPLY,
    TAIL_CALL,
    TIME_CALL,
    TIME_REPLY,
    AppendCall,
    DeleteCall,
    EpochCall,
    GroupCall,
    HandedOverCall,
    TailCall,
    TimeCall,
    decode_appended,
    decode_tails,
    decode_unread,
    encode_positions,
    wanted,
)
from bmq.internal.framing.apis import Api, Purpose
from bmq.internal.framing.failures import ConnectionLost
from bmq.internal.framing.frames import Frame
from bmq.internal.framing.hello import Identity
from bmq.internal.framing.packing import pack_message, unpack_message
from bmq.internal.links.client import InternalClient
from bmq.internal.tails.tail_cache import TailCache
from bmq.internal.tails.tail_follower import TailFollower
from bmq.roles.group_pages import AFTER, PAGES_MAX, asking, joined
from bmq.roles.owner import (
    SAID,
    Appended,
    Caller,
    EpochEnd,
    HandedOver,
    OffsetForTime,
    PartitionStatus,
    Position,
    Proved,
    TailAnswer,
    TailRequest,
    TailRoom,
    Unread,
    let_go,
)
from bmq.roles.waited_tails import lacking
from bmq.values import NodeId, Offset, TopicPartition
from bmq.wire.apis import ApiKey

T = TypeVar("T")

READ_TIMEOUT_S = 30.0
"""How long an owner may take for a read, beyond the wait that was asked for: it may have to open the partition
first."""
DELETE_TIMEOUT_S = 60.0
LEAST_BYTES: Final = 64 << 10
"""What is counted for a read at least: the first batch comes whole."""
FEW_PARTITIONS: Final = 10
"""Who waited for more looks at them in a turn of its own."""


class RemoteOwner:
    """Implements Owner. What certainly was not applied is NotReady, and so is every read that was not answered; the
    rest is UnknownOutcome.

    Readers at the end of a partition wait here, and one poll waits for all of them there
    (bmq.internal.tails.tail_follower). A group call has no time limit of its own (JoinGroup is held for as long as
    members take). A JoinGroup ends with its caller or the connection, at the broker too; others are carried through
    there.
    """

    def __init__(self, host: str, port: int, *, peer: NodeId, me: Identity, cache: TailCache | None = None) -> None:
        """`cache` is of the tails that are followed; it may be shared by all of a proxy's owners."""
        scratch = bytearray(limits.RECEIVE_BUFFER_BYTES)
        self.peer = peer
        self.address = host, port
        self._produce, self._tail, self._control, follow = (
            InternalClient(host, port, peer=peer, purpose=purpose, me=me, scratch=scratch)
            for purpose in (Purpose.PRODUCE, Purpose.TAIL, Purpose.CONTROL, Purpose.FOLLOW)
        )
        self._follower = TailFollower(follow, TailCache(limits.FOLLOWED_CACHE_BYTES) if cache is None else cache)
        self._turns = Turns()
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call

    async def close(self) -> None:
        """Ends the connections; what was not answered fails."""
        await asyncio.gather(self._produce.close(), self._tail.close(), self._control.close(), self._follower.close())

    def append(
        self, tp: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        """Submits one produce payload to the owner before it returns, so calls keep their order; the future has the
        owner's answer.
        """
        client = self._produce
        header = APPEND_CALL.encode(
            AppendCall(tp.topic_id, tp.partition, produce_version, client.refusal_heard, _address(party))
        )
        return client.submit(Api.APPEND, header, partial(self._appended, tp), attachments=(records,), key=tp)

    def append_alike(self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int) -> None:
        """None: each of them is a call of its own."""

    def _appended(self, tp: TopicPartition, frame: Frame) -> Appended:
        done = decode_appended(frame)
        self._follower.appended(tp, done.base_offset)
        return done

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
        """One answer per request, in order: of the tails that are followed what is known here, of others what the owner
        says. Answers of one owner are bounded (TAIL_BYTES_MAX), whatever `max_bytes` says.
        """
        asked, tps = list(requests), [request.tp for request in requests]
        max_bytes = min(max_bytes, limits.TAIL_BYTES_MAX)
        min_bytes = min(min_bytes, max_bytes)
        if not asked:
            return await self._ask(
                asked, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, party=party
            )
        deadline_s = self._loop.time() + max_wait_ms / 1000
        left_s = max_wait_ms / 1000
        while True:
            many = len(asked) > FEW_PARTITIONS
            with self._follower.waiters.watched(tps if many else ()) as news:
                may_wait = left_s > 0 and min_bytes > 0
                if many:
                    known = await self._looked_at_in_turns(asked, max_bytes=max_bytes, may_wait=may_wait, party=party)
                else:
                    known = self._follower.look(asked, max_bytes=max_bytes, may_wait=may_wait)
                missing = [i for i, answer in enumerate(known) if answer is None]
                is_followed = not missing or await self._complete(
                    known, missing, asked, max_bytes=max_bytes, room=room, party=party
                )
                answers = [answer for answer in known if answer is not None]
                settled = any(
                    answer.error is not None or request.offset < answer.tail_start
                    for request, answer in zip(asked, answers, strict=True)
                )
                left_s = deadline_s - self._loop.time()
                if (
                    settled
                    or left_s <= 0
                    or sum([answer.size_bytes + answer.unsent_bytes for answer in answers]) >= min_bytes
                ):
                    return answers
                more = ANYTHING if missing else lacking(asked, answers, min_bytes=min_bytes, end=self._follower.end)
                known.clear()
                answers.clear()  # neither is held while it waits
                if room is not None:
                    room.leave()
                if not is_followed:
                    left_ms = int(left_s * 1000)
                    return await self._ask(
                        asked,
                        min_bytes=min_bytes,
                        max_bytes=max_bytes,
                        max_wait_ms=left_ms,
                        party=party,
                        sizes_only=room is not None,
                    )
                if missing:
                    continue  # what the owner said may be older than what others have heard meanwhile
                if many:
                    await self._follower.waiters.until(news, left_s, more)
                    await self._turns.turn(party=party[0], sender=party[1])
                else:
                    await self._follower.waiters.wait(tps, left_s, more)

    async def _looked_at_in_turns(
        self, asked: list[TailRequest], *, max_bytes: int, may_wait: bool, party: Party
    ) -> list[TailAnswer | None]:
        """What is known, with turns of the loop between: hundreds may wait for the same record."""
        answers: list[TailAnswer | None] = []
        known_bytes = 0
        for first in range(0, len(asked), limits.FOLLOWED_LOOKED_AT):
            if first:
                await self._turns.turn(party=party[0], sender=party[1])
            part = asked[first : first + limits.FOLLOWED_LOOKED_AT]
            some = self._follower.look(part, max_bytes=max_bytes, may_wait=may_wait, known_bytes=known_bytes)
            known_bytes += sum([answer.size_bytes for answer in some if answer is not None])
            answers += some
        return answers

    async def _complete(
        self,
        known: list[TailAnswer | None],
        missing: list[int],
        asked: list[TailRequest],
        *,
        max_bytes: int,
        room: TailRoom | None,
        party: Party,
    ) -> bool:
        """Puts in the owner's answers where none are known. Whether news of those partitions come by themselves from
        now on.
        """
        requests = [asked[i] for i in missing]
        left_bytes = max(0, max_bytes - sum([answer.size_bytes for answer in known if answer is not None]))
        found = await self._fetched(requests, max_bytes=left_bytes, room=room, party=party)
        for i, answer in zip(missing, found, strict=True):
            known[i] = answer
        return self._follower.begin(zip(requests, found, strict=True))

    async def _fetched(
        self, asked: list[TailRequest], *, max_bytes: int, room: TailRoom | None, party: Party
    ) -> list[TailAnswer]:
        """What the owner has, or how much, where there is no room for that."""
        at_most = max(LEAST_BYTES, min(max_bytes, sum([max(request.max_bytes, 0) for request in asked])))
        sizes_only = room is not None and not room.take(at_most)
        found = await self._ask(
            asked, min_bytes=0, max_bytes=max_bytes, max_wait_ms=0, party=party, sizes_only=sizes_only
        )
        if room is not None and not sizes_only:
            room.settle(at_most, sum([answer.size_bytes for answer in found]))
        return found

    async def _ask(
        self,
        asked: list[TailRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        party: Party,
        sizes_only: bool = False,
    ) -> list[TailAnswer]:
        call = TailCall(
            [wanted(request) for request in asked], min_bytes, max_bytes, max_wait_ms, sizes_only, _address(party)
        )
        timeout_s = max_wait_ms / 1000 + READ_TIMEOUT_S
        return await _read(
            self._tail.call(
                Api.READ_TAIL, TAIL_CALL.encode(call), lambda frame: decode_tails(frame, asked), timeout_s=timeout_s
            )
        )

    async def offset_for_time(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = -1,
        committed: bool = False,
        address: str = "",
    ) -> OffsetForTime:
        """Asks the owner for the first record at or after a timestamp; negative ones mean what Owner says."""
        asked = TimeCall(tp.topic_id, tp.partition, timestamp_ms, current_leader_epoch, committed, address)
        header = TIME_CALL.encode(asked)
        return await _read(
            self._control.call(
                Api.OFFSET_FOR_TIME, header, lambda frame: TIME_REPLY.decode(frame.header), timeout_s=READ_TIMEOUT_S
            )
        )

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        """Asks the owner for the largest epoch at or below this one, and for the offset where it ends."""
        header = EPOCH_CALL.encode(EpochCall(tp.topic_id, tp.partition, leader_epoch, current_leader_epoch))
        return await _read(
            self._control.call(
                Api.EPOCH_END, header, lambda frame: EPOCH_REPLY.decode(frame.header), timeout_s=READ_TIMEOUT_S
            )
        )

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        """Asks the owner to raise the log start to `before` (-1: the high watermark), and returns it; what is kept here
        of the tail is shown from there on.
        """
        header = DELETE_CALL.encode(DeleteCall(tp.topic_id, tp.partition, before))
        log_start = Offset(
            await self._control.call(
                Api.DELETE_RECORDS, header, lambda frame: OFFSET_REPLY.decode(frame.header), timeout_s=DELETE_TIMEOUT_S
            )
        )
        self._follower.deleted_before(tp, log_start)
        return log_start

    async def handed_over(self, tp: TopicPartition, producer_id: int) -> HandedOver:
        """Asks the owner how far the lane's turn with this producer id got."""
        header = HANDED_OVER_CALL.encode(HandedOverCall(tp.topic_id, tp.partition, producer_id))
        return await _read(
            self._control.call(
                Api.HANDED_OVER, header, lambda frame: HANDED_OVER_REPLY.decode(frame.header), timeout_s=READ_TIMEOUT_S
            )
        )

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        """Asks the owner for figures of those that are open there, or can be within a moment; others are left out."""
        header = STATUS_CALL.encode(list(tps))
        return await _read(
            self._control.call(
                Api.STATUS, header, lambda frame: STATUS_REPLY.decode(frame.header), timeout_s=READ_TIMEOUT_S
            )
        )

    async def unread(self, positions: Sequence[Position]) -> list[Unread | None]:
        """Asks the owner what lies behind each position, in order; None for partitions that are not open there, nor can
        be within a moment.
        """
        count = len(positions)
        header = encode_positions(positions)
        return await _read(
            self._control.call(Api.UNREAD, header, lambda frame: decode_unread(frame, count), timeout_s=READ_TIMEOUT_S)
        )

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        """Hands one request to the coordinator at the owner, and returns its reply. A list of groups comes in pages."""
        if api_key != ApiKey.LIST_GROUPS:
            return await self._group_call(partition, api_key, request, caller)
        pages: list[dict[str, Any]] = []
        after = ""
        while (not pages or after) and len(pages) < PAGES_MAX:
            page = await self._group_call(partition, api_key, asking(request, after), caller)
            pages.append(dict(page if isinstance(page, Mapping) else vars(page)))
            after = pages[-1].get(AFTER, "")
        return joined(pages)

    async def _group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        packed = pack_message(request)
        header = GROUP_CALL.encode(
            GroupCall(partition, api_key, caller.client_id, caller.client_host, caller.api_version, packed)
        )
        let_go(api_key, request)
        calling = self._control.call(Api.GROUP_CALL, header, _message)
        del packed, header  # while it is on its way the connection has it, and counts it
        if api_key in SAID:
            caller.taken()
        return await calling


def _address(party: Party) -> str:
    """What an owner elsewhere is told of whose turn it is: the connection is none of its own."""
    return str(party[0])


async def _read(call: Awaitable[T]) -> T:
    """A read that was not answered changed nothing: it may be asked again."""
    try:
        return await call
    except ConnectionLost as lost:
        raise NotReady(str(lost)) from lost


def _message(frame: Frame) -> Any:
    return unpack_message(frame.header)
