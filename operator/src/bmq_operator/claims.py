"""Which resources of a kind stand for which things of which Clusters, where each has its intent in `status.owned`:
Topics for topics, Channels for channels.
"""

import asyncio
import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bmq_operator.answers import part_of
from bmq_operator.kube import Manifest
from bmq_operator.references import Referred, allowed
from bmq_operator.rivals import Rival

if TYPE_CHECKING:
    from bmq_operator.context import Context
    from bmq_operator.sharing import Shared
    from bmq_operator.takers import Takers
    from bmq_resources.base import ObjectMeta

Claim: TypeAlias = tuple[str, str, str]
"""Namespace and name of a Cluster, and a thing of it."""
_KEY = "claims"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Those of one kind. `named_by`: the field of the spec that names the thing where the resource's own name does not.
    `listed`: since when it is known who stands for what, and that. `taken`: who took one lately.
    """

    kind: Literal["Topic", "Channel"]
    named_by: str
    listed: "Shared[Any]"
    taken: "Takers[Claim]"

    async def rivals(self, context: "Context", meta: "ObjectMeta", claim: Claim, referred: Referred) -> list[Rival]:
        """Other resources for the same thing whose namespaces the Cluster accepts; with who took it so lately that the
        list may not tell yet. Raises KubeError.
        """

        async def read() -> tuple[float, dict[Claim, list[Rival]]]:
            begun_s = asyncio.get_running_loop().time()
            keep = functools.partial(part_of, spec=("managed", "clusterRef", self.named_by), status=("owned",))
            found = [
                one
                for namespace in context.settings.watched_namespaces
                for one in await context.kube.each(self.kind, namespace, keep=keep)
            ]
            return begun_s, claims(found, kind=self.kind, named_by=self.named_by)

        read_s, found = await self.listed.get(_KEY, read)
        rivals = {rival.uid: rival for rival in found.get(claim, ())}
        self.taken.add_to(rivals, claim, read_s=read_s)
        rivals.pop(meta.uid, None)
        cluster = referred.cluster
        return [one for one in rivals.values() if cluster is not None and allowed(cluster, one.namespace)]

    def take(self, meta: "ObjectMeta", claim: Claim) -> None:
        """Nothing is awaited between the look at who took it and this: of two resources one takes it, as there is one
        operator that leads.
        """
        taker = Rival(
            kind=self.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            created=meta.creation_timestamp,
            owned=True,
        )
        self.taken.take(claim, taker, now_s=asyncio.get_running_loop().time())


def claims(manifests: Iterable[Mapping[str, object]], *, kind: str, named_by: str) -> dict[Claim, list[Rival]]:
    """Who claims what, of all resources of a kind as the API server lists them: those that manage what they stand for.
    Pure.
    """
    found: defaultdict[Claim, list[Rival]] = defaultdict(list)
    for manifest in manifests:
        meta, spec, status = (_part(manifest, name) for name in ("metadata", "spec", "status"))
        if not spec.get("managed", True):
            continue
        reference = _part(spec, "clusterRef")
        claim = (
            reference.get("namespace") or meta["namespace"],
            reference.get("name", "bmq"),
            spec.get(named_by) or meta["name"],
        )
        found[claim].append(
            Rival(
                kind=kind,
                namespace=meta["namespace"],
                name=meta["name"],
                uid=meta["uid"],
                created=meta.get("creationTimestamp", ""),
                owned=status.get("owned", False),
            )
        )
    return dict(found)


def _part(manifest: Mapping[str, object], name: str) -> Manifest:
    part = manifest.get(name)
    return part if isinstance(part, dict) else {}
