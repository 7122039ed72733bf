"""The spools of all channels that accept, one for each cluster, and who sends what is in them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from bmq.fairness.turns import Turns
from bmq.ports import Clock
from bmq_databus.channels.channel import Channel, Manner
from bmq_databus.errors import DatabusError
from bmq_databus.metrics import SpoolMetrics
from bmq_databus.producing.draining import Draining
from bmq_databus.producing.senders import Senders
from bmq_databus.producing.under_way import UnderWay
from bmq_databus.spool.aside import AsideLimits
from bmq_databus.spool.channel_spool import ChannelSpool, SpoolLimits
from bmq_databus.spool.clusters import channel_of, folder_of, left_in, mark, servers_of
from bmq_databus.spool.frames import Once, Spooled

UNDER_WAY_BYTES_MAX: Final = 4 << 20
"""What all of them together have with the producers: some batches for each partition, and as much as 40 MiB/s of a
cluster that answers after 100 ms. Of messages of 1 KiB it takes five times as much memory: each is there twice, as
librdkafka's and as what is sent again, and so is what holds it."""
LINGER_MS_MIN: Final = 10
"""So long a message waits for others, as nobody waits for it. librdkafka's thread spins while a batch waits for more
and an earlier one has no answer: seldom, where this is longer than a cluster takes to answer."""

log = structlog.get_logger()


def _unhurried(manner: Manner) -> Manner:
    return replace(manner, linger_ms=max(manner.linger_ms, LINGER_MS_MIN))


class Spools:
    """One sidecar's. A spool that was opened is sent until `close`, whatever becomes of its channel."""

    def __init__(
        self,
        folder: Path | None,
        settings: Mapping[str, Any],
        *,
        clock: Clock,
        aside: AsideLimits,
        turns: Turns,
        broken: Callable[[str], None],
    ) -> None:
        """`settings` are a producer's; `broken` is told why nothing more can be sent. `turns` are those of all that has
        many messages.
        """
        self._folder = folder
        self._settings = settings
        self._clock = clock
        self._aside = aside
        self._turns = turns
        self._under_way = UnderWay(UNDER_WAY_BYTES_MAX)
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._senders: Senders | None = None
        self._spools: dict[str, ChannelSpool] = {}
        self._names: dict[str, list[str]] = {}
        """By channel."""
        self._draining: dict[str, Draining] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def all(self) -> Mapping[str, ChannelSpool]:
        """By `spool_name`."""
        return self._spools

    def of(self, channel: Channel) -> list[ChannelSpool]:
        """Those of a channel for which `open` was called, one for each cluster."""
        return [self._spools[one.name] for one in channel.spools]

    async def enter(
        self, channel: Channel, messages: Sequence[Spooled], *, patience_s: float, once: Once | None = None
    ) -> "asyncio.Future[None]":
        """As `ChannelSpool.enter`, for all clusters that the channel's messages go to. Where one of them has no room
        nobody gets them; where a disk fails some may have them.
        """
        if not channel.others and not channel.manner.bootstrap_servers:
            return await self._spools[channel.name].enter(messages, patience_s=patience_s, once=once)
        places = channel.spools
        for_each = [
            [msgspec.structs.replace(message, topic=topic) for message in messages for topic in one.topics]
            for one in places
        ]
        for place, theirs in zip(places, for_each, strict=True):
            its_once = once if place is places[-1] else None
            await self._spools[place.name].room_for(theirs, patience_s=patience_s, once=its_once)
        under_way: list[asyncio.Future[None]] = []
        for place, theirs in zip(places, for_each, strict=True):
            is_last = place is places[-1]
            if is_last and once is not None:
                # The key says that all of them have it: it is durable behind the others.
                await _all_durable(under_way)
            entered = await self._spools[place.name].enter(
                theirs, patience_s=patience_s, once=once if is_last else None
            )
            entered.add_done_callback(_heard)
            under_way.append(entered)
        return self._loop.create_task(_all_durable(under_way), name=f"accept for all clusters of {channel.name}")

    def are_keys_read(self, channel: Channel) -> bool:
        """Whether `read_keys` would tell nothing."""
        return all(self._spools[name].are_keys_read for name in self._names.get(channel.name, ()))

    async def read_keys(self, channel: Channel, told: Callable[[list[Once]], None]) -> None:
        """Those that its spools have on disk, whichever clusters they are for, spool by spool; once."""
        for name in list(self._names.get(channel.name, ())):
            told(await self._spools[name].read_keys())

    async def start(self, accepting: Iterable[Channel]) -> None:
        """Opens those of these channels, and what others left. Raises DatabusError, OSError, KafkaException."""
        wanted = {one.name: (channel.spool, one.manner) for channel in accepting for one in channel.spools}
        if self._folder is not None:
            for name in await self._loop.run_in_executor(None, left_in, self._folder):
                if name not in wanted:
                    log.warning("spool of a channel that accepts nothing any more is sent", channel=name)
                    wanted[name] = SpoolLimits(), Manner(bootstrap_servers=servers_of(name))
        if wanted:
            self._senders = Senders(
                self._settings, [_unhurried(manner) for _, manner in wanted.values()], broken=self._broken
            )
        for name, (limits, manner) in wanted.items():
            await self._open(name, limits, manner)

    async def open(self, channel: Channel) -> None:
        """The channel accepts by its limits from now on, and is sent so. Raises DatabusError: as before, or not at all;
        OSError, KafkaException.
        """
        for one in channel.spools:
            await self._open(one.name, channel.spool, one.manner)

    async def _open(self, name: str, limits: SpoolLimits, manner: Manner) -> None:
        if self._folder is None:
            raise DatabusError(
                f"channel {name} acknowledges what is accepted, and there is no folder for that: start with --spool DIR"
            )
        manner = _unhurried(manner)
        if self._senders is None:
            self._senders = Senders(self._settings, [manner], broken=self._broken)
        self._senders.of(manner)  # refused now rather than with the first message
        way = self._senders.way(manner)
        if (spool := self._spools.get(name)) is not None:
            spool.bound(limits)
            self._draining[name].send_by(way)
            return
        if servers_of(name):
            await self._loop.run_in_executor(None, mark, self._folder, name)
        spool = await ChannelSpool.opened(
            folder_of(self._folder, name),
            limits=limits,
            clock=self._clock,
            aside=self._aside,
            counts=SpoolMetrics(name),
        )
        self._spools[name] = spool
        self._names.setdefault(channel_of(name), []).append(name)
        draining = self._draining[name] = Draining(spool, way, under_way=self._under_way, turns=self._turns)
        task = self._tasks[name] = self._loop.create_task(draining.run(), name=f"drain {name}")
        task.add_done_callback(self._drained)

    async def close(self, *, patience_s: float) -> None:
        """Nothing more is sent; what is under way has so long."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._senders is not None:
            await self._senders.close(patience_s=patience_s)
        for draining in self._draining.values():
            draining.settle()
        for spool in self._spools.values():
            await spool.close()

    def _drained(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "draining failed", "exception": bug, "task": task})
            self._broken(repr(bug))


def _heard(entered: "asyncio.Future[None]") -> None:
    """Where another one fails first nobody asks for what became of this one."""
    if not entered.cancelled():
        entered.exception()


async def _all_durable(entered: "Sequence[asyncio.Future[None]]") -> None:
    """Raises what one of them has. They go on where nobody waits any more."""
    if entered:
        await asyncio.wait(entered)
    for one in entered:
        one.result()
