"""Every field of every kind against a real API server: set, changed and taken away, and then nothing of it is left in
any object.

No operator runs: its own functions write the objects, into a namespace that may have no pods.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml  # type: ignore[import-untyped]
from chart_helm import ROOT
from e2e_cluster import Kubernetes
from e2e_kubectl import Kubectl, Manifest
from kinds_of_a_test import KINDS, KindOfATest
from written_fields import Written, fields_of

from bmq_operator.applied import APPLIED, as_wanted, digest, make_way, write
from bmq_operator.kube import Kube

CRDS = ROOT / ".cache" / "tools" / "spark-operator.src" / "config" / "crd" / "bases"
NO_PODS = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-pods"},
    "spec": {"hard": {"pods": "0"}},
}
CANNOT_CHANGE = frozenset(("store.minio.storage", "store.minio.storageClassName"))
"""Kubernetes lets no volume of a StatefulSet change, so the operator keeps what there is."""
GIVEN = frozenset(
    (
        "managedFields",
        "resourceVersion",
        "generation",
        "uid",
        "creationTimestamp",
        "nodePort",
        "healthCheckNodePort",
        "clusterIP",
        "clusterIPs",
        "status",
        APPLIED,
    )
)
"""What the API server gives an object and keeps, whatever is asked for."""


class World:
    """The objects of one kind's resource, as they were told to be."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._told: dict[tuple[str, str], str] = {}

    async def bring_about(self, objects: list[Manifest]) -> None:
        """As the operator does, but for asking what it has just been told."""
        wanted = {(one["kind"], one["metadata"]["name"]): _free(one) for one in objects}
        for kind, name in self._told.keys() - wanted.keys():
            await self._kube.delete(kind, self._namespace, name)
            del self._told[kind, name]
        for key, manifest in wanted.items():
            if self._told.get(key) != digest(manifest):
                there = await self._kube.get(*self._path(key))
                if there is None or not as_wanted(there, manifest):
                    await write(self._kube, manifest, there)
                self._told[key] = digest(manifest)

    async def objects(self) -> dict[str, Any]:
        """All that there is, without what differs each time."""
        return {
            f"{kind} {name}": _lasting(await self._kube.get(*self._path((kind, name))))
            for kind, name in sorted(self._told)
        }

    def _path(self, key: tuple[str, str]) -> tuple[str, str, str]:
        return key[0], self._namespace, key[1]


def test_what_is_taken_away_is_gone_from_every_object(kubernetes: Kubernetes, kubectl: Kubectl) -> None:
    kubectl.apply(NO_PODS)
    with _spark_crds(kubectl):
        asyncio.run(_walk(kubectl))


def test_a_stateful_set_that_kubernetes_rolled_becomes_one_that_the_operator_rolls(kubectl: Kubectl) -> None:
    kubectl.apply(NO_PODS)
    (lane,) = (kind for kind in KINDS if kind.name == "Lane")
    (wanted, *_) = (_free(one) for one in lane.made({}, kubectl.namespace).objects if one["kind"] == "StatefulSet")
    older = wanted | {"spec": wanted["spec"] | {"updateStrategy": {"type": "RollingUpdate"}}}

    async def main() -> dict[str, Any] | None:
        kube = await Kube.connect(str(kubectl.kubeconfig))
        try:
            await kube.apply(older)
            path = ("StatefulSet", kubectl.namespace, wanted["metadata"]["name"])
            await make_way(kube, await kube.get(*path))
            await write(kube, wanted, await kube.get(*path))
            return await kube.get(*path)
        finally:
            await kube.close()

    there = asyncio.run(main())
    assert there is not None
    assert there["spec"]["updateStrategy"] == {"type": "OnDelete"}


async def _walk(kubectl: Kubectl) -> None:
    namespace = kubectl.namespace
    kube = await Kube.connect(str(kubectl.kubeconfig))
    try:
        for kind in KINDS:
            world = World(kube, namespace)
            for written in fields_of(kind.spec):
                if written.path not in CANNOT_CHANGE:
                    await _written(world, kind, written, namespace)
            await world.bring_about([])
    finally:
        await kube.close()


async def _written(world: World, kind: KindOfATest, written: Written, namespace: str) -> None:
    seen: dict[str, Any] = {}
    for spec in written.specs(kind.base(written.path)):
        await world.bring_about(kind.made(spec, namespace).objects)
        found, key = await world.objects(), json.dumps(spec, sort_keys=True)
        assert found == seen.setdefault(key, found), (
            f"{kind.name} {written.path} {written.within}: something is left of what was taken away"
        )


def _free(manifest: Manifest) -> Manifest:
    """Without its owner, which is not there: Kubernetes would take the object away."""
    return manifest | {
        "metadata": {name: one for name, one in manifest["metadata"].items() if name != "ownerReferences"}
    }


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(one) for name, one in value.items() if name not in GIVEN}
    return [_lasting(one) for one in value] if isinstance(value, list) else value


@contextmanager
def _spark_crds(kubectl: Kubectl) -> Iterator[None]:
    """Those of the Spark Operator, without itself."""
    subprocess.run([ROOT / "tools" / "get", "spark-operator"], check=True)
    there = kubectl("get", "crds", "--output=name")
    made = [
        one
        for file in sorted(CRDS.glob("*.yaml"))
        if (one := yaml.safe_load(file.read_text()))["metadata"]["name"] not in there
    ]
    if made:
        kubectl.apply(*made)
        kubectl(
            "wait", "--for=condition=Established", *(f"crd/{one['metadata']['name']}" for one in made), "--timeout=60s"
        )
    yield
    for one in made:
        kubectl("delete", "crd", one["metadata"]["name"], "--ignore-not-found", "--timeout=60s")
