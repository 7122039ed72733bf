"""What a node is doing, told from outside: by its requests to the store, by its calls to other nodes, and by the
records that it commits.

No service says anything about itself to the simulator: a key, a verb, a frame's head and a record's type are enough.
"""

import enum
import re
import struct
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from bmq.errors import BmqError, WireError
from bmq.internal.calls.owner_calls import GROUP_CALL
from bmq.internal.framing.apis import Api
from bmq.internal.framing.frames import PREFIX_SIZE_BYTES, Kind
from bmq.metadata.codec import decode_records
from bmq.metadata.records import (
    AnyRecord,
    FencingBegun,
    LeaderAlive,
    LeaderElected,
    NodeRegistered,
    PartitionChange,
    PartitionMoveBegun,
    RangesCovered,
    TopicCreated,
    TopicDeleted,
)
from bmq.storage.flatlog import decode_entry
from bmq.storage.wal import SEAL_SIZE_BYTES
from bmq_sim.store import Request


class Step(enum.StrEnum):
    """A step of a protocol, as the code calls it."""

    REGISTER = "register"
    HEARTBEAT = "heartbeat"
    SIGN_OF_LIFE = "sign of life"
    TAKEOVER = "takeover"
    FENCE = "fence"
    SEAL = "seal"
    HAND_OVER = "hand over"
    MOVE = "move"
    CLOSE = "close"
    DRAIN = "drain"
    RECOVER = "recover"
    ADOPT = "adopt"
    CLAIM = "claim"
    MANIFEST = "manifest append"
    ROLL = "roll"
    COVER = "cover"
    COLLECT = "collect"
    SNAPSHOT = "snapshot"
    PRODUCE = "produce"
    FETCH = "fetch"
    COMMIT = "commit"
    GROUP = "group session"
    ADMIN = "admin"


_WAL: Final = re.compile(r"wal/(\d+)/(\d+)/")
_MANIFEST: Final = re.compile(r"topics/([0-9a-f-]{36})/(\d{10})/manifest/")
_COMMIT_KEYS: Final = frozenset((8, 9))
"""OffsetCommit and OffsetFetch."""

_BY_RECORD: Final[dict[type[object], Step]] = {
    LeaderElected: Step.TAKEOVER,
    LeaderAlive: Step.SIGN_OF_LIFE,
    NodeRegistered: Step.REGISTER,
    FencingBegun: Step.FENCE,
    PartitionChange: Step.HAND_OVER,
    PartitionMoveBegun: Step.MOVE,
    RangesCovered: Step.COVER,
    TopicCreated: Step.ADMIN,
    TopicDeleted: Step.ADMIN,
}

_BY_CALL: Final[dict[int, Step]] = {
    Api.APPEND: Step.PRODUCE,
    Api.READ_TAIL: Step.FETCH,
    Api.OFFSET_FOR_TIME: Step.FETCH,
    Api.CREATE_TOPICS: Step.ADMIN,
    Api.DELETE_TOPICS: Step.ADMIN,
    Api.REGISTER: Step.REGISTER,
    Api.REPORT_STOPPED: Step.DRAIN,
    Api.HEARTBEAT: Step.HEARTBEAT,
    Api.MOVE: Step.MOVE,
    Api.DRAIN: Step.DRAIN,
}

_FRAME: Final = struct.Struct(">IBhQI")


def step_of_request(request: Request, *, node_id: int, is_claimed: Callable[[str, int], bool]) -> Iterator[Step]:
    """What node `node_id` does with this request. `is_claimed(log, epoch)`: whether the manifest log has an entry of
    that epoch.
    """
    key, verb = request.key, request.verb
    if verb == "delete":
        yield Step.COLLECT
    elif found := _WAL.match(key):
        yield from _of_stream(request, is_own=int(found[1]) == node_id)
    elif found := _MANIFEST.match(key):
        if verb != "create":
            yield Step.ADOPT if node_id > _PROXY_IDS_MAX else Step.FETCH
        else:
            yield Step.MANIFEST if is_claimed(found[0], _epoch_of(request)) else Step.CLAIM
    elif key.startswith(("topics/", "shared/")):
        if verb == "create":
            yield Step.ROLL
        elif verb == "get":
            yield Step.ADOPT if node_id > _PROXY_IDS_MAX else Step.FETCH
    elif key.startswith("meta/log/") and verb == "create":
        for record in records_of(request.data):
            if (step := _BY_RECORD.get(type(record))) is not None:
                yield step
    elif key.startswith("meta/snapshot/") and verb == "create":
        yield Step.SNAPSHOT


_PROXY_IDS_MAX: Final = 99


def _of_stream(request: Request, *, is_own: bool) -> Iterator[Step]:
    if request.verb != "create":
        if not is_own or request.verb != "head":
            yield Step.RECOVER if request.node.startswith("broker") else Step.SEAL
    elif len(request.data) != SEAL_SIZE_BYTES:
        yield Step.PRODUCE
    else:
        yield Step.DRAIN if is_own else Step.SEAL


def _epoch_of(request: Request) -> int:
    return decode_entry(request.data, what=request.key).epoch


def records_of(data: bytes) -> list[AnyRecord]:
    """The records of an entry of the metadata log; none where it cannot be read."""
    try:
        return decode_records(decode_entry(data, what="an entry").payload, what="an entry")
    except BmqError:
        return []


class CallSeen(msgspec.Struct, frozen=True):
    """The head of one frame: a call that begins (`step` says as what, if anything), or one that is over."""

    correlation_id: int
    begins: bool
    step: Step | None = None


def calls_in(data: bytes) -> Iterator[CallSeen]:
    """The calls that one write on an internal connection begins or answers."""
    position = 0
    while position + PREFIX_SIZE_BYTES <= len(data):
        length, kind, api_key, correlation_id, header_bytes = _FRAME.unpack_from(data, position)
        if kind == Kind.REQUEST:
            header = data[position + PREFIX_SIZE_BYTES : position + PREFIX_SIZE_BYTES + header_bytes]
            yield CallSeen(correlation_id, True, _step_of_call(api_key, header))
        elif kind in (Kind.REPLY, Kind.ERROR, Kind.CANCEL):
            yield CallSeen(correlation_id, False)
        position += 4 + length


def _step_of_call(api_key: int, header: bytes) -> Step | None:
    if api_key != Api.GROUP_CALL:
        return _BY_CALL.get(api_key)
    try:
        return Step.COMMIT if GROUP_CALL.decode(header).api_key in _COMMIT_KEYS else Step.GROUP
    except WireError:
        return None
