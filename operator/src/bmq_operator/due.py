"""Who else is due once something was heard: what refers to a Cluster that came, changed or goes, and what uses a
Secret. Nothing is asked.
"""

from collections.abc import Mapping
from typing import Any, Final

from bmq_operator.clusters.names import CLUSTER_LABEL
from bmq_operator.hearing import Hearing
from bmq_operator.known import Known
from bmq_operator.workqueue import Key, WorkQueue

USING_SECRETS: Final = frozenset(("Cluster", "Topic", "ParquetSink"))


class Due:
    """Puts into an operator's queue who else is due; knows what was heard of each Cluster last."""

    def __init__(self, queue: WorkQueue, hearing: Hearing, known: Known) -> None:
        self._queue = queue
        self._hearing = hearing
        self._known = known
        self._clusters: dict[Key, tuple[int, bool]] = {}
        """What was heard of each last: its generation, and whether it is being deleted."""

    def by_cluster(self, key: Key, meta: Mapping[str, Any], *, gone: bool) -> None:
        """All that refer to it, where it is not what it was: a status alone changes nothing for them."""
        now = (int(meta.get("generation", 0)), bool(meta.get("deletionTimestamp")))
        before = self._clusters.get(key)
        if gone:
            self._clusters.pop(key, None)
        else:
            self._clusters[key] = now
        if gone or before != now:
            cluster = (key.namespace, key.name)
            self._known.clusters.forget(cluster)
            self._known.silences.end(cluster)
            for one in self._hearing.referring(cluster):
                self._queue.add(one)

    def by_secret(self, meta: Mapping[str, Any]) -> None:
        """The Cluster that it belongs to; of one that anybody may use all of its namespace that could."""
        if cluster := meta["labels"].get(CLUSTER_LABEL):
            self._queue.add(Key("Cluster", meta["namespace"], cluster))
        else:
            for key in self._hearing.heard_of():
                if key.kind in USING_SECRETS and key.namespace == meta["namespace"]:
                    self._queue.add(key)
