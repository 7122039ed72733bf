"""For how long the same pods have been waited for: those of a lane that are to be replaced, or the base's, while it is
not whole. For how long a pod has worked whose machine's clock is wrong. Pure.
"""

from dataclasses import dataclass, field
from typing import Final

WAITS_MAX: Final = 10_000


@dataclass(slots=True)
class Waits:
    """Since when it has been the same pods. Forgotten with the operator: the next one begins to count anew."""

    _since: dict[tuple[str, str], tuple[frozenset[str], int]] = field(default_factory=dict)

    def waited_s(self, cluster_uid: str, lane: str, left: frozenset[str], *, now_ms: int) -> float:
        """`left`: the uids of the pods that are waited for now; `lane` is empty for the base. Of a pod that works: its
        own uid, a word that is no lane's name, and since when it says that it does.
        """
        key = cluster_uid, lane
        before, since_ms = self._since.pop(key, (frozenset(), now_ms))
        if not left:
            return 0.0
        if before != left:
            since_ms = now_ms
        while len(self._since) >= WAITS_MAX:
            del self._since[next(iter(self._since))]
        self._since[key] = left, since_ms
        return (now_ms - since_ms) / 1000
