"""How much is measured: the full run, or a quick one for trying out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

GIB = 1 << 30
RECORD_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes in bytes of values, times in seconds."""

    quick: bool
    rounds: int
    produce_bytes: int
    consume_bytes: int
    move_bytes: int
    """Of the partition that is moved."""
    cluster_bytes: int
    """Of a produce to a cluster."""
    metadata_partitions: int
    moves: int
    """Planned moves under writes."""
    kills: int
    """Of brokers, and of controllers."""
    phase_s: float
    settle_s: float
    """How long a server idles before its memory is read."""
    clients: tuple[str, ...]
    partitions: tuple[int, ...]
    batches_kib: tuple[int, ...]
    work: Path
    say: Callable[[str], None]

    def folder(self, name: str) -> Path:
        """For one server; the server removes it."""
        self.work.mkdir(parents=True, exist_ok=True)
        return Path(mkdtemp(prefix=f"{name}-", dir=self.work))

    def shapes(self) -> Iterator[tuple[str, int, int]]:
        """(client, partitions, KiB of a batch)."""
        for client in self.clients:
            for partitions in self.partitions:
                for batch_kib in self.batches_kib:
                    yield client, partitions, batch_kib
