"""The admin API of a process put together: what its pages are made of, in a cluster's node and in a process that is the
whole cluster.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bmq.errors import ControllerUnavailable, NotReady
from bmq.internal import Identity, RemoteController, ask_node
from bmq.ports import Clock, ObjectStore, Rng
from bmq.roles.admin import AdminReply, AdminRequest
from bmq.roles.controller import Metadata
from bmq.roles.owner import Owner
from bmq.values import NodeId, TopicPartition
from bmq_controller.api.front import AdminFront, FrontState
from bmq_controller.api.sources import ApiSources, Tokens
from bmq_controller.controller import LeadingController
from bmq_node.admin.record_ages import RecordAges, small_reader
from bmq_proxy.fetch.reader import FetchReader, Reader


class AdminApi:
    """One process's. Owns the reader that tells records' ages where the process has no proxy whose reader does."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        node_id: NodeId,
        clock: Clock,
        rng: Rng,
        describe: Callable[[], Mapping[str, Any]],
        tokens: Tokens | None = None,
    ) -> None:
        """`describe` gives the process's configuration. `tokens`: who may ask; None: everybody may look."""
        self.front = AdminFront(FrontState(tokens=tokens), new_id=lambda: str(rng.uuid()))
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._rng = rng
        self._describe = describe
        self._started_ms = clock.now_ms()
        self._own_reader: FetchReader | None = None

    def serve(
        self,
        metadata: Metadata,
        *,
        leading: Callable[[], LeadingController | None],
        owner_for: Callable[[TopicPartition], Owner],
        reader: Reader | None,
        static_configs: Mapping[str, str],
        control: RemoteController | None = None,
        me: Identity | None = None,
    ) -> None:
        """From now on. `reader` is the process's proxy's; without `control` and `me` the process is the whole
        cluster.
        """

        async def ask_leader(request: AdminRequest) -> AdminReply:
            if control is None:
                raise ControllerUnavailable("this process leads no more and is about to end: its last line says why")
            return await control.admin(request)

        async def ask(node_id: NodeId, request: AdminRequest) -> AdminReply:
            if node_id == self._node_id:
                return await self.front.answer(request)
            if me is None:
                raise NotReady(f"node {node_id} is not this process, which is the whole cluster")
            return await ask_node(metadata.image, node_id, request, me=me)

        self.front.state.sources = ApiSources(
            node_id=self._node_id,
            metadata=metadata,
            leading=leading,
            ask_leader=ask_leader,
            ask_node=ask,
            owner_for=owner_for,
            age_of=self._ages(metadata, owner_for, reader),
            store=self._store,
            clock=self._clock,
            rng=self._rng,
            started_ms=self._started_ms,
            describe=self._describe,
            static_configs=static_configs,
        )

    async def stop(self) -> None:
        """Reads no more."""
        if self._own_reader is not None:
            await self._own_reader.close()

    def _ages(
        self, metadata: Metadata, owner_for: Callable[[TopicPartition], Owner], reader: Reader | None
    ) -> Callable[[TopicPartition, int], Awaitable[float | None]]:
        async def age_of(tp: TopicPartition, offset: int) -> float | None:
            used = reader if reader is not None else self._own_reader
            if used is None:
                used = self._own_reader = small_reader(self._store, owner_for, metadata, rng=self._rng)
            return await RecordAges(used, self._clock).age_of(tp, offset)

        return age_of
