"""The owner of each partition as this node's image names it: this process's own broker, or a connection to
another's.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from bmq.errors import NotOwner, NotReady
from bmq.internal import Identity, RemoteOwner
from bmq.internal.limits import FOLLOWED_CACHE_BYTES
from bmq.internal.tails.tail_cache import TailCache
from bmq.metadata.image import Image
from bmq.roles.controller import Metadata
from bmq.roles.owner import Owner
from bmq.storage.durable import cancelled
from bmq.values import NO_NODE, BrokerEpoch, NodeId, TopicPartition

RETIRE_S: Final = 10.0
"""How long the connections to a broker that the image names no more are kept: what it was asked before it may yet
answer."""


class _Place(NamedTuple):
    """One incarnation of a broker elsewhere."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    host: str
    port: int


class Owners:
    """Owns the connections to brokers of other processes: one RemoteOwner for each incarnation, made when it is first
    needed.
    """

    def __init__(self, metadata: Metadata, *, me: Identity, own: Callable[[], Owner | None]) -> None:
        """`own` is this process's broker once it serves, None where it has none."""
        self._metadata = metadata
        self._me = me
        self._own = own
        self._tails = TailCache(FOLLOWED_CACHE_BYTES)
        self._remotes: dict[_Place, RemoteOwner] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._unsubscribe = metadata.subscribe(self._image_changed)

    def owner_for(self, tp: TopicPartition) -> Owner:
        """Raises NotOwner where nobody owns it at present, NotReady where its owner cannot be asked yet."""
        image = self._metadata.image
        meta = image.partition(tp)
        if meta is None or meta.node_id == NO_NODE:
            raise NotOwner(f"{tp}: no broker owns it at present")
        if meta.node_id == self._me.node_id:
            own = self._own()
            if own is None:
                raise NotReady(f"{tp}: its broker, this node, does not serve yet")
            return own
        place = _place(image, meta.node_id)
        if place is None:
            raise NotReady(f"{tp}: its broker, node {meta.node_id}, has no address in the metadata")
        remote = self._remotes.get(place)
        if remote is None:
            remote = self._remotes[place] = RemoteOwner(
                place.host, place.port, peer=place.node_id, me=self._me, cache=self._tails
            )
        return remote

    async def close(self) -> None:
        """Ends all connections; what was not answered fails."""
        self._unsubscribe()
        await cancelled(self._retiring)
        remotes, self._remotes = self._remotes, {}
        await asyncio.gather(*(remote.close() for remote in remotes.values()))

    def _image_changed(self, _: Image, new: Image) -> None:
        for place in [place for place in self._remotes if _place(new, place.node_id) != place]:
            task = asyncio.get_running_loop().create_task(
                _retire(self._remotes.pop(place)), name=f"retire the connection to node {place.node_id}"
            )
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)


async def _retire(remote: RemoteOwner) -> None:
    try:
        await asyncio.sleep(RETIRE_S)
    finally:
        await remote.close()


def _place(image: Image, node_id: NodeId) -> _Place | None:
    node = image.nodes.get(node_id)
    if node is None or not node.internal_host:
        return None
    return _Place(node.node_id, node.broker_epoch, node.internal_host, node.internal_port)
