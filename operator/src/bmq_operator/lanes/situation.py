"""What a Lane's plan is made from. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bmq_admin import documents
from bmq_operator.references import ClusterState
from bmq_operator.rivals import Rival
from bmq_resources.lane import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentLane:
    """A lane as its cluster tells it."""

    version: str
    own_brokers: bool
    topics: int
    number: int
    """The lane's own number among all lanes that there ever were in the cluster. Another cluster counts anew."""
    created_ms: int
    expires_ms: int | None
    """When the cluster deletes it by itself; None: never."""
    view: Mapping[str, Any]
    """All of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """How many of a lane's pods there are and are ready."""

    there: int = 0
    ready: int = 0
    why: str = ""
    """Why Kubernetes makes no more of them; empty: nothing is known to keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that counts. `why`: of a cluster that is not ready."""

    lane: Lane
    cluster_name: str
    cluster: ClusterState
    now_ms: int
    """By the operator's own clock, which deletes nothing."""
    kube_ms: int | None = None
    """By that of the API server, which says when a resource was made, and when its deletion began. None: not known."""
    cluster_ms: int | None = None
    """By that of the cluster, as far as lanes are deleted by it. None: nobody asked, or nothing is."""
    tells_time: bool = True
    """Whether the cluster can be asked that: those of versions of before cannot."""
    why: str = ""
    unusable: str = ""
    """Why the lane's objects cannot have their names; empty: they can."""
    beyond: str = ""
    """What of its spec it may not use, and what allows it; empty: it may use all."""
    present: PresentLane | None = None
    rivals: Sequence[Rival] = field(default=())
    free_node_ids_from: int = -1
    """The first node id of a slot that nobody has."""
    proxies: Ready = Ready()
    brokers: Ready = Ready()
    namespace_ending: bool = False
    made_none: bool = False
    """Whether this operator wrote the intent, and has asked for nothing since that may have come about."""


def present_from(view: documents.Lane) -> PresentLane:
    """The lane that the API tells of."""
    return PresentLane(
        version=view["version"],
        own_brokers=view["own_brokers"],
        topics=view["topics"],
        number=view["number"],
        created_ms=view["created_ms"],
        expires_ms=view.get("expires_ms"),
        view=view,
    )
