"""Admin requests between nodes: to whoever leads (`RemoteController.admin`), or to one certain node (`ask_node`)."""

from collections.abc import Awaitable, Callable
from typing import Final

from bmq.errors import NotReady
from bmq.internal import limits
from bmq.internal.framing.apis import Api, Purpose
from bmq.internal.framing.frames import Frame
from bmq.internal.framing.hello import Identity
from bmq.internal.framing.packing import Packed
from bmq.internal.framing.routes import Handlers, answered_by, header_of
from bmq.internal.links.client import InternalClient
from bmq.metadata.image import Image
from bmq.roles.admin import AdminReply, AdminRequest
from bmq.values import NodeId

ADMIN: Final = Packed[AdminRequest](AdminRequest)
ADMIN_REPLY: Final = Packed[AdminReply](AdminReply)
ADMIN_REPLY_BYTES_MAX: Final = 12 << 20
"""The most bytes that the body of an answer may have which travels between nodes: it has to fit into a header."""
ADMIN_TIMEOUT_S: Final = 40.0
"""Longer than an operation waits for the store, so that its own answer arrives."""


def admin_handlers(answer: Callable[[AdminRequest], Awaitable[AdminReply]]) -> Handlers:
    """The route of ADMIN, for the InternalServer of every node."""
    return {Api.ADMIN: answered_by(ADMIN, answer, header_of(ADMIN_REPLY))}


def decode_admin_reply(frame: Frame) -> AdminReply:
    """Raises WireError."""
    return ADMIN_REPLY.decode(frame.header)


async def ask_node(image: Image, node_id: NodeId, request: AdminRequest, *, me: Identity) -> AdminReply:
    """What that node itself answers, over a connection for this one request. Raises NotReady (not sent),
    UnknownOutcome, and what it raises.
    """
    node = image.nodes.get(node_id)
    if node is None or not node.internal_host:
        raise NotReady(f"node {node_id} has no address in the metadata: it does not run, or is the whole cluster")
    client = InternalClient(
        node.internal_host,
        node.internal_port,
        peer=node_id,
        purpose=Purpose.CONTROL,
        me=me,
        scratch=bytearray(limits.SMALL_BUFFER_BYTES),
    )
    try:
        return await client.call(Api.ADMIN, ADMIN.encode(request), decode_admin_reply, timeout_s=ADMIN_TIMEOUT_S)
    finally:
        await client.close()
