"""The spools of all channels that accept, one for each cluster, and who sends what is in them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from confluent_kafka import KafkaException

from bmq.fairness.turns import Turns
from bmq.ports import Clock
from bmq_databus.channels.channel import Channel, Manner, Spool
from bmq_databus.errors import DatabusError, SpoolFailed, SpoolFull
from bmq_databus.metrics import SpoolMetrics
from bmq_databus.producing.draining import Draining
from bmq_databus.producing.left_folders import LeftFolders
from bmq_databus.producing.senders import Senders
from bmq_databus.producing.under_way import UnderWay
from bmq_databus.spool.aside import AsideLimits
from bmq_databus.spool.channel_spool import ChannelSpool, SpoolLimits
from bmq_databus.spool.clusters import channel_of, folder_of, left_in, mark, servers_of
from bmq_databus.spool.frames import Once, Spooled

UNDER_WAY_BYTES_MAX: Final = 4 << 20
"""What all of them together have with the producers: some batches for each partition, and as much as 35 MiB/s of a
cluster that answers after 100 ms. Of messages of 1 KiB it takes five times as much memory: each is there twice, as
librdkafka's and as what is sent again, and so is what holds it."""
LINGER_MS_MIN: Final = 10
"""So long a message waits for others, as nobody waits for it. librdkafka's thread spins while a batch waits for more
and an earlier one has no answer: seldom, where this is longer than a cluster takes to answer."""

CLOSE_EVERY_S: Final = 1.0
"""How often it is looked whether a spool that no channel has is empty."""
FILES_REMEDY: Final = "raise the limit of open files (ulimit -n, LimitNOFILE), or let fewer channels accept"

log = structlog.get_logger()


def _unhurried(manner: Manner) -> Manner:
    return replace(manner, linger_ms=max(manner.linger_ms, LINGER_MS_MIN))


class Spools:
    """One sidecar's. A spool that was opened is sent until nothing waits in it, whatever becomes of its channel; where
    it has none any more it is closed then, and its folder goes if nothing of it is to be kept.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: Mapping[str, Any],
        *,
        clock: Clock,
        aside: AsideLimits,
        turns: Turns,
        broken: Callable[[str], None],
        spools_max: int,
    ) -> None:
        """`settings` are a producer's; `broken` is told why nothing more can be sent. `turns` are those of all that has
        many messages. `spools_max`: so many are open at a time, but for those that it starts with.
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
        self._metrics: dict[str, SpoolMetrics] = {}
        self._draining: dict[str, Draining] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._spools_max = spools_max
        self._wanted: set[str] = set()
        """Names of those that have a channel."""
        self._changing = asyncio.Lock()
        """One is opened or closed at a time."""
        self._is_left = asyncio.Event()
        """Set where some that are open have none."""
        self._folders = None if folder is None else LeftFolders(folder, clock=clock)
        self._closing = self._loop.create_task(self._close_left(), name="close spools that no channel has")
        self._closing.add_done_callback(self._ended)

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
            spool = self._spools.get(channel.name) or await self._again(channel, channel.spools[0])
            return await spool.enter(messages, patience_s=patience_s, once=once)
        places = channel.spools
        for_each = [
            [msgspec.structs.replace(message, topic=topic) for message in messages for topic in one.topics]
            for one in places
        ]
        for place, theirs in zip(places, for_each, strict=True):
            its_once = once if place is places[-1] else None
            spool = self._spools.get(place.name) or await self._again(channel, place)
            await spool.room_for(theirs, patience_s=patience_s, once=its_once)
        under_way: list[asyncio.Future[None]] = []
        for place, theirs in zip(places, for_each, strict=True):
            is_last = place is places[-1]
            if is_last and once is not None:
                # The key says that all of them have it: it is durable behind the others.
                await _all_durable(under_way)
            spool = self._spools.get(place.name) or await self._again(channel, place)
            entered = await spool.enter(theirs, patience_s=patience_s, once=once if is_last else None)
            entered.add_done_callback(_heard)
            under_way.append(entered)
        return self._loop.create_task(_all_durable(under_way), name=f"accept for all clusters of {channel.name}")

    def are_keys_read(self, channel: Channel) -> bool:
        """Whether `read_keys` would tell nothing."""
        return all(self._spools[name].are_keys_read for name in self._names.get(channel.name, ()))

    async def read_keys(self, channel: Channel, told: Callable[[list[Once]], None]) -> None:
        """Those that its spools have on disk, whichever clusters they are for, spool by spool; once."""
        for name in list(self._names.get(channel.name, ())):
            if (spool := self._spools.get(name)) is not None:
                told(await spool.read_keys())

    async def start(self, accepting: Iterable[Channel]) -> None:
        """Opens those of these channels, and what others left. Raises DatabusError, OSError, KafkaException."""
        wanted = {one.name: (channel.spool, one.manner) for channel in accepting for one in channel.spools}
        self._wanted = set(wanted)
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
            async with self._changing:
                await self._open(name, limits, manner, is_bounded=False)
        if len(self._spools) > self._spools_max:
            log.warning("more spools are open than leave files for connections", remedy=FILES_REMEDY, **self._counts())
        self._look_for_left()

    async def open(self, channel: Channel) -> None:
        """The channel accepts by its limits from now on, and is sent so. Raises DatabusError: as before, or not at all;
        OSError, KafkaException.
        """
        async with self._changing:
            for one in channel.spools:
                self._wanted.add(one.name)
                await self._open(one.name, channel.spool, one.manner)

    def keep(self, accepting: Iterable[Channel]) -> None:
        """Those of these channels alone; what waits in others is sent first."""
        self._wanted = {one.name for channel in accepting for one in channel.spools}
        if self._folders is not None:
            self._folders.are_known = True
        self._look_for_left()

    async def _again(self, channel: Channel, place: Spool) -> ChannelSpool:
        """For a message that was begun before its spool was closed. Raises DatabusError."""
        async with self._changing:
            try:
                await self._open(place.name, channel.spool, place.manner)
            except OSError as error:
                raise SpoolFailed(f"not accepted: spool {place.name}: {error.strerror or error}") from error
            except KafkaException as error:
                raise SpoolFailed(f"not accepted: {error.args[0].str()}") from error
            self._look_for_left()
            return self._spools[place.name]

    async def _open(self, name: str, limits: SpoolLimits, manner: Manner, *, is_bounded: bool = True) -> None:
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
        if is_bounded and len(self._spools) >= self._spools_max:
            await self._close_idle()
            if len(self._spools) >= self._spools_max:
                raise SpoolFull(
                    f"there is no room for the spool of {name}: {len(self._spools)} are open, and more would leave no "
                    f"files to connections: {FILES_REMEDY}"
                )
        if servers_of(name):
            await self._loop.run_in_executor(None, mark, self._folder, name)
        counts = SpoolMetrics(name)
        try:
            spool = await ChannelSpool.opened(
                folder_of(self._folder, name), limits=limits, clock=self._clock, aside=self._aside, counts=counts
            )
        except BaseException as error:
            counts.forget()
            if isinstance(error, RuntimeError):  # each has a thread
                raise SpoolFailed(f"spool {name}: {error}: let fewer channels accept, or raise pids.max") from error
            raise
        self._spools[name], self._metrics[name] = spool, counts
        self._names.setdefault(channel_of(name), []).append(name)
        draining = self._draining[name] = Draining(spool, way, under_way=self._under_way, turns=self._turns)
        task = self._tasks[name] = self._loop.create_task(draining.run(), name=f"drain {name}")
        task.add_done_callback(self._ended)

    async def close(self, *, patience_s: float) -> None:
        """Nothing more is sent; what is under way has so long."""
        async with self._changing:
            self._closing.cancel()
        await asyncio.gather(self._closing, return_exceptions=True)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._senders is not None:
            await self._senders.close(patience_s=patience_s)
        for draining in self._draining.values():
            draining.settle()
        for spool in self._spools.values():
            await spool.close()

    @property
    def _left(self) -> list[str]:
        """Those that no channel has."""
        return [name for name in self._spools if name not in self._wanted]

    def _look_for_left(self) -> None:
        if self._left or (self._folders is not None and self._folders.next_s is not None):
            self._is_left.set()

    async def _close_left(self) -> None:
        """Those in which nothing waits, as soon as that is so, and their folders."""
        while True:
            if not self._left:
                self._is_left.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        self._is_left.wait(), None if self._folders is None else self._folders.next_s
                    )
            await asyncio.sleep(CLOSE_EVERY_S)
            async with self._changing:
                await self._close_idle()
            if self._folders is not None:
                await self._folders.give_back(self._changing, self._spools, self._wanted)

    async def _close_idle(self) -> None:
        """Those of no channel that have nothing to send."""
        for name in self._left:
            if self._spools[name].is_idle and self._draining[name].is_idle:
                await self._close_one(name)

    async def _close_one(self, name: str) -> None:
        spool, task = self._spools.pop(name), self._tasks.pop(name)  # from now on nobody enters it
        del self._draining[name]
        names = self._names[channel_of(name)]
        names.remove(name)
        if not names:
            del self._names[channel_of(name)]
        task.cancel()
        await asyncio.wait((task,))
        await spool.emptied()
        await spool.close()
        self._metrics.pop(name).forget()
        if self._folders is not None:
            await self._folders.left(name)
        log.info("spool is closed: no channel has it, and nothing waits in it", spool=name)

    def _counts(self) -> dict[str, int]:
        return {"spools": len(self._spools), "spools_max": self._spools_max}

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "spools failed", "exception": bug, "task": task})
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
