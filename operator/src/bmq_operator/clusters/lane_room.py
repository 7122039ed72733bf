"""What one look keeps of a Cluster's lanes, and in how much memory.

Who may make Lanes, in whatever namespace, decides how many pods a lane has and how much their templates say, and shall
keep no Cluster from being looked at. So lanes have a room of their own. Which objects there are of a lane, and which
keys its templates and pods name, is kept always. Of the rest, pods and where those may run, the heaviest lane of the
heaviest namespace is left out first where there is more than the room takes.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bmq_operator.answers import TooMuch, weight_bytes
from bmq_operator.clusters.keys import reference
from bmq_operator.clusters.listed import kept_of_lane, kept_of_pod, kept_of_template
from bmq_operator.clusters.names import COMPONENT_LABEL, LANE_LABEL, OF_LANE, OF_NAMESPACE, ROLES
from bmq_operator.conditions import Finding, first_of
from bmq_operator.kube import Manifest

LANES_BYTES_MAX: Final = 32 << 20
"""Besides what is kept of the base. The thousand lanes that a cluster takes have room in it with a proxy each, and for
what is kept always."""
_SAID: Final = ("labels", "annotations", "ownerReferences")
_MIB: Final = 1 << 20
_DIGEST_BYTES: Final = 160
"""With its place in a dictionary."""


@dataclass(slots=True)
class _Values:
    """Equal ones are held once: most pods of a lane, and most lanes, say the same of where they run and what they take
    keys from."""

    _by_digest: dict[bytes, Any] = field(default_factory=dict)

    def shared(self, value: Any) -> tuple[Any, int]:
        """One that is equal, and how much memory it takes that was not taken before."""
        digest = hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).digest()
        if (known := self._by_digest.get(digest)) is not None:
            return known, 0
        self._by_digest[digest] = value
        return value, weight_bytes(value) + _DIGEST_BYTES

    def shared_fields(self, part: Manifest) -> tuple[Manifest, int]:
        """The same part with such values."""
        found = {name: self.shared(value) for name, value in part.items()}
        weight = weight_bytes(dict.fromkeys(found)) + sum(one for _, one in found.values())
        return {name: value for name, (value, _) in found.items()}, weight


@dataclass(slots=True)
class _OfLane:
    weight_bytes: int = 0
    values: _Values = field(default_factory=_Values)
    pods: list[Manifest] = field(default_factory=list)
    templates: dict[str, Manifest] = field(default_factory=dict)
    """The pods' part of the templates, by the names of StatefulSets."""


@dataclass(slots=True)
class LaneRoom:
    """Filled by one look. Raises TooMuch where not even what is always kept has room."""

    left_bytes: int = field(default_factory=lambda: LANES_BYTES_MAX)
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)
    """Lanes that are, each with the Secrets that its nodes take their keys from (empty: none), and a pod of each."""
    _namespaces: dict[str, str] = field(default_factory=dict)
    """Those of their Lanes, where they are known: of a lane objects come before its pods."""
    _lanes: dict[str, _OfLane] = field(default_factory=dict)
    _values: _Values = field(default_factory=_Values)

    def keep_object(self, lane: str, one: Manifest) -> Manifest:
        """What is always kept of an object that is no pod."""
        kept = kept_of_lane(one)
        meta = kept["metadata"]
        self._namespaces.setdefault(lane, str(meta["annotations"].get(OF_NAMESPACE, "")))
        said, of_meta = self._values.shared_fields({name: meta.pop(name) for name in _SAID})
        spec, of_spec = self._values.shared_fields(kept.pop("spec"))
        self._take(weight_bytes(kept) + of_meta + of_spec)
        if one["kind"] == "StatefulSet" and lane not in self.left_out:
            of_lane = self._lanes.setdefault(lane, _OfLane())
            template, weight = of_lane.values.shared_fields(kept_of_template(one))
            of_lane.templates[one["metadata"]["name"]] = template
            self._take(weight, of_lane)
        return {**kept, "metadata": {**meta, **said}, "spec": spec}

    def keep_pod(self, lane: str, pod: Manifest) -> None:
        """What a look needs of it, unless the lane is left out."""
        if lane in self.left_out:
            self._leave_out(lane, pod)
            return
        kept, of_lane = kept_of_pod(pod), self._lanes.setdefault(lane, _OfLane())
        spec, weight = of_lane.values.shared_fields(kept.pop("spec"))
        weight += weight_bytes(kept)
        of_lane.pods.append({**kept, "spec": spec})
        self._take(weight, of_lane)

    def pods(self) -> list[Manifest]:
        """Those of lanes that are not left out."""
        return [pod for one in self._lanes.values() for pod in one.pods]

    def whole(self, lane: str, kept: Manifest) -> Manifest:
        """An object of a lane, or of none, with all that was kept of it."""
        of_lane = self._lanes.get(lane)
        template = None if of_lane is None else of_lane.templates.get(kept["metadata"]["name"])
        if kept["kind"] != "StatefulSet" or template is None:
            return kept
        return {**kept, "spec": {**kept["spec"], "template": {**kept["spec"]["template"], "spec": template}}}

    def _take(self, weight: int, of_lane: _OfLane | None = None) -> None:
        if of_lane is not None:
            of_lane.weight_bytes += weight
        self.left_bytes -= weight
        self._make_room()

    def _make_room(self) -> None:
        while self.left_bytes < 0:
            if not self._lanes:
                raise TooMuch
            of_namespaces: Counter[str] = Counter()
            for lane, of_lane in self._lanes.items():
                of_namespaces[self._namespaces.get(lane, "")] += of_lane.weight_bytes
            [(namespace, _)] = of_namespaces.most_common(1)
            lanes = [one for one in self._lanes if self._namespaces.get(one, "") == namespace]
            lane = max(lanes, key=lambda one: self._lanes[one].weight_bytes)
            gone = self._lanes.pop(lane)
            self.left_out[lane] = {}
            for pod in gone.pods:
                self._leave_out(lane, pod)
            self.left_bytes += gone.weight_bytes

    def _leave_out(self, lane: str, pod: Manifest) -> None:
        """Who takes an old key keeps it alive, whatever else is known of it."""
        meta = pod["metadata"]
        if (meta.get("labels") or {}).get(COMPONENT_LABEL) in ROLES:
            keys_name, _ = reference(pod.get("spec") or {})
            self.left_out[lane].setdefault(keys_name, str(meta["name"]))


def left_out_note(left_out: Mapping[str, object], objects: Mapping[tuple[str, str], Manifest]) -> Finding | None:
    """What is told of lanes that were left out; None: none was."""
    if not left_out:
        return None
    lanes = {one["metadata"]["labels"].get(LANE_LABEL): one for one in objects.values()}
    found = sorted(_title(lanes[lane]) if lane in lanes else f"nobody's lane {lane}" for lane in left_out)
    text = (
        f"pods of lanes take more than the {LANES_BYTES_MAX // _MIB} MiB of memory that a look may keep of them, and "
        f"the largest lanes are left out, those of {first_of(found)}: their nodes are neither counted nor replaced, "
        "and keep old keys alive. Lower replicas of those Lanes, or have their placement say less, or delete them"
    )
    return Finding(type="LanesLookedAt", status="False", reason="TooMuchToRead", message=text)


def _title(one: Manifest) -> str:
    annotations = one["metadata"].get("annotations") or {}
    return f"Lane {annotations.get(OF_NAMESPACE, '')}/{annotations.get(OF_LANE, '')}"
