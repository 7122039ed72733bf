"""Which Clusters' admin APIs do not answer, so that not each resource that refers to one waits for itself. Values
only.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

SILENT_S: Final = 20.0
"""For how long after it did not answer in time nothing that refers to a Cluster asks it. Its own looks do, and end
that."""
LASTS_S: Final = 60.0
"""For how long it is asked by one at a time: more than it takes to find out again."""
CLUSTERS_MAX: Final = 1_000


@dataclass(slots=True)
class Silences:
    """By namespace and name of Clusters: what was said when one did not answer in time, and when. The oldest is
    forgotten first.
    """

    _since: "OrderedDict[tuple[str, str], tuple[float, str]]" = field(default_factory=OrderedDict)

    def begin(self, cluster: tuple[str, str], why: str, *, now_s: float) -> None:
        """It did not answer in time just now."""
        self._since.pop(cluster, None)
        self._since[cluster] = (now_s, why)
        if len(self._since) > CLUSTERS_MAX:
            self._since.popitem(last=False)

    def end(self, cluster: tuple[str, str]) -> None:
        """It answers, or is another one by now."""
        self._since.pop(cluster, None)

    def why(self, cluster: tuple[str, str], *, now_s: float) -> str:
        """Why it is not asked; empty: it may be."""
        since_s, why = self._since.get(cluster, (float("-inf"), ""))
        return why if now_s - since_s < SILENT_S else ""

    def lasts(self, cluster: tuple[str, str], *, now_s: float) -> bool:
        """Whether it is likely not to answer."""
        since_s, _ = self._since.get(cluster, (float("-inf"), ""))
        return now_s - since_s < LASTS_S
