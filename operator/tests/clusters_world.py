"""A namespace with Clusters, looked at by the operator's own runner; the API server and what makes pods of StatefulSets
are the tests' own.
"""

import asyncio
import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kube_of_a_test import KubeOfATest, context_of

from bmq.runtime.system import SystemRng
from bmq_operator.kube import KubeProblem
from bmq_operator.main import KINDS
from bmq_operator.runner import Runner
from bmq_operator.workqueue import Key, WorkQueue

NOBODY: Final = "http://127.0.0.1:1"
CONFIRMED: Final = {"annotations": {"bmq.io/delete-data": "true"}}
CREATED: Final = "2001-09-09T01:46:40Z"


class Strict(KubeOfATest):
    """Gives out uids and versions as an API server does, selects by labels, and deletes no other object than the one
    whose uid is named.
    """

    def __init__(self, *manifests: dict[str, Any]) -> None:
        self.deleted: list[str] = []
        self.listed: Counter[str] = Counter()
        """How often objects of a kind were listed."""
        self._count = 0
        self.meanwhile: dict[tuple[str, str], dict[str, Any]] = {}
        """By kind and name: what somebody else makes right before the operator writes there."""
        super().__init__(*manifests)

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._meets(manifest)
        return await super().apply(manifest)

    async def create(self, manifest: dict[str, Any], *, manager: str = "") -> dict[str, Any]:
        self._meets(manifest)
        return await super().create(manifest, manager=manager)

    def _meets(self, manifest: dict[str, Any]) -> None:
        if (one := self.meanwhile.pop((manifest["kind"], manifest["metadata"].get("name", "")), None)) is not None:
            self.keep(one)

    def keep(self, manifest: dict[str, Any]) -> None:
        self._count += 1
        meta = manifest["metadata"]
        meta.setdefault("uid", f"uid-{self._count}")
        meta["resourceVersion"] = str(self._count)
        super().keep(manifest)

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.manifests.get((kind, namespace, name)))

    async def list(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        self.listed[kind] += 1
        found = await super().list(kind, namespace, fields=fields)
        return [
            copy.deepcopy(one) for one in found if (labels or {}).items() <= one["metadata"].get("labels", {}).items()
        ]

    def given(self, meta: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        there = self.manifests.get((kind, namespace, name))
        if there is None or (uid and uid != there["metadata"]["uid"]):
            return
        self.deleted.append(f"{kind} {name}")
        self.drop(kind, namespace, name)


class World:
    """`look` is one look by the runner; None of what it raises is swallowed."""

    def __init__(self, *manifests: dict[str, Any]) -> None:
        self.kube = Strict({"kind": "Namespace", "metadata": {"name": "shop", "namespace": ""}}, *manifests)
        self.context = replace(context_of(self.kube, NOBODY, {}), rng=SystemRng())
        self._runner = Runner(self.context, WorkQueue(), KINDS)

    async def look(self, name: str, kind: str = "Cluster", *, namespace: str = "shop") -> tuple[str, str, str]:
        """Status, reason and message of its Ready; empty where it is gone."""
        self.context.known.clusters.forget((namespace, name))
        await self._runner._reconcile(Key(kind, namespace, name))
        return self.ready(name, kind, namespace=namespace)

    def ready(self, name: str, kind: str = "Cluster", *, namespace: str = "shop") -> tuple[str, str, str]:
        status = self.kube.manifests[kind, namespace, name].get("status", {})
        found = next(one for one in status["conditions"] if one["type"] == "Ready")
        return found["status"], found["reason"], found["message"]

    def there(self, kind: str, name: str) -> dict[str, Any]:
        return self.kube.manifests[kind, "shop", name]

    def has(self, kind: str, name: str) -> bool:
        return (kind, "shop", name) in self.kube.manifests

    def begins_deletion(self, name: str) -> None:
        self.there("Cluster", name)["metadata"]["deletionTimestamp"] = CREATED

    def held(self, name: str) -> bool:
        """Whether the operator keeps it from going."""
        return bool(self.there("Cluster", name)["metadata"].get("finalizers"))

    def pods_are_made(self, *, ready: bool = True) -> None:
        """As Kubernetes' own controller would: each StatefulSet has its pods, and none is left of one that is gone."""
        sets = {
            one["metadata"]["uid"]: one for (kind, _, _), one in self.kube.manifests.items() if kind == "StatefulSet"
        }
        for (kind, _, name), pod in list(self.kube.manifests.items()):
            owners = pod["metadata"].get("ownerReferences", [])
            if kind == "Pod" and owners and owners[0]["uid"] not in sets:
                self.kube.drop("Pod", "shop", name)
        for uid, one in sets.items():
            one["status"] = {"observedGeneration": 1, "updateRevision": "r1"}
            for number in range(one["spec"].get("replicas", 1)):
                self._pod_is_made(one, uid, f"{one['metadata']['name']}-{number}", ready=ready)

    def _pod_is_made(self, maker: dict[str, Any], uid: str, name: str, *, ready: bool) -> None:
        template = maker["spec"]["template"]
        meta = {
            "name": name,
            "namespace": "shop",
            "labels": {**template["metadata"]["labels"], "controller-revision-hash": "r1"},
            "ownerReferences": [
                {"controller": True, "uid": uid, "kind": "StatefulSet", "name": maker["metadata"]["name"]}
            ],
        }
        there = self.kube.manifests.get(
            ("Pod", "shop", name), {"metadata": meta, "spec": copy.deepcopy(template["spec"])}
        )
        said = {"type": "Ready", "status": "True" if ready else "False"}
        self.kube.keep({**there, "apiVersion": "v1", "kind": "Pod", "status": {"conditions": [said]}})


def cluster(
    name: str = "prod", *, created: str = CREATED, meta: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """Over a bucket of its own, if nothing else is said."""
    written = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-of-{name}",
        "generation": 1,
        "creationTimestamp": created,
        **(meta or {}),
    }
    return {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Cluster",
        "metadata": written,
        "spec": {"store": {"url": "s3://b"}, **spec},
    }


def doomed(name: str = "prod", **more: Any) -> dict[str, Any]:
    """One whose records go with it, as was confirmed."""
    return cluster(name, meta=CONFIRMED, deletionPolicy="Delete", **more)


def run(use: Callable[[World], Awaitable[None]], *manifests: dict[str, Any]) -> None:
    async def main() -> None:
        await use(World(*copy.deepcopy(manifests)))

    asyncio.run(main())


__all__ = ["CONFIRMED", "CREATED", "KubeProblem", "Strict", "World", "cluster", "doomed", "run"]
