"""The command `bmq-operator`: leads by a Lease, watches by kopf, works by `runner`."""

import asyncio
import os
import signal
import socket
import sys
from collections import OrderedDict
from typing import Final

import kopf
import structlog
from prometheus_client import disable_created_metrics

from bmq.errors import BmqError
from bmq.runtime.logging import configure_logging
from bmq.runtime.system import SystemClock, SystemRng
from bmq_admin.client import AdminClient
from bmq_operator.channels import reconcile as channels
from bmq_operator.clusters import reconcile as clusters
from bmq_operator.clusters.halted import take_back_unread
from bmq_operator.clusters.volume import keep_volume
from bmq_operator.context import Context
from bmq_operator.databus.crediting import Credentials
from bmq_operator.databus.injector import Injector
from bmq_operator.databus.upgrading import Upgrades
from bmq_operator.definitions import Definitions
from bmq_operator.due import Due
from bmq_operator.handlers import OWN, SPARK, kopf_settings, register
from bmq_operator.health import HealthServer
from bmq_operator.hearing import Hearing
from bmq_operator.kube import Kube
from bmq_operator.lanes import reconcile as lanes
from bmq_operator.lease import LEASE_S, RENEW_WITHIN_S, Lease, LeaseLost
from bmq_operator.metrics import LAST_EVENT_AGE, LEADER, UNHEARD_SECONDS, forget_counted
from bmq_operator.resync import resync_forever
from bmq_operator.runner import RECONCILE_TIMEOUT_S, Kind, Runner
from bmq_operator.settings import OperatorSettings, read_settings
from bmq_operator.tables import reconcile as tables
from bmq_operator.topics import reconcile as topics
from bmq_operator.turns import Share
from bmq_operator.workqueue import Key, WorkQueue
from bmq_resources.channel import Channel
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.topic import Topic

KINDS = {
    "Cluster": Kind(
        model=Cluster,
        reconcile=clusters.reconcile,
        holds=clusters.holds,
        keeps=keep_volume,
        unread=take_back_unread,
    ),
    "Topic": Kind(model=Topic, reconcile=tables.reconcile_topic, holds=topics.holds),
    "Lane": Kind(model=Lane, reconcile=lanes.reconcile, holds=lanes.holds),
    "Channel": Kind(model=Channel, reconcile=channels.reconcile, holds=channels.holds),
    "ParquetSink": Kind(model=ParquetSink, reconcile=tables.reconcile, holds=tables.holds),
}

CLIENTS_MAX: Final = 64
"""Admin APIs with open connections; those used least are closed."""

LAST_WORK_S = LEASE_S - RENEW_WITHIN_S - 1
"""Who has lost the Lease is done before another one may take it."""

_log = structlog.get_logger()


def run() -> None:
    """Runs the operator until it is stopped."""
    try:
        settings = read_settings()
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nobody asks for
        configure_logging(environment={"BMQ_LOG_LEVEL": settings.log_level, "BMQ_LOG_FORMAT": settings.log_format})
        sys.exit(asyncio.run(serve(settings)))
    except BmqError as error:
        sys.exit(f"bmq-operator: {error}")


class Operator:
    """Everything that one process has."""

    def __init__(self, settings: OperatorSettings, kube: Kube) -> None:
        self.settings = settings
        self.kube = kube
        self._clients: OrderedDict[tuple[str, str], AdminClient] = OrderedDict()
        """By address and token, the one used last at the end."""
        self._retired: asyncio.Queue[tuple[float, AdminClient]] = asyncio.Queue()
        """With when they were, by the loop's clock."""
        self.definitions = Definitions(kube, (*OWN, *(SPARK if settings.spark.enabled else ())))
        self.begin()

    def begin(self) -> None:
        """Forgets what it knew, and counted, when it led before: others may have led since, and count the same."""
        forget_counted()
        self.hearing = Hearing()
        self.context = Context(
            kube=self.kube, settings=self.settings, clock=SystemClock(), rng=SystemRng(), admin=self._admin
        )
        self.queue = WorkQueue(workers=self.settings.workers, share_of=self._share_of, silent=self._is_silent)
        self.runner = Runner(self.context, self.queue, KINDS)

    def _share_of(self, key: Key) -> Share:
        return self.hearing.share_of(key) or (key.namespace, "")

    def _is_silent(self, share: Share) -> bool:
        return self.context.known.silences.lasts(share, now_s=asyncio.get_running_loop().time())

    def _admin(self, url: str, token: str) -> AdminClient:
        if (url, token) not in self._clients:
            self._clients[url, token] = AdminClient(url, token=token)
        self._clients.move_to_end((url, token))
        if len(self._clients) > CLIENTS_MAX:
            self._retired.put_nowait((asyncio.get_running_loop().time(), self._clients.popitem(last=False)[1]))
        return self._clients[url, token]

    async def _close_retired(self) -> None:
        """Clients of clusters that are gone, or have another token, once nobody can be using them any more. Until
        cancelled.
        """
        while True:
            at_s, client = await self._retired.get()
            await asyncio.sleep(at_s + RECONCILE_TIMEOUT_S - asyncio.get_running_loop().time())
            await client.close()

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        await self.kube.close()

    def why_dead(self) -> str:
        """Why the process is to be started anew. Never because the API server is silent: that is waited out."""
        if self.hearing.deaf(asyncio.get_running_loop().time()):
            return "a watch does not tell of changes any more"
        if self.runner.longest_s() > 2 * RECONCILE_TIMEOUT_S:
            return "a worker is stuck"
        return ""

    def measure(self) -> None:
        now_s = asyncio.get_running_loop().time()
        LAST_EVENT_AGE.set(now_s - self.hearing.heard_at_s if self.hearing.heard_at_s >= 0 else -1)
        UNHEARD_SECONDS.set(self.hearing.unheard_s(now_s))

    async def lead(self, stop: asyncio.Event) -> None:
        """Watches and works, until `stop`, or until there is something to watch that was not there before: kopf looks
        for it once, so the process is to end then, and to be started anew.
        """
        registry, settings = kopf.OperatorRegistry(), self.settings
        due = Due(self.queue, self.hearing, self.context.known)
        register(
            registry,
            self.queue,
            self.hearing,
            due,
            spark=settings.spark.enabled,
            namespaces=settings.namespaces,
        )
        await self.definitions.look()
        ends = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(self.runner.work()) for _ in range(settings.workers)]
            others.append(tasks.create_task(self._close_retired()))
            others.append(tasks.create_task(resync_forever(self.context, self.queue, self.hearing, tuple(KINDS))))
            others.append(tasks.create_task(self._until_defined(ends)))
            others.append(tasks.create_task(_passed_on(stop, ends)))
            if settings.databus.enabled:
                others.append(tasks.create_task(Credentials(self.kube, settings.watched_namespaces).keep()))
            if settings.databus.enabled and settings.databus.upgrade_running:
                others.append(tasks.create_task(Upgrades(self.kube, settings).keep()))
            await kopf.operator(
                registry=registry,
                settings=kopf_settings(namespaced=bool(settings.namespaces)),
                standalone=True,
                clusterwide=not settings.namespaces,
                namespaces=settings.namespaces,
                stop_flag=ends,
            )
            for task in others:
                task.cancel()
        self.definitions.forget()

    async def _until_defined(self, ends: asyncio.Event) -> None:
        """Waits for CRDs that are lacking. One that comes ends the watches, where kopf does not see it by itself."""
        if why := self.definitions.why_not_ready():
            _log.warning("this operator is not ready", why=why)
        while await self.definitions.until_one_comes():
            if self.settings.namespaces:
                _log.info("this operator ends, to be started anew: it lacked the CRDs of what is to be watched now")
                ends.set()
                return


async def _passed_on(stop: asyncio.Event, ends: asyncio.Event) -> None:
    await stop.wait()
    ends.set()


async def serve(settings: OperatorSettings) -> int:
    """Runs until a signal; the exit code."""
    identity = settings.identity or f"{socket.gethostname()}-{os.getpid()}"
    operator = Operator(settings.model_copy(update={"identity": identity}), await Kube.connect())
    stop = asyncio.Event()
    _heed_signals(stop)
    injector = Injector(operator.kube, SystemClock(), operator.settings) if settings.databus.enabled else None
    health = HealthServer(
        settings.listen,
        why_dead=operator.why_dead,
        why_not_ready=lambda: operator.definitions.why_not_ready() or (injector.why_not_ready() if injector else ""),
        before_metrics=operator.measure,
    )
    await health.start()
    try:
        if injector is not None:
            await injector.start()
        await _lead_until_stopped(operator, stop)
        return 0
    finally:
        if injector is not None:
            await injector.stop()
        await health.stop()
        await operator.close()


def _heed_signals(stop: asyncio.Event) -> None:
    """Ends by them. kopf has them for itself from its start on, also when it has ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def _lead_until_stopped(operator: Operator, stop: asyncio.Event) -> None:
    settings = operator.settings
    lease = Lease(
        operator.kube,
        operator.context.clock,
        namespace=settings.namespace,
        name=settings.lease_name,
        identity=settings.identity,
    )
    while await _acquired(lease, stop):
        _log.info("this operator leads", identity=settings.identity, namespaces=settings.namespaces or "all")
        keeping = asyncio.create_task(lease.keep())
        leading = asyncio.create_task(operator.lead(stop))
        await asyncio.wait((keeping, leading), return_when=asyncio.FIRST_COMPLETED)
        if not keeping.done():
            keeping.cancel()
            await asyncio.wait((keeping,))
            await lease.release()
            leading.result()
            return
        await _stop_leading(leading, keeping.exception())
        _heed_signals(stop)
        operator.begin()


async def _acquired(lease: Lease, stop: asyncio.Event) -> bool:
    """Once this one leads; False: it was stopped before."""
    stopping, acquiring = asyncio.create_task(stop.wait()), asyncio.create_task(lease.acquire())
    await asyncio.wait((stopping, acquiring), return_when=asyncio.FIRST_COMPLETED)
    if acquired := acquiring.done():
        acquiring.result()
    for task in (stopping, acquiring):
        task.cancel()
    return acquired


async def _stop_leading(leading: asyncio.Task[None], why: BaseException | None) -> None:
    """Ends all work before another operator may begin with it, the process with it where that takes too long."""
    assert isinstance(why, LeaseLost)
    _log.error("this operator leads no more, and waits until it may again", why=str(why))
    LEADER.set(0)
    leading.cancel()
    await asyncio.wait((leading,), timeout=LAST_WORK_S)
    if not leading.done():
        _log.error("the operator ends: its work did not")
        os._exit(1)
