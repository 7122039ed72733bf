"""The way in to a group coordinator: one request Message in, one reply out, whatever state the shard is in."""

import logging
from typing import Any, Final, Protocol

from bmq.errors import Fenced, NotOwner, NotReady, RequestError, StoreError
from bmq.roles.owner import LANE_OFFSETS, TOPIC_CONSUMERS, Caller
from bmq.wire.chosen_codes import own_coordinator_code
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.handlers import (
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k42_delete_groups,
    k47_offset_delete,
    lane_offsets,
    topic_consumers,
)

_log = logging.getLogger(__name__)


class _Handler(Protocol):
    """What each module of an API key offers."""

    async def handle(self, shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]: ...

    def failed(self, request: Message, error: ErrorCode) -> dict[str, Any]: ...


_HANDLERS: Final[dict[int, _Handler]] = {
    8: k08_offset_commit,
    9: k09_offset_fetch,
    11: k11_join_group,
    12: k12_heartbeat,
    13: k13_leave_group,
    14: k14_sync_group,
    15: k15_describe_groups,
    16: k16_list_groups,
    42: k42_delete_groups,
    47: k47_offset_delete,
    LANE_OFFSETS: lane_offsets,
    TOPIC_CONSUMERS: topic_consumers,
}
GROUP_API_KEYS: Final = frozenset(_HANDLERS)


async def handle_group_call(
    shard: GroupCoordinatorShard, api_key: int, request: Message, caller: Caller
) -> dict[str, Any]:
    """The reply's fields, by the names of bmq.wire.messages. What the shard cannot serve now is said in the reply, in
    the API's own way.

    A key outside GROUP_API_KEYS is the caller's mistake (KeyError).
    """
    handler = _HANDLERS[api_key]
    try:
        return await handler.handle(shard, request, caller)
    except (RequestError, NotReady, NotOwner, Fenced, StoreError) as error:
        if isinstance(error, RequestError):
            _log.debug("a request of API key %d about groups was refused: %s", api_key, error)
        return handler.failed(request, own_coordinator_code(error))


def group_call_failed(api_key: int, request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply where there is no shard to ask, for instance NOT_COORDINATOR: the partition is another broker's."""
    return _HANDLERS[api_key].failed(request, error)
