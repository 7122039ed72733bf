"""What a Channel's plan is made from. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bmq_operator.references import ClusterState
from bmq_operator.rivals import Rival
from bmq_resources.channel import Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentChannel:
    """A channel as its cluster tells it; `spec` is without what is as by default."""

    created_ms: int
    """Which one it is: one that somebody deleted and made again has another time."""
    version: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that counts. `why`: of a cluster that is not ready."""

    channel: Channel
    cluster_name: str
    cluster: ClusterState
    now_ms: int
    kube_ms: int | None = None
    """The API server's time, as deletions have it; None: not known."""
    why: str = ""
    knows_channels: bool = True
    """Whether the cluster's version does."""
    present: PresentChannel | None = None
    rivals: Sequence[Rival] = field(default=())
    namespace_ending: bool = False
    made_none: bool = False
    """Whether this operator wrote the intent, and has asked for nothing since that may have come about."""
