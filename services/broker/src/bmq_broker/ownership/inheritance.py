"""What earlier owners' streams held of a partition, as its heir has it before it opens the partition. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bmq.errors import PartitionStopped
from bmq.values import ManifestVersion, Offset
from bmq.wire.batches import BatchHeader
from bmq_broker.partitions.tail import Run


class Left(NamedTuple):
    """Offsets up to below `end` are, or were, below the missing object `key`: what was its owner's to delete is in
    segments, or above it.
    """

    end: Offset
    key: str


@dataclass(slots=True)
class Inheritance:
    """What the streams held of one partition."""

    runs: list[tuple[Run, Sequence[BatchHeader]]] = field(default_factory=list)
    manifest_version: ManifestVersion = ManifestVersion(0)
    """The newest that a directory named."""
    left: Left | None = None
    """What lies highest below a missing object, which nobody reads."""
    stopped: PartitionStopped | None = None

    def leave(self, left: Left) -> None:
        """So much lies below a missing object."""
        if self.left is None or self.left.end < left.end:
            self.left = left
