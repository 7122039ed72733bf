"""What a process asks of the cluster around it, be that many other processes, or none."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from bmq.errors import BmqError
from bmq.metadata.feed import MetadataFeed
from bmq.roles.controller import BrokerControl, Controller
from bmq.roles.owner import Owner
from bmq.values import TopicPartition
from bmq_controller.controller import LeadingController
from bmq_node.admin.api import AdminApi
from bmq_proxy.fetch.reader import Reader

CURRENT_S: Final = 5.0
"""How long clients of a proxy that starts wait for word of what the cluster is now; then they are answered by what is
known, and told to ask again where that does not do."""


class Control(BrokerControl, Controller, Protocol):
    """What is asked of whoever leads."""


class Surroundings(Protocol):
    """Implemented by Alone and Member."""

    begins_again: bool
    """Whether a broker that was replaced begins anew, in the same process."""

    @property
    def metadata(self) -> MetadataFeed:
        """The cluster as this process knows it."""

    @property
    def control(self) -> Control:
        """Whoever leads. Once it was entered."""

    @property
    def internal(self) -> tuple[str, int]:
        """(host, port) that other processes are told; ("", 0) where there are none."""

    @property
    def leading(self) -> LeadingController | None:
        """This process's controller while it leads, as far as it knows."""

    def owner_for(self, tp: TopicPartition) -> Owner:
        """Raises NotOwner where nobody owns it at present, NotReady where its owner cannot be asked yet."""

    async def enter(self) -> None:
        """Knows the metadata, and whom to ask, from then on. May be cancelled; then `leave` and `close`.

        Raises BmqError.
        """

    async def current(self) -> None:
        """Returns once what was acknowledged before anybody could ask this process is known to it. Raises BmqError,
        TimeoutError.
        """

    async def registered(self, start: Callable[[], Awaitable[None]]) -> None:
        """Awaits `start` of the broker, anew while nobody registers it, for as long as there is sense in that. Raises
        as it does.
        """

    def serve_owner(self) -> None:
        """Others may ask this process's broker from now on."""

    def serve_admin(self, admin: AdminApi, *, reader: Reader | None) -> None:
        """Its pages are of this cluster from now on. `reader` is the process's proxy's."""

    def why_it_ends(self, error: BmqError) -> str:
        """What is said where this process's broker is none any more."""

    async def leave(self, *, grace_s: float) -> None:
        """Leads no more and answers nobody; what its broker has begun may still be asked for."""

    async def close(self) -> None:
        """Asks nobody any more."""
