"""What every handler of a proxy works with: the owners of partitions, the controller, the image, settings and
caches.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from prometheus_client import Counter

from bmq.config.cluster_config import resolve_cluster
from bmq.fairness.greedy_window import Modest
from bmq.fairness.locks import Locks
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.turns import Places
from bmq.metadata.image import Image
from bmq.naming.lanes import BASE
from bmq.naming.listeners import DEFAULT_LISTENER, ListenerAddresses
from bmq.ports import Clock, Rng
from bmq.roles.controller import Controller, Metadata
from bmq.roles.owner import Owner
from bmq.values import TopicPartition
from bmq_proxy import metrics
from bmq_proxy.appends import Appends
from bmq_proxy.beginnings import Beginnings
from bmq_proxy.bulk import Bulk
from bmq_proxy.caches import CachesTogether
from bmq_proxy.coordinators import GroupCalls
from bmq_proxy.creation import CreationQuota
from bmq_proxy.fetch.reader import Reader
from bmq_proxy.fetch.sessions import SessionCache
from bmq_proxy.parting import Parting
from bmq_proxy.patience import Patience
from bmq_proxy.producer_ids import ProducerIds
from bmq_proxy.proofs import Proofs
from bmq_proxy.settings import ProxySettings
from bmq_proxy.time_outs import TimeOuts

AUTO_CREATE_KEY = "auto.create.topics.enable"
COMPLAIN_EVERY_S = 10.0
OPERATIONS_AT_ONCE: Final = 32
"""So many operations of a proxy's clients the controller has at a time: it folds as many into one entry of its log."""

OwnerFor = Callable[[TopicPartition], Owner]
"""Raises NotOwner where nobody owns the partition at present."""


@dataclass(slots=True, kw_only=True)
class Proxy:
    """One proxy node. `advertised_port` is known once it listens; `log_dir` names the store in DescribeLogDirs."""

    settings: ProxySettings
    owner_for: OwnerFor
    controller: Controller
    metadata: Metadata
    clock: Clock
    rng: Rng
    sessions: SessionCache
    reader: Reader
    modest: Modest
    """Clients that are protected from the greedy, as the endpoint sees them."""
    coordinators: GroupCalls
    appends: Appends
    proofs: Proofs
    parting: Parting
    patience: Patience
    producer_ids: ProducerIds
    quota: CreationQuota
    """What clients at each address may create."""
    bulk: Bulk
    """How requests and answers with many elements are worked on."""
    operations: Places = field(default_factory=lambda: Places(OPERATIONS_AT_ONCE))
    """What clients ask of the controller, by turns of addresses and their connections: it would take what comes in the
    order of its coming, and refuse all where too much waits."""
    members: Locks[Hashable] = field(default_factory=Locks)
    """Held by what a member of a group asks, until its answer is the client's to take."""
    caches: CachesTogether = field(default_factory=CachesTogether)
    """Answers that are kept; those of all lanes are bounded together."""
    beginnings: Beginnings = field(default_factory=Beginnings)
    """Produce requests that are being begun."""
    log: structlog.stdlib.BoundLogger
    complaints: RateLimited = field(default_factory=lambda: RateLimited(interval_s=COMPLAIN_EVERY_S))
    """Limits how often the log tells what many requests fail for at the same time."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """Kept, because asking for it is a system call."""
    time_outs: TimeOuts = field(default_factory=lambda: TimeOuts(asyncio.get_running_loop()))
    """Those of Produce requests."""
    advertised_port: int = 0
    listeners: ListenerAddresses = field(default_factory=dict)
    """Where clients reach this proxy by further listeners; replaced where that changes."""
    front: "Proxy | None" = None
    """Where this one serves a lane: the proxy that it is part of, which knows its addresses."""
    lane_number: int = 0
    """The number of the lane that it serves; 0: the base's."""
    log_dir: str = "object-store"
    produced_bytes: Counter = field(default_factory=lambda: metrics.PRODUCED_BYTES.labels(BASE))
    """What record batches are counted with."""
    static_configs: Mapping[str, str] = field(default_factory=dict)
    """The cluster's configuration as the command line or a file gives it, by Kafka's names."""

    @property
    def image(self) -> Image:
        """The newest known metadata."""
        return self.metadata.image

    def tell(self, event: str, **fields: Any) -> None:
        """A line of the log of what clients cause: one of each kind per interval, with the number of those left out."""
        left_out = self.complaints.due(event, now=self.loop.time())
        if left_out is not None:
            self.log.info(event, left_out=left_out, **fields)

    def address_of(self, listener: str) -> tuple[str, int]:
        """Where clients reach this proxy by a listener; "" and 0: by that one they do not, as far as is known."""
        if self.front is not None:
            return self.front.address_of(listener)
        if listener == DEFAULT_LISTENER:
            return self.settings.advertised_host, self.advertised_port
        return self.listeners.get(listener, ("", 0))

    @property
    def dynamic_configs(self) -> Mapping[str, str]:
        """The cluster's configuration that was set while it runs; goes before the static one."""
        return self.image.configs.get(("broker", ""), {})

    @property
    def default_partitions(self) -> int:
        """How many partitions a topic has that is created without a number."""
        return resolve_cluster({**self.static_configs, **self.dynamic_configs}).num_partitions

    @property
    def auto_creates_topics(self) -> bool:
        """The cluster's word where it has one, else the proxy's own setting."""
        configured = {**self.static_configs, **self.dynamic_configs}
        return (
            resolve_cluster(configured).auto_create_topics
            if AUTO_CREATE_KEY in configured
            else self.settings.auto_create_topics
        )
