"""What a Topic's plan is made from. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bmq.resources.topic import Topic
from bmq_operator.references import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A topic as its cluster tells it; `configs` are those that were set."""

    topic_id: str
    partitions: int
    version: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another managed Topic for the same topic of the same Cluster."""

    namespace: str
    name: str
    uid: str
    created: str
    owned: bool

    @property
    def rank(self) -> tuple[bool, str, str]:
        """The least is the one that stands for the topic."""
        return (not self.owned, self.created, self.uid)

    @property
    def kind_and_name(self) -> str:
        return f"Topic {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that counts. `why`: of a cluster that is not ready; `holds_records`: None where nobody has looked."""

    topic: Topic
    cluster_name: str
    cluster: ClusterState
    why: str = ""
    present: Present | None = None
    rivals: Sequence[Rival] = field(default=())
    holds_records: bool | None = None
    namespace_ending: bool = False
