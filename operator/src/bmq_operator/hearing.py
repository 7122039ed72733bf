"""What was heard of each resource: its version, by which it is known whether the watches still tell of changes, and the
Cluster that it refers to. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from bmq_operator.workqueue import Key

DEAF_AFTER_S: Final = 150.0
"""A change that no watch has told for so long, though the API server lists it: the watch is dead. kopf itself begins
anew after 70 s of silence."""
ALL: Final = "*"
"""In topicsFrom: resources of all namespaces."""
Cluster: TypeAlias = tuple[str, str]
"""Namespace and name."""


def referred_by(key: Key, spec: Mapping[str, Any]) -> Cluster | None:
    """The Cluster that a resource refers to; None: it says none that there could be."""
    reference = spec.get("clusterRef")
    if not isinstance(reference, Mapping):
        return None
    name, namespace = reference.get("name"), reference.get("namespace") or key.namespace
    return (namespace, name) if isinstance(name, str) and isinstance(namespace, str) and name else None


def taken_by(spec: Mapping[str, Any]) -> frozenset[str]:
    """Namespaces whose resources a Cluster takes besides its own."""
    part = spec.get("topicsFrom")
    names = part.get("namespaces") if isinstance(part, Mapping) else None
    return frozenset(one for one in names if isinstance(one, str)) if isinstance(names, list) else frozenset()


@dataclass(slots=True)
class Hearing:
    """Which version of each resource was heard of, and since when a listed one was not."""

    heard_at_s: float = -1.0
    _heard: dict[Key, str] = field(default_factory=dict)
    _unheard: dict[Key, tuple[str, float]] = field(default_factory=dict)
    _refers: dict[Key, Cluster] = field(default_factory=dict)
    _takes: dict[Cluster, frozenset[str]] = field(default_factory=dict)
    """Namespaces whose resources each Cluster takes besides its own."""
    _meanwhile: dict[str, set[Key]] = field(default_factory=dict)
    """By kind that is being listed: which of its resources a watch told of since that began."""

    def heard(
        self,
        key: Key,
        version: str,
        *,
        now_s: float,
        gone: bool = False,
        refers: Cluster | None = None,
        takes: frozenset[str] = frozenset(),
    ) -> None:
        """A watch told of this version. `takes`: of a Cluster."""
        self.heard_at_s = now_s
        if key.kind in self._meanwhile:
            self._meanwhile[key.kind].add(key)
        self._forget(key)
        if gone:
            return
        self._heard[key] = version
        if key.kind == "Cluster":
            self._takes[key.namespace, key.name] = takes
        if refers is not None:
            self._refers[key] = refers

    def heard_of(self) -> list[Key]:
        """All that is known to be there."""
        return [*self._heard]

    def refers(self, key: Key) -> Cluster | None:
        """The Cluster that it was last heard to refer to."""
        return self._refers.get(key)

    def share_of(self, key: Key) -> Cluster | None:
        """The Cluster whose share of the operator's work it takes: the one that it refers to, unless that does not take
        it: strangers may be many, and nothing is done about them.
        """
        cluster = self._refers.get(key)
        takes = None if cluster is None else self._takes.get(cluster)
        if cluster is None or takes is None or key.namespace == cluster[0] or {key.namespace, ALL} & takes:
            return cluster
        return None

    def referring(self, cluster: Cluster) -> list[Key]:
        """All that refer to a Cluster."""
        return [key for key, one in self._refers.items() if one == cluster]

    def lists(self, kind: str) -> None:
        """A resync begins to list all of a kind's resources."""
        self._meanwhile[kind] = set()

    def listed(self, kind: str, versions: dict[Key, str], *, now_s: float) -> None:
        """It found them in these versions. Where a watch told of one meanwhile, the list may be older than that, and
        nothing follows from it: not that it is gone, that it is there, nor that its version is unheard of.
        """
        meanwhile = self._meanwhile.pop(kind, set())
        for key in [key for key in (*self._heard, *self._unheard) if key.kind == kind and key not in versions]:
            if key not in meanwhile:
                self._forget(key)
        for key, version in versions.items():
            if key in meanwhile:
                continue
            if self._heard.get(key) == version:
                self._unheard.pop(key, None)
            elif key not in self._unheard or self._unheard[key][0] != version:
                since = self._unheard[key][1] if key in self._unheard else now_s
                self._unheard[key] = (version, since)

    def unheard_s(self, now_s: float) -> float:
        """For how long the oldest change has not been heard of; 0: there is none."""
        return max((now_s - since for _, since in self._unheard.values()), default=0.0)

    def deaf(self, now_s: float) -> bool:
        """Whether a watch is dead."""
        return self.unheard_s(now_s) > DEAF_AFTER_S

    def _forget(self, key: Key) -> None:
        self._heard.pop(key, None)
        self._unheard.pop(key, None)
        self._refers.pop(key, None)
        if key.kind == "Cluster":
            self._takes.pop((key.namespace, key.name), None)
