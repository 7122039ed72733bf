"""What is kept aside of a spool and is sent by nobody: messages that the cluster refused, segments that the disk
damaged. Each has a bound in bytes, and the newest are kept.
"""

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from bmq_databus.metrics import SpoolCounts
from bmq_databus.spool.refused import Refused, RefusedFiles
from bmq_databus.spool.segments import aside_in

TELL_EVERY_S: Final = 60.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideLimits:
    """How much there may be, of each channel."""

    refused_bytes_max: int = 128 << 20
    damaged_bytes_max: int = 128 << 20


DEFAULT_LIMITS: Final = AsideLimits()


class Aside:
    """One channel's. Blocking but for `tell`; raises OSError."""

    def __init__(self, folder: Path, *, limits: AsideLimits, counts: SpoolCounts) -> None:
        self._folder = folder
        self._limits = limits
        self._counts = counts
        self._refused = RefusedFiles(folder, bytes_max=limits.refused_bytes_max)
        self._damaged_dropped = 0
        self._untold: dict[str, int] = {}
        self._told_until_s = float("-inf")

    def recover(self) -> None:
        """To be called once the folder is this process's own, before anything is kept."""
        self._refused.recover()
        self.bound_damaged()

    def keep(self, refused: deque[Refused]) -> None:
        """Takes out of `refused` what is durable then, which is all of it where nothing is raised."""
        self._refused.keep(refused)

    def bound_damaged(self) -> None:
        """Deletes the oldest segments that are kept aside, until the others have the room."""
        found = aside_in(self._folder)
        size_bytes = sum(one.aside_bytes for one in found)
        for one in found:
            if size_bytes <= self._limits.damaged_bytes_max:
                return
            size_bytes -= one.aside_bytes
            one.delete_aside()
            self._damaged_dropped += 1

    def tell(self, now_s: float) -> None:
        """Counts what gave way, and says so in the log, once a while. Not blocking."""
        refused, self._refused.dropped = self._refused.dropped, 0
        damaged, self._damaged_dropped = self._damaged_dropped, 0
        self._counts.refused_dropped.inc(refused)
        self._counts.damaged_dropped.inc(damaged)
        for what, count in (("messages", refused), ("segments", damaged)):
            if count:
                self._untold[what] = self._untold.get(what, 0) + count
        if not self._untold or now_s < self._told_until_s:
            return
        self._told_until_s = now_s + TELL_EVERY_S
        if messages := self._untold.get("messages"):
            log.error(
                "refused messages are dropped for room",
                folder=str(self._folder),
                messages=messages,
                bytes_max=self._limits.refused_bytes_max,
                remedy="see why the cluster refuses them, replay or export them, or raise --refused-bytes",
            )
        if segments := self._untold.get("segments"):
            log.error(
                "damaged segments are dropped for room",
                folder=str(self._folder),
                segments=segments,
                bytes_max=self._limits.damaged_bytes_max,
                remedy="look at the disk, export what can be read of them, or raise --damaged-bytes",
            )
        self._untold.clear()
