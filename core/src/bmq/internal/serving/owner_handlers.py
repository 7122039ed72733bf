"""Serves a broker to the proxies of other processes: the routes from each call to its method of
`bmq.roles.owner.OwnerHere`.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from typing_extensions import Buffer

from bmq.errors import BmqError, NotReady
from bmq.fairness.turns import NOBODY, Party
from bmq.internal import limits
from bmq.internal.calls.follow_calls import CHANGE_CALL, POLL_CALL, encode_news
from bmq.internal.calls.owner_calls import (
    APPEND_CALL,
    DELETE_CALL,
    EPOCH_CALL,
    EPOCH_REPLY,
    GROUP_CALL,
    HANDED_OVER_CALL,
    HANDED_OVER_REPLY,
    NOTHING,
    OFFSET_REPLY,
    STATUS_CALL,
    STATUS_REPLY,
    TAIL_CALL,
    TIME_CALL,
    TIME_REPLY,
    UNREAD_CALL,
    DeleteCall,
    EpochCall,
    GroupCall,
    HandedOverCall,
    TailCall,
    TimeCall,
    UnreadCall,
    encode_appended,
    encode_tails,
    encode_unread,
    positions_of,
    tail_request,
)
from bmq.internal.framing.apis import Api
from bmq.internal.framing.packing import pack_in_pieces, pack_message, unpack_message
from bmq.internal.framing.routes import Handlers, Incoming, Outgoing, Route, answered_by, header_of
from bmq.internal.serving.fair_appends import FairAppends
from bmq.internal.serving.group_reads import GROUP_READS, GroupReads
from bmq.internal.serving.said import SaidBytes
from bmq.internal.tails.tail_session import TailSession
from bmq.roles.owner import (
    SAID,
    Appended,
    Caller,
    EpochEnd,
    HandedOver,
    OffsetForTime,
    Owner,
    OwnerHere,
    TailAnswer,
    Unread,
)
from bmq.roles.unheard import REFUSALS
from bmq.values import Offset, TopicId, TopicPartition
from bmq.wire.apis import ENDING


def owner_handlers(owner: OwnerHere) -> Handlers:
    """The routes of a broker, for an InternalServer."""

    async def read_tail(call: TailCall) -> list[TailAnswer]:
        requests = [tail_request(one) for one in call.requests]
        answers = await owner.read_tail(
            requests,
            min_bytes=call.min_bytes,
            max_bytes=call.max_bytes,
            max_wait_ms=call.max_wait_ms,
            party=(call.address, ""),
        )
        return [_size_alone(answer) for answer in answers] if call.sizes_only else answers

    async def offset_for_time(call: TimeCall) -> OffsetForTime:
        tp = TopicPartition(TopicId(call.topic_id), call.partition)
        return await owner.offset_for_time(
            tp,
            call.timestamp_ms,
            current_leader_epoch=call.current_leader_epoch,
            committed=call.committed,
            address=call.address,
        )

    async def epoch_end(call: EpochCall) -> EpochEnd:
        tp = TopicPartition(TopicId(call.topic_id), call.partition)
        return await owner.epoch_end(tp, call.leader_epoch, current_leader_epoch=call.current_leader_epoch)

    async def delete_records(call: DeleteCall) -> int:
        return await owner.delete_records(TopicPartition(TopicId(call.topic_id), call.partition), Offset(call.before))

    async def handed_over(call: HandedOverCall) -> HandedOver:
        return await owner.handed_over(TopicPartition(TopicId(call.topic_id), call.partition), call.producer_id)

    async def unread(call: list[UnreadCall]) -> list[Unread | None]:
        return await owner.unread(positions_of(call))

    return {
        Api.APPEND: append_route(owner),
        Api.READ_TAIL: answered_by(TAIL_CALL, read_tail, encode_tails),
        Api.FOLLOW_CHANGE: _follow_change(owner),
        Api.FOLLOW_POLL: _follow_poll(owner),
        Api.OFFSET_FOR_TIME: answered_by(TIME_CALL, offset_for_time, header_of(TIME_REPLY)),
        Api.EPOCH_END: answered_by(EPOCH_CALL, epoch_end, header_of(EPOCH_REPLY)),
        Api.DELETE_RECORDS: answered_by(DELETE_CALL, delete_records, header_of(OFFSET_REPLY)),
        Api.HANDED_OVER: answered_by(HANDED_OVER_CALL, handed_over, header_of(HANDED_OVER_REPLY)),
        Api.STATUS: answered_by(STATUS_CALL, owner.status, header_of(STATUS_REPLY)),
        Api.UNREAD: answered_by(UNREAD_CALL, unread, encode_unread),
        Api.GROUP_CALL: _group_call(owner),
    }


class _Answer(NamedTuple):
    """`leave` gives back the room that it has, where it has some."""

    reply: Any
    leave: Callable[[], None] | None


def _group_call(owner: Owner) -> Route[_Answer]:
    """A JoinGroup, or what only reads, ends with its caller: nobody else could ever use what it waits for."""
    said = SaidBytes()
    reads = GroupReads()

    async def read(call: GroupCall, connection: Hashable) -> _Answer:
        leave = await reads.enter(
            call.api_key, unpack_message(call.request), connection=connection, address=call.client_host
        )
        try:
            return _Answer((await ask(call)).reply, leave)
        except BaseException:
            leave()
            raise

    async def ask(call: GroupCall) -> _Answer:
        taken = said.hold(call.client_host, len(call.request)) if call.api_key in SAID else _nothing
        try:
            caller = Caller(
                client_id=call.client_id, client_host=call.client_host, api_version=call.api_version, taken=taken
            )
            partition, api_key, request = call.partition, call.api_key, unpack_message(call.request)
            del call  # an answer may take as long as the group wants
            return _Answer(await owner.group_call(partition, api_key, request, caller), None)
        finally:
            taken()

    def begin(incoming: Incoming) -> "asyncio.Future[_Answer]":
        call = GROUP_CALL.decode(incoming.header)
        work = asyncio.get_running_loop().create_task(
            read(call, incoming.kept) if call.api_key in GROUP_READS else ask(call)
        )
        if call.api_key in ENDING:
            incoming.kept.ends(work)
        return work

    return Route(begin=begin, encode=_packed, drop=_dropped)


def _packed(answer: _Answer) -> Outgoing:
    if answer.leave is None:
        return Outgoing(bytes(pack_message(answer.reply)))
    return Outgoing(pack_in_pieces(answer.reply, piece_bytes=limits.PART_BYTES), over=answer.leave)


def _dropped(answer: _Answer) -> None:
    if answer.leave is not None:
        answer.leave()


class Appender(Protocol):
    """What of an Owner takes batches."""

    def append(
        self, tp: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        """Submits one produce payload before it returns, so calls keep their order; the future resolves once it is
        durable, or raises.
        """

    def is_open(self, tp: TopicPartition) -> bool:
        """Whether what is appended to the partition waits for nothing but its being durable."""


def append_route(owner: Appender) -> Route[Appended]:
    """A partition's are submitted in the order of arrival, at once but for the greedy. What follows a refusal on its
    connection is refused too.
    """
    fair = FairAppends(bytes_max=limits.PRODUCE_BYTES_MAX)

    def begin(incoming: Incoming) -> "asyncio.Future[Appended]":
        call = APPEND_CALL.decode(incoming.header)
        tp = TopicPartition(TopicId(call.topic_id), call.partition)
        refusals, correlation_id = incoming.refusals, incoming.correlation_id
        if not refusals.admits(tp, correlation_id, call.refusal_heard):
            raise NotReady(f"{tp}: an earlier batch was refused and has to be sent again first")

        def settled(future: "asyncio.Future[Appended]") -> None:
            if not future.cancelled() and isinstance(future.exception(), REFUSALS):
                refusals.refused(tp, correlation_id)

        def submit() -> "asyncio.Future[Appended]":
            return owner.append(
                tp, incoming.attachments, produce_version=call.produce_version, party=(call.address, "")
            )

        try:
            future = fair.append(tp, len(incoming.attachments), submit, is_open=owner.is_open(tp))
        except BmqError as error:
            if isinstance(error, REFUSALS):
                refusals.refused(tp, correlation_id)
            raise
        if future.done():
            settled(future)
        else:
            future.add_done_callback(settled)
        return future

    return Route(begin=begin, encode=encode_appended)


def _nothing() -> None:
    pass


def _size_alone(answer: TailAnswer) -> TailAnswer:
    return replace(answer, batches=(), size_bytes=0, unsent_bytes=answer.size_bytes)


def _session(owner: OwnerHere, incoming: Incoming) -> TailSession:
    kept = incoming.kept
    if not isinstance(kept.state, TailSession):
        kept.state = TailSession(owner, kept.began)
    return kept.state


def _follow_change(owner: OwnerHere) -> Route[None]:
    """Carried out before `begin` returns: a poll that comes behind it knows of it."""

    def begin(incoming: Incoming) -> "asyncio.Future[None]":
        _session(owner, incoming).change(CHANGE_CALL.decode(incoming.header))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    return Route(begin=begin, encode=header_of(NOTHING))


def _follow_poll(owner: OwnerHere) -> Route[list[tuple[int, TailAnswer]]]:
    def begin(incoming: Incoming) -> "asyncio.Future[list[tuple[int, TailAnswer]]]":
        poll = _session(owner, incoming).poll(POLL_CALL.decode(incoming.header))
        return asyncio.get_running_loop().create_task(poll)

    return Route(begin=begin, encode=encode_news)
