"""What the API is made of, and how its parts reach it. Filled in by whoever starts the process."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor  # noqa: TID251 - which run_in_executor is given
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from bmq.errors import ControllerUnavailable
from bmq.metadata.image import Image
from bmq.ports import Clock, ObjectStore, Rng
from bmq.roles.admin import AdminReply, AdminRequest
from bmq.roles.controller import Metadata
from bmq.roles.owner import Owner
from bmq.values import NodeId, TopicPartition
from bmq_controller.controller import LeadingController

T = TypeVar("T")


class Tokens(Protocol):
    """The tokens of which one opens the API."""

    async def admits(self, presented: str) -> bool:
        """Compares in constant time."""

    async def admits_watch(self, presented: str) -> bool:
        """The same, of what opens the watch of channels: also a lesser token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSources:
    """One node's. Everything is asked for at each request: who leads changes."""

    node_id: NodeId
    metadata: Metadata
    leading: Callable[[], LeadingController | None]
    """The leader's part of this process, while it leads as far as it knows."""
    ask_leader: Callable[[AdminRequest], Awaitable[AdminReply]]
    """Hands a request on to whoever leads. Raises ControllerUnavailable."""
    ask_node: Callable[[NodeId, AdminRequest], Awaitable[AdminReply]]
    """Hands a request on to one node. Raises BmqError."""
    owner_for: Callable[[TopicPartition], Owner]
    """Raises NotOwner, NotReady."""
    age_of: Callable[[TopicPartition, int], Awaitable[float | None]]
    """How many seconds ago the record at (or after) an offset was written; None where it cannot be read now."""
    store: ObjectStore
    clock: Clock
    rng: Rng
    started_ms: int
    describe: Callable[[], Mapping[str, Any]]
    """The process's configuration, without secrets."""
    static_configs: Mapping[str, str] = field(default_factory=dict)
    """The cluster's configuration as the command line or a file gives it, by Kafka's names."""

    @property
    def image(self) -> Image:
        """The newest that this node knows."""
        return self.metadata.image

    def leader(self) -> LeadingController:
        """Raises ControllerUnavailable where this process leads no more."""
        leading = self.leading()
        if leading is None:
            raise ControllerUnavailable("this controller does not lead any more: try again")
        return leading


_THREAD: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="admin page")


async def in_thread(compute: Callable[[], T]) -> T:
    """For what looks at every partition: an image does not change, and the event loop has other things to do.

    One at a time: threads that compute take the interpreter from the loop, each as much as it has.
    """
    return await asyncio.get_running_loop().run_in_executor(_THREAD, compute)
