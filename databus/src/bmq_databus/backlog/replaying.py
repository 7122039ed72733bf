"""What waits in a channel's folder, or was refused, written to a cluster as a sidecar does it, without a sidecar."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from bmq.fairness.turns import Turns
from bmq.ports import Clock
from bmq_databus.backlog.looking import look
from bmq_databus.backlog.refused import NO_LIMITS, UNBOUNDED, finish, refused_spool
from bmq_databus.backlog.tally import Reasons, Tally
from bmq_databus.channels.channel import Manner
from bmq_databus.errors import DatabusError, SpoolInUse
from bmq_databus.producing.draining import Draining
from bmq_databus.producing.senders import Senders
from bmq_databus.producing.settings import NEVER_MS, QUEUE_KIB, cluster_settings, producer_settings
from bmq_databus.producing.under_way import UnderWay
from bmq_databus.spool.aside import AsideLimits
from bmq_databus.spool.channel_spool import ChannelSpool
from bmq_databus.spool.clusters import folder_of, servers_of
from bmq_databus.spool.folder import SpoolFolder
from bmq_databus.spool.refused import FILE, OLDER, lines_in
from bmq_databus.spool.segments import aside_in

SYNC_EVERY_S: Final = 1.0
"""What became of messages is durable so soon."""
REPORTS_S: Final = 5.0
"""How long an end waits for what is under way."""
CHECK_S: Final = 10.0
"""How long the cluster has to answer at all."""


class ClusterGone(DatabusError):
    """The cluster is not there, or takes nothing any more."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What became of one channel's messages."""

    channel: str
    written: int = 0
    written_again: int = 0
    """Those of them that may be in their topic twice."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (topic, why)."""
    damaged: int = 0
    """The disk has lost them."""
    set_aside: int = 0
    """Segments that were not what was written, and are kept aside."""
    too_new: int = 0
    """Segments of a later version, which are left."""
    left: int = 0
    """They wait yet."""
    refused_kept: int = 0
    """In the files of refused messages, those of now and of before."""


class Replay:
    """Use `opened`, then `run` for each channel, and `close`."""

    def __init__(self, root: Path, producing: Senders, broken: "asyncio.Future[str]", *, clock: Clock) -> None:
        self._root = root
        self._producing = producing
        self._broken = broken
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.done: list[Replayed] = []
        """Each channel's, also of the last one that did not end well."""

    @classmethod
    async def opened(cls, root: Path, channels: Sequence[str], *, bootstrap_servers: str, clock: Clock) -> "Replay":
        """Once no sidecar has the channels' folders and the cluster answers. Raises SpoolInUse, SpoolFailed,
        ClusterGone, KafkaException for settings that are none.
        """
        for channel in channels:
            with _held(folder_of(root, channel)):
                pass
        broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        settings = producer_settings(cluster_settings(bootstrap_servers), timeout_ms=NEVER_MS)
        producing = Senders(settings, [Manner()], broken=lambda why: None if broken.done() else broken.set_result(why))
        try:
            await producing.check(CHECK_S)
        except KafkaException as error:
            await producing.close(patience_s=0)
            raise ClusterGone(
                f"cluster {bootstrap_servers} does not answer ({error.args[0].str()}): see that it runs and is reached "
                "from here; nothing was written"
            ) from error
        return cls(root, producing, broken, clock=clock)

    async def run(self, channel: str, *, refused: bool, stop: asyncio.Event, patience_s: float) -> bool:
        """What waits of a channel, or what was refused, until nothing is left; False where `stop` came before. What
        became of it is in `done`. Raises ClusterGone where nothing got through for so long, DatabusError, OSError.
        """
        folder = folder_of(self._root, channel)
        one = Replayed(channel=channel)
        aside = set(aside_in(folder))
        self.done.append(one)
        try:
            if not refused:
                return await self._drain(folder, one, stop=stop, patience_s=patience_s, refused_in=None)
            with _held(folder):
                spool = await refused_spool(folder, clock=self._clock)
                if spool is None:
                    return True
                ended = await self._drain(spool, one, stop=stop, patience_s=patience_s, refused_in=folder)
                if not one.left:
                    finish(folder)
                return ended
        finally:
            one.set_aside = len(set(aside_in(folder)) - aside)
            one.too_new = len(look(folder).too_new)
            one.refused_kept = sum(lines_in(folder / name) for name in (OLDER, FILE))

    async def close(self) -> None:
        """Ends the producer."""
        self._producing.purge()
        await self._producing.close(patience_s=REPORTS_S)

    async def _drain(
        self, folder: Path, one: Replayed, *, stop: asyncio.Event, patience_s: float, refused_in: Path | None
    ) -> bool:
        tally = Tally()
        reasons = Reasons(self._producing.way(Manner(bootstrap_servers=servers_of(one.channel))))
        spool = await ChannelSpool.opened(
            folder,
            limits=NO_LIMITS,
            clock=self._clock,
            aside=AsideLimits(refused_bytes_max=UNBOUNDED, damaged_bytes_max=UNBOUNDED),
            refused_in=refused_in,
            counts=tally,
        )
        draining = Draining(spool, reasons, under_way=UnderWay(QUEUE_KIB * 1024 // 2), turns=Turns())
        sending = self._loop.create_task(draining.run(), name=f"replay {folder}")
        emptying = self._loop.create_task(spool.emptied(), name=f"end of {folder}")
        stopping = self._loop.create_task(stop.wait(), name="a signal to end")
        tasks = (sending, emptying, stopping)
        try:
            await self._wait(spool, tasks, patience_s=patience_s)
            return emptying.done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not await reasons.all_came(REPORTS_S):
                self._producing.purge()
                await reasons.all_came(REPORTS_S)
            draining.settle()
            await spool.close()
            one.written, one.written_again, one.damaged = tally.sent.value, tally.sent_again.value, tally.damaged.value
            one.refused, one.left = reasons.counts, spool.waiting

    async def _wait(self, spool: ChannelSpool, tasks: "Sequence[asyncio.Task[Any]]", *, patience_s: float) -> None:
        """Until one of the tasks has ended. Raises what it raised, ClusterGone."""
        changed_s, waiting = self._loop.time(), spool.waiting
        while True:
            await asyncio.wait([*tasks, self._broken], timeout=SYNC_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                raise ClusterGone(f"the producer is broken ({self._broken.result()}): run it again")
            if ended := [task for task in tasks if task.done()]:
                for task in ended:
                    task.result()
                return
            await spool.sync()
            now_s = self._loop.time()
            if spool.waiting != waiting:
                changed_s, waiting = now_s, spool.waiting
            elif now_s - changed_s > patience_s:
                remedy = spool.trouble or "see that the cluster runs and takes what is written; then run it again"
                raise ClusterGone(f"nothing got through for {patience_s:g} s: {remedy}")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    try:
        held = SpoolFolder(folder)
    except SpoolInUse as error:
        raise SpoolInUse(
            f"channel {folder.name}: a sidecar, or another replay, has {folder} and sends what waits: end it first"
        ) from error
    try:
        yield
    finally:
        held.leave()
