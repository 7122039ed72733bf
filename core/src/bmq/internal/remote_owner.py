"""A broker of another process as a proxy sees it: `bmq.roles.owner.Owner` over three connections, made when they are first needed."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from typing_extensions import Buffer

from bmq.errors import NotReady
from bmq.internal import limits
from bmq.internal.apis import Api, Purpose
from bmq.internal.client import InternalClient
from bmq.internal.failures import ConnectionLost
from bmq.internal.frames import Frame
from bmq.internal.hello import Identity
from bmq.internal.owner_calls import (
    APPEND_CALL,
    DELETE_CALL,
    EPOCH_CALL,
    EPOCH_REPLY,
    GROUP_CALL,
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
    TailCall,
    TimeCall,
    decode_appended,
    decode_tails,
    wanted,
)
from bmq.internal.packing import pack_message, unpack_message
from bmq.roles.owner import Appended, Caller, EpochEnd, OffsetForTime, PartitionStatus, TailAnswer, TailRequest
from bmq.values import NodeId, Offset, TopicPartition

T = TypeVar("T")

READ_TIMEOUT_S = 30.0
"""How long an owner may take for a read, beyond the wait that was asked for: it may have to open the partition first."""
DELETE_TIMEOUT_S = 60.0


class RemoteOwner:
    """Implements Owner. What certainly was not applied is NotReady, and so is every read that was not answered; the rest is UnknownOutcome.

    A group call has no time limit of its own (JoinGroup is held for as long as members take): it ends with its caller or the connection.
    """

    def __init__(self, host: str, port: int, *, peer: NodeId, me: Identity) -> None:
        scratch = bytearray(limits.RECEIVE_BUFFER_BYTES)
        self.peer = peer
        self.address = host, port
        self._produce, self._tail, self._control = (
            InternalClient(host, port, peer=peer, purpose=purpose, me=me, scratch=scratch)
            for purpose in (Purpose.PRODUCE, Purpose.TAIL, Purpose.CONTROL)
        )

    async def close(self) -> None:
        """Ends the connections; what was not answered fails."""
        await asyncio.gather(self._produce.close(), self._tail.close(), self._control.close())

    def append(self, tp: TopicPartition, records: Buffer, *, produce_version: int) -> "asyncio.Future[Appended]":
        """See Owner."""
        client = self._produce
        header = APPEND_CALL.encode(AppendCall(tp.topic_id, tp.partition, produce_version, client.refusal_heard))
        return client.submit(Api.APPEND, header, decode_appended, attachments=(records,), key=tp)

    async def read_tail(self, requests: Sequence[TailRequest], *, min_bytes: int, max_bytes: int, max_wait_ms: int) -> list[TailAnswer]:
        """See Owner. Answers of one owner are bounded (TAIL_BYTES_MAX), whatever `max_bytes` says."""
        asked = list(requests)
        max_bytes = min(max_bytes, limits.TAIL_BYTES_MAX)
        call = TailCall([wanted(request) for request in asked], min(min_bytes, max_bytes), max_bytes, max_wait_ms)
        timeout_s = max_wait_ms / 1000 + READ_TIMEOUT_S
        return await _read(self._tail.call(Api.READ_TAIL, TAIL_CALL.encode(call), lambda frame: decode_tails(frame, asked), timeout_s=timeout_s))

    async def offset_for_time(
        self, tp: TopicPartition, timestamp_ms: int, *, current_leader_epoch: int = -1, committed: bool = False
    ) -> OffsetForTime:
        """See Owner."""
        header = TIME_CALL.encode(TimeCall(tp.topic_id, tp.partition, timestamp_ms, current_leader_epoch, committed))
        return await _read(self._control.call(Api.OFFSET_FOR_TIME, header, lambda frame: TIME_REPLY.decode(frame.header), timeout_s=READ_TIMEOUT_S))

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        """See Owner."""
        header = EPOCH_CALL.encode(EpochCall(tp.topic_id, tp.partition, leader_epoch, current_leader_epoch))
        return await _read(self._control.call(Api.EPOCH_END, header, lambda frame: EPOCH_REPLY.decode(frame.header), timeout_s=READ_TIMEOUT_S))

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        """See Owner."""
        header = DELETE_CALL.encode(DeleteCall(tp.topic_id, tp.partition, before))
        return Offset(
            await self._control.call(Api.DELETE_RECORDS, header, lambda frame: OFFSET_REPLY.decode(frame.header), timeout_s=DELETE_TIMEOUT_S)
        )

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        """See Owner."""
        header = STATUS_CALL.encode(list(tps))
        return await _read(self._control.call(Api.STATUS, header, lambda frame: STATUS_REPLY.decode(frame.header), timeout_s=READ_TIMEOUT_S))

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        """See Owner."""
        call = GroupCall(partition, api_key, caller.client_id, caller.client_host, caller.api_version, pack_message(request))
        return await self._control.call(Api.GROUP_CALL, GROUP_CALL.encode(call), _message)


async def _read(call: Awaitable[T]) -> T:
    """A read that was not answered changed nothing: it may be asked again."""
    try:
        return await call
    except ConnectionLost as lost:
        raise NotReady(str(lost)) from lost


def _message(frame: Frame) -> Any:
    return unpack_message(frame.header)
