"""Which brokers a controller refused to drain lately, as no other one takes their partitions. Values only.

Each time that it is asked is noted at the Cluster before, and the note is taken back: what is written is heard of, and
would have it asked at once again.
"""

from dataclasses import dataclass, field
from typing import Final

from bmq_admin.errors import AdminProblem

AGAIN_MS: Final = 20_000
"""How soon it is asked again whether there is an heir by now."""


@dataclass(slots=True)
class Heirless:
    """By the uid of a Cluster and a broker's node id."""

    _refused: dict[tuple[str, int], tuple[int, AdminProblem]] = field(default_factory=dict)

    def lately(self, uid: str, node_id: int, *, now_ms: int) -> AdminProblem | None:
        """What was said; None: it may be asked."""
        at_ms, problem = self._refused.get((uid, node_id), (0, None))
        return problem if 0 <= now_ms - at_ms < AGAIN_MS else None

    def note(self, uid: str, node_id: int, problem: AdminProblem, *, now_ms: int) -> None:
        """It was refused now. Forgets what may be asked again."""
        for old in [one for one, (at_ms, _) in self._refused.items() if not 0 <= now_ms - at_ms < AGAIN_MS]:
            del self._refused[old]
        self._refused[uid, node_id] = now_ms, problem
