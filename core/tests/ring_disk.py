"""A disk in memory for a ring's files, whose power can be cut: of what was not durable then each sector is there or
not, in no order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from typing_extensions import Buffer

from bmq.runtime.ring.format import BLOCK_BYTES, ENTRY_BYTES, FileHead, encode_file

SECTOR_BYTES = 512


class PowerCut(Exception):
    """It came while something was being written."""


class Content:
    """Bytes of which some are durable."""

    def __init__(self, data: bytes) -> None:
        self.now = bytearray(data)
        self._durable = bytearray(data)
        self._dirty: set[int] = set()

    def write(self, at: int, data: bytes) -> None:
        """What anybody reads from now on, until the power is cut."""
        self.now[at : at + len(data)] = data
        self._dirty |= set(range(at // SECTOR_BYTES, -(-(at + len(data)) // SECTOR_BYTES)))

    def sync(self, at: int, size_bytes: int) -> None:
        """So much is durable."""
        for sector in range(at // SECTOR_BYTES, -(-(at + size_bytes) // SECTOR_BYTES)):
            self._keep(sector)
            self._dirty.discard(sector)

    def cut(self, random: Random) -> None:
        """Of what is not durable some is there."""
        share = random.random()
        for sector in self._dirty:
            if random.random() < share:
                self._keep(sector)
        self.now[:] = self._durable
        self._dirty.clear()

    def _keep(self, sector: int) -> None:
        span = slice(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)
        self._durable[span] = self.now[span]


@dataclass
class DiskState:
    """What outlasts processes."""

    files: list[tuple[FileHead, Content, Content]] = field(default_factory=list)
    """Records and table of each."""
    made: int = 0
    boots: int = 1


@dataclass
class SimFile:
    """See `bmq.runtime.ring.ring.File`. `interrupted`: asked as each write begins, whether the power is cut in it."""

    disk: DiskState
    head: FileHead
    records: Content
    said: Content
    interrupted: Callable[[], bool]

    @property
    def ring_id(self) -> bytes:
        return self.head.ring_id

    @property
    def blocks(self) -> int:
        return self.head.size_bytes // BLOCK_BYTES

    def read(self, at: int, size_bytes: int) -> bytes:
        return bytes(self.records.now[at : at + size_bytes])

    def about(self) -> bytes:
        return bytes(self.said.now[:ENTRY_BYTES])

    def table(self) -> bytes:
        return bytes(self.said.now)

    def write(self, at: int, parts: Sequence[Buffer]) -> None:
        is_cut = self.interrupted()
        data = b"".join(bytes(part) for part in parts)
        data = data.ljust(-(-len(data) // BLOCK_BYTES) * BLOCK_BYTES, b"\xee")
        self.records.write(at, data)
        if is_cut:
            raise PowerCut
        self.records.sync(at, len(data))

    @property
    def name(self) -> str:
        return self.ring_id.hex()

    @property
    def has_copy(self) -> bool:
        return False

    def note(self, at: int, said: bytes) -> None:
        self.said.write(at, said)

    def sync_table(self) -> None:
        self.said.sync(0, len(self.said.now))

    def sync(self) -> None:
        self.records.sync(0, self.head.size_bytes)

    def remove(self) -> None:
        self.disk.files = [one for one in self.disk.files if one[0] != self.head]

    def close(self) -> None:
        pass


class SimFolder:
    """See `bmq.runtime.ring.ring.Folder`."""

    def __init__(self, disk: DiskState, *, interrupted: Callable[[], bool] = lambda: False) -> None:
        self._disk = disk
        self._interrupted = interrupted

    def files(self) -> list[SimFile]:
        return [SimFile(self._disk, *one, self._interrupted) for one in self._disk.files]

    def make(self, size_bytes: int) -> SimFile:
        self._disk.made += 1
        head = FileHead(self._disk.made.to_bytes(16, "big"), size_bytes)
        blocks = size_bytes // BLOCK_BYTES
        records = Content(encode_file(head).ljust(size_bytes, b"\0"))
        self._disk.files.append((head, records, Content(bytes(blocks * ENTRY_BYTES))))
        return self.files()[-1]

    def remove(self) -> None:
        pass


def cut(disk: DiskState, random: Random) -> None:
    """The power of all."""
    disk.boots += 1
    for _, records, said in disk.files:
        records.cut(random)
        said.cut(random)
