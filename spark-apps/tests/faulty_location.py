"""A location in memory whose verbs fail when a test says so: the process dies before or after it, or the answer is
lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bmq.errors import ObjectMissing, UnknownOutcome
from bmq_spark.locations import Found, Location


class Killed(BaseException):
    """The process ends here: nothing of it runs any more, so that nothing catches this."""


@dataclass
class Faults:
    """What lies there, and what happens to the next verbs that change something."""

    objects: dict[str, bytes] = field(default_factory=dict)
    modified_ms: dict[str, int] = field(default_factory=dict)
    now_ms: int = 0
    kill_before: int | None = None
    """How many changes are still made before the process is killed; None: it is not."""
    kill_after: int | None = None
    """The same, and the last one is made."""
    lose_answer: int | None = None
    """The create after so many is made, or not (`lost_is_made`), and its outcome is not known."""
    lost_is_made: bool = True
    late: dict[str, bytes] = field(default_factory=dict)
    """Creates without an answer that may still arrive."""

    def changes(self) -> bool:
        """Before each change; whether to die after it."""
        if self.kill_before is not None:
            if self.kill_before == 0:
                raise Killed
            self.kill_before -= 1
        if self.kill_after is not None:
            self.kill_after -= 1
            return self.kill_after < 0
        return False

    def heal(self) -> None:
        """A new process starts: no faults."""
        self.kill_before = self.kill_after = self.lose_answer = None


@dataclass(frozen=True, slots=True)
class FaultyLocation(Location):
    """Objects in memory, shared by everyone who has the same `faults`."""

    faults: Faults = field(default_factory=Faults, compare=False)

    @property
    def folder(self) -> None:
        return None

    def create(self, key: str, content: bytes) -> bool:
        faults = self.faults
        last = faults.changes()
        lost = False
        if faults.lose_answer is not None:
            lost = faults.lose_answer == 0
            faults.lose_answer -= 1
        if lost and not faults.lost_is_made:
            faults.late.setdefault(key, content)
            raise UnknownOutcome(key)
        created = faults.objects.setdefault(key, content) == content
        faults.modified_ms.setdefault(key, faults.now_ms)
        if last:
            raise Killed
        if lost:
            raise UnknownOutcome(key)
        return created

    def arrive(self) -> None:
        """Creates that were under way arrive."""
        for key, content in self.faults.late.items():
            self.faults.objects.setdefault(key, content)
        self.faults.late.clear()

    def upload(self, key: str, file: Path) -> None:
        last = self.faults.changes()
        self.faults.objects[key] = file.read_bytes()
        self.faults.modified_ms[key] = self.faults.now_ms
        if last:
            raise Killed

    def read(self, key: str) -> bytes:
        if key not in self.faults.objects:
            raise ObjectMissing(key)
        return self.faults.objects[key]

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[Found]:
        for key in sorted(self.faults.objects):
            if not prefix or key.startswith(prefix.rstrip("/") + "/"):
                yield Found(key, len(self.faults.objects[key]), self.faults.modified_ms.get(key, 0))

    def delete(self, key: str) -> None:
        last = self.faults.changes()
        self.faults.objects.pop(key, None)
        if last:
            raise Killed
