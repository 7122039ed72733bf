"""A proxy put together: started over a store, the owners and a controller, and stopped again. The only module that
knows all parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from bmq.config.cluster_config import resolve_cluster
from bmq.fairness.greedy_window import Modest
from bmq.ports import Clock, ObjectStore, Rng, Tracer
from bmq.roles.controller import Controller, Metadata
from bmq.roles.lane_turns import LaneControl
from bmq_proxy.appends import Appends
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.bulk import Bulk
from bmq_proxy.coordinators import OFFSETS_PARTITIONS_KEY, Coordinators
from bmq_proxy.creation import CreationQuota
from bmq_proxy.dispatch import routes
from bmq_proxy.endpoint import Endpoint
from bmq_proxy.fair_memory import FairMemory
from bmq_proxy.fetch.blocks import BlockCache
from bmq_proxy.fetch.manifests import ManifestCache
from bmq_proxy.fetch.reader import FetchReader
from bmq_proxy.fetch.segments import SegmentReader
from bmq_proxy.fetch.sessions import SessionCache
from bmq_proxy.fetch.turns import ReadTurns
from bmq_proxy.lanes.controller import BaseController
from bmq_proxy.lanes.fallback.role import Fallback
from bmq_proxy.lanes.groups import BaseGroups
from bmq_proxy.lanes.overlays import LaneTopics
from bmq_proxy.lanes.tables import LaneTables
from bmq_proxy.lanes.views import BaseView
from bmq_proxy.parting import Parting
from bmq_proxy.patience import Patience
from bmq_proxy.producer_ids import ProducerIds
from bmq_proxy.proofs import Proofs
from bmq_proxy.proxy import OwnerFor, Proxy
from bmq_proxy.server import ProxyServer
from bmq_proxy.settings import ProxySettings


@dataclass(slots=True, kw_only=True)
class ProxyRole:
    """A running proxy."""

    proxy: Proxy
    server: ProxyServer
    lanes: LaneTables
    fallback: Fallback
    host: str
    port: int
    listening: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """(host, port) of further listeners, by name."""

    async def listen(self, name: str, host: str, port: int) -> None:
        """Listens at one address more. Clients are not told of it before `Proxy.listeners` says where they reach it.
        Raises OSError.
        """
        self.listening = {**self.listening, name: await self.server.start(host, port, listener=name)}

    async def stop(self, grace_s: float = 5.0) -> None:
        """Accepts no more, lets what is in flight finish for at most `grace_s`, closes everything."""
        await self.server.stop(grace_s)
        await self.fallback.close()
        await self.lanes.close()
        await self.proxy.parting.close()
        self.proxy.appends.close()
        await self.proxy.proofs.close()
        await self.proxy.reader.close()


def build_proxy(
    store: ObjectStore,
    owner_for: OwnerFor,
    controller: Controller,
    metadata: Metadata,
    settings: ProxySettings,
    *,
    clock: Clock,
    rng: Rng,
    log_dir: str = "object-store",
    cluster_configs: Mapping[str, str] | None = None,
) -> Proxy:
    """Everything but the network."""
    blocks = BlockCache(
        store,
        tail_bytes=settings.tail_cache_bytes,
        catch_up_bytes=settings.catch_up_cache_bytes,
        catch_up_gets_at_once=settings.catch_up_gets_at_once,
        idle_ms=settings.cache_idle_ms,
    )
    segments = SegmentReader(
        store, blocks, index_cache_bytes=settings.index_cache_bytes, read_ahead_blocks=settings.read_ahead_blocks
    )
    manifests = ManifestCache(store, rng, entries_max=settings.manifest_cache_entries)
    modest = Modest()
    turns = ReadTurns(modest, bytes_max=settings.fetch_memory_bytes)
    patience = Patience(settings.store_wait_ms)
    offsets_partitions = _offsets_partitions(settings, cluster_configs or {})
    coordinators = Coordinators(owner_for, controller, metadata, patience, offsets_topic_partitions=offsets_partitions)
    appends, proofs = Appends(owner_for, metadata), Proofs(metadata, cluster_configs or {}, clock=clock)
    quota = CreationQuota(settings.limits)
    lane_topics = LaneTopics(controller, metadata, quota=quota, limits=settings.limits)
    return Proxy(
        settings=settings,
        owner_for=owner_for,
        controller=BaseController(controller),
        metadata=BaseView(metadata),
        clock=clock,
        rng=rng,
        sessions=SessionCache(
            sessions_max=settings.fetch_sessions_max,
            partitions_max=settings.fetch_session_partitions_max,
            session_partitions_max=settings.limits.fetch_partitions_max,
            eviction_ms=settings.fetch_session_eviction_ms,
            random=rng.random,
        ),
        reader=FetchReader(
            owner_for, metadata, manifests, segments, memory=MemoryBudget(settings.fetch_memory_bytes), turns=turns
        ),
        modest=modest,
        coordinators=BaseGroups(coordinators),
        appends=appends,
        proofs=proofs,
        parting=Parting(
            appends,
            proofs,
            metadata,
            lane_topics,
            retry_ms=settings.produce_retry_ms,
            memory_bytes=settings.request_memory_bytes // 2,
        ),
        patience=patience,
        producer_ids=ProducerIds(controller),
        quota=quota,
        bulk=Bulk(settings.limits),
        log=structlog.get_logger("bmq.proxy"),
        advertised_port=settings.advertised_port,
        log_dir=log_dir,
        static_configs=cluster_configs or {},
    )


def _offsets_partitions(settings: ProxySettings, cluster_configs: Mapping[str, str]) -> int:
    if OFFSETS_PARTITIONS_KEY in cluster_configs:
        return resolve_cluster(cluster_configs).offsets_topic_partitions
    return settings.offsets_topic_partitions


async def start_proxy(
    store: ObjectStore,
    owner_for: OwnerFor,
    controller: Controller,
    metadata: Metadata,
    settings: ProxySettings,
    *,
    lane_control: LaneControl,
    clock: Clock,
    rng: Rng,
    host: str = "127.0.0.1",
    port: int = 0,
    log_dir: str = "object-store",
    cluster_configs: Mapping[str, str] | None = None,
    tracer: Tracer | None = None,
    held: bool = False,
) -> ProxyRole:
    """Listens on `host`:`port` (0: any free one) and serves; what comes waits for the endpoint's `release` where it is
    `held`.

    Raises OSError where it cannot listen. `cluster_configs` are the cluster's as the command line gives them (the
    controller and the brokers get the same).
    """
    proxy = build_proxy(
        store,
        owner_for,
        controller,
        metadata,
        settings,
        clock=clock,
        rng=rng,
        log_dir=log_dir,
        cluster_configs=cluster_configs,
    )
    table = routes(proxy)
    memory = FairMemory(settings.request_memory_bytes)
    fallback = Fallback.of(proxy, lane_control, metadata)
    lanes = LaneTables(proxy, table, fallback.turns)
    endpoint = Endpoint(
        settings,
        table,
        memory,
        proxy.reader.memory,
        proxy.modest,
        lanes=lanes,
        answers=proxy.bulk.answers,
        refused=proxy.appends.refused,
        tracer=tracer,
    )
    if held:
        endpoint.hold()
    server = ProxyServer(endpoint)
    listening_host, listening_port = await server.start(host, port)
    if not proxy.advertised_port:
        proxy.advertised_port = listening_port
    fallback.worker.start()
    return ProxyRole(
        proxy=proxy, server=server, lanes=lanes, fallback=fallback, host=listening_host, port=listening_port
    )
