"""Refused messages made a spool of, which is sent as any other: what became of each is known after a death, too.

A channel's folder has them below `replaying/`: first the files of refused messages, which no sidecar adds to there;
then the spool that is made of them, which has its name once it is whole. Blocking but for `refused_spool`.
"""

import shutil
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

from bmq.ports import Clock
from bmq.runtime.file_io import sync_folder
from bmq_databus.backlog.channels import REPLAYING
from bmq_databus.backlog.tally import Tally
from bmq_databus.errors import SpoolDamaged
from bmq_databus.producing.draining import UNDER_WAY_MAX
from bmq_databus.spool.channel_spool import ChannelSpool, SpoolLimits
from bmq_databus.spool.frames import Spooled
from bmq_databus.spool.refused import FILE, OLDER, Refused, RefusedFiles, Unreadable, refused_in
from bmq_databus.spool.segments import aside_in
from bmq_databus.spool.sizes import bytes_of

SPOOL: Final = "spool"
_MAKING: Final = "making"
GROUP_BYTES: Final = 1 << 20
WINDOW: Final = UNDER_WAY_MAX
WINDOW_BYTES: Final = 16 << 20
UNBOUNDED: Final = 1 << 62
"""What is refused has the bound that its sidecar gives it, at its next start."""
NO_LIMITS: Final = SpoolLimits(bytes_max=UNBOUNDED, age_s_max=1e9)


async def refused_spool(folder: Path, *, clock: Clock) -> Path | None:
    """The folder of the spool that has the channel's refused messages, which its files have no more then; that of an
    earlier replay which was ended goes first. None where nothing was refused. The caller holds `folder`. Raises
    SpoolDamaged where a line is none, OSError.
    """
    root = folder / REPLAYING
    made, making = root / SPOOL, root / _MAKING
    if not made.exists():
        if not _take(folder, root):
            return None
        shutil.rmtree(making, ignore_errors=True)
        await _fill(making, root, clock)
        making.rename(made)
        sync_folder(root)
    for name in (OLDER, FILE):
        (root / name).unlink(missing_ok=True)
    return made


def in_order(refused: Iterable[Refused]) -> Iterator[Spooled]:
    """As they were accepted. They were refused in about that order: librdkafka tells of some at once, and of others a
    moment later. So WINDOW of them are held, or WINDOW_BYTES. Numbers alone do not say: they begin anew where a sidecar
    starts over an empty spool.
    """
    held: list[tuple[int, int, int, Spooled]] = []
    held_bytes = 0
    for place, one in enumerate(refused):
        heappush(held, (one.message.accepted_ms, one.number, place, one.message))
        held_bytes += bytes_of(one.message)
        while len(held) > WINDOW or (held_bytes > WINDOW_BYTES and held):
            message = heappop(held)[-1]
            held_bytes -= bytes_of(message)
            yield message
    while held:
        yield heappop(held)[-1]


def finish(folder: Path) -> None:
    """To be called when all of it is through. What the disk damaged meanwhile goes to the channel's."""
    root = folder / REPLAYING
    for file in aside_in(root / SPOOL):
        target = folder / file.aside_path.name
        if target.exists():
            raise SpoolDamaged(f"{file.aside_path} is kept, as there is a {target}: move one of them away")
        file.aside_path.rename(target)
    shutil.rmtree(root)
    sync_folder(folder)


def _take(folder: Path, root: Path) -> bool:
    """Whether there are any."""
    if not any((root / name).exists() for name in (OLDER, FILE)):
        RefusedFiles(folder, bytes_max=UNBOUNDED).recover()
        if sum(1 for _ in _whole(folder)) == 0:
            return False
        root.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder)
        for name in (OLDER, FILE):
            if (folder / name).exists():
                (folder / name).rename(root / name)
        sync_folder(root)
        sync_folder(folder)
    return True


def _whole(folder: Path) -> Iterator[Refused]:
    for one in refused_in(folder):
        if isinstance(one, Unreadable):
            raise SpoolDamaged(
                f"{one.path}, line {one.line}: it is no refused message ({one.why}): mend the line, or move it away"
            )
        yield one


async def _fill(making: Path, root: Path, clock: Clock) -> None:
    spool = await ChannelSpool.opened(making, limits=NO_LIMITS, clock=clock, counts=Tally())
    try:
        group: list[Spooled] = []
        size_bytes = 0
        for message in in_order(_whole(root)):
            group.append(message)
            size_bytes += bytes_of(message)
            if size_bytes >= GROUP_BYTES:
                await spool.accept(group, patience_s=0)
                group, size_bytes = [], 0
        if group:
            await spool.accept(group, patience_s=0)
    finally:
        await spool.close()
