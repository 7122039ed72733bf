"""Serves the leading controller to other processes: the routes from each call to its method in
`bmq.roles.controller`.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from bmq.errors import NoLeader
from bmq.internal.calls.controller_calls import (
    ALTER_CONFIGS,
    CORDON,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    LEASE,
    MOVE,
    NOTHING,
    NUMBER,
    NUMBERS,
    POLL,
    REASSIGN,
    REGISTER,
    REPLACE_CONFIGS,
    REPORT_STOPPED,
    TOPICS,
    TURNED,
    UNCONSUMED_REPLY,
    Cordon,
    Move,
    encode_entries,
    encode_refusals,
    encode_result,
    encode_results,
)
from bmq.internal.framing.apis import Api
from bmq.internal.framing.packing import Packed
from bmq.internal.framing.routes import Handlers, Route, answered_by, header_of
from bmq.roles.controller import BrokerControl, ClusterControl, Controller, MetadataSource
from bmq.roles.lane_turns import LaneControl
from bmq.values import BrokerEpoch, NodeId, TopicId, TopicPartition

R = TypeVar("R")


class LeadingController(Controller, BrokerControl, ClusterControl, LaneControl, Protocol):
    """Everything that nodes ask of a controller but for the metadata."""


def controller_handlers(leading: Callable[[], LeadingController | None]) -> Handlers:
    """The routes of a controller, for an InternalServer. `leading` is None while another one leads: its clients look
    for that one then.
    """

    def now() -> LeadingController:
        controller = leading()
        if controller is None:
            raise NoLeader("this controller does not lead")
        return controller

    def done(request: Packed[R], run: Callable[[R], Awaitable[None]]) -> Route[None]:
        return answered_by(request, run, header_of(NOTHING))

    async def producer_ids(count: int) -> tuple[int, int]:
        ids = await now().allocate_producer_ids(count)
        return ids.start, ids.stop

    def move(call: Move) -> Awaitable[None]:
        return now().move(TopicPartition(TopicId(call.topic_id), call.partition), NodeId(call.to_node_id))

    def cordon(call: Cordon) -> Awaitable[None]:
        return now().cordon(NodeId(call.node_id), call.cordoned)

    routes: dict[int, Route[Any]] = {
        Api.CREATE_TOPICS: answered_by(
            CREATE_TOPICS,
            lambda call: now().create_topics(call.topics, validate_only=call.validate_only),
            encode_results,
        ),
        Api.DELETE_TOPICS: answered_by(
            DELETE_TOPICS, lambda ids: now().delete_topics([TopicId(one) for one in ids]), encode_results
        ),
        Api.CREATE_PARTITIONS: answered_by(
            CREATE_PARTITIONS,
            lambda call: now().create_partitions(
                # An earlier version says that there are some, and not which: then there are too few.
                call.topic,
                call.total,
                assignments=[] if call.manual_assignment and call.assignments is None else call.assignments,
                validate_only=call.validate_only,
            ),
            encode_result,
        ),
        Api.ALTER_CONFIGS: done(
            ALTER_CONFIGS,
            lambda call: now().alter_configs(call.resource, call.changes, validate_only=call.validate_only),
        ),
        Api.REPLACE_CONFIGS: done(
            REPLACE_CONFIGS,
            lambda call: now().replace_configs(call.resource, call.configs, validate_only=call.validate_only),
        ),
        Api.ALLOCATE_PRODUCER_IDS: answered_by(NUMBER, producer_ids, header_of(NUMBERS)),
        Api.REASSIGN: answered_by(REASSIGN, lambda changes: now().reassign(changes), encode_refusals),
        Api.CONSUMED: answered_by(TOPICS, lambda ids: now().consumed([TopicId(one) for one in ids]), header_of(LEASE)),
        Api.UNCONSUMED: answered_by(
            TOPICS, lambda ids: now().unconsumed([TopicId(one) for one in ids]), header_of(UNCONSUMED_REPLY)
        ),
        Api.TURNED: answered_by(TURNED, lambda turns: now().turned(turns), encode_refusals),
        Api.REGISTER: answered_by(REGISTER, lambda registration: now().register(registration), header_of(NUMBER)),
        Api.REPORT_STOPPED: done(
            REPORT_STOPPED,
            lambda call: now().report_stopped(NodeId(call.node_id), BrokerEpoch(call.broker_epoch), call.end),
        ),
        Api.HEARTBEAT: answered_by(HEARTBEAT, lambda beat: now().heartbeat(beat), header_of(HEARTBEAT_REPLY)),
        Api.MOVE: done(MOVE, move),
        Api.DRAIN: done(NUMBER, lambda node_id: now().drain(NodeId(node_id))),
        Api.CORDON: done(CORDON, cordon),
    }
    return routes


def metadata_handlers(source: Callable[[], MetadataSource | None]) -> Handlers:
    """The route of METADATA_POLL, for the InternalServer of every node that can lead. None while it does not."""

    async def poll(after_position: int, wait_ms: int) -> list[bytes]:
        leader = source()
        if leader is None:
            raise NoLeader("this controller does not lead")
        return await leader.metadata_poll(after_position, wait_ms)

    return {Api.METADATA_POLL: answered_by(POLL, lambda call: poll(call.after_position, call.wait_ms), encode_entries)}
