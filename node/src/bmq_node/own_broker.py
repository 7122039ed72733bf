"""This process's own broker, once it is one: the incarnation of the moment."""

import asyncio
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from bmq.roles.owner import OwnerHere
from bmq_broker.incarnations import Incarnations
from bmq_broker.main import BrokerRole


class OwnBroker(Collector):
    """What the parts of a node that were there first know it by. Its metrics are those of its consumer groups."""

    def __init__(self) -> None:
        self.incarnations: Incarnations | None = None
        self.serves = asyncio.Event()
        """Set once its first incarnation does."""

    @property
    def role(self) -> BrokerRole | None:
        """The broker of the moment, where this node is one and has begun."""
        return None if self.incarnations is None else self.incarnations.role

    @property
    def owner(self) -> OwnerHere | None:
        """What is asked of it; None until it has begun."""
        role = self.role
        return role.owner if role is not None else None

    async def refresh(self) -> None:
        """Has the incarnation of the moment, if there is one, ask for what `collect` tells from then on."""
        role = self.role
        if role is not None:
            await role.lags.refresh()

    def collect(self) -> Iterator[Metric]:
        """What the incarnation of the moment tells, if there is one; for prometheus_client."""
        role = self.role
        if role is not None:
            yield from role.lags.collect()
