"""The spools of all channels that accept, and who sends what is in them."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from bmq.fairness.turns import Turns
from bmq.ports import Clock
from bmq_databus.channels.channel import Manner
from bmq_databus.errors import DatabusError
from bmq_databus.producing.draining import Draining
from bmq_databus.producing.senders import Senders
from bmq_databus.producing.settings import QUEUE_KIB
from bmq_databus.spool.aside import AsideLimits
from bmq_databus.spool.channel_spool import ChannelSpool, SpoolLimits
from bmq_databus.spool.folder import left_in

log = structlog.get_logger()


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
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._senders: Senders | None = None
        self._spools: dict[str, ChannelSpool] = {}
        self._draining: dict[str, Draining] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __getitem__(self, name: str) -> ChannelSpool:
        """That of a channel for which `open` was called."""
        return self._spools[name]

    @property
    def all(self) -> Mapping[str, ChannelSpool]:
        """By channel."""
        return self._spools

    async def start(self, accepting: Mapping[str, tuple[SpoolLimits, Manner]]) -> None:
        """Opens those of these channels, and what others left. Raises DatabusError, OSError, KafkaException."""
        wanted = dict(accepting)
        if self._folder is not None:
            for name in await self._loop.run_in_executor(None, left_in, self._folder):
                if name not in wanted:
                    log.warning("spool of a channel that accepts nothing any more is sent", channel=name)
                    wanted[name] = SpoolLimits(), Manner()
        if wanted:
            self._senders = Senders(self._settings, [manner for _, manner in wanted.values()], broken=self._broken)
        for name, (limits, manner) in wanted.items():
            await self.open(name, limits, manner)

    async def open(self, name: str, limits: SpoolLimits, manner: Manner) -> None:
        """The channel accepts by these limits from now on, and is sent so. Raises DatabusError: as before, or not at
        all; OSError, KafkaException.
        """
        if self._folder is None:
            raise DatabusError(
                f"channel {name} acknowledges what is accepted, and there is no folder for that: start with --spool DIR"
            )
        if self._senders is None:
            self._senders = Senders(self._settings, [manner], broken=self._broken)
        self._senders.of(manner)  # refused now rather than with the first message
        way = self._senders.way(manner)
        if (spool := self._spools.get(name)) is not None:
            spool.bound(limits)
            self._draining[name].send_by(way)
            return
        spool = await ChannelSpool.opened(self._folder / name, limits=limits, clock=self._clock, aside=self._aside)
        self._spools[name] = spool
        draining = self._draining[name] = Draining(spool, way, under_way_bytes_max=0, turns=self._turns)
        for one in self._draining.values():
            one.under_way_bytes_max = QUEUE_KIB * 1024 // (2 * len(self._draining))
        task = self._tasks[name] = self._loop.create_task(draining.run(), name=f"drain {name}")
        task.add_done_callback(self._drained)

    async def close(self, *, patience_s: float) -> None:
        """Nothing more is sent; what is under way has so long."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._senders is not None:
            await self._senders.close(patience_s=patience_s)
        for spool in self._spools.values():
            await spool.close()

    def _drained(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "draining failed", "exception": bug, "task": task})
            self._broken(repr(bug))
