"""Several resources for one thing of a cluster: which one stands for it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from bmq_resources.base import ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another resource of the same kind for the same thing."""

    kind: str
    namespace: str
    name: str
    uid: str
    created: str
    owned: bool

    @property
    def rank(self) -> tuple[bool, str, str]:
        """The least is the one that stands for it."""
        return rank(created=self.created, uid=self.uid, owned=self.owned)

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}"


def rank(*, created: str, uid: str, owned: bool) -> tuple[bool, str, str]:
    """Who owns it goes before who does not, the older before the younger."""
    return not owned, created, uid


def winner(meta: ObjectMeta, *, owned: bool, rivals: Iterable[Rival]) -> Rival | None:
    """The one that stands for it; None: it is this one."""
    best = min(rivals, key=lambda rival: rival.rank, default=None)
    return (
        best
        if best is not None and best.rank < rank(created=meta.creation_timestamp, uid=meta.uid, owned=owned)
        else None
    )
