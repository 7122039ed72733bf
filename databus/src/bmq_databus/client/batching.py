"""Which of the messages that wait go together: as many as there are, up to a bound, once the first has waited. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LINGER_S: Final = 0.005
BATCH_MESSAGES_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 1 << 20
QUEUE_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How a writer puts messages together. `queue_bytes_max` is what may wait; who sends more waits for room."""

    linger_s: float = LINGER_S
    messages_max: int = BATCH_MESSAGES_MAX
    bytes_max: int = BATCH_BYTES_MAX
    queue_bytes_max: int = QUEUE_BYTES_MAX


@dataclass(slots=True)
class Waiting(Generic[T]):
    """Lines that wait, each with whom to tell."""

    batching: Batching
    lines: deque[tuple[bytes, T, float]] = field(default_factory=deque)
    size_bytes: int = 0

    def has_room(self, size_bytes: int) -> bool:
        """Whether one of so many bytes may wait, too; the first always may."""
        return not self.lines or self.size_bytes + size_bytes <= self.batching.queue_bytes_max

    def add(self, line: bytes, whom: T, *, now_s: float) -> None:
        """One more."""
        self.lines.append((line, whom, now_s))
        self.size_bytes += len(line)

    def due_s(self) -> float | None:
        """When the next batch goes: long ago where it is full; None: nothing waits."""
        if not self.lines:
            return None
        is_full = len(self.lines) >= self.batching.messages_max or self.size_bytes >= self.batching.bytes_max
        return float("-inf") if is_full else self.lines[0][2] + self.batching.linger_s

    def take(self) -> list[tuple[bytes, T]]:
        """The next batch."""
        taken: list[tuple[bytes, T]] = []
        size_bytes = 0
        while self.lines and len(taken) < self.batching.messages_max:
            line, whom, _ = self.lines[0]
            if taken and size_bytes + len(line) > self.batching.bytes_max:
                break
            self.lines.popleft()
            taken.append((line, whom))
            size_bytes += len(line)
        self.size_bytes -= size_bytes
        return taken
