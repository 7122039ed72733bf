"""What a Topic's plan is made from. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bmq_operator.references import ClusterState
from bmq_operator.rivals import Rival
from bmq_resources.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A topic as its cluster tells it; `configs` are those that were set."""

    topic_id: str
    partitions: int
    version: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that counts. `why`: of a cluster that is not ready; `holds_records`: None where nobody has looked."""

    topic: Topic
    cluster_name: str
    cluster: ClusterState
    now_ms: int
    why: str = ""
    present: Present | None = None
    rivals: Sequence[Rival] = field(default=())
    holds_records: bool | None = None
    namespace_ending: bool = False
    made_none: bool = False
    """Whether this operator wrote the intent, and has asked for nothing since that may have come about."""
